//! Burn's Learner trains in mixed precision, with its dashboard, checkpoints and early stopping:
//! `cargo run --release --features train --example learner -- --fp16 --fp16-opt-level O1`

mod artifacts;
#[path = "../classification/mod.rs"]
mod classification;
mod cli;
#[path = "../data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod data_sets;
mod loading;
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
mod progress_line;
mod steps;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::optim::AdamConfig;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder};
use burn::tensor::backend::AutodiffBackend;
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::metric::{AccuracyMetric, LearningRateMetric, LossMetric};
use burn::train::{
    Interrupter, Learner, MetricEarlyStoppingStrategy, StoppingCondition, SupervisedTraining,
};
use burn_amp::{
    AmpOptimizer, AmpScheduler, FaultMetric, GradNormMetric, LossScaleMetric, SkippedStepsMetric,
    TraceMode,
};

use artifacts::Artifacts;
use classification::count_correct;
use cli::Options;
use data_sets::{CLASSES, digits, idx};
use loading::loader;
use model::Cnn;
use program::End;
use program::backend::{opening, with_backend};
use program::interrupt::{Interrupt, on_ctrl_c};
use program::progress::say;
use progress_line::ProgressLine;

fn main() -> ExitCode {
    program::main(
        cli::HELP,
        cli::parse,
        |options| with_backend!(options.backend, B => run::<B>(options)),
    )
}

fn run<B: AutodiffBackend>(options: Options) -> Result<End, Box<dyn Error>> {
    let data = match &options.data {
        Some(dir) => idx::load(dir)?,
        None => digits::load()?,
    };
    let artifacts = Artifacts::new(&options.artifacts);
    let last_epoch = match options.resume {
        true => Some(artifacts.last_epoch()?),
        false => artifacts.require_empty().map(|()| None)?,
    };
    let device = B::Device::default();
    B::seed(&device, options.seed);
    let mut config = options.precision.config();
    if options.trace {
        config = config.with_trace(TraceMode::OnSkip);
    }
    let amp = config.init::<B>(&device)?;
    println!("{}", opening::<B>(&device, &options.precision));

    let model = Cnn::<B>::new(data.train.height, data.train.width, CLASSES, &device);
    let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    let monitor = optim.monitor();
    let steps = options.epochs * data.train.len().div_ceil(options.batch_size);
    let schedule = CosineAnnealingLrSchedulerConfig::new(options.lr, steps).init()?;
    // Holds still at a skipped step.
    let schedule = AmpScheduler::new(schedule, monitor.clone());

    // The dashboard resets the Learner's own note of it when it closes.
    let (interrupt, interrupter) = (Interrupt::default(), Interrupter::new());
    let asked = (interrupt.clone(), interrupter.clone());
    on_ctrl_c(move || {
        asked.0.ask();
        asked.1.stop(Some("Ctrl-C"));
    })?;

    let (train, test) = (data.train.clone(), data.test.clone());
    let mut training = SupervisedTraining::new(
        &options.artifacts,
        loader(train, options.batch_size, Some(options.seed)),
        loader(test, options.batch_size, None),
    )
    .metrics((LossMetric::new(), AccuracyMetric::new()))
    .metric_train_numeric(LearningRateMetric::new())
    .metric_train_numeric(LossScaleMetric::new(monitor.clone()))
    .metric_train_numeric(GradNormMetric::new(monitor.clone()))
    .metric_train_numeric(SkippedStepsMetric::new(monitor.clone()))
    // Nothing is rounded, so a resumed training has the weights of the one that stopped.
    .with_file_checkpointer(NamedMpkFileRecorder::<FullPrecisionSettings>::new())
    .early_stopping(MetricEarlyStoppingStrategy::new(
        &LossMetric::<B>::new(),
        Aggregate::Mean,
        Direction::Lowest,
        Split::Valid,
        StoppingCondition::NoImprovementSince {
            n_epochs: options.patience,
        },
    ))
    .with_interrupter(interrupter)
    .num_epochs(options.epochs)
    .summary();
    if options.trace {
        training = training.metric_train(FaultMetric::new(amp.tracer().clone()));
    }
    if let Some(epoch) = last_epoch {
        say(&format!("resuming after epoch {epoch}"));
        training = training.checkpoint(epoch);
    }
    // The dashboard needs a terminal.
    if options.plain || !io::stdout().is_terminal() {
        training = training.renderer(ProgressLine::new());
    }
    let trained = training.launch(Learner::new(amp.cast_model(model), optim, schedule));

    let model = trained.model;
    let correct = count_correct(|images| model.forward(images), &data.test, &device);
    println!(
        "test accuracy {:.2}%; {} steps applied, {} skipped",
        100.0 * correct as f64 / data.test.len() as f64,
        monitor.applied(),
        monitor.skipped()
    );
    match interrupt.asked() {
        true => {
            say(&artifacts.left_by_interrupt());
            Ok(End::Interrupted)
        }
        false => Ok(End::Done),
    }
}
