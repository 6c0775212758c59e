//! O1: f32 weights, each operation in the dtype that suits it.
//!
//! What it does: matmuls and convolutions run in half, sums, exponentials, norms and losses in f32;
//! activations stay half where they can. A dynamic loss scale keeps small f16 gradients.
//! When to take it: first. Weights, optimizer and checkpoints are those of f32 training.
//! What it costs: one cast per weight and step, f32 weights beside their half copies.
//!
//! `cargo run --release --example o1`

#[path = "data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod data_sets;
#[path = "train/model.rs"]
mod model;

use burn::backend::{Autodiff, Flex};
use burn::module::AutodiffModule;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn_amp::{AmpConfig, AmpOptimizer, HalfDType, MixedPrecision, OptLevel};
use data_sets::{CLASSES, Samples, digits};
use model::Cnn;

type B = MixedPrecision<Autodiff<Flex>>;

const EPOCHS: usize = 6;
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Default::default();
    B::seed(&device, 1);
    let data = digits::load()?;

    let amp = AmpConfig::new(OptLevel::O1)
        .with_half(HalfDType::F16) // HalfDType::Bf16 needs no loss scale
        .init::<B>(&device)?;
    println!("{}, {device:?}, O1, half dtype f16", B::name(&device));
    let [height, width] = [data.train.height, data.train.width];
    let mut model = Cnn::<B>::new(height, width, CLASSES, &device);
    let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);

    for epoch in 1..=EPOCHS {
        let mut sum = 0.0;
        for positions in batches(&data.train) {
            let (images, labels) = data.train.batch::<B>(&positions, &device);
            let logits = model.forward(images);
            let loss = CrossEntropyLossConfig::new()
                .init(&device)
                .forward(logits, labels);
            sum += loss.clone().into_scalar() * positions.len() as f32;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optim.step(2e-3, model, grads);
        }
        println!("epoch {epoch}: loss {:.4}", sum / data.train.len() as f32);
    }

    let model_valid = model.valid();
    let mut correct = 0;
    for positions in batches(&data.test) {
        let (images, labels) = data.test.batch(&positions, &device);
        let named = model_valid.forward(images).argmax(1).flatten::<1>(0, 1);
        correct += named.equal(labels).int().sum().into_scalar() as usize;
    }
    println!(
        "test accuracy {:.2}%",
        100.0 * correct as f64 / data.test.len() as f64
    );
    let steps = optim.monitor();
    let scale = optim.loss_scale().scale();
    println!("loss scale {scale}, {} steps skipped", steps.skipped());
    Ok(())
}

/// The positions of a data set, a batch at a time.
fn batches(samples: &Samples) -> Vec<Vec<usize>> {
    let positions: Vec<usize> = (0..samples.len()).collect();
    positions.chunks(BATCH).map(<[usize]>::to_vec).collect()
}
