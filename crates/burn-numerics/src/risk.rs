use core::fmt;
use std::sync::Arc;

use burn_mixed_precision::HalfDType;
use burn_mixed_precision::observe::{Place, Role};
use serde::Serialize;

use crate::Fault;
use crate::entry::path;
use crate::recommendation::{module, percent};

/// What would happen to a tensor at a level, according to a [`DryRun`](crate::DryRun).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Risk {
    /// What would be wrong.
    pub fault: Fault,
    /// The operation.
    pub op: &'static str,
    /// Where in the model.
    pub place: Place,
    /// Which tensor of the operation, or which one the gradient is of.
    pub role: Role,
    /// The parameter, if it is one or its gradient.
    #[serde(serialize_with = "path")]
    pub parameter: Option<Arc<str>>,
    /// The half dtype that it would have.
    pub half: HalfDType,
    /// The share of the tensor that would be lost, from 0 to 1: of its elements if they would become
    /// infinite, of its size if they are too small.
    pub share: f64,
    /// The exponents of its smallest and its largest number in f32.
    pub span: (i32, i32),
}

impl Risk {
    /// Whether another one says the same of another call.
    pub(crate) fn is_like(&self, other: &Risk) -> bool {
        (self.fault, self.op, &self.place, self.role)
            == (other.fault, other.op, &other.place, other.role)
            && self.parameter == other.parameter
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Risk { op, half, .. } = self;
        let of = module(&self.place);
        let share = percent(self.share);
        let (low, high) = self.span;
        let tensor = match &self.parameter {
            Some(path) => path.to_string(),
            None => format!("its {}", self.role),
        };
        write!(f, "{op}{of}: ")?;
        match self.fault {
            Fault::Overflows | Fault::CastOverflows => write!(
                f,
                "{tensor} reaches 2^{high}, {share} of it is infinite in {half}"
            ),
            Fault::CastLosesDigits => write!(
                f,
                "{tensor} goes down to 2^{low} and loses {share} of its size in {half}"
            ),
            Fault::GradientVanishes => write!(
                f,
                "the gradient of {tensor} goes down to 2^{low} and loses {share} of its size in {half}"
            ),
            Fault::GradientOverflows => write!(
                f,
                "the gradient of {tensor} reaches 2^{high} and is infinite in {half}"
            ),
        }
    }
}
