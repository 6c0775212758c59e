//! Trains one model at every level and half dtype with one seed, prints one table and writes one page
//! with plots: `cargo run --release --example compare`

#[path = "../classification/mod.rs"]
mod classification;
mod cli;
#[path = "../data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod data_sets;
mod exponents;
mod ink;
#[path = "../train/model.rs"]
mod model;
mod plots;
#[path = "../program/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with other examples"
)]
mod program;
mod report;
mod run;
mod table;

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn_amp::{HalfDType, MixedPrecision, OptLevel};
use peak_alloc::PeakAlloc;

use cli::Options;
use data_sets::{digits, idx};
use program::End;
use program::backend::opening;
use program::interrupt::Interrupt;
use program::precision::Precision;
use program::progress::{self, say};
use report::Report;
use run::Race;

type B = MixedPrecision<Autodiff<Flex>>;

/// Counts the bytes of every allocation: the CPU backend keeps its tensors there.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    program::main(cli::HELP, cli::parse, compare)
}

fn compare(options: Options) -> Result<End, Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let data = match &options.data {
        Some(dir) => idx::load(dir)?,
        None => digits::load()?,
    };
    let device = Default::default();
    let race = Race::<B> {
        data: &data,
        options: &options,
        device: &device,
        interrupt: &interrupt,
        bar: progress::bar(
            precisions().len() * options.epochs * data.train.len().div_ceil(options.batch_size),
        ),
    };
    let mut runs = Vec::new();
    for precision in precisions() {
        progress::line(&race.bar, &opening::<B>(&device, &precision));
        match race.run(precision)? {
            Some(run) => runs.push(run),
            None => {
                say("interrupted: no report was written");
                return Ok(End::Interrupted);
            }
        }
    }
    race.bar.finish_and_clear();

    let rows = table::rows(&runs);
    let report = Report {
        backend: format!("{}, {device:?}", B::name(&device)),
        data: format!(
            "{}: {} to train, {} to test",
            data.name,
            data.train.len(),
            data.test.len()
        ),
        options: &options,
        runs: &runs,
        rows: &rows,
    };
    fs::write(&options.report, report.page()?)
        .map_err(|error| format!("{}: {error}", options.report.display()))?;
    write!(io::stdout(), "{}", table::text(&rows))?;
    writeln!(io::stdout(), "report: {}", options.report.display())?;
    Ok(End::Done)
}

/// f32, then each level in each half dtype.
fn precisions() -> Vec<Precision> {
    let mixed = [OptLevel::O1, OptLevel::O2, OptLevel::O3].into_iter();
    let mixed = mixed.flat_map(|level| {
        [HalfDType::F16, HalfDType::Bf16].map(|half| Precision::new(level, half))
    });
    [Precision::full()].into_iter().chain(mixed).collect()
}
