//! Four small models with their data: the ones that Burn's users train.

#![allow(dead_code, reason = "no test file uses all of it")]

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::{CrossEntropyLossConfig, MseLoss, Reduction};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, Lstm, LstmConfig, PaddingConfig2d,
};
use burn::tensor::activation::{gelu, relu};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

/// A model that brings its own batches.
pub trait Trainable<B: Backend>: Module<B> {
    fn new() -> Self;

    /// The loss on the batch of a step: every step has another one.
    fn loss(&self, step: usize) -> Tensor<B, 1>;
}

/// Values in [-1, 1], other ones for every step.
pub fn wave<B: Backend, const D: usize>(shape: [usize; D], step: usize) -> Tensor<B, D> {
    let value = |i: usize| (0.7 * i as f32 + 1.3 * step as f32).sin();
    let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

/// Integers below `bound`, other ones for every step.
pub fn counted<B: Backend, const D: usize>(
    shape: [usize; D],
    bound: usize,
    step: usize,
) -> Tensor<B, D, Int> {
    let values: Vec<i64> = (0..shape.iter().product())
        .map(|i: usize| ((7 * i + 3 * step + i * i) % bound) as i64)
        .collect();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    CrossEntropyLossConfig::new()
        .init(&logits.device())
        .forward(logits, targets)
}

#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    hidden: Linear<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
    smooth: bool,
}

impl<B: Backend> Mlp<B> {
    /// gelu in the place of relu, whose slope jumps at zero.
    pub fn smooth() -> Self {
        Mlp {
            smooth: true,
            ..Mlp::new()
        }
    }
}

fn activate<B: Backend, const D: usize>(x: Tensor<B, D>, smooth: bool) -> Tensor<B, D> {
    match smooth {
        true => gelu(x),
        false => relu(x),
    }
}

impl<B: Backend> Trainable<B> for Mlp<B> {
    fn new() -> Self {
        let device = Default::default();
        Mlp {
            hidden: LinearConfig::new(8, 32).init(&device),
            norm: LayerNormConfig::new(32).init(&device),
            head: LinearConfig::new(32, 4).init(&device),
            smooth: false,
        }
    }

    fn loss(&self, step: usize) -> Tensor<B, 1> {
        let hidden = self.hidden.forward(wave([16, 8], step));
        let hidden = activate(self.norm.forward(hidden), self.smooth);
        let output = self.head.forward(hidden);
        MseLoss::new().forward(output, wave([16, 4], step + 1), Reduction::Mean)
    }
}

/// Convolutions without a bias, which the batch norm behind them would take out again.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    conv1: Conv2d<B>,
    norm1: BatchNorm<B>,
    conv2: Conv2d<B>,
    norm2: BatchNorm<B>,
    head: Linear<B>,
    smooth: bool,
}

impl<B: Backend> Cnn<B> {
    /// gelu in the place of relu.
    pub fn smooth() -> Self {
        Cnn {
            smooth: true,
            ..Cnn::new()
        }
    }
}

impl<B: Backend> Trainable<B> for Cnn<B> {
    fn new() -> Self {
        let device = Default::default();
        let conv = |channels| {
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .with_bias(false)
        };
        Cnn {
            conv1: conv([3, 8]).init(&device),
            norm1: BatchNormConfig::new(8).init(&device),
            conv2: conv([8, 8]).init(&device),
            norm2: BatchNormConfig::new(8).init(&device),
            head: LinearConfig::new(8, 4).init(&device),
            smooth: false,
        }
    }

    fn loss(&self, step: usize) -> Tensor<B, 1> {
        let x = self
            .norm1
            .forward(self.conv1.forward(wave([8, 3, 8, 8], step)));
        let x = activate(x, self.smooth);
        let x = activate(self.norm2.forward(self.conv2.forward(x)), self.smooth);
        let pooled = x.reshape([8, 8, 64]).mean_dim(2);
        let logits = self.head.forward(pooled.reshape([8, 8]));
        cross_entropy(logits, counted([8], 4, step))
    }
}

#[derive(Module, Debug)]
pub struct Reader<B: Backend> {
    lstm: Lstm<B>,
    head: Linear<B>,
}

impl<B: Backend> Trainable<B> for Reader<B> {
    fn new() -> Self {
        let device = Default::default();
        Reader {
            lstm: LstmConfig::new(6, 16, true).init(&device),
            head: LinearConfig::new(16, 4).init(&device),
        }
    }

    fn loss(&self, step: usize) -> Tensor<B, 1> {
        let (outputs, _) = self.lstm.forward(wave([4, 10, 6], step), None);
        let last = outputs.slice([0..4, 9..10, 0..16]).reshape([4, 16]);
        cross_entropy(self.head.forward(last), counted([4], 4, step))
    }
}

#[derive(Module, Debug)]
pub struct Transformer<B: Backend> {
    embedding: Embedding<B>,
    encoder: TransformerEncoder<B>,
    head: Linear<B>,
}

impl<B: Backend> Trainable<B> for Transformer<B> {
    fn new() -> Self {
        let device = Default::default();
        Transformer {
            embedding: EmbeddingConfig::new(11, 16).init(&device),
            encoder: TransformerEncoderConfig::new(16, 32, 2, 2)
                .with_dropout(0.0)
                .init(&device),
            head: LinearConfig::new(16, 11).init(&device),
        }
    }

    fn loss(&self, step: usize) -> Tensor<B, 1> {
        let x = self.embedding.forward(counted([4, 8], 11, step));
        let x = self.encoder.forward(TransformerEncoderInput::new(x));
        cross_entropy(
            self.head.forward(x).reshape([32, 11]),
            counted([32], 11, step + 1),
        )
    }
}
