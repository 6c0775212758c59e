//! Trains a small network on handwritten digits, at any opt level:
//! `cargo run --release --example train -- --fp16 --fp16-opt-level O1`

#[path = "../classification/mod.rs"]
mod classification;
mod cli;
#[path = "../data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod data_sets;
mod dtypes;
mod model;
#[path = "../program/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with other examples"
)]
mod program;
mod summary;
mod training;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use burn::module::{AutodiffModule, Module};
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn_amp::{LossScaling, measure};

use cli::Options;
use data_sets::{CLASSES, digits, idx};
use dtypes::Dtypes;
use model::Cnn;
use program::End;
use program::backend::{opening, with_backend};
use program::checkpoint::{Checkpoint, CheckpointError};
use program::interrupt::Interrupt;
use program::progress::say;
use summary::Summary;
use training::{Adam, Trained};

fn main() -> ExitCode {
    program::main(
        cli::HELP,
        cli::parse,
        |options| with_backend!(options.backend, B => train::<B>(options)),
    )
}

fn train<B: AutodiffBackend>(options: Options) -> Result<End, Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let data = match &options.data {
        Some(dir) => idx::load(dir)?,
        None => digits::load()?,
    };
    let device = B::Device::default();
    B::seed(&device, options.seed);
    let amp = options.precision.config().init::<B>(&device)?;
    let model = Cnn::<B>::new(data.train.height, data.train.width, CLASSES, &device);
    let mut trained = Trained::new(amp.cast_model(model), &amp);
    let checkpoint = options.checkpoint.save.as_ref().map(|dir| {
        let same = vec![
            ("data", data.name.clone()),
            ("--batch-size", options.batch_size.to_string()),
            // The learning rate falls to 0 at the last epoch.
            ("--epochs", options.epochs.to_string()),
            ("--lr", options.lr.to_string()),
            ("--seed", options.seed.to_string()),
        ];
        Checkpoint::new(dir, same)
    });
    match &checkpoint {
        Some(checkpoint) if options.checkpoint.resume => {
            trained = resume(checkpoint, trained, &device)?;
        }
        Some(checkpoint) => checkpoint.require_empty()?,
        None => {}
    }
    say(&opening::<B>(&device, &options.precision));

    let start = Instant::now();
    let (result, casts) = measure(|| {
        let save = |trained: &Trained<B>| match &checkpoint {
            Some(checkpoint) => save(checkpoint, trained),
            None => Ok(()),
        };
        let trained = training::train(trained, &data.train, &options, &device, &interrupt, save)?;
        let model = trained.model.valid();
        let forward = |images| model.forward(images);
        let done = trained.progress.diverged || trained.progress.losses.len() == options.epochs;
        let correct = match interrupt.asked() && !done {
            true => None,
            false => Some(classification::count_correct(forward, &data.test, &device)),
        };
        Ok::<_, CheckpointError>((trained, correct))
    });
    let (trained, correct) = result?;
    let time = start.elapsed();
    let Some(correct) = correct else {
        let epoch = trained.progress.losses.len() + 1;
        say(&options.checkpoint.left_by_interrupt(epoch));
        return Ok(End::Interrupted);
    };

    let batch: Vec<usize> = (0..data.train.len().min(options.batch_size)).collect();
    let (images, labels) = data.train.batch(&batch, &device);
    let dtypes = Dtypes::of(&trained.model, images, labels);
    let steps = trained.optimizer.monitor();
    let summary = Summary {
        backend: B::name(&device),
        device: format!("{device:?}"),
        data: data.name,
        precision: options.precision,
        train: data.train.len(),
        test: data.test.len(),
        correct,
        progress: trained.progress,
        dynamic: amp.config().loss_scale() == LossScaling::Dynamic,
        applied: steps.applied(),
        skipped: steps.skipped(),
        time,
        casts,
        dtypes,
    };
    write!(io::stdout(), "{summary}")?;
    Ok(End::Done)
}

fn save<B: AutodiffBackend>(
    checkpoint: &Checkpoint,
    trained: &Trained<B>,
) -> Result<(), CheckpointError> {
    checkpoint.save::<B>(
        trained.progress.losses.len(),
        trained.model.clone().into_record(),
        Optimizer::<Cnn<B>, B>::to_record(&trained.optimizer),
        &trained.progress,
    )
}

/// `fresh` with what was saved in the place of its start.
fn resume<B: AutodiffBackend>(
    checkpoint: &Checkpoint,
    fresh: Trained<B>,
    device: &B::Device,
) -> Result<Trained<B>, CheckpointError> {
    let saved = checkpoint.load::<B, _, _, _>(device)?;
    let optimizer: Adam<B> = fresh
        .optimizer
        .try_load_record::<Cnn<B>>(saved.optimizer)
        .map_err(|source| checkpoint.refused(source))?;
    Ok(Trained {
        model: fresh.model.load_record(saved.model),
        optimizer,
        progress: saved.progress,
    })
}
