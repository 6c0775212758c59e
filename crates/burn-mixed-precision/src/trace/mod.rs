//! The overflow tracer: which operation made the first infinity or NaN.

mod display;
mod finding;
mod judge;
mod recorder;
mod tracer;

use burn_backend::DType;
use serde::Serialize;

pub use finding::{Cause, Finding};
pub use tracer::{TraceMode, Tracer};

use crate::CastRule;
use crate::observe::{Casting, Extremes, Phase, Place, Role};

/// What a tracer recorded: the last calls with their tensors, and what went wrong among all of them.
///
/// Its [`Display`](core::fmt::Display) form is a report for a terminal; it serializes to JSON.
///
/// # Example
///
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use burn_mixed_precision::{AmpConfig, Cause, MixedPrecision, OptLevel, Trace, scope};
///
/// type B = MixedPrecision<Flex>;
/// let amp = AmpConfig::new(OptLevel::O1).build()?;
/// let x = Tensor::<B, 2>::full([2, 2], 300.0, &Default::default());
/// let (_, trace) = amp.scope(|| {
///     Trace::of(|| scope::module("scores", || x.clone().matmul(x)))
/// });
/// let fault = trace.fault().expect("300 * 300 + 300 * 300 is beyond 65504");
/// assert_eq!((fault.op.as_str(), fault.place.path()), ("float_matmul", "scores"));
/// assert_eq!(fault.cause, Cause::Overflow);
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Trace {
    /// The last calls, oldest first; at most as many as the ring holds.
    pub records: Vec<TraceRecord>,
    /// Earlier calls that the ring no longer holds. They were judged all the same.
    pub dropped: u64,
    /// Where finite numbers became infinite or NaN, in the order in which it happened: the first
    /// [`MAX_FINDINGS`](Trace::MAX_FINDINGS).
    pub findings: Vec<Finding>,
    /// The factor of the last backward pass; `None` without a scaler or without a backward pass.
    pub loss_scale: Option<f32>,
    /// Whether gradients were seen: a backward pass on a backend with
    /// [`FastBackward`](crate::FastBackward) inside autodiff.
    pub saw_gradients: bool,
}

impl Trace {
    /// How many findings a trace keeps.
    pub const MAX_FINDINGS: usize = 32;

    /// How many calls a trace keeps unless told otherwise.
    pub const DEFAULT_CAPACITY: usize = 4096;

    /// The first finding that is a fault, not a loss scale that was too high for once.
    pub fn fault(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.is_fault())
    }

    /// The first finding of any kind.
    pub fn first(&self) -> Option<&Finding> {
        self.findings.first()
    }
}

/// One call of a [`Trace`], forward or backward.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TraceRecord {
    /// The number of the call: forward and backward of one call share it.
    pub call: u64,
    /// Forward values or backward gradients.
    pub phase: Phase,
    /// Burn's name of the operation.
    pub op: String,
    /// Where in the model.
    pub place: Place,
    /// The rule in force.
    pub rule: CastRule,
    /// Its tensors; in backward their gradients, that of the output first.
    pub tensors: Vec<TensorRecord>,
}

/// One tensor of a [`TraceRecord`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorRecord {
    /// Which tensor of the call.
    pub role: Role,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its dtype: of an input before the cast.
    #[serde(serialize_with = "dtype_name")]
    pub dtype: DType,
    /// The dtype that the operation ran in.
    #[serde(serialize_with = "dtype_name")]
    pub inside: DType,
    /// What was done to bring an input to that dtype.
    pub casting: Casting,
    /// What it spans, before the cast.
    pub extremes: Extremes,
}

/// `f16` for `F16`, as everywhere in this crate.
fn dtype_name<S: serde::Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}
