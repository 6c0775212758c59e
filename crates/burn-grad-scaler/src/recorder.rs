use crate::{StepMonitor, StepOutcome};

/// An optimizer's hand on its monitor.
///
/// Ranks that are clones of one optimizer follow the same steps in one monitor: each step is recorded
/// by the rank that is first there.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub monitor: StepMonitor,
    /// The number of the last step that this rank took.
    number: u64,
}

impl Clone for Recorder {
    /// A clone begins at the present step. No rank can be further: it would have to wait.
    fn clone(&self) -> Self {
        Recorder {
            monitor: self.monitor.clone(),
            number: self.monitor.recorded(),
        }
    }
}

impl Recorder {
    /// Records a step of an optimizer that is alone, and so the first to do so.
    pub fn record(&mut self, outcome: StepOutcome) -> bool {
        self.monitor.record(outcome);
        self.number = self.monitor.recorded();
        true
    }

    /// Records a step that every rank takes; whether this rank was the first to do so.
    pub fn record_once(&mut self, outcome: StepOutcome) -> bool {
        self.number += 1;
        self.monitor.record_once(self.number, outcome)
    }
}
