//! O0: plain f32, through the decorator.
//!
//! What it does: nothing. Every operation reaches the inner backend untouched, and results are bit by
//! bit those of `Autodiff<Flex>`; the optimizer is Burn's own.
//! When to take it: as the reference for the other levels, and to switch mixed precision off without
//! changing a type.
//! What it costs: a look at the policy per operation, well under 100 ns.
//!
//! `cargo run --release --example o0`

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
use burn_amp::{AmpConfig, AmpOptimizer, MixedPrecision, OptLevel};
use data_sets::{CLASSES, Samples, digits};
use model::Cnn;

type B = MixedPrecision<Autodiff<Flex>>;

const EPOCHS: usize = 6;
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Default::default();
    B::seed(&device, 1);
    let data = digits::load()?;

    let amp = AmpConfig::new(OptLevel::O0).init::<B>(&device)?;
    println!("{}, {device:?}, O0, all f32", B::name(&device));
    let [height, width] = [data.train.height, data.train.width];
    let mut model = Cnn::<B>::new(height, width, CLASSES, &device);
    // At O0 the wrapper changes nothing, so the program need not know its level.
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
    Ok(())
}

/// The positions of a data set, a batch at a time.
fn batches(samples: &Samples) -> Vec<Vec<usize>> {
    let positions: Vec<usize> = (0..samples.len()).collect();
    positions.chunks(BATCH).map(<[usize]>::to_vec).collect()
}
