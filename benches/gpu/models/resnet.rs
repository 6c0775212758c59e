use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};

use crate::data;
use crate::task::Task;

const STAGES: [usize; 4] = [64, 128, 256, 512];
const BATCH: usize = 128;
const SIZE: usize = 32;
const CLASSES: usize = 10;

/// ResNet-18 for images of CIFAR's size: a 3x3 stem without pooling.
#[derive(Module, Debug)]
pub struct ResNet<B: Backend> {
    stem: ConvNorm<B>,
    blocks: Vec<Block<B>>,
    head: Linear<B>,
}

#[derive(Module, Debug)]
struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> ConvNorm<B> {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, device: &B::Device) -> Self {
        let pad = kernel / 2;
        ConvNorm {
            conv: Conv2dConfig::new(channels, [kernel, kernel])
                .with_stride([stride, stride])
                .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
                .with_bias(false)
                .init(device),
            norm: BatchNormConfig::new(channels[1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.conv.forward(x))
    }
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    /// Where the block changes size or width.
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> Block<B> {
    fn new(channels: [usize; 2], stride: usize, device: &B::Device) -> Self {
        let [_, wide] = channels;
        Block {
            first: ConvNorm::new(channels, 3, stride, device),
            second: ConvNorm::new([wide, wide], 3, 1, device),
            shortcut: (stride > 1).then(|| ConvNorm::new(channels, 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = Relu::new().forward(self.first.forward(x.clone()));
        let x = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        Relu::new().forward(self.second.forward(y) + x)
    }
}

impl<B: AutodiffBackend> Task<B> for ResNet<B> {
    /// Images and their classes.
    type Batch = (Tensor<B, 4>, Tensor<B, 1, Int>);

    fn new(device: &B::Device) -> Self {
        let mut width = STAGES[0];
        let mut blocks = Vec::new();
        for (stage, wide) in STAGES.into_iter().enumerate() {
            let stride = if stage == 0 { 1 } else { 2 };
            blocks.push(Block::new([width, wide], stride, device));
            blocks.push(Block::new([wide, wide], 1, device));
            width = wide;
        }
        ResNet {
            stem: ConvNorm::new([3, STAGES[0]], 3, 1, device),
            blocks,
            head: LinearConfig::new(width, CLASSES).init(device),
        }
    }

    fn batch(device: &B::Device) -> Self::Batch {
        (
            data::floats([BATCH, 3, SIZE, SIZE], device),
            data::classes([BATCH], CLASSES, device),
        )
    }

    fn loss(&self, (images, classes): Self::Batch) -> Tensor<B, 1> {
        let x = Relu::new().forward(self.stem.forward(images));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        let pooled = x.mean_dim(3).mean_dim(2).reshape([BATCH, STAGES[3]]);
        CrossEntropyLossConfig::new()
            .init(&pooled.device())
            .forward(self.head.forward(pooled), classes)
    }
}
