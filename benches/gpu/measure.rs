//! What is measured of a training run, and in which order.

use std::time::{Duration, Instant};

use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;

use crate::backend;
use crate::task::Task;
use crate::training::Training;

/// Steps before anything is timed: kernels are tuned in them, and the loss scale settles.
pub const LOSS_AFTER: usize = 20;
const ROUNDS: usize = 3;
const MAX_STEPS: usize = 10;
const PHASED: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

/// One cell per column of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Median over rounds of the mean time of a step.
    pub step: Duration,
    /// Fastest and slowest round.
    pub range: [Duration; 2],
    /// Bytes of live tensors between forward and backward, when a step holds the most.
    pub live: u64,
    pub casts: u64,
    pub host_reads: u64,
    /// The part of a step after backward, with a `sync` before and after it.
    pub update: f64,
    /// The loss of the batch after [`LOSS_AFTER`] steps on it.
    pub loss: f64,
}

pub fn sample<B, T, O>(training: &mut Training<B, T, O>) -> Sample
where
    B: AutodiffBackend<Device = backend::Device>,
    T: Task<B>,
    O: Optimizer<T, B>,
{
    (0..LOSS_AFTER).for_each(|_| training.step());
    // One forward for both, and its backward: Burn keeps a graph that never ran backward.
    let loss = training.forward();
    let live = backend::bytes_in_use::<B>(&training.device);
    let value = loss.clone().inner().into_data();
    training.update(loss.backward());
    let loss = value.iter::<f64>().next().expect("a loss is one number");

    let reads = burn_amp::host_reads();
    let ((), casts) = burn_amp::measure(|| training.step());
    let host_reads = burn_amp::host_reads() - reads;

    let once = time(training, 1);
    let steps = (ROUND.as_secs_f64() / once.as_secs_f64()).clamp(2.0, MAX_STEPS as f64) as usize;
    let mut rounds: [Duration; ROUNDS] = core::array::from_fn(|_| time(training, steps));
    rounds.sort_unstable();

    Sample {
        step: rounds[ROUNDS / 2],
        range: [rounds[0], rounds[ROUNDS - 1]],
        live,
        casts: casts.made,
        host_reads,
        update: update_share(training, steps),
        loss,
    }
}

/// The mean time of a step.
fn time<B, T, O>(training: &mut Training<B, T, O>, steps: usize) -> Duration
where
    B: AutodiffBackend,
    T: Task<B>,
    O: Optimizer<T, B>,
{
    training.sync();
    let start = Instant::now();
    (0..steps).for_each(|_| training.step());
    training.sync();
    start.elapsed() / steps as u32
}

fn update_share<B, T, O>(training: &mut Training<B, T, O>, steps: usize) -> f64
where
    B: AutodiffBackend,
    T: Task<B>,
    O: Optimizer<T, B>,
{
    let (mut whole, mut update) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..steps {
        training.sync();
        let start = Instant::now();
        let grads = training.forward().backward();
        training.sync();
        let after_backward = Instant::now();
        training.update(grads);
        training.sync();
        whole += start.elapsed();
        update += after_backward.elapsed();
    }
    update.as_secs_f64() / whole.as_secs_f64()
}

/// Prints where the time of a few steps goes, in milliseconds: forward and backward as handed to
/// the GPU, the wait until it is done, the update as handed over, the wait for that.
pub fn print_phases<B, T, O>(training: &mut Training<B, T, O>)
where
    B: AutodiffBackend,
    T: Task<B>,
    O: Optimizer<T, B>,
{
    (0..LOSS_AFTER).for_each(|_| training.step());
    for _ in 0..PHASED {
        training.sync();
        let mut start = Instant::now();
        let mut lap = || {
            let now = Instant::now();
            let lap = now - core::mem::replace(&mut start, now);
            format!("{:.2}", lap.as_secs_f64() * 1e3)
        };
        let loss = training.forward();
        let forward = lap();
        let grads = loss.backward();
        let backward = lap();
        training.sync();
        let wait = lap();
        training.update(grads);
        let update = lap();
        training.sync();
        println!(
            "forward {forward}, backward {backward}, wait {wait}, update {update}, wait {}",
            lap()
        );
    }
}
