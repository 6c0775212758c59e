use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

/// Two blocks of convolution, pooling, norm and ReLU, and a linear layer: plain Burn code that knows
/// nothing of mixed precision.
///
/// Pooling comes before the norm, which has a quarter of the work there.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    pub conv1: Conv2d<B>,
    norm1: BatchNorm<B>,
    conv2: Conv2d<B>,
    norm2: BatchNorm<B>,
    linear: Linear<B>,
    pool: MaxPool2d,
}

impl<B: Backend> Cnn<B> {
    /// A model of random weights for images of this size, each side at least 4.
    pub fn new(height: usize, width: usize, classes: usize, device: &B::Device) -> Self {
        let [first, second] = [16, 32];
        // The norm behind it has a bias already.
        let conv = |channels| {
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .with_bias(false)
                .init(device)
        };
        let pooled = (height / 4) * (width / 4);
        Cnn {
            conv1: conv([1, first]),
            norm1: BatchNormConfig::new(first).init(device),
            conv2: conv([first, second]),
            norm2: BatchNormConfig::new(second).init(device),
            linear: LinearConfig::new(second * pooled, classes).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
        }
    }

    /// Logits `[n, classes]` of images `[n, 1, height, width]`.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.forward_watched(images, |_, _| ())
    }

    /// As [`forward`](Cnn::forward), and tells `watch` each layer's name and the dtype of its output.
    pub fn forward_watched(
        &self,
        images: Tensor<B, 4>,
        mut watch: impl FnMut(&'static str, DType),
    ) -> Tensor<B, 2> {
        let x = self.conv1.forward(images);
        watch("conv1", x.dtype());
        let x = self.norm1.forward(self.pool.forward(x));
        watch("norm1", x.dtype());
        let x = self.conv2.forward(relu(x));
        watch("conv2", x.dtype());
        let x = self.norm2.forward(self.pool.forward(x));
        watch("norm2", x.dtype());
        let x = self.linear.forward(relu(x).flatten(1, 3));
        watch("linear", x.dtype());
        x
    }
}
