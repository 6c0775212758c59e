//! Samples for Burn's data loader.

use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::data_sets::Samples;

/// Images `[n, 1, height, width]` and their labels.
#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    pub images: Tensor<B, 4>,
    pub labels: Tensor<B, 1, Int>,
}

/// Turns positions into samples.
struct SamplesBatcher(Samples);

impl<B: Backend> Batcher<B, usize, Batch<B>> for SamplesBatcher {
    fn batch(&self, positions: Vec<usize>, device: &B::Device) -> Batch<B> {
        let (images, labels) = self.0.batch(&positions, device);
        Batch { images, labels }
    }
}

/// Loads in a thread of its own, shuffled if there is a seed for it.
pub fn loader<B: Backend>(
    samples: Samples,
    batch_size: usize,
    shuffle: Option<u64>,
) -> Arc<dyn DataLoader<B, Batch<B>>> {
    let positions = InMemDataset::new((0..samples.len()).collect());
    let builder = DataLoaderBuilder::new(SamplesBatcher(samples))
        .batch_size(batch_size)
        .num_workers(1);
    match shuffle {
        Some(seed) => builder.shuffle(seed).build(positions),
        None => builder.build(positions),
    }
}
