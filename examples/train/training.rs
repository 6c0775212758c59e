use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::cast::ToElement;
use burn::tensor::{ElementConversion, Tensor};
use burn_amp::{Amp, AmpOptimizer};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::classification::loss;
use crate::cli::Options;
use crate::data_sets::Samples;
use crate::model::Cnn;
use crate::program::interrupt::Interrupt;
use crate::program::progress;

/// Adam, wrapped for mixed precision.
pub type Adam<B> = AmpOptimizer<OptimizerAdaptor<burn::optim::Adam, Cnn<B>, B>, B>;

/// A training that has come to the end of an epoch.
pub struct Trained<B: AutodiffBackend> {
    pub model: Cnn<B>,
    pub optimizer: Adam<B>,
    pub progress: Progress,
}

/// How far a training has come.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The mean loss of each epoch so far.
    #[serde(with = "losses")]
    pub losses: Vec<f32>,
    /// Each loss scale with the number of the step, from 0, that was the first to use it.
    pub scales: Vec<(usize, f32)>,
    /// After the last epoch the loss or a weight was not finite: training stopped there.
    pub diverged: bool,
}

/// JSON has no NaN: a loss that is not a number is `null` there.
mod losses {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(losses: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        losses.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        let losses = Vec::<Option<f32>>::deserialize(deserializer)?;
        Ok(losses
            .into_iter()
            .map(|loss| loss.unwrap_or(f32::NAN))
            .collect())
    }
}

impl<B: AutodiffBackend> Trained<B> {
    /// A training that has not begun.
    pub fn new(model: Cnn<B>, amp: &Amp) -> Self {
        let optimizer = AmpOptimizer::new(AdamConfig::new().init(), amp);
        Trained {
            model,
            progress: Progress {
                scales: vec![(0, optimizer.loss_scale().scale())],
                ..Progress::default()
            },
            optimizer,
        }
    }
}

/// Trains until as many epochs are done as the options say, it has diverged or it is interrupted,
/// which ends it in the middle of an epoch; shows each finished epoch to `saved`.
pub fn train<B: AutodiffBackend, E>(
    mut trained: Trained<B>,
    samples: &Samples,
    options: &Options,
    device: &B::Device,
    interrupt: &Interrupt,
    mut saved: impl FnMut(&Trained<B>) -> Result<(), E>,
) -> Result<Trained<B>, E> {
    let steps_per_epoch = samples.len().div_ceil(options.batch_size);
    let steps = steps_per_epoch * options.epochs;
    let done = trained.progress.losses.len();
    let bar = progress::bar(steps);
    bar.set_position((done * steps_per_epoch) as u64);

    for epoch in done + 1..=options.epochs {
        if trained.progress.diverged {
            break;
        }
        let mut order: Vec<usize> = (0..samples.len()).collect();
        // Of each epoch by itself, so that a resumed training sees the order it would have seen.
        order.shuffle(&mut StdRng::seed_from_u64(
            options.seed ^ (epoch as u64) << 32,
        ));
        let (mut sum, mut last) = (0.0, 0.0);
        for (i, positions) in order.chunks(options.batch_size).enumerate() {
            let (images, labels) = samples.batch(positions, device);
            let step = (epoch - 1) * steps_per_epoch + i;
            let lr = learning_rate(options.lr, step, steps);
            let loss = loss(trained.model.forward(images), labels);
            last = loss.clone().into_scalar().elem::<f32>();
            sum += last;
            let grads = GradientsParams::from_grads(loss.backward(), &trained.model);
            trained.model = trained.optimizer.step(lr, trained.model, grads);
            trained
                .progress
                .note_scale(step + 1, trained.optimizer.loss_scale().scale());
            bar.inc(1);
            if interrupt.asked() {
                bar.finish_and_clear();
                return Ok(trained);
            }
        }
        let mean = sum / steps_per_epoch as f32;
        trained.progress.losses.push(mean);
        trained.progress.diverged = !last.is_finite() || !has_finite_weights(&trained.model);
        bar.set_message(format!("loss {mean:.4}"));
        let epochs = options.epochs;
        progress::line(&bar, &format!("epoch {epoch:>2}/{epochs}  loss {mean:.4}"));
        saved(&trained)?;
    }
    bar.finish_and_clear();
    Ok(trained)
}

impl Progress {
    fn note_scale(&mut self, step: usize, scale: f32) {
        if self.scales.last().is_none_or(|(_, last)| *last != scale) {
            self.scales.push((step, scale));
        }
    }
}

/// Asked beside the loss, which may hide NaN: `relu(NaN)` is 0 on some backends.
fn has_finite_weights<B: Backend>(model: &Cnn<B>) -> bool {
    struct Finite(bool);

    impl<B: Backend> ModuleVisitor<B> for Finite {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0 &= param.val().is_finite().all().into_scalar().to_bool();
        }
    }

    let mut finite = Finite(true);
    model.visit(&mut finite);
    finite.0
}

/// Half a cosine from the peak at the first step to 0 after the last.
fn learning_rate(peak: f64, step: usize, steps: usize) -> f64 {
    let done = step as f64 / steps as f64;
    peak * 0.5 * (1.0 + (done * core::f64::consts::PI).cos())
}

#[cfg(test)]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use burn_amp::{AmpConfig, OptLevel};

    use super::*;

    #[test]
    fn the_learning_rate_falls_from_its_peak_to_zero() {
        let rates: Vec<f64> = (0..=10).map(|step| learning_rate(0.5, step, 10)).collect();
        assert!(rates.is_sorted_by(|a, b| a > b));
        assert_eq!((rates[0], rates[10]), (0.5, 0.0));
        assert!((rates[5] - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_loss_that_is_not_a_number_can_be_saved() {
        let progress = Progress {
            losses: vec![0.5, f32::NAN],
            scales: vec![(0, 1.0)],
            diverged: true,
        };
        let text = serde_json::to_string(&progress).unwrap();
        let read: Progress = serde_json::from_str(&text).unwrap();
        assert!(read.losses[0] == 0.5 && read.losses[1].is_nan() && read.diverged);
    }

    #[test]
    fn training_stops_after_the_epoch_that_diverged() {
        let samples = Samples {
            channels: 1,
            height: 4,
            width: 4,
            white: 1,
            pixels: [[0; 16], [1; 16]].concat(),
            labels: vec![0, 1],
        };
        let device = Default::default();
        let amp = AmpConfig::new(OptLevel::O0).build().unwrap();
        let train = |lr| {
            let model = Cnn::<Autodiff<Flex>>::new(4, 4, 2, &device);
            let options = Options {
                lr,
                epochs: 3,
                ..Options::default()
            };
            let start = Trained::new(model, &amp);
            let progress = train(
                start,
                &samples,
                &options,
                &device,
                &Interrupt::default(),
                |_| Ok::<_, ()>(()),
            )
            .unwrap()
            .progress;
            (progress.losses.len(), progress.diverged)
        };
        // The one step of the first epoch starts from a finite loss: only the weights tell.
        assert_eq!(train(f64::NAN), (1, true));
        assert_eq!(train(0.001), (3, false));
    }
}
