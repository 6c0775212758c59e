use burn::config::Config;
use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// The size of a [`Gpt`].
#[derive(Config, Debug)]
pub struct GptConfig {
    /// Number of tokens.
    pub vocabulary: usize,
    pub width: usize,
    pub heads: usize,
    pub layers: usize,
    /// The most tokens it looks at together.
    pub length: usize,
}

/// A transformer language model with the norm first, causal, without dropout.
#[derive(Module, Debug)]
pub struct Gpt<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    encoder: TransformerEncoder<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl GptConfig {
    /// A model of random weights.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Gpt<B> {
        Gpt {
            tokens: EmbeddingConfig::new(self.vocabulary, self.width).init(device),
            positions: EmbeddingConfig::new(self.length, self.width).init(device),
            encoder: TransformerEncoderConfig::new(
                self.width,
                4 * self.width,
                self.heads,
                self.layers,
            )
            .with_norm_first(true)
            .with_dropout(0.0)
            .init(device),
            norm: LayerNormConfig::new(self.width).init(device),
            head: LinearConfig::new(self.width, self.vocabulary).init(device),
        }
    }
}

impl<B: Backend> Gpt<B> {
    /// Logits `[n, length, vocabulary]` of the token that follows each of `tokens` `[n, length]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let device = tokens.device();
        let [n, length] = tokens.dims();
        let positions = Tensor::arange(0..length as i64, &device).reshape([1, length]);
        let x = self.tokens.forward(tokens) + self.positions.forward(positions);
        let mask = generate_autoregressive_mask(n, length, &device);
        let x = self
            .encoder
            .forward(TransformerEncoderInput::new(x).mask_attn(mask));
        self.head.forward(self.norm.forward(x))
    }
}
