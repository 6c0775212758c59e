//! What every classifier of images here is trained and judged by.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Int, Tensor};

use crate::data_sets::Samples;

/// The mean cross-entropy of a batch, in nats.
pub fn loss<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    let device = logits.device();
    CrossEntropyLossConfig::new()
        .init(&device)
        .forward(logits, labels)
}

/// How many samples a model, given as its forward pass, names rightly.
pub fn count_correct<B: Backend>(
    forward: impl Fn(Tensor<B, 4>) -> Tensor<B, 2>,
    samples: &Samples,
    device: &B::Device,
) -> usize {
    // Bounds the memory of a test set of any size; the result does not depend on it.
    const BATCH_SIZE: usize = 256;
    let positions: Vec<usize> = (0..samples.len()).collect();
    positions
        .chunks(BATCH_SIZE)
        .map(|positions| {
            let (images, labels) = samples.batch(positions, device);
            let named = forward(images).argmax(1).flatten::<1>(0, 1);
            named.equal(labels).int().sum().into_scalar().elem::<i64>() as usize
        })
        .sum()
}
