use burn::lr_scheduler::LrScheduler;
use burn::optim::LearningRate;
use burn::tensor::backend::Backend;

use crate::StepMonitor;

/// Makes a learning-rate scheduler hold still while optimizer steps are skipped.
///
/// Burn's `Learner` asks its scheduler for a learning rate at every iteration, also after an
/// iteration whose step was skipped: a warm-up would be over before the first update. This one asks
/// the inner scheduler only if no step was skipped since the last call, and otherwise answers with
/// the learning rate it answered before.
///
/// With gradient accumulation the `Learner` asks at every micro-batch, and so the schedule advances;
/// a skipped step holds one micro-batch, the first after it.
///
/// # Example
///
/// ```
/// use burn::lr_scheduler::{LrScheduler, noam::NoamLrSchedulerConfig};
/// use burn_grad_scaler::{AmpScheduler, StepMonitor};
///
/// let monitor = StepMonitor::default(); // AmpOptimizer::monitor
/// let inner = NoamLrSchedulerConfig::new(1.0).init().expect("valid");
/// let mut scheduler = AmpScheduler::new(inner, monitor);
/// assert!(scheduler.step() > 0.0);
/// ```
#[derive(Debug, Clone)]
pub struct AmpScheduler<S> {
    inner: S,
    monitor: StepMonitor,
    /// The last answer; `None` before the first.
    lr: Option<LearningRate>,
    /// The skipped steps that were known at the last answer.
    skipped: u64,
}

impl<S> AmpScheduler<S> {
    /// Wraps a scheduler that follows the steps of an optimizer.
    pub fn new(inner: S, monitor: StepMonitor) -> Self {
        AmpScheduler {
            inner,
            skipped: monitor.skipped(),
            monitor,
            lr: None,
        }
    }

    /// The wrapped scheduler.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: LrScheduler> LrScheduler for AmpScheduler<S> {
    /// The inner record, the last answer, and the skipped steps it knew of.
    type Record<B: Backend> = (S::Record<B>, Option<LearningRate>, u64);

    fn step(&mut self) -> LearningRate {
        let skipped = self.monitor.skipped();
        let held = skipped != self.skipped;
        self.skipped = skipped;
        match self.lr {
            Some(lr) if held => lr,
            _ => *self.lr.insert(self.inner.step()),
        }
    }

    fn to_record<B: Backend>(&self) -> Self::Record<B> {
        (self.inner.to_record::<B>(), self.lr, self.skipped)
    }

    fn load_record<B: Backend>(self, (inner, lr, skipped): Self::Record<B>) -> Self {
        AmpScheduler {
            inner: self.inner.load_record::<B>(inner),
            monitor: self.monitor,
            lr,
            skipped,
        }
    }
}
