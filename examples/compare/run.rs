//! One training of the comparison, and what is noted of it.

use std::error::Error;
use std::time::{Duration, Instant};

use burn::module::{AutodiffModule, Module};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::ElementConversion;
use burn::tensor::backend::AutodiffBackend;
use burn_amp::{AmpOptimizer, LossScaleConfig, LossScaling, OptLevel, measure};
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::HEAP;
use crate::classification::{count_correct, loss};
use crate::cli::Options;
use crate::data_sets::{CLASSES, TrainTest};
use crate::exponents::Exponents;
use crate::model::Cnn;
use crate::program::interrupt::Interrupt;
use crate::program::precision::Precision;

/// What all trainings have in common.
pub struct Race<'a, B: AutodiffBackend> {
    pub data: &'a TrainTest,
    pub options: &'a Options,
    pub device: &'a B::Device,
    pub interrupt: &'a Interrupt,
    /// Over the steps of all trainings.
    pub bar: ProgressBar,
}

/// What a training came to.
#[derive(Debug)]
pub struct Run {
    pub precision: Precision,
    /// Whether the loss scale may change.
    pub dynamic: bool,
    pub steps: Vec<Step>,
    pub steps_per_epoch: usize,
    /// Number of test samples that the model names rightly, and of all.
    pub correct: usize,
    pub tested: usize,
    /// The most bytes that the heap held during a step, above what it held before the training:
    /// weights, optimizer, activations, gradients and the backend's scratch space.
    pub peak_bytes: usize,
    /// Of every step.
    pub gradients: Exponents,
    /// Of every step that was applied, times its loss scale: what the half dtype had to hold.
    pub scaled: Exponents,
}

/// One step of a training.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub loss: f32,
    /// That this step's loss was multiplied by.
    pub scale: f32,
    pub skipped: bool,
    /// Forward, backward and update.
    pub time: Duration,
    /// In forward and update.
    pub casts: u64,
}

impl<B: AutodiffBackend> Race<'_, B> {
    /// Trains at one level. `None` when it was interrupted.
    pub fn run(&self, precision: Precision) -> Result<Option<Run>, Box<dyn Error>> {
        let (options, device) = (self.options, self.device);
        let samples = &self.data.train;
        let heap_before = HEAP.current_usage();
        B::seed(device, options.seed);
        let amp = precision.config().init::<B>(device)?;
        let model = Cnn::<B>::new(samples.height, samples.width, CLASSES, device);
        // Burn draws a weight when it is first asked for; now all levels draw in one order.
        model.num_params();
        let mut model = amp.cast_model(model);
        let dynamic = amp.config().loss_scale() == LossScaling::Dynamic;
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        if dynamic {
            let rule = LossScaleConfig::default().with_growth_interval(options.growth_interval);
            optim = optim.with_loss_scale(rule)?;
        }

        let mut steps = Vec::new();
        let (mut gradients, mut scaled) = (Exponents::default(), Exponents::default());
        let mut peak_bytes = 0;
        let mut order: Vec<usize> = (0..samples.len()).collect();
        let mut shuffler = StdRng::seed_from_u64(options.seed);
        for _ in 0..options.epochs {
            order.shuffle(&mut shuffler);
            for positions in order.chunks(options.batch_size) {
                let (images, labels) = samples.batch(positions, device);
                let scale = optim.loss_scale().scale();
                HEAP.reset_peak_usage();
                let start = Instant::now();
                let ((value, grads), forward) = measure(|| {
                    let loss = loss(model.forward(images), labels);
                    let value = loss.clone().into_scalar().elem::<f32>();
                    (value, GradientsParams::from_grads(loss.backward(), &model))
                });
                let backward_time = start.elapsed();
                peak_bytes = peak_bytes.max(HEAP.peak_usage());
                let exponents = Exponents::of::<B>(&model, &grads);
                HEAP.reset_peak_usage();
                let start = Instant::now();
                let (updated, update) = measure(|| optim.step(options.lr, model, grads));
                model = updated;
                peak_bytes = peak_bytes.max(HEAP.peak_usage());
                let skipped = optim.last_step().is_some_and(|step| step.was_skipped());
                gradients.add(&exponents, 0);
                if !skipped {
                    // The scales here are powers of two.
                    scaled.add(&exponents, scale.log2() as i32);
                }
                steps.push(Step {
                    loss: value,
                    scale,
                    skipped,
                    time: backward_time + start.elapsed(),
                    casts: forward.made + update.made,
                });
                self.bar.inc(1);
                if self.interrupt.asked() {
                    return Ok(None);
                }
            }
        }
        let model = model.valid();
        let forward = |images| model.forward(images);
        Ok(Some(Run {
            precision,
            dynamic,
            steps_per_epoch: samples.len().div_ceil(options.batch_size),
            steps,
            correct: count_correct(forward, &self.data.test, device),
            tested: self.data.test.len(),
            peak_bytes: peak_bytes.saturating_sub(heap_before),
            gradients,
            scaled,
        }))
    }
}

impl Run {
    /// `O1 f16`; `O0 f32`.
    pub fn name(&self) -> String {
        match self.precision.level {
            OptLevel::O0 => "O0 f32".to_string(),
            level => format!("{level} {}", self.precision.half),
        }
    }

    /// The mean loss of the last epoch, in nats.
    pub fn last_loss(&self) -> f32 {
        let last = &self.steps[self.steps.len() - self.steps_per_epoch..];
        last.iter().map(|step| step.loss).sum::<f32>() / last.len() as f32
    }

    /// Of forward, backward and update.
    pub fn median_step(&self) -> Duration {
        let mut times: Vec<Duration> = self.steps.iter().map(|step| step.time).collect();
        times.sort();
        times[times.len() / 2]
    }

    /// Of the last step: the same at every step but for the first ones' caches.
    pub fn casts(&self) -> u64 {
        self.steps[self.steps.len() - 1].casts
    }

    pub fn skipped(&self) -> usize {
        self.steps.iter().filter(|step| step.skipped).count()
    }

    /// Of the last step.
    pub fn last_scale(&self) -> f32 {
        self.steps[self.steps.len() - 1].scale
    }
}
