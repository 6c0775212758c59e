//! What half precision does to the numbers of a model: three reports on one small training.
//!
//! What it does: a dry run in f32 says which levels the model fits; a training at O1 is watched for its
//! last three steps; the casts of a forward are counted, with the tensors that bounce between dtypes.
//! It prints all three and writes `numerics.html`, a page that needs nothing else.
//!
//! `cargo run --release --example numerics`

#[path = "data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod data_sets;
#[path = "train/model.rs"]
mod model;

use std::fs;

use burn::backend::Flex;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_amp::{
    AmpBackend, AmpConfig, AmpOptimizer, CastReport, DryRun, NumericsRecorder, OptLevel, observe,
};
use data_sets::{CLASSES, Samples, digits};
use model::Cnn;

/// Gradients are seen inside autodiff too.
type B = AmpBackend<Flex>;

const STEPS: usize = 20;
const WATCHED: usize = 3;
const BATCH: usize = 32;
const PAGE: &str = "numerics.html";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Default::default();
    B::seed(&device, 1);
    let data = digits::load()?;
    let [height, width] = [data.train.height, data.train.width];
    let mut model = Cnn::<B>::new(height, width, CLASSES, &device);

    println!("{}, {device:?}, O1, half dtype f16", B::name(&device));
    println!("\ndry run");
    print!(
        "{}",
        DryRun::of(&model, |model| loss(model, &data.train, 0))
    );

    let amp = AmpConfig::new(OptLevel::O1).init::<B>(&device)?;
    let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    let mut recorder = NumericsRecorder::new();
    for step in 0..STEPS {
        let pass = || {
            observe::name_parameters(&model);
            let loss = loss(&model, &data.train, step);
            GradientsParams::from_grads(loss.backward(), &model)
        };
        let grads = match step >= STEPS - WATCHED {
            true => recorder.watch(pass),
            false => pass(),
        };
        model = optim.step(2e-3, model, grads);
    }
    let report = recorder.finish();
    println!("\nnumerics of the last steps\n{report}");

    let (_, casts) = CastReport::of(|| {
        observe::name_parameters(&model);
        loss(&model, &data.train, 0)
    });
    println!("casts of a forward\n{casts}");
    fs::write(PAGE, report.page())?;
    println!("wrote {PAGE}");
    Ok(())
}

/// The loss on the batch of a step.
fn loss(model: &Cnn<B>, samples: &Samples, step: usize) -> Tensor<B, 1> {
    let device = Default::default();
    let positions: Vec<usize> = (step * BATCH..(step + 1) * BATCH).collect();
    let (images, labels) = samples.batch::<B>(&positions, &device);
    CrossEntropyLossConfig::new()
        .init(&device)
        .forward(model.forward(images), labels)
}
