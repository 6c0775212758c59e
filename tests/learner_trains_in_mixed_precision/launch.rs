//! Burn's `Learner` on a plan, and what it wrote into its logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Adam;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::record::{CompactRecorder, DefaultRecorder};
use burn::tensor::backend::AutodiffBackend;
use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::metric::{AccuracyMetric, LearningRateMetric, LossMetric, MetricDefinition};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use burn::train::{
    ExecutionStrategy, Learner, MultiDeviceOptim, SupervisedTraining, TrainingStrategy,
};
use burn_amp::{
    AmpOptimizer, AmpScheduler, GradNormMetric, LossScaleMetric, NumericsMetric, NumericsMonitor,
    SkippedStepsMetric,
};

use crate::data::{Item, batches, loader};
use crate::data_parallel::DataParallel;
use crate::devices;
use crate::model::Net;
use crate::support::Mixed;

pub type Optim = AmpOptimizer<OptimizerAdaptor<Adam, Net<Mixed>, Mixed>, Mixed>;
pub type Inner = <Mixed as AutodiffBackend>::InnerBackend;

/// What a checkpoint is written with.
#[derive(Clone, Copy, PartialEq)]
pub enum Recording {
    Full,
    Compact,
}

/// Which of several devices does what.
#[derive(Debug, Clone, Copy)]
pub enum Several {
    /// One optimizer for so many devices.
    Multi(usize, MultiDeviceOptim),
    /// So many ranks, each with an optimizer.
    DataParallel(usize),
}

/// The options of one launch.
pub struct Plan<'a> {
    pub directory: &'a Directory,
    pub items: Vec<Item>,
    pub epochs: usize,
    pub accumulation: Option<usize>,
    pub devices: Option<Several>,
    pub recording: Option<Recording>,
    pub numerics: Option<NumericsMonitor>,
    /// The epoch whose checkpoint to continue from.
    pub resume: Option<usize>,
}

impl<'a> Plan<'a> {
    pub fn new(directory: &'a Directory, items: Vec<Item>) -> Self {
        Plan {
            directory,
            items,
            epochs: 1,
            accumulation: None,
            devices: None,
            recording: None,
            numerics: None,
            resume: None,
        }
    }

    /// Trains, and returns the model that the Learner returns.
    pub fn launch<S: LrScheduler + 'static>(
        self,
        model: Net<Mixed>,
        optim: Optim,
        schedule: S,
    ) -> Net<Inner> {
        let monitor = optim.monitor();
        let schedule = AmpScheduler::new(schedule, monitor.clone());
        let training =
            SupervisedTraining::new(&self.directory.0, loader(self.items), loader(batches(3)))
                .metrics((LossMetric::new(), AccuracyMetric::new()))
                .metric_train_numeric(LearningRateMetric::new())
                .metric_train_numeric(LossScaleMetric::new(monitor.clone()))
                .metric_train_numeric(GradNormMetric::new(monitor.clone()))
                .metrics((SkippedStepsMetric::new(monitor),))
                .with_checkpointing_strategy(KeepLastNCheckpoints::new(10))
                .with_application_logger(None)
                .renderer(Silent)
                .num_epochs(self.epochs)
                .summary();
        let training = match &self.numerics {
            Some(numerics) => training
                .metric_train_numeric(NumericsMetric::flushed(numerics))
                .metric_train_numeric(NumericsMetric::near_overflow(numerics)),
            None => training,
        };
        let training = match self.accumulation {
            Some(steps) => training.grads_accumulation(steps),
            None => training,
        };
        let training = match self.devices {
            Some(Several::Multi(count, optim)) => training
                .with_training_strategy(ExecutionStrategy::multi(devices(count), optim).into()),
            Some(Several::DataParallel(count)) => training.with_training_strategy(
                TrainingStrategy::Custom(Arc::new(DataParallel::new(devices(count)))),
            ),
            None => training,
        };
        let training = match self.recording {
            Some(Recording::Full) => training.with_file_checkpointer(DefaultRecorder::new()),
            Some(Recording::Compact) => training.with_file_checkpointer(CompactRecorder::new()),
            None => training,
        };
        let training = match self.resume {
            Some(epoch) => training.checkpoint(epoch),
            None => training,
        };
        training.launch(Learner::new(model, optim, schedule)).model
    }
}

/// A directory for logs and checkpoints that is gone after the test.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("burn-amp-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The numbers a metric logged in an epoch, of which there are so many.
    pub fn log(&self, split: &str, epoch: usize, metric: &str, lines: usize) -> Vec<f64> {
        let file = format!("{split}/epoch-{epoch}/{metric}.log");
        let began = Instant::now();
        loop {
            // The Learner's log threads may still be writing when it returns.
            let text = std::fs::read_to_string(self.0.join(&file)).unwrap_or_default();
            let complete = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            let values: Vec<f64> = complete
                .map(|line| line.split(',').next().unwrap().parse().unwrap())
                .collect();
            if values.len() >= lines {
                assert_eq!(values.len(), lines, "{file}");
                return values;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{file}: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Burn's renderer without a terminal prints every item.
struct Silent;

impl MetricsRendererTraining for Silent {
    fn update_train(&mut self, _: MetricState) {}
    fn update_valid(&mut self, _: MetricState) {}
    fn render_train(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
    fn render_valid(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
    fn on_train_end(
        &mut self,
        _: Option<burn::train::LearnerSummary>,
    ) -> Result<(), Box<dyn core::error::Error>> {
        Ok(())
    }
}

impl MetricsRendererEvaluation for Silent {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for Silent {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: MetricDefinition) {}
}
