//! Trains a small network on handwritten digits, at any opt level:
//! `cargo run --release --example train -- --fp16 --fp16-opt-level O1`

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
use burn_amp::{AmpConfig, AmpError, MixedPrecision, measure};
use thiserror::Error;

use cli::{CliError, Command, Options};
use data_sets::{CLASSES, DataError, digits, idx};
use dtypes::Dtypes;
use model::Cnn;
use summary::Summary;

/// The one line that a program changes for mixed precision.
type B = MixedPrecision<Autodiff<Flex>>;

/// Why no model was trained.
#[derive(Debug, Error)]
#[error(transparent)]
enum TrainError {
    Cli(#[from] CliError),
    Data(#[from] DataError),
    Amp(#[from] AmpError),
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
    let amp = AmpConfig::new(options.level)
        .with_half(options.half)
        .init::<B>(&device)?;
    let model = amp.cast_model(Cnn::<B>::new(
        data.train.height,
        data.train.width,
        CLASSES,
        &device,
    ));

    let start = Instant::now();
    let ((trained, correct), casts) = measure(|| {
        let trained = training::train(model, &amp, &data.train, &options, &device);
        let correct = training::count_correct(&trained.model, &data.test, &device);
        (trained, correct)
    });
    let time = start.elapsed();

    let batch: Vec<usize> = (0..data.train.len().min(options.batch_size)).collect();
    let (images, labels) = data.train.batch(&batch, &device);
    Ok(Summary {
        backend: B::name(&device),
        device: format!("{device:?}"),
        data: data.name,
        level: options.level,
        half: options.half,
        train: data.train.len(),
        test: data.test.len(),
        correct,
        losses: trained.losses,
        diverged: trained.diverged,
        time,
        casts,
        dtypes: Dtypes::of(&trained.model, images, labels),
    })
}
