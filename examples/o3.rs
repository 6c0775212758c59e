//! O3: everything in half.
//!
//! What it does: parameters, activations and norms are half, there are no masters and the loss scale
//! is 1. Losses and the optimizer's arithmetic are f32 all the same.
//! When to take it: to see how fast the hardware could be, or for inference. Not to train: small
//! updates of a half weight are rounded away, and f16 gradients below 6e-8 are lost.
//! What it costs: accuracy, or the whole training.
//!
//! `cargo run --release --example o3`

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

    let amp = AmpConfig::new(OptLevel::O3)
        .with_half(HalfDType::F16)
        .init::<B>(&device)?;
    println!("{}, {device:?}, O3, half dtype f16", B::name(&device));
    let [height, width] = [data.train.height, data.train.width];
    let mut model = amp.cast_model(Cnn::<B>::new(height, width, CLASSES, &device));
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
    println!("{} steps skipped", optim.monitor().skipped());
    Ok(())
}

/// The positions of a data set, a batch at a time.
fn batches(samples: &Samples) -> Vec<Vec<usize>> {
    let positions: Vec<usize> = (0..samples.len()).collect();
    positions.chunks(BATCH).map(<[usize]>::to_vec).collect()
}
