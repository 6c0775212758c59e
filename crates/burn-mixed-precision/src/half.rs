use core::fmt;
use core::str::FromStr;

use burn::tensor::{bf16, f16};
use burn_backend::{DType, FloatDType};
use serde::{Deserialize, Serialize};

use crate::AmpError;

/// A 16-bit floating-point dtype to compute in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HalfDType {
    /// IEEE 754 binary16: 11 significant bits, largest 65504, smallest normal 6.1e-5, smallest
    /// subnormal 6e-8. Its range is the reason for loss scaling.
    #[default]
    F16,
    /// bfloat16: 8 significant bits in the range of f32 (largest 3.4e38). No loss scaling needed.
    Bf16,
}

impl HalfDType {
    /// The same dtype as Burn's float dtype.
    pub const fn float_dtype(self) -> FloatDType {
        match self {
            HalfDType::F16 => FloatDType::F16,
            HalfDType::Bf16 => FloatDType::BF16,
        }
    }

    /// The same dtype as Burn's tensor dtype.
    pub const fn dtype(self) -> DType {
        match self {
            HalfDType::F16 => DType::F16,
            HalfDType::Bf16 => DType::BF16,
        }
    }

    /// The half dtype of a tensor, if it has one.
    pub const fn of(dtype: DType) -> Option<HalfDType> {
        match dtype {
            DType::F16 => Some(HalfDType::F16),
            DType::BF16 => Some(HalfDType::Bf16),
            _ => None,
        }
    }

    /// The largest finite value: 65504 for f16, about 3.39e38 for bf16.
    pub const fn max(self) -> f64 {
        match self {
            HalfDType::F16 => 65504.0,
            // (2 - 2^-7) * 2^127
            HalfDType::Bf16 => 338953138925153547590470800371487866880.0,
        }
    }

    /// The lowest finite value, `-max`: what to mask scores with.
    pub const fn lowest(self) -> f64 {
        -self.max()
    }

    /// The value that a number has in this dtype: the nearest one, ties to even.
    ///
    /// # Example: what becomes of an epsilon
    ///
    /// ```
    /// use burn_mixed_precision::HalfDType;
    ///
    /// assert_eq!(HalfDType::F16.round(1e-8), 0.0);
    /// assert_eq!(HalfDType::F16.round(1e5), f64::INFINITY);
    /// assert_eq!(HalfDType::Bf16.round(257.0), 256.0);
    /// ```
    pub fn round(self, value: f64) -> f64 {
        match self {
            HalfDType::F16 => f16::from_f64(value).to_f64(),
            HalfDType::Bf16 => bf16::from_f64(value).to_f64(),
        }
    }
}

impl fmt::Display for HalfDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HalfDType::F16 => "f16",
            HalfDType::Bf16 => "bf16",
        })
    }
}

impl FromStr for HalfDType {
    type Err = AmpError;

    /// Accepts `f16`, `fp16`, `float16`, `half`, `bf16` and `bfloat16`, in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "f16" | "fp16" | "float16" | "half" => Ok(HalfDType::F16),
            "bf16" | "bfloat16" => Ok(HalfDType::Bf16),
            _ => Err(AmpError::InvalidOption {
                option: "half dtype",
                value: text.to_string(),
                allowed: "f16 (also fp16, float16, half) or bf16 (also bfloat16)".to_string(),
            }),
        }
    }
}
