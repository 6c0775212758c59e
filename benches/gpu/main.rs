//! One training step on a GPU, in f32, in half by hand and at every opt level: time, memory, casts.
//!
//! `benches/gpu/run` builds this, runs every model in every variant and prints one table. By itself
//! the program measures one variant and prints one line, since a process has one set of tuned
//! kernels and one default dtype per device:
//!
//! ```sh
//! cargo bench --features cuda --bench gpu -- lm o1-f16
//! ```
//!
//! `-- conv` times the weight gradients of single convolutions and checks their values. `-- table` and
//! `-- plot` read lines and need no GPU.

mod backend;
mod conv;
mod data;
mod measure;
mod models;
mod plot;
mod table;
mod task;
mod training;
mod variant;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::optim::AdamWConfig;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{bf16, f16};
use burn_amp::{AmpBackend, AmpOptimizer, HalfDType, MixedPrecision};

use backend::{Bare, Device};
use measure::Sample;
use models::{Cnn, Lm, Lstm, Mlp, ResNet};
use table::Rows;
use task::Task;
use variant::{Change, Variant};

type Plain<F> = Autodiff<Bare<F>>;
type Mixed = AmpBackend<Bare<f32>>;
type WithoutInner = MixedPrecision<Autodiff<Bare<f32>>>;
type PlainRecomputed = Autodiff<Bare<f32>, BalancedCheckpointing>;
type MixedRecomputed = AmpBackend<Bare<f32>, BalancedCheckpointing>;

/// Runs one model in one variant.
macro_rules! run {
    ($model:ident, $variant:expr, $mode:expr) => {
        match $variant {
            Variant::Full => plain::<Plain<f32>, $model<Plain<f32>>>($mode),
            Variant::FullRecomputed => plain::<PlainRecomputed, $model<PlainRecomputed>>($mode),
            Variant::ByHand(HalfDType::F16) => plain::<Plain<f16>, $model<Plain<f16>>>($mode),
            Variant::ByHand(HalfDType::Bf16) => plain::<Plain<bf16>, $model<Plain<bf16>>>($mode),
            variant if variant.change() == Some(Change::Inner) => {
                mixed::<WithoutInner, $model<WithoutInner>>(variant, $mode)
            }
            variant if variant.change() == Some(Change::Recompute) => {
                mixed::<MixedRecomputed, $model<MixedRecomputed>>(variant, $mode)
            }
            variant => mixed::<Mixed, $model<Mixed>>(variant, $mode),
        }
    };
}

/// What to do with a training run.
#[derive(Clone, Copy)]
enum Mode {
    Measure,
    /// Only step, for a profiler.
    Steps(usize),
    /// Where the time of a step goes: handing work to the GPU, or waiting for it.
    Phases,
}

fn main() {
    // `cargo bench` adds a flag of its own.
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["conv"] => conv::print(0..conv::LAYERS.len()),
        ["conv", layer] => {
            let layer = layer.parse().expect("the index of a layer");
            conv::print(layer..layer + 1);
        }
        ["table"] => rows().print(),
        ["plot"] => print!("{}", plot::svg(&rows()).expect("a plot in memory")),
        [model, variant] => one(model, variant, Mode::Measure),
        [model, variant, "phases"] => one(model, variant, Mode::Phases),
        [model, variant, steps] => one(model, variant, Mode::Steps(steps.parse().expect("steps"))),
        _ => panic!(
            "usage: gpu MODEL VARIANT [STEPS | phases] | gpu conv [LAYER] | gpu table < LINES | \
             gpu plot < LINES"
        ),
    }
}

fn rows() -> Rows {
    Rows::read(std::io::stdin().lines().map(|line| line.expect("stdin")))
}

fn one(model: &str, name: &str, mode: Mode) {
    let variant: Variant = name.parse().unwrap_or_else(|error| panic!("{error}"));
    let sample = match model {
        "lm" => run!(Lm, variant, mode),
        "mlp" => run!(Mlp, variant, mode),
        "cnn" => run!(Cnn, variant, mode),
        "resnet" => run!(ResNet, variant, mode),
        "lstm" => run!(Lstm, variant, mode),
        _ => panic!("model {model:?}: allowed are lm, mlp, cnn, resnet and lstm"),
    };
    if let Some(sample) = sample {
        println!("{}", table::line(model, &format!("burn {name}"), &sample));
    }
}

fn plain<B, T>(mode: Mode) -> Option<Sample>
where
    B: AutodiffBackend<Device = Device>,
    T: Task<B>,
{
    training::run::<B, T, _>(T::new, AdamWConfig::new().init(), mode)
}

fn mixed<B, T>(variant: Variant, mode: Mode) -> Option<Sample>
where
    B: AutodiffBackend<Device = Device>,
    T: Task<B>,
{
    let amp = variant
        .config()
        .init::<B>(&backend::device())
        .unwrap_or_else(|error| panic!("{error}"));
    let optim = AmpOptimizer::new(AdamWConfig::new().init::<B, T>(), &amp);
    let optim = match variant.change() {
        Some(Change::Check) => optim
            .with_finite_check(false)
            .unwrap_or_else(|error| panic!("{error}")),
        _ => optim,
    };
    training::run::<B, T, _>(|device| amp.cast_model(T::new(device)), optim, mode)
}
