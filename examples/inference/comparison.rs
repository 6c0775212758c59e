use core::fmt;
use std::time::{Duration, Instant};

use burn::tensor::DType;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;

use crate::data_sets::{CLASSES, Samples};
use crate::model::Cnn;

/// What a model says of a data set.
pub struct Answers {
    /// `CLASSES` a sample.
    probabilities: Vec<f32>,
    correct: usize,
    weights: DType,
    /// The median of the whole batches.
    time: Duration,
}

impl Answers {
    /// Asks the model, a batch at a time.
    pub fn of<B: Backend>(
        model: &Cnn<B>,
        samples: &Samples,
        batch_size: usize,
        device: &B::Device,
    ) -> Self {
        let positions: Vec<usize> = (0..samples.len()).collect();
        let mut answers = Answers {
            probabilities: Vec::new(),
            correct: 0,
            weights: model.conv1.weight.val().dtype(),
            time: Duration::ZERO,
        };
        // The first pass over a device's kernels, and over half copies of weights, takes longer.
        let (images, _) = samples.batch::<B>(&positions[..1], device);
        let _ = model.forward(images).into_data();
        let mut times = Vec::new();
        for positions in positions.chunks(batch_size) {
            let (images, _) = samples.batch::<B>(positions, device);
            let start = Instant::now();
            let probabilities = softmax(model.forward(images), 1);
            let probabilities = probabilities.into_data().convert::<f32>();
            times.push(start.elapsed());
            answers.probabilities.extend(probabilities.iter::<f32>());
        }
        times.sort();
        answers.time = times[times.len() / 2];
        answers.correct = (0..samples.len())
            .filter(|&at| answers.named(at) == usize::from(samples.labels[at]))
            .count();
        answers
    }

    fn len(&self) -> usize {
        self.probabilities.len() / CLASSES
    }

    /// The class that it takes a sample for.
    fn named(&self, sample: usize) -> usize {
        let of_sample = &self.probabilities[sample * CLASSES..][..CLASSES];
        let best = (0..CLASSES).max_by(|&a, &b| of_sample[a].total_cmp(&of_sample[b]));
        best.expect("there are classes")
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights {}, accuracy {:.2}%, {:.2} ms a batch",
            self.weights.name(),
            100.0 * self.correct as f64 / self.len() as f64,
            self.time.as_secs_f64() * 1e3
        )
    }
}

/// How far two models agree.
pub struct Comparison {
    /// The share of samples, from 0 to 1, that both take for the same class.
    same: f64,
    /// Between two probabilities of the same class.
    largest_difference: f32,
}

impl Comparison {
    pub fn of(full: &Answers, other: &Answers) -> Self {
        let same = (0..full.len()).filter(|&at| full.named(at) == other.named(at));
        let pairs = full.probabilities.iter().zip(&other.probabilities);
        Comparison {
            same: same.count() as f64 / full.len() as f64,
            largest_difference: pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2}% answers as in f32, probabilities within {:.1e}",
            100.0 * self.same,
            self.largest_difference
        )
    }
}
