use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{self, Linear, LinearConfig, LstmConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};

use crate::data;
use crate::task::Task;

const HIDDEN: usize = 512;
const STEPS: usize = 256;
const BATCH: usize = 64;
const CLASSES: usize = 10;

/// One recurrent layer and a classifier on its last state: many small operations, weights used
/// once per time step.
#[derive(Module, Debug)]
pub struct Lstm<B: Backend> {
    lstm: nn::Lstm<B>,
    head: Linear<B>,
}

impl<B: AutodiffBackend> Task<B> for Lstm<B> {
    /// Sequences and their classes.
    type Batch = (Tensor<B, 3>, Tensor<B, 1, Int>);

    fn new(device: &B::Device) -> Self {
        Lstm {
            lstm: LstmConfig::new(HIDDEN, HIDDEN, true).init(device),
            head: LinearConfig::new(HIDDEN, CLASSES).init(device),
        }
    }

    fn batch(device: &B::Device) -> Self::Batch {
        (
            data::floats([BATCH, STEPS, HIDDEN], device),
            data::classes([BATCH], CLASSES, device),
        )
    }

    fn loss(&self, (sequences, classes): Self::Batch) -> Tensor<B, 1> {
        let (_, last) = self.lstm.forward(sequences, None);
        let logits = self.head.forward(last.hidden);
        CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(logits, classes)
    }
}
