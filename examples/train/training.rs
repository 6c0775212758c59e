use std::io::{self, Write};

use burn::module::AutodiffModule;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
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
    /// The last loss was not finite: training stopped after that epoch.
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
    let (mut losses, mut diverged) = (Vec::new(), false);

    for epoch in 1..=options.epochs {
        order.shuffle(&mut rng);
        let (mut sum, mut last) = (0.0, 0.0);
        for positions in order.chunks(options.batch_size) {
            let (images, labels) = samples.batch(positions, device);
            let lr = learning_rate(options.lr, bar.position(), steps);
            let loss = loss(model.forward(images), labels);
            last = loss.clone().into_scalar().elem::<f32>();
            sum += last;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = amp.cast_model(optimizer.step(lr, model, grads));
            bar.inc(1);
        }
        let mean = sum / steps_per_epoch as f32;
        losses.push(mean);
        bar.set_message(format!("loss {mean:.4}"));
        bar.suspend(|| log_epoch(epoch, options.epochs, mean));
        diverged = !last.is_finite();
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
fn learning_rate(peak: f64, step: u64, steps: usize) -> f64 {
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
