//! Trains a small GPT on the bytes of a text, at any opt level, and lets it write:
//! `cargo run --release --example language_model -- --fp16 --fp16-opt-level O1`

mod cli;
#[path = "../models/gpt.rs"]
mod gpt;
#[path = "../program/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with other examples"
)]
mod program;
mod sampling;
mod text;
mod training;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use burn::module::{AutodiffModule, Module};
use burn::tensor::backend::AutodiffBackend;

use cli::Options;
use gpt::GptConfig;
use program::End;
use program::backend::{opening, with_backend};
use program::interrupt::Interrupt;
use text::Text;
use training::{Trained, Training};

/// A byte is a token.
const VOCABULARY: usize = 256;

fn main() -> ExitCode {
    program::main(
        cli::HELP,
        cli::parse,
        |options| with_backend!(options.backend, B => run::<B>(options)),
    )
}

fn run<B: AutodiffBackend>(options: Options) -> Result<End, Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let text = match &options.text {
        Some(path) => Text::read(path, options.length)?,
        None => Text::alice(options.share),
    };
    let device = B::Device::default();
    B::seed(&device, options.seed);
    let amp = options.precision.config().init::<B>(&device)?;
    let config = GptConfig::new(
        VOCABULARY,
        options.width,
        options.heads,
        options.layers,
        options.length,
    );
    let model = config.init::<B>(&device);
    let parameters = model.num_params();
    let training = Training {
        options: &options,
        text: &text,
        device: &device,
        interrupt: &interrupt,
        checkpoint: training::checkpoint(&options, &text),
    };
    let fresh = Trained::new(amp.cast_model(model), &amp)?;
    let start = training.begin(fresh)?;
    let mut out = io::stdout();
    writeln!(out, "{}", opening::<B>(&device, &options.precision))?;
    writeln!(
        out,
        "{}: {} bytes to train, {} to test; {parameters} parameters",
        text.name,
        text.train.len(),
        text.test.len()
    )?;

    let Some(trained) = training.run(start)? else {
        return Ok(End::Interrupted);
    };
    let steps = trained.optim.monitor();
    writeln!(
        out,
        "loss scale {}, {} steps applied, {} skipped",
        trained.optim.loss_scale().scale(),
        steps.applied(),
        steps.skipped()
    )?;
    let written = sampling::write(&trained.model.valid(), &options, &device);
    writeln!(out, "\n{written}")?;
    Ok(End::Done)
}
