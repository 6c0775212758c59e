//! Trains a small network on handwritten digits, at any opt level:
//! `cargo run --release --example train -- --fp16 --fp16-opt-level O1`

mod checkpoint;
mod cli;
#[path = "../data_sets/mod.rs"]
mod data_sets;
mod dtypes;
mod model;
mod summary;
mod training;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::{Backend, BackendTypes};
use burn_amp::{AmpConfig, AmpError, LossScaling, MixedPrecision, measure};
use thiserror::Error;

use checkpoint::{Checkpoint, CheckpointError};
use cli::{CliError, Command, Options};
use data_sets::{CLASSES, DataError, digits, idx};
use dtypes::Dtypes;
use model::Cnn;
use summary::Summary;
use training::Trained;

/// The one line that a program changes for mixed precision.
type B = MixedPrecision<Autodiff<Flex>>;

/// Why no model was trained.
#[derive(Debug, Error)]
#[error(transparent)]
enum TrainError {
    Cli(#[from] CliError),
    Data(#[from] DataError),
    Amp(#[from] AmpError),
    Checkpoint(#[from] CheckpointError),
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), TrainError> {
    match cli::parse(args)? {
        Command::Help => write!(io::stdout(), "{}", cli::HELP)?,
        Command::Train(options) => write!(io::stdout(), "{}", train(options)?)?,
    }
    Ok(())
}

fn train(options: Options) -> Result<Summary, TrainError> {
    let data = match &options.data {
        Some(dir) => idx::load(dir)?,
        None => digits::load()?,
    };
    let device = <B as BackendTypes>::Device::default();
    B::seed(&device, options.seed);
    let mut config = AmpConfig::new(options.level).with_half(options.half);
    if let Some(loss_scale) = options.loss_scale {
        config = config.with_loss_scale(loss_scale);
    }
    let amp = config.init::<B>(&device)?;
    let model = Cnn::<B>::new(data.train.height, data.train.width, CLASSES, &device);
    let mut trained = Trained::new(amp.cast_model(model), &amp);
    let checkpoint = options
        .save
        .as_ref()
        .map(|dir| Checkpoint::new(dir, &options, &data));
    match &checkpoint {
        Some(checkpoint) if options.resume => trained = checkpoint.load(trained, &device)?,
        Some(checkpoint) => checkpoint.require_empty()?,
        None => {}
    }

    let start = Instant::now();
    let (result, casts) = measure(|| {
        let save = |trained: &Trained<B>| match &checkpoint {
            Some(checkpoint) => checkpoint.save(trained),
            None => Ok(()),
        };
        let trained = training::train(trained, &data.train, &options, &device, save)?;
        let correct = training::count_correct(&trained.model, &data.test, &device);
        Ok::<_, CheckpointError>((trained, correct))
    });
    let (trained, correct) = result?;
    let time = start.elapsed();

    let batch: Vec<usize> = (0..data.train.len().min(options.batch_size)).collect();
    let (images, labels) = data.train.batch(&batch, &device);
    let dtypes = Dtypes::of(&trained.model, images, labels);
    let steps = trained.optimizer.monitor();
    Ok(Summary {
        backend: B::name(&device),
        device: format!("{device:?}"),
        data: data.name,
        level: options.level,
        half: options.half,
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
    })
}
