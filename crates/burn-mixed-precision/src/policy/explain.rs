use core::fmt;

use burn_backend::{DType, Shape};
use serde::{Serialize, Serializer};

use super::{CastRule, Op, Policy, widest};
use crate::cast::Plan;
use crate::{HalfDType, OptLevel};

/// Why an operation runs in the dtype it runs in: an answer of [`Policy::explain`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The operation.
    pub op: Op,
    /// The rule that the policy has for it.
    pub rule: CastRule,
    /// Where the rule comes from.
    pub decided_by: DecidedBy,
    /// The dtypes of the float inputs, in the order of Burn's signature.
    #[serde(serialize_with = "names")]
    pub inputs: Vec<DType>,
    /// The dtype that the operation computes in.
    #[serde(serialize_with = "name")]
    pub inside: DType,
    /// The dtype of its float output, if it has one.
    #[serde(serialize_with = "name")]
    pub output: DType,
    /// What decided for these inputs.
    pub reason: Reason,
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecidedBy {
    /// The table of this opt level.
    Level(OptLevel),
    /// An override of the table of this opt level.
    Override(OptLevel),
    /// [`Policy::full`], or an override of it.
    Full,
}

/// What decided for the inputs that an operation was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The policy touches nothing.
    Off,
    /// One input is f64, which is never narrowed.
    Double,
    /// The rule, as [`CastRule`] words it.
    Rule,
    /// A lowering rule leaves inputs alone that are half already.
    AlreadyHalf,
    /// An f32 [channel vector](Policy::keeps_channel_vectors) stands beside a half tensor.
    ChannelVector,
    /// Inputs of different dtypes have to meet.
    Mixed,
}

impl Policy {
    /// Why an operation runs in the dtype it runs in, for float inputs of these dtypes in the order of
    /// Burn's signature.
    ///
    /// The inputs are taken to be of one shape; where a channel vector may be among them, ask
    /// [`explain_shapes`](Policy::explain_shapes). Numbers beside a tensor are taken to be ones that half
    /// can hold: see [`guards_scalars`](Policy::guards_scalars) for others. An input that is only asked for
    /// its shape, such as the `x` of `avg_pool2d_backward`, is left out. Where the policy is
    /// [off](Policy::off) and the dtypes differ, the answer is that of the first input: most backends
    /// panic, and what the others do is their own affair.
    ///
    /// # Example: why is this f32?
    ///
    /// ```
    /// use burn::tensor::DType;
    /// use burn_mixed_precision::{HalfDType, Op, OptLevel, Policy};
    ///
    /// let policy = Policy::new(OptLevel::O1, HalfDType::F16);
    /// let why = policy.explain(Op::FloatExp, &[DType::F16]);
    /// assert_eq!((why.inside, why.output), (DType::F32, DType::F32));
    /// assert_eq!(
    ///     why.to_string(),
    ///     "float_exp takes f16, computes in f32 and gives f32: its rule in the table of O1 is full, \
    ///      which widens half inputs to f32",
    /// );
    /// ```
    pub fn explain(&self, op: Op, inputs: &[DType]) -> Explanation {
        let shape = Shape::new([1]);
        let inputs: Vec<_> = inputs.iter().map(|dtype| (*dtype, &shape)).collect();
        self.explanation(op, &inputs)
    }

    /// As [`explain`](Policy::explain), for inputs of these shapes.
    pub fn explain_shapes(&self, op: Op, inputs: &[(DType, Shape)]) -> Explanation {
        let inputs: Vec<_> = inputs
            .iter()
            .map(|(dtype, shape)| (*dtype, shape))
            .collect();
        self.explanation(op, &inputs)
    }

    fn explanation(&self, op: Op, inputs: &[(DType, &Shape)]) -> Explanation {
        let plan = Plan::of(self, op, inputs);
        let dtypes: Vec<DType> = inputs.iter().map(|(dtype, _)| *dtype).collect();
        let first = dtypes.first().copied().unwrap_or(DType::F32);
        let inside = plan.inside(first);
        let output = plan.outcome(inside);
        let wide = dtypes.iter().copied().fold(first, widest);
        let mixed = dtypes.iter().any(|dtype| *dtype != first);
        let rule = self.rule(op);
        let reason = match rule {
            _ if !self.is_enabled() => Reason::Off,
            _ if wide == DType::F64 => Reason::Double,
            CastRule::Promote if mixed && HalfDType::of(output).is_some() => Reason::ChannelVector,
            CastRule::Promote | CastRule::AsIs if mixed => Reason::Mixed,
            CastRule::Lower if !mixed && HalfDType::of(first).is_some() => Reason::AlreadyHalf,
            _ => Reason::Rule,
        };
        let decided_by = match self.level {
            None => DecidedBy::Full,
            Some(level) if op.default_rule(level) == rule => DecidedBy::Level(level),
            Some(level) => DecidedBy::Override(level),
        };
        Explanation {
            op,
            rule,
            decided_by,
            inputs: dtypes,
            inside,
            output,
            reason,
        }
    }
}

impl CastRule {
    /// What the rule does, as the end of a sentence that begins with its name.
    pub const fn meaning(self) -> &'static str {
        match self {
            CastRule::Lower => "which rounds f32 inputs to half",
            CastRule::Full => "which widens half inputs to f32",
            CastRule::FullThenLower => {
                "which computes in f32 and rounds the output to the dtype of a half first input"
            }
            CastRule::Promote => "which lets inputs of different dtypes meet in the widest",
            CastRule::AsIs => "which leaves the input's dtype alone",
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<&str> = self.inputs.iter().map(|dtype| dtype.name()).collect();
        write!(
            f,
            "{} takes {}, computes in {} and gives {}: ",
            self.op,
            inputs.join(" and "),
            self.inside.name(),
            self.output.name(),
        )?;
        if self.reason == Reason::Off {
            let mixed = self.inputs.iter().any(|dtype| *dtype != self.inputs[0]);
            return f.write_str(match mixed {
                true => "the policy is off, and the backend is left with different dtypes",
                false => "the policy is off",
            });
        }
        write!(f, "its rule {} is {}, ", self.decided_by, self.rule)?;
        f.write_str(match self.reason {
            Reason::Double => "and an f64 input is never narrowed",
            Reason::AlreadyHalf => "which leaves inputs alone that are half already",
            Reason::ChannelVector => "which keeps a half tensor half beside an f32 channel vector",
            Reason::Mixed => "and different dtypes meet in the widest",
            Reason::Off | Reason::Rule => self.rule.meaning(),
        })
    }
}

impl fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecidedBy::Level(level) => write!(f, "in the table of {level}"),
            DecidedBy::Override(level) => write!(f, "by an override of the table of {level}"),
            DecidedBy::Full => f.write_str("in a block that runs in f32"),
        }
    }
}

fn name<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

fn names<S: Serializer>(dtypes: &[DType], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(dtypes.iter().map(|dtype| dtype.name()))
}
