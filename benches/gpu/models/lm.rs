use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};

use crate::data;
use crate::task::Task;

const VOCABULARY: usize = 32_000;
const WIDTH: usize = 1024;
const HEADS: usize = 16;
const LAYERS: usize = 8;
const BATCH: usize = 16;
const LENGTH: usize = 512;

/// A transformer language model with the norm first, causal, without dropout.
#[derive(Module, Debug)]
pub struct Lm<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    encoder: TransformerEncoder<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: AutodiffBackend> Task<B> for Lm<B> {
    /// Tokens and the tokens that follow them.
    type Batch = [Tensor<B, 2, Int>; 2];

    fn new(device: &B::Device) -> Self {
        Lm {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: EmbeddingConfig::new(LENGTH, WIDTH).init(device),
            encoder: TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, HEADS, LAYERS)
                .with_norm_first(true)
                .with_dropout(0.0)
                .init(device),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, VOCABULARY).init(device),
        }
    }

    fn batch(device: &B::Device) -> Self::Batch {
        let text = data::classes([BATCH, LENGTH + 1], VOCABULARY, device);
        [
            text.clone().slice([0..BATCH, 0..LENGTH]),
            text.slice([0..BATCH, 1..LENGTH + 1]),
        ]
    }

    fn loss(&self, [tokens, next]: Self::Batch) -> Tensor<B, 1> {
        let device = tokens.device();
        let positions = Tensor::arange(0..LENGTH as i64, &device).reshape([1, LENGTH]);
        let x = self.tokens.forward(tokens) + self.positions.forward(positions);
        let mask = generate_autoregressive_mask(BATCH, LENGTH, &device);
        let x = self
            .encoder
            .forward(TransformerEncoderInput::new(x).mask_attn(mask));
        let logits = self.head.forward(self.norm.forward(x));
        CrossEntropyLossConfig::new().init(&device).forward(
            logits.reshape([BATCH * LENGTH, VOCABULARY]),
            next.reshape([BATCH * LENGTH]),
        )
    }
}
