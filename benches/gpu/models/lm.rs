use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor};

use crate::data;
use crate::task::Task;

#[path = "../../../examples/models/gpt.rs"]
mod gpt;

pub use gpt::Gpt as Lm;

const VOCABULARY: usize = 32_000;
const WIDTH: usize = 1024;
const HEADS: usize = 16;
const LAYERS: usize = 8;
const BATCH: usize = 16;
const LENGTH: usize = 512;

impl<B: AutodiffBackend> Task<B> for Lm<B> {
    /// Tokens and the tokens that follow them.
    type Batch = [Tensor<B, 2, Int>; 2];

    fn new(device: &B::Device) -> Self {
        gpt::GptConfig::new(VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH).init(device)
    }

    fn batch(device: &B::Device) -> Self::Batch {
        let text = data::classes([BATCH, LENGTH + 1], VOCABULARY, device);
        [
            text.clone().slice([0..BATCH, 0..LENGTH]),
            text.slice([0..BATCH, 1..LENGTH + 1]),
        ]
    }

    fn loss(&self, [tokens, next]: Self::Batch) -> Tensor<B, 1> {
        let logits = self.forward(tokens);
        CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(
                logits.reshape([BATCH * LENGTH, VOCABULARY]),
                next.reshape([BATCH * LENGTH]),
            )
    }
}
