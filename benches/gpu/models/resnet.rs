use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor};

use crate::data;
use crate::task::Task;

#[path = "../../../examples/models/resnet18.rs"]
mod resnet18;

pub use resnet18::ResNet18 as ResNet;

const BATCH: usize = 128;
const SIZE: usize = 32;
const CLASSES: usize = 10;

impl<B: AutodiffBackend> Task<B> for ResNet<B> {
    /// Images and their classes.
    type Batch = (Tensor<B, 4>, Tensor<B, 1, Int>);

    fn new(device: &B::Device) -> Self {
        ResNet::new(CLASSES, device)
    }

    fn batch(device: &B::Device) -> Self::Batch {
        (
            data::floats([BATCH, 3, SIZE, SIZE], device),
            data::classes([BATCH], CLASSES, device),
        )
    }

    fn loss(&self, (images, classes): Self::Batch) -> Tensor<B, 1> {
        let logits = self.forward(images);
        CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(logits, classes)
    }
}
