//! A trained f32 record, run as it is, at O1, and converted to half at O3: how far the answers agree,
//! and the time of a batch. `cargo run --release --example inference`

#[path = "../classification/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod classification;
mod cli;
mod comparison;
#[path = "../data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod data_sets;
#[path = "../train/model.rs"]
mod model;
#[path = "../program/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with other examples"
)]
mod program;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_amp::{HalfDType, OptLevel};

use classification::loss;
use cli::Options;
use comparison::{Answers, Comparison};
use data_sets::{CLASSES, Samples, digits};
use model::Cnn;
use program::End;
use program::backend::{opening, with_backend};
use program::interrupt::Interrupt;
use program::precision::Precision;
use program::progress::{self, say};

fn main() -> ExitCode {
    program::main(
        cli::HELP,
        cli::parse,
        |options| with_backend!(options.backend, B => run::<B>(options)),
    )
}

fn run<B: AutodiffBackend>(options: Options) -> Result<End, Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let data = digits::load()?;
    let device = B::Device::default();
    let record = match &options.record {
        Some(path) => path.clone(),
        None => match trained::<B>(&data.train, &options, &device, &interrupt)? {
            Some(path) => path,
            None => {
                say("interrupted before there was a record");
                return Ok(End::Interrupted);
            }
        },
    };

    let test = &data.test;
    let mut reference: Option<Answers> = None;
    for precision in precisions() {
        println!("{}", opening::<B::InnerBackend>(&device, &precision));
        let model = load::<B::InnerBackend>(&record, test, &device)?;
        let amp = precision.config().build()?;
        // No gradients are needed, so the model is on the inner backend, which casts as the outer.
        let answers = amp.scope(|| {
            let model = amp.cast_model(model);
            Answers::of(&model, test, options.batch_size, &device)
        });
        match &reference {
            None => {
                println!("  {answers}");
                reference = Some(answers);
            }
            Some(full) => println!("  {answers}; {}", Comparison::of(full, &answers)),
        }
        if interrupt.asked() {
            return Ok(End::Interrupted);
        }
    }
    Ok(End::Done)
}

/// f32, then O1 and O3 in each half dtype.
fn precisions() -> Vec<Precision> {
    let mixed = [OptLevel::O1, OptLevel::O3].into_iter().flat_map(|level| {
        [HalfDType::F16, HalfDType::Bf16].map(|half| Precision::new(level, half))
    });
    [Precision::full()].into_iter().chain(mixed).collect()
}

fn recorder() -> NamedMpkFileRecorder<FullPrecisionSettings> {
    NamedMpkFileRecorder::new()
}

fn new_model<B: Backend>(samples: &Samples, device: &B::Device) -> Cnn<B> {
    Cnn::new(samples.height, samples.width, CLASSES, device)
}

fn load<B: Backend>(
    record: &Path,
    samples: &Samples,
    device: &B::Device,
) -> Result<Cnn<B>, Box<dyn Error>> {
    let loaded = recorder()
        .load(record.to_path_buf(), device)
        .map_err(|error| format!("{}: {error}", record.display()))?;
    Ok(new_model(samples, device).load_record(loaded))
}

/// Trains in plain f32 and writes the record, whose path it returns; `None` when interrupted.
fn trained<B: AutodiffBackend>(
    samples: &Samples,
    options: &Options,
    device: &B::Device,
    interrupt: &Interrupt,
) -> Result<Option<PathBuf>, Box<dyn Error>> {
    say("no --record was given: training one in f32");
    B::seed(device, 1);
    let amp = Precision::full().config().build()?;
    let model = amp.scope(|| {
        let mut model = new_model::<B>(samples, device);
        let mut optim = AdamConfig::new().init();
        let positions: Vec<usize> = (0..samples.len()).collect();
        let batches = positions.chunks(64);
        let bar = progress::bar(options.epochs * batches.len());
        for _ in 0..options.epochs {
            for positions in batches.clone() {
                let (images, labels) = samples.batch(positions, device);
                let loss = loss(model.forward(images), labels);
                let grads = GradientsParams::from_grads(loss.backward(), &model);
                model = optim.step(3e-3, model, grads);
                bar.inc(1);
                if interrupt.asked() {
                    return None;
                }
            }
        }
        bar.finish_and_clear();
        Some(model)
    });
    let Some(model) = model else { return Ok(None) };
    recorder().record(model.into_record(), options.keep.clone())?;
    say(&format!("record: {}", options.keep.display()));
    Ok(Some(options.keep.clone()))
}
