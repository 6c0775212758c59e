use std::sync::Arc;

use burn_backend::DType;
use burn_mixed_precision::HalfDType;
use burn_mixed_precision::observe::{Phase, Place, Role};
use serde::{Serialize, Serializer};

use crate::rounding::tolerance;
use crate::{Histogram, Rounding, ScaleRange};

/// One tensor of one operation in one module, over all steps of a [`NumericsReport`](crate::NumericsReport).
///
/// Forward, an input is seen before its cast and an output when the caller gets it. Backward, a gradient
/// is seen as backward computes it; that of an input that forward had cast is cast back, which is the
/// cast where small gradients vanish.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Entry {
    /// The operation, by Burn's method name.
    pub op: &'static str,
    /// Where in the model.
    pub place: Place,
    /// Values or gradients.
    pub phase: Phase,
    /// Which tensor of the operation.
    pub role: Role,
    /// The path of the parameter that it is, or whose gradient it is.
    #[serde(serialize_with = "path")]
    pub parameter: Option<Arc<str>>,
    /// The dtype it is seen in.
    #[serde(serialize_with = "name")]
    pub dtype: DType,
    /// The dtype that the operation computes in.
    #[serde(serialize_with = "name")]
    pub inside: DType,
    /// The dtype that it is cast to; equal to `dtype` if it is not cast.
    #[serde(serialize_with = "name")]
    pub cast_to: DType,
    /// How many tensors were seen.
    pub tensors: u64,
    /// How many elements they have.
    pub elements: u64,
    /// The elements that were looked at, as they are before the cast.
    pub before: Histogram,
    /// The same elements after the cast.
    pub after: Histogram,
    /// The gradients divided by the loss scale of their backward pass; those of forward are values.
    pub unscaled: Histogram,
    /// What the cast lost, if it is one to a half dtype.
    pub cast: Option<Rounding>,
    /// Tensors with an infinity or a NaN that the cast made, or the operation: what it was given was
    /// finite.
    pub overflowed: u64,
}

impl Entry {
    /// The half dtype whose range counts: the one it is cast to, or is in.
    pub fn half(&self) -> Option<HalfDType> {
        HalfDType::of(self.cast_to).or(HalfDType::of(self.dtype))
    }

    /// The loss scales at which these gradients would fit their half dtype, with 1% of them becoming
    /// zero at most; `None` if there are none or the tensor has no half dtype.
    ///
    /// # Numerics
    ///
    /// From the gradients as they were seen. What half arithmetic inside an operation had flushed
    /// already cannot be seen, so for a gradient that is half when it is seen (`dtype`) the range may
    /// begin too low: one that is cast to half shows all.
    pub fn clean_scales(&self) -> Option<ScaleRange> {
        let half = self.half().filter(|_| self.phase == Phase::Backward)?;
        self.unscaled.clean_scales(half, Entry::TOLERATED)
    }

    /// The share of gradients that may become zero at a clean scale: long tails are normal.
    pub const TOLERATED: f64 = 0.01;

    /// The error that the tensor has as a whole because small numbers meet the lower end of half: of
    /// the cast if there is one, else what rounding has cost about.
    ///
    /// # Numerics
    ///
    /// For gradients and parameters that are half when they are seen it is the
    /// [estimate](Histogram::relative_error) for numbers that lie as low: what they were before nobody
    /// can see, and zeros say nothing. 0 for other tensors that are not cast to half.
    pub fn relative_error(&self) -> f64 {
        if let Some(cast) = &self.cast {
            return cast.relative_error();
        }
        match HalfDType::of(self.dtype) {
            Some(half) if self.phase == Phase::Backward || self.parameter.is_some() => {
                self.before.relative_error(half, 0)
            }
            _ => 0.0,
        }
    }

    /// Whether it loses more than rounding takes, as [`Rounding::loses_digits`] has it.
    pub fn loses_digits(&self) -> bool {
        self.half()
            .is_some_and(|half| self.relative_error() > tolerance(half))
    }

    /// The smallest power of two, as a loss scale, at which these gradients would lose no digits and
    /// at most 1% of them would become zero; `None` if none would do.
    pub(crate) fn lowest_good_scale(&self) -> Option<i32> {
        let half = self.half()?;
        ScaleRange::ALL.exponents().find(|scale| {
            self.unscaled.relative_error(half, *scale) <= tolerance(half)
                && self.unscaled.shares(half, *scale).flushed <= Entry::TOLERATED
        })
    }
}

pub(crate) fn name<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

/// As serde has it for `Option<&str>`: it knows `Arc` with a feature only.
pub(crate) fn path<S: Serializer>(
    path: &Option<Arc<str>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_deref().serialize(serializer)
}
