use core::fmt;

use burn_backend::DType;
use serde::Serialize;

use super::{TensorRecord, dtype_name};
use crate::observe::{Phase, Place, Role};

/// A call that made an infinity or a NaN out of finite numbers, or that was the first to be given one.
///
/// Its [`Display`](fmt::Display) form is one line that says what happened; [`advice`](Finding::advice)
/// says what helps.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Why.
    pub cause: Cause,
    /// Forward or backward.
    pub phase: Phase,
    /// The number of the call.
    pub call: u64,
    /// Burn's name of the operation.
    pub op: String,
    /// Where in the model.
    pub place: Place,
    /// The dtype that the operation ran in.
    #[serde(serialize_with = "dtype_name")]
    pub dtype: DType,
    /// The factor of the loss, in backward.
    pub loss_scale: Option<f32>,
    /// The tensor that is not finite.
    pub tensor: TensorRecord,
    /// The largest finite magnitude of what the call was given: inputs, or the gradient of its output.
    pub largest_given: f64,
}

/// Why a tensor is not finite.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The call was given a NaN or +inf that no observed call made: a batch or a constant. -inf is
    /// taken for a mask.
    GivenFromOutside,
    /// The call was given a NaN or an infinity in a parameter, this one.
    GivenInParameter(String),
    /// An input was finite before its cast to f16 and is beyond 65504.
    CastOverflow,
    /// Finite inputs, and a result beyond the range of the dtype.
    Overflow,
    /// Finite inputs, and a result that is no number: 0/0, the logarithm or root of a negative number.
    Undefined,
    /// Infinite inputs, mostly of a mask, that met: inf - inf, 0 * inf, or a softmax over nothing but
    /// -inf.
    InfinitiesMet,
    /// A gradient at a point where the derivative is infinite: the root, logarithm or quotient of 0.
    SingularDerivative,
    /// Scaled gradients beyond the range of the dtype while the loss scale could go down. Expected now
    /// and then: the step is skipped and the scale lowered.
    LossScale,
}

impl Finding {
    /// Whether something is wrong with the program, the data or the dtypes; false for
    /// [`Cause::LossScale`].
    pub fn is_fault(&self) -> bool {
        self.cause != Cause::LossScale
    }

    /// What helps.
    pub fn advice(&self) -> String {
        let op = &self.op;
        match &self.cause {
            Cause::GivenFromOutside => {
                "look at the batch and at constants: the number was there before the model".into()
            }
            Cause::GivenInParameter(path) => {
                format!("look at how {path} was loaded or updated: every step that uses it is lost")
            }
            Cause::CastOverflow | Cause::Overflow if self.dtype == DType::F16 => format!(
                "run it in f32 (AmpConfig::with_rule for {op}, or scope::full around the block), make \
                 its inputs smaller, or take bf16, which has the range of f32; a loss scale cannot help \
                 in forward"
            ),
            Cause::CastOverflow | Cause::Overflow => {
                "the numbers are too large for this dtype: make its inputs smaller".into()
            }
            Cause::Undefined => format!(
                "look at the inputs of {op}: no dtype makes the result a number, but an epsilon that \
                 half rounds to 0 may be the reason"
            ),
            Cause::InfinitiesMet => {
                "mask with a finite number (HalfDType::lowest), and see that no row is masked whole"
                    .into()
            }
            Cause::SingularDerivative => {
                "keep its input away from 0: add an epsilon inside, or clamp".into()
            }
            Cause::LossScale => {
                "nothing, if it is rare; if it is not, lower the growth of the scale or raise the \
                 growth interval"
                    .into()
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            phase, op, place, ..
        } = self;
        write!(f, "{phase}, {op}")?;
        match place {
            Place::Unknown => write!(f, " (no named module)")?,
            Place::After(_) => write!(f, " {place}")?,
            _ => write!(f, " in {place}")?,
        }
        let dtype = self.dtype.name();
        let tensor = match (phase, self.tensor.role) {
            (Phase::Forward, role) => role.to_string(),
            (Phase::Backward, role) => format!("gradient of its {role}"),
        };
        let given = self.largest_given;
        write!(f, " in {dtype}: ")?;
        match &self.cause {
            Cause::GivenFromOutside => write!(f, "its {} came with", self.tensor.role)?,
            Cause::GivenInParameter(path) => write!(f, "the parameter {path} holds")?,
            Cause::CastOverflow => {
                return write!(
                    f,
                    "{tensor} reaches {:.2e} before its cast, beyond the range of {dtype}",
                    self.tensor.extremes.largest
                );
            }
            Cause::InfinitiesMet => write!(f, "infinite inputs gave an {tensor} with")?,
            Cause::SingularDerivative => {
                write!(
                    f,
                    "its input is 0 where the derivative is infinite; {tensor} has"
                )?;
            }
            Cause::LossScale => {
                let scale = self.loss_scale.unwrap_or(1.0);
                write!(f, "the loss scale {scale} was too high; {tensor} has")?;
            }
            Cause::Overflow | Cause::Undefined => {
                write!(f, "given finite numbers up to {given:.2e}, {tensor} has")?;
            }
        }
        let extremes = &self.tensor.extremes;
        let counts = [
            (extremes.positive_infinities, "inf"),
            (extremes.negative_infinities, "-inf"),
            (extremes.nans, "NaN"),
        ];
        let counts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        write!(f, " {} of {}", counts.join(", "), extremes.elements)
    }
}

impl Finding {
    /// The tensor's role, for whoever looks for it among the records.
    pub fn role(&self) -> Role {
        self.tensor.role
    }
}
