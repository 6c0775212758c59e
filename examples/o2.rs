//! O2: half weights with f32 masters.
//!
//! What it does: the model's parameters are half, except those of norm layers; the optimizer keeps an
//! f32 master of each, steps that, and rounds it into the model. A dynamic loss scale as at O1.
//! When to take it: when memory is short. Weights need no cast in forward.
//! What it costs: masters in the optimizer; softmax and layer norm round their results to half.
//!
//! `cargo run --release --example o2`

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

    let amp = AmpConfig::new(OptLevel::O2)
        .with_half(HalfDType::F16)
        .init::<B>(&device)?;
    println!("{}, {device:?}, O2, half dtype f16", B::name(&device));
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
    let steps = optim.monitor();
    let scale = optim.loss_scale().scale();
    println!("loss scale {scale}, {} steps skipped", steps.skipped());

    // For export: the masters, which have the digits that the half weights have not.
    let full = optim.full_model(model.clone());
    println!(
        "{} in the model, {} for export",
        weights(&model),
        weights(&full)
    );
    Ok(())
}

/// The positions of a data set, a batch at a time.
fn batches(samples: &Samples) -> Vec<Vec<usize>> {
    let positions: Vec<usize> = (0..samples.len()).collect();
    positions.chunks(BATCH).map(<[usize]>::to_vec).collect()
}

/// The dtype of the first layer's weights.
fn weights(model: &Cnn<B>) -> String {
    format!("{:?}", model.conv1.weight.val().dtype())
}
