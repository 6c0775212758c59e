use core::fmt;
use core::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::module::Module;
use burn_backend::Backend;
use serde::{Deserialize, Serialize};

use super::recorder::Recorder;
use super::{Finding, Trace};
use crate::AmpError;
use crate::observe::{self, Names, Session};

/// When a [`Tracer`] records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceMode {
    /// Only between [`Tracer::arm`] and [`Tracer::take`].
    #[default]
    Off,
    /// The step after a skipped one, by itself, as long as steps are skipped.
    OnSkip,
    /// Every step.
    Always,
}

impl fmt::Display for TraceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TraceMode::Off => "off",
            TraceMode::OnSkip => "on_skip",
            TraceMode::Always => "always",
        })
    }
}

impl FromStr for TraceMode {
    type Err = AmpError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(TraceMode::Off),
            "on_skip" => Ok(TraceMode::OnSkip),
            "always" => Ok(TraceMode::Always),
            _ => Err(AmpError::InvalidOption {
                option: "trace",
                value: text.to_string(),
                allowed: "off, on_skip or always".to_string(),
            }),
        }
    }
}

/// The overflow tracer of some settings: records what runs on their devices, on every thread.
///
/// [`AmpConfig::with_trace`](crate::AmpConfig::with_trace) says when. The optimizer of
/// burn-grad-scaler ends a step's trace and logs what was found: at `warn` a fault, at `info` a loss
/// scale that was too high. By hand: [`arm`](Tracer::arm), run, [`take`](Tracer::take). For one block
/// on one thread there is [`Trace::of`].
///
/// # Cost
///
/// Off: one test of a flag per operation. On: some ten small reductions per tensor, and a reading of
/// six numbers per tensor when the step ends: docs/performance.md has the factor.
#[derive(Clone)]
pub struct Tracer {
    shared: Arc<Shared>,
}

struct Shared {
    mode: TraceMode,
    capacity: usize,
    floor: f32,
    recording: Mutex<Option<Recording>>,
    last: Mutex<Option<Trace>>,
}

struct Recording {
    session: Arc<Session>,
    recorder: Arc<Mutex<Recorder>>,
}

impl Tracer {
    pub(crate) fn new(mode: TraceMode, capacity: usize, floor: f32) -> Self {
        let tracer = Tracer {
            shared: Arc::new(Shared {
                mode,
                capacity,
                floor,
                recording: Mutex::default(),
                last: Mutex::default(),
            }),
        };
        if mode == TraceMode::Always {
            tracer.arm();
        }
        tracer
    }

    /// When this tracer records by itself.
    pub fn mode(&self) -> TraceMode {
        self.shared.mode
    }

    /// Records from now on, from an empty ring.
    pub fn arm(&self) {
        let recorder = Recorder::new(self.shared.capacity, self.shared.floor);
        let recorder = Arc::new(Mutex::new(recorder));
        let new = Recording {
            session: Session::new(recorder.clone()),
            recorder,
        };
        if self.shared.recording().replace(new).is_none() {
            observe::arm();
        }
    }

    /// Whether it records.
    pub fn is_armed(&self) -> bool {
        self.shared.recording().is_some()
    }

    /// Names operations by the modules of this model, until its parameters are updated.
    pub fn name_parameters<B: Backend, M: Module<B>>(&self, model: &M) {
        if let Some(session) = self.session() {
            session.rename(Names::of(model));
        }
    }

    /// Ends the recording and gives what was recorded; `None` if it did not record.
    pub fn take(&self) -> Option<Trace> {
        let recording = self.shared.recording().take()?;
        observe::disarm();
        drop(recording.session);
        // Another thread may be in the middle of a call: what it records goes with it.
        let recorder = core::mem::replace(
            &mut *recording.recorder.lock().unwrap_or_else(|e| e.into_inner()),
            Recorder::new(1, self.shared.floor),
        );
        Some(recorder.finish())
    }

    /// The trace of the last step that was recorded by itself.
    pub fn last(&self) -> Option<Trace> {
        self.shared.last().clone()
    }

    /// The [fault](Trace::fault) of that trace.
    pub fn last_fault(&self) -> Option<Finding> {
        self.shared.last().as_ref()?.fault().cloned()
    }

    /// A step is over: ends its trace, says what was found, and begins the next one if it is due.
    ///
    /// For optimizers; `model` is the one whose next forward may be traced.
    pub fn end_step<B: Backend, M: Module<B>>(&self, skipped: bool, model: &M) {
        if self.shared.mode == TraceMode::Off {
            return;
        }
        let used = self.shared.recording().as_ref().is_some_and(|recording| {
            !recording
                .recorder
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .is_empty()
        });
        if used && let Some(trace) = self.take() {
            announce(&trace);
            *self.shared.last() = Some(trace);
        }
        if skipped || self.shared.mode == TraceMode::Always {
            self.arm();
            self.name_parameters(model);
        } else {
            self.take();
        }
    }

    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        let recording = self.shared.recording();
        recording
            .as_ref()
            .map(|recording| recording.session.clone())
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("mode", &self.mode())
            .field("is_armed", &self.is_armed())
            .finish_non_exhaustive()
    }
}

/// A panic elsewhere leaves these as they were.
impl Shared {
    fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn last(&self) -> MutexGuard<'_, Option<Trace>> {
        self.last.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.recording().take().is_some() {
            observe::disarm();
        }
    }
}

/// One event per trace with a finding: a sentence, then fields in logfmt whose names stay as they are.
fn announce(trace: &Trace) {
    let Some(finding) = trace.fault().or(trace.first()) else {
        return;
    };
    let level = match finding.is_fault() {
        true => log::Level::Warn,
        false => log::Level::Info,
    };
    log::log!(
        target: "burn_amp::trace",
        level,
        "{finding}; what helps: {} op={} module={:?} phase={} dtype={} inf={} nan={} fault={}",
        finding.advice(),
        finding.op,
        finding.place.path(),
        finding.phase,
        finding.dtype.name(),
        finding.tensor.extremes.infinities(),
        finding.tensor.extremes.nans,
        finding.is_fault(),
    );
}

impl Trace {
    /// Runs a block on this thread and traces it, keeping the last
    /// [`DEFAULT_CAPACITY`](Trace::DEFAULT_CAPACITY) calls.
    ///
    /// [`observe::name_parameters`] inside the block gives operations the names of a model's modules.
    pub fn of<R>(block: impl FnOnce() -> R) -> (R, Trace) {
        Trace::with_capacity(Trace::DEFAULT_CAPACITY, block)
    }

    /// As [`of`](Trace::of), keeping the last `capacity` calls, at least one.
    pub fn with_capacity<R>(capacity: usize, block: impl FnOnce() -> R) -> (R, Trace) {
        let (result, recorder) = observe::run(Recorder::new(capacity, 1.0), block);
        (result, recorder.finish())
    }
}
