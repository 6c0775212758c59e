//! Three classes of points, and the dataloaders of Burn's examples around them.

use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

pub const FEATURES: usize = 8;
pub const CLASSES: usize = 3;
pub const BATCH: usize = 4;

#[derive(Clone, Debug)]
pub struct Item {
    features: [f32; FEATURES],
    class: i32,
}

#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    pub features: Tensor<B, 2>,
    pub classes: Tensor<B, 1, Int>,
}

#[derive(Clone, Default)]
pub struct ItemBatcher;

impl<B: Backend> Batcher<B, Item, Batch<B>> for ItemBatcher {
    fn batch(&self, items: Vec<Item>, device: &B::Device) -> Batch<B> {
        let features: Vec<f32> = items.iter().flat_map(|item| item.features).collect();
        let classes: Vec<i32> = items.iter().map(|item| item.class).collect();
        let shape = [items.len(), FEATURES];
        Batch {
            features: Tensor::from_data(TensorData::new(features, shape), device),
            classes: Tensor::from_data(classes.as_slice(), device),
        }
    }
}

/// So many batches of points, the same ones every time.
pub fn batches(count: usize) -> Vec<Item> {
    (0..count * BATCH)
        .map(|i| {
            let class = i * 7 % 5 % CLASSES;
            let noise = |f: usize| ((i * 31 + f * 17) % 13) as f32 / 26.0 - 0.25;
            let features = core::array::from_fn(|f| {
                let center = if f % CLASSES == class { 1.0 } else { -0.5 };
                center + noise(f)
            });
            Item {
                features,
                class: class as i32,
            }
        })
        .collect()
}

/// The points with one in this batch that no half precision can hold: its step overflows.
pub fn overflow(mut items: Vec<Item>, batch: usize) -> Vec<Item> {
    items[batch * BATCH + 1].features[0] = 1e30;
    items
}

/// The points, so close to the origin that half precision takes them for it.
pub fn faint(mut items: Vec<Item>) -> Vec<Item> {
    for item in &mut items {
        item.features = item.features.map(|feature| feature * 1e-9);
    }
    items
}

/// The points without those of these batches.
pub fn without(items: &[Item], batches: &[usize]) -> Vec<Item> {
    let chunks = items.chunks(BATCH).enumerate();
    chunks
        .filter(|(batch, _)| !batches.contains(batch))
        .flat_map(|(_, items)| items.to_vec())
        .collect()
}

/// Loads in a thread of its own, in order.
pub fn loader<B: Backend>(items: Vec<Item>) -> Arc<dyn DataLoader<B, Batch<B>>> {
    DataLoaderBuilder::new(ItemBatcher)
        .batch_size(BATCH)
        .num_workers(1)
        .build(InMemDataset::new(items))
}

/// The same batches without a loader.
pub fn in_order<B: Backend>(items: &[Item], device: &B::Device) -> Vec<Batch<B>> {
    let chunks = items.chunks(BATCH);
    chunks
        .map(|items| ItemBatcher.batch(items.to_vec(), device))
        .collect()
}
