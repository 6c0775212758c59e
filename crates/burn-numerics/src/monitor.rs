use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{NumericsRecorder, NumericsReport};

/// Watches every so many steps of a training and keeps the latest report.
///
/// All copies are one monitor: the training step has one, `NumericsMetric` (feature `train`) or your own
/// log another. Several threads may watch at once, each the steps that it runs itself.
///
/// # Cost
///
/// A watched step costs what [`NumericsRecorder`] says, the others a count.
///
/// # Example: in Burn's Learner
///
/// The step of a model needs no other change; `#[module(skip)]` keeps the monitor out of records.
///
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Tensor;
/// use burn::tensor::backend::{AutodiffBackend, Backend};
/// use burn_mixed_precision::{AmpConfig, FastBackward, MixedPrecision, OptLevel, observe};
/// use burn_numerics::NumericsMonitor;
///
/// type B = MixedPrecision<Autodiff<FastBackward<Flex>>>;
///
/// #[derive(Module, Debug)]
/// struct Model<B: Backend> {
///     linear: Linear<B>,
///     #[module(skip)]
///     numerics: NumericsMonitor,
/// }
///
/// impl<B: AutodiffBackend> Model<B> {
///     /// What `TrainStep::step` does.
///     fn step(&self, batch: Tensor<B, 2>) -> B::Gradients {
///         self.numerics.watch(|| {
///             observe::name_parameters(self);
///             self.linear.forward(batch).sum().backward()
///         })
///     }
/// }
///
/// let device = Default::default();
/// AmpConfig::new(OptLevel::O1).init::<B>(&device)?;
/// let numerics = NumericsMonitor::every(100);
/// let linear = LinearConfig::new(4, 4).init(&device);
/// let model = Model::<B> { linear, numerics: numerics.clone() };
/// let _gradients = model.step(Tensor::ones([2, 4], &device));
/// assert!(numerics.latest().unwrap().recommendations.is_empty());
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Debug, Clone)]
pub struct NumericsMonitor {
    interval: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    begun: AtomicU64,
    latest: Mutex<Option<Arc<NumericsReport>>>,
}

impl NumericsMonitor {
    /// Watches the first step, and of those behind it each `interval`-th.
    ///
    /// # Panics
    ///
    /// If `interval` is 0.
    pub fn every(interval: u64) -> Self {
        assert!(
            interval > 0,
            "the interval of a NumericsMonitor is 0; it must be 1 (every step) or more"
        );
        NumericsMonitor {
            interval,
            shared: Arc::default(),
        }
    }

    /// Runs the forward and the backward pass of a step on this thread, and watches it if it is its turn.
    pub fn watch<R>(&self, step: impl FnOnce() -> R) -> R {
        let number = self.shared.begun.fetch_add(1, Ordering::Relaxed);
        if !number.is_multiple_of(self.interval) {
            return step();
        }
        let mut recorder = NumericsRecorder::new();
        let result = recorder.watch(step);
        *self.slot() = Some(Arc::new(recorder.finish()));
        result
    }

    /// The report of the watched step that ended last; `None` before the first.
    pub fn latest(&self) -> Option<Arc<NumericsReport>> {
        self.slot().clone()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<NumericsReport>>> {
        let latest = self.shared.latest.lock();
        latest.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::Tensor;
    use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};

    use super::*;

    type B = MixedPrecision<Flex>;

    /// A product of two numbers of 1, and this many that f16 takes for 0.
    fn step(tiny: usize) {
        let numbers: Vec<f32> = (0..4).map(|i| if i < tiny { 1e-9 } else { 1.0 }).collect();
        let data = burn::tensor::TensorData::new(numbers, [2, 2]);
        let x = Tensor::<B, 2>::from_data(data, &Default::default());
        x.clone().matmul(x);
    }

    #[test]
    fn the_first_step_is_watched_and_every_so_many_behind_it() {
        let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
        let monitor = NumericsMonitor::every(3);
        assert_eq!(monitor.latest(), None);
        let flushed: Vec<f64> = (0..5)
            .map(|number| {
                amp.scope(|| monitor.clone().watch(|| step(number)));
                monitor.latest().unwrap().flushed()
            })
            .collect();
        assert_eq!(flushed, [0.0, 0.0, 0.0, 0.75, 0.75]);
    }

    #[test]
    #[should_panic(expected = "it must be 1 (every step) or more")]
    fn an_interval_of_zero_is_refused() {
        NumericsMonitor::every(0);
    }
}
