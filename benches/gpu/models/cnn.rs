use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};

use crate::data;
use crate::task::Task;

const CHANNELS: usize = 128;
const BLOCKS: usize = 8;
const BATCH: usize = 64;
const SIZE: usize = 56;
const CLASSES: usize = 1000;

/// Residual blocks of one width and size: convolutions that fill a GPU.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    stem: Conv2d<B>,
    blocks: Vec<Block<B>>,
    head: Linear<B>,
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    conv1: Conv2d<B>,
    norm1: BatchNorm<B>,
    conv2: Conv2d<B>,
    norm2: BatchNorm<B>,
}

fn conv<B: Backend>(channels_in: usize, device: &B::Device) -> Conv2d<B> {
    Conv2dConfig::new([channels_in, CHANNELS], [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(device)
}

impl<B: Backend> Block<B> {
    fn new(device: &B::Device) -> Self {
        let norm = || BatchNormConfig::new(CHANNELS).init(device);
        Block {
            conv1: conv(CHANNELS, device),
            norm1: norm(),
            conv2: conv(CHANNELS, device),
            norm2: norm(),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = self.norm1.forward(self.conv1.forward(x.clone()));
        let y = self.conv2.forward(Relu::new().forward(y));
        Relu::new().forward(self.norm2.forward(y) + x)
    }
}

impl<B: AutodiffBackend> Task<B> for Cnn<B> {
    /// Images and their classes.
    type Batch = (Tensor<B, 4>, Tensor<B, 1, Int>);

    fn new(device: &B::Device) -> Self {
        Cnn {
            stem: conv(3, device),
            blocks: (0..BLOCKS).map(|_| Block::new(device)).collect(),
            head: LinearConfig::new(CHANNELS, CLASSES).init(device),
        }
    }

    fn batch(device: &B::Device) -> Self::Batch {
        (
            data::floats([BATCH, 3, SIZE, SIZE], device),
            data::classes([BATCH], CLASSES, device),
        )
    }

    fn loss(&self, (images, classes): Self::Batch) -> Tensor<B, 1> {
        let x = self
            .blocks
            .iter()
            .fold(self.stem.forward(images), |x, block| block.forward(x));
        let pooled = x.mean_dim(3).mean_dim(2).reshape([BATCH, CHANNELS]);
        CrossEntropyLossConfig::new()
            .init(&pooled.device())
            .forward(self.head.forward(pooled), classes)
    }
}
