use core::fmt;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::{NonFinite, ScaleUpdate};

/// What became of one call of an optimizer's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepStatus {
    /// The parameters were updated.
    Applied,
    /// A gradient was infinite or NaN, on this or on another rank: parameters, optimizer state and
    /// masters are what they were.
    Skipped,
    /// There was no gradient, so there was nothing to update and nothing to learn about the scale.
    NoGradients,
}

/// Everything known about one optimizer step.
///
/// Its [`Display`](fmt::Display) form is one line for a log.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepOutcome {
    /// Applied, skipped, or nothing to do.
    pub status: StepStatus,
    /// The scale before and after, per loss id; empty when nothing was checked.
    pub scales: Vec<(usize, ScaleUpdate)>,
    /// The 2-norm of the true (unscaled, unclipped) gradients, if they were checked: of those of the
    /// step's losses, and finite exactly if the step was not skipped.
    pub grad_norm: Option<f64>,
    /// The factor by which gradients were clipped, from 0 to 1; 1 when they were not.
    pub clip_factor: f64,
    /// What was not finite on this rank, and in which parameters.
    pub non_finite: Option<NonFinite>,
}

impl StepOutcome {
    /// Whether the parameters were updated.
    pub fn was_applied(&self) -> bool {
        self.status == StepStatus::Applied
    }

    /// Whether the step was skipped because of a gradient that was not finite.
    pub fn was_skipped(&self) -> bool {
        self.status == StepStatus::Skipped
    }

    /// The scale that the next loss of this id will be multiplied by, if it was checked.
    pub fn scale_after(&self, loss_id: usize) -> Option<f32> {
        let found = self.scales.iter().find(|(id, _)| *id == loss_id);
        found.map(|(_, update)| update.after)
    }
}

impl fmt::Display for StepOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, &self.non_finite) {
            (StepStatus::Skipped, Some(bad)) => {
                write!(f, "step skipped: {} inf and {} nan in ", bad.inf, bad.nan)?;
                match bad.parameters.as_slice() {
                    [one] => write!(f, "{one}")?,
                    [first, rest @ ..] => write!(f, "{first} and {} more", rest.len())?,
                    [] => write!(f, "the gradients")?,
                }
            }
            (StepStatus::Skipped, None) => {
                write!(f, "step skipped with that of another rank or optimizer")?
            }
            (StepStatus::Applied, _) => write!(f, "step applied")?,
            (StepStatus::NoGradients, _) => write!(f, "no gradients")?,
        }
        for (loss_id, update) in &self.scales {
            write!(f, "; loss {loss_id}: {update}")?;
        }
        Ok(())
    }
}

/// Follows the steps of an optimizer from elsewhere: a scheduler, a metric, a progress bar.
///
/// Clones, and the clones of the optimizer, follow the same steps.
#[derive(Debug, Clone, Default)]
pub struct StepMonitor {
    shared: Arc<Mutex<Totals>>,
}

/// How many steps are remembered: metrics of Burn's `Learner` run up to three behind training.
const RECENT: usize = 4;

#[derive(Debug, Default)]
struct Totals {
    /// The last steps, oldest first, each with the number of steps skipped up to it.
    recent: VecDeque<(StepOutcome, u64)>,
    /// The steps recorded by this process, those without gradients too.
    recorded: u64,
    /// From a record perhaps, so these saturate.
    applied: u64,
    skipped: u64,
}

impl Totals {
    fn record(&mut self, outcome: StepOutcome) {
        match outcome.status {
            StepStatus::Applied => self.applied = self.applied.saturating_add(1),
            StepStatus::Skipped => self.skipped = self.skipped.saturating_add(1),
            StepStatus::NoGradients => {}
        }
        self.recorded += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((outcome, self.skipped));
    }
}

impl StepMonitor {
    /// The last step, if there was one.
    pub fn last(&self) -> Option<StepOutcome> {
        self.lock().recent.back().map(|(last, _)| last.clone())
    }

    /// The number of steps that updated parameters.
    pub fn applied(&self) -> u64 {
        self.lock().applied
    }

    /// The number of steps that were skipped.
    pub fn skipped(&self) -> u64 {
        self.lock().skipped
    }

    /// How many steps there were, those without gradients too.
    pub(crate) fn recorded(&self) -> u64 {
        self.lock().recorded
    }

    /// The first step after the one numbered `seen`, and the steps skipped up to it; moves `seen`
    /// there. Steps that are no longer remembered are passed over.
    #[cfg(feature = "train")]
    pub(crate) fn follow(&self, seen: &mut u64) -> Option<(StepOutcome, u64)> {
        let totals = self.lock();
        let oldest = totals.recorded - totals.recent.len() as u64;
        let next = (*seen).max(oldest);
        let step = totals.recent.get((next - oldest) as usize)?.clone();
        *seen = next + 1;
        Some(step)
    }

    pub(crate) fn record(&self, outcome: StepOutcome) {
        self.lock().record(outcome);
    }

    /// Records a step by its number from 1, unless another rank has; whether this was the first.
    pub(crate) fn record_once(&self, number: u64, outcome: StepOutcome) -> bool {
        let mut totals = self.lock();
        if totals.recorded < number {
            totals.record(outcome);
            return true;
        }
        // The rank that overflowed knows more than the one that was first.
        match totals.recent.back_mut() {
            Some((last, _)) if last.non_finite.is_none() => last.non_finite = outcome.non_finite,
            _ => {}
        }
        false
    }

    pub(crate) fn restore(&self, applied: u64, skipped: u64) {
        let mut totals = self.lock();
        totals.recent.clear();
        totals.applied = applied;
        totals.skipped = skipped;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Totals> {
        self.shared.lock().unwrap_or_else(|e| e.into_inner())
    }
}
