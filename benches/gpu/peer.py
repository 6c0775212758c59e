"""The same models and batches in PyTorch, as lines for `gpu table`: f32 with TF32, autocast f16 with
GradScaler, autocast bf16.

    python3 peer.py lm tf32 f16 bf16
"""

import gc
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LOSS_AFTER, ROUNDS, STEPS = 20, 3, 10
DEVICE = "cuda"


class Attention(nn.Module):
    """Written out, as Burn's MultiHeadAttention computes it: no fused kernel on either side."""

    def __init__(self, width, heads):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x, mask):
        n, length, width = x.shape
        split = lambda x: x.view(n, length, self.heads, -1).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        weights = scores.masked_fill(mask, -1e4).softmax(3)
        return self.output((weights @ v).transpose(1, 2).reshape(n, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        x = x + self.attention(self.norm2(x), mask)
        return x + self.outer(F.gelu(self.inner(self.norm1(x))))


class Lm(nn.Module):
    VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 32_000, 1024, 16, 8, 16, 512

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.positions = nn.Embedding(self.LENGTH, self.WIDTH)
        self.layers = nn.ModuleList(Layer(self.WIDTH, self.HEADS) for _ in range(self.LAYERS))
        self.norm = nn.LayerNorm(self.WIDTH)
        self.head = nn.Linear(self.WIDTH, self.VOCABULARY)

    def batch(self):
        text = classes((self.BATCH, self.LENGTH + 1), self.VOCABULARY)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def loss(self, tokens, following):
        x = self.tokens(tokens) + self.positions(torch.arange(self.LENGTH, device=DEVICE))
        mask = torch.ones(self.LENGTH, self.LENGTH, dtype=torch.bool, device=DEVICE).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, self.VOCABULARY), following.view(-1))


class Mlp(nn.Module):
    WIDTH, LAYERS, BATCH = 4096, 4, 4096

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(self.WIDTH, self.WIDTH) for _ in range(self.LAYERS))

    def batch(self):
        return (floats((self.BATCH, self.WIDTH)),)

    def loss(self, x):
        y = x
        for layer in self.layers[:-1]:
            y = layer(y).relu()
        return F.mse_loss(self.layers[-1](y), x)


def conv(channels, out, kernel=3, stride=1):
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, channels, out, stride=1):
        super().__init__()
        self.conv1, self.norm1 = conv(channels, out, 3, stride), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = conv(out, out), nn.BatchNorm2d(out)
        self.shortcut = (
            nn.Identity()
            if stride == 1
            else nn.Sequential(conv(channels, out, 1, stride), nn.BatchNorm2d(out))
        )

    def forward(self, x):
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (y + self.shortcut(x)).relu()


class Images(nn.Module):
    def batch(self):
        return floats((self.BATCH, 3, self.SIZE, self.SIZE)), classes((self.BATCH,), self.CLASSES)

    def loss(self, images, target):
        return F.cross_entropy(self.head(self.body(images).mean((2, 3))), target)


class Cnn(Images):
    CHANNELS, BLOCKS, BATCH, SIZE, CLASSES = 128, 8, 64, 56, 1000

    def __init__(self):
        super().__init__()
        blocks = (Block(self.CHANNELS, self.CHANNELS) for _ in range(self.BLOCKS))
        self.body = nn.Sequential(conv(3, self.CHANNELS), *blocks)
        self.head = nn.Linear(self.CHANNELS, self.CLASSES)


class ResNet(Images):
    STAGES, BATCH, SIZE, CLASSES = (64, 128, 256, 512), 128, 32, 10

    def __init__(self):
        super().__init__()
        width = self.STAGES[0]
        body = [conv(3, width), nn.BatchNorm2d(width), nn.ReLU()]
        for stage, wide in enumerate(self.STAGES):
            body += [Block(width, wide, 1 if stage == 0 else 2), Block(wide, wide)]
            width = wide
        self.body = nn.Sequential(*body)
        self.head = nn.Linear(width, self.CLASSES)


class Lstm(nn.Module):
    HIDDEN, STEPS, BATCH, CLASSES = 512, 256, 64, 10

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(self.HIDDEN, self.HIDDEN, batch_first=True)
        self.head = nn.Linear(self.HIDDEN, self.CLASSES)

    def batch(self):
        sequences = floats((self.BATCH, self.STEPS, self.HIDDEN))
        return sequences, classes((self.BATCH,), self.CLASSES)

    def loss(self, sequences, target):
        _, (hidden, _) = self.lstm(sequences)
        return F.cross_entropy(self.head(hidden[0]), target)


MODELS = {"lm": Lm, "mlp": Mlp, "cnn": Cnn, "resnet": ResNet, "lstm": Lstm}
HALVES = {"tf32": None, "f16": torch.float16, "bf16": torch.bfloat16}


def floats(shape):
    return (torch.rand(shape, device=DEVICE) - 0.5) * math.sqrt(12)


def classes(shape, count):
    return torch.randint(count, shape, device=DEVICE)


def main(name, precision):
    gc.collect()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(42)
    half = HALVES[precision]
    model = MODELS[name]().to(DEVICE)
    batch = model.batch()
    # Burn's defaults.
    optim = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-5, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(enabled=half == torch.float16)

    def forward():
        with torch.autocast(DEVICE, dtype=half or torch.float16, enabled=half is not None):
            return model.loss(*batch)

    def update():
        scaler.step(optim)
        scaler.update()
        optim.zero_grad(set_to_none=True)

    def step():
        scaler.scale(forward()).backward()
        update()

    def seconds(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps

    for _ in range(LOSS_AFTER):
        step()
    loss = forward()
    live, loss = torch.cuda.memory_allocated(), loss.item()
    rounds = sorted(seconds(STEPS) for _ in range(ROUNDS))

    whole = after_backward = 0.0
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        scaler.scale(forward()).backward()
        torch.cuda.synchronize()
        middle = time.perf_counter()
        update()
        torch.cuda.synchronize()
        end = time.perf_counter()
        whole, after_backward = whole + end - start, after_backward + end - middle

    ms = [f"{1e3 * s:.2f}" for s in (statistics.median(rounds), rounds[0], rounds[-1])]
    share = f"{100 * after_backward / whole:.1f}"
    row = [name, f"torch {precision}", ms[0], f"{ms[1]}..{ms[2]}", f"{live / 1e9:.3f}"]
    print("\t".join(row + ["", "", share, f"{loss:.4f}"]), flush=True)


if __name__ == "__main__":
    for precision in sys.argv[2:]:
        main(sys.argv[1], precision)
