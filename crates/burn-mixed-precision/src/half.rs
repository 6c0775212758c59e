use core::fmt;
use core::str::FromStr;

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
    /// # Numerics
    ///
    /// Rounded once, from all digits of the f64: the conversion of the crate `half` looks at the first
    /// 21 alone and takes a number just above a tie for the tie.
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
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        let (digits, smallest_normal) = match self {
            HalfDType::F16 => (10, -14),
            HalfDType::Bf16 => (7, -126),
        };
        let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        // A power of two: dividing and multiplying by it is exact.
        let step = 2f64.powi(exponent.max(smallest_normal) - digits);
        let rounded = (value / step).round_ties_even() * step;
        match rounded.abs() > self.max() {
            true => f64::INFINITY.copysign(value),
            false => rounded,
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

#[cfg(test)]
mod tests {
    use burn::tensor::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn rounding_is_the_conversion_of_f32(bits: u32) {
            let number = f32::from_bits(bits);
            let [ours, theirs] = [
                [HalfDType::F16, HalfDType::Bf16].map(|half| half.round(f64::from(number))),
                [f16::from_f32(number).to_f64(), bf16::from_f32(number).to_f64()],
            ];
            for (ours, theirs) in ours.into_iter().zip(theirs) {
                prop_assert!(
                    ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                    "{}: {} and {}", number, ours, theirs
                );
            }
        }

        #[test]
        fn every_value_of_a_half_dtype_stays(bits: u16) {
            for (half, value) in [
                (HalfDType::F16, f16::from_bits(bits).to_f64()),
                (HalfDType::Bf16, bf16::from_bits(bits).to_f64()),
            ] {
                let same = half.round(value).to_bits() == value.to_bits();
                prop_assert!(same || value.is_nan(), "{} {}", half, value);
            }
        }
    }

    #[test]
    fn a_number_just_above_a_tie_is_rounded_up() {
        let just_above = 1.0 + 2f64.powi(-40);
        for (half, digits, tiny) in [(HalfDType::F16, 10, -25), (HalfDType::Bf16, 7, -134)] {
            let tie = 1.0 + 2f64.powi(-digits - 1);
            assert_eq!(half.round(tie), 1.0);
            assert_eq!(half.round(tie * just_above), 1.0 + 2f64.powi(-digits));
            assert_eq!(half.round(2f64.powi(tiny)), 0.0);
            assert_eq!(
                half.round(2f64.powi(tiny) * just_above),
                2f64.powi(tiny + 1)
            );
        }
    }
}
