use std::io::{self, Write};

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::cast::ToElement;
use burn::tensor::{ElementConversion, Int, Tensor};
use burn_amp::Amp;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::cli::Options;
use crate::data_sets::Samples;
use crate::model::Cnn;

/// What training made of a model.
pub struct Trained<B: Backend> {
    pub model: Cnn<B>,
    /// The mean loss of each epoch, never empty.
    pub losses: Vec<f32>,
    /// After the last epoch the loss or a weight was not finite: training stopped there.
    pub diverged: bool,
}

/// Trains a model with Adam, in as many epochs as the options say.
pub fn train<B: AutodiffBackend>(
    mut model: Cnn<B>,
    amp: &Amp,
    samples: &Samples,
    options: &Options,
    device: &B::Device,
) -> Trained<B> {
    let mut optimizer = AdamConfig::new().init();
    let mut order: Vec<usize> = (0..samples.len()).collect();
    let mut rng = StdRng::seed_from_u64(options.seed);
    let steps_per_epoch = order.len().div_ceil(options.batch_size);
    let steps = steps_per_epoch * options.epochs;
    let bar = progress_bar(steps);
    let (mut step, mut losses, mut diverged) = (0, Vec::new(), false);

    for epoch in 1..=options.epochs {
        order.shuffle(&mut rng);
        let (mut sum, mut last) = (0.0, 0.0);
        for positions in order.chunks(options.batch_size) {
            let (images, labels) = samples.batch(positions, device);
            let lr = learning_rate(options.lr, step, steps);
            let loss = loss(model.forward(images), labels);
            last = loss.clone().into_scalar().elem::<f32>();
            sum += last;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = amp.cast_model(optimizer.step(lr, model, grads));
            step += 1;
            bar.inc(1);
        }
        let mean = sum / steps_per_epoch as f32;
        losses.push(mean);
        bar.set_message(format!("loss {mean:.4}"));
        bar.suspend(|| log_epoch(epoch, options.epochs, mean));
        diverged = !last.is_finite() || !has_finite_weights(&model);
        if diverged {
            break;
        }
    }
    bar.finish_and_clear();
    Trained {
        model,
        losses,
        diverged,
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

/// The mean cross-entropy of a batch.
pub fn loss<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    let device = logits.device();
    CrossEntropyLossConfig::new()
        .init(&device)
        .forward(logits, labels)
}

/// How many samples a model names rightly, in evaluation mode.
pub fn count_correct<B: AutodiffBackend>(
    model: &Cnn<B>,
    samples: &Samples,
    device: &B::Device,
) -> usize {
    // Bounds the memory of a test set of any size; the result does not depend on it.
    const BATCH_SIZE: usize = 256;
    let model = model.valid();
    let positions: Vec<usize> = (0..samples.len()).collect();
    positions
        .chunks(BATCH_SIZE)
        .map(|positions| {
            let (images, labels) = samples.batch::<B::InnerBackend>(positions, device);
            let named = model.forward(images).argmax(1).flatten::<1>(0, 1);
            named.equal(labels).int().sum().into_scalar().elem::<i64>() as usize
        })
        .sum()
}

/// Half a cosine from the peak at the first step to 0 after the last.
fn learning_rate(peak: f64, step: usize, steps: usize) -> f64 {
    let done = step as f64 / steps as f64;
    peak * 0.5 * (1.0 + (done * core::f64::consts::PI).cos())
}

fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} steps, {eta} left  {msg}");
    ProgressBar::new(steps as u64).with_style(style.expect("the template is well-formed"))
}

/// A closed stderr is no reason to stop training.
fn log_epoch(epoch: usize, epochs: usize, loss: f32) {
    let _ = writeln!(io::stderr(), "epoch {epoch:>2}/{epochs}  loss {loss:.4}");
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
    fn training_stops_after_the_epoch_that_diverged() {
        let samples = Samples {
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
            let trained = train(model, &amp, &samples, &options, &device);
            (trained.losses.len(), trained.diverged)
        };
        // The one step of the first epoch starts from a finite loss: only the weights tell.
        assert_eq!(train(f64::NAN), (1, true));
        assert_eq!(train(0.001), (3, false));
    }
}
