use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::AmpError;

/// What the policy does with the floating-point inputs of one operation.
///
/// `half` is the policy's half dtype (f16 or bf16). Integer, boolean and quantized tensors are
/// never touched. As soon as one floating-point input is f64, every rule but [`AsIs`] widens all
/// inputs to f64 and leaves the output in f64, as torch does by leaving f64 alone.
///
/// [`AsIs`]: CastRule::AsIs
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CastRule {
    /// f32 inputs are rounded to half and the output is half.
    ///
    /// For operations that tensor cores run with a wide accumulator: the products are exact in
    /// f32, so only the inputs and the one output are rounded (relative error 2^-11 each for f16,
    /// 2^-8 for bf16). Inputs that already share one half dtype stay in it.
    Lower,
    /// Half inputs are widened to f32 (exact) and the output is f32.
    ///
    /// For operations whose result leaves the half range (sums, exponentials, powers) or loses its
    /// leading digits in it (logarithms, norms, losses).
    Full,
    /// Computed in f32; when the first input was half, the output is rounded back to its dtype.
    ///
    /// For operations that need f32 inside but whose results are of moderate size, so that no f32
    /// tensor lingers in a half model (softmax and layer norm at O2). f32 inputs give f32.
    FullThenLower,
    /// Mixed inputs meet in the widest dtype present; equal inputs stay as they are.
    ///
    /// f16 and bf16 together meet in f32. One exception, for element-wise arithmetic: a half
    /// tensor combined with an f32 [channel vector](crate::Policy::keeps_channel_vectors) stays
    /// half.
    Promote,
    /// The operation runs in the dtype of its input.
    ///
    /// Mixed inputs, which no Burn backend accepts, still meet in the widest dtype, and a number beside
    /// a half input that half cannot hold is dealt with as its [`ScalarRole`](crate::ScalarRole) says.
    AsIs,
}

impl CastRule {
    /// Every rule, in the order of the documentation.
    pub const ALL: [CastRule; 5] = [
        CastRule::Lower,
        CastRule::Full,
        CastRule::FullThenLower,
        CastRule::Promote,
        CastRule::AsIs,
    ];

    /// The rule's name as it is written in configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            CastRule::Lower => "lower",
            CastRule::Full => "full",
            CastRule::FullThenLower => "full_then_lower",
            CastRule::Promote => "promote",
            CastRule::AsIs => "as_is",
        }
    }
}

impl fmt::Display for CastRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CastRule {
    type Err = AmpError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|rule| rule.name() == text)
            .ok_or_else(|| AmpError::InvalidOption {
                option: "cast rule",
                value: text.to_string(),
                allowed: "lower, full, full_then_lower, promote or as_is".to_string(),
            })
    }
}
