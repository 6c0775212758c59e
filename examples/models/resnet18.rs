use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Channels of the four stages.
const STAGES: [usize; 4] = [64, 128, 256, 512];

/// ResNet-18 for images of CIFAR's size: a 3x3 stem of stride 1 without pooling, where the one for
/// ImageNet has 7x7, stride 2 and a pooling layer.
///
/// Source: He et al., "Deep Residual Learning for Image Recognition" (2015), table 1, with the
/// projection shortcuts of its option B.
#[derive(Module, Debug)]
pub struct ResNet18<B: Backend> {
    pub stem: ConvNorm<B>,
    pub blocks: Vec<Block<B>>,
    pub head: Linear<B>,
}

/// A convolution without bias, and the norm that has one.
#[derive(Module, Debug)]
pub struct ConvNorm<B: Backend> {
    pub conv: Conv2d<B>,
    pub norm: BatchNorm<B>,
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

    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// Two convolutions and what goes past them.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    pub first: ConvNorm<B>,
    pub second: ConvNorm<B>,
    /// Where the block changes size or width.
    pub shortcut: Option<ConvNorm<B>>,
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

    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = Relu::new().forward(self.first.forward(x.clone()));
        let x = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        Relu::new().forward(self.second.forward(y) + x)
    }
}

impl<B: Backend> ResNet18<B> {
    pub fn new(classes: usize, device: &B::Device) -> Self {
        let mut width = STAGES[0];
        let mut blocks = Vec::new();
        for (stage, wide) in STAGES.into_iter().enumerate() {
            let stride = if stage == 0 { 1 } else { 2 };
            blocks.push(Block::new([width, wide], stride, device));
            blocks.push(Block::new([wide, wide], 1, device));
            width = wide;
        }
        ResNet18 {
            stem: ConvNorm::new([3, STAGES[0]], 3, 1, device),
            blocks,
            head: LinearConfig::new(width, classes).init(device),
        }
    }

    /// Logits `[n, classes]` of images `[n, 3, height, width]`.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = Relu::new().forward(self.stem.forward(images));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        let [n, channels, _, _] = x.dims();
        self.head
            .forward(x.mean_dim(3).mean_dim(2).reshape([n, channels]))
    }
}
