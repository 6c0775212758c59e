//! Numbers beside a half tensor that the half dtype cannot hold.

use burn_backend::Scalar;

use crate::HalfDType;
use crate::policy::ScalarRole;

/// What rounding to half makes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// A number of the same kind: zero, infinity and NaN stay what they are.
    Held,
    /// A finite number becomes infinite.
    TooLarge,
    /// A number that is not zero becomes zero.
    TooSmall,
}

impl Fit {
    pub(crate) fn of(value: f64, half: HalfDType) -> Fit {
        let rounded = half.round(value);
        if rounded.is_infinite() && value.is_finite() {
            Fit::TooLarge
        } else if rounded == 0.0 && value != 0.0 {
            Fit::TooSmall
        } else {
            Fit::Held
        }
    }
}

/// Whether an operation with this role has to leave half because of one of its numbers.
pub(crate) fn leaves_half(role: ScalarRole, scalars: &[Scalar], half: HalfDType) -> bool {
    scalars.iter().any(|scalar| {
        let value: f64 = scalar.elem();
        let fit = Fit::of(value, half);
        match role {
            ScalarRole::Operand | ScalarRole::Constant => fit != Fit::Held,
            ScalarRole::Divisor => {
                fit != Fit::Held || Fit::of(value.recip(), half) == Fit::TooLarge
            }
            ScalarRole::Fill => fit == Fit::TooSmall,
        }
    })
}

/// A finite number beyond the half range as the last finite one before it; any other as it is.
pub(crate) fn saturate(scalar: Scalar, half: HalfDType) -> Scalar {
    let value: f64 = scalar.elem();
    match Fit::of(value, half) {
        Fit::TooLarge => Scalar::Float(half.max().copysign(value)),
        Fit::Held | Fit::TooSmall => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HALVES: [HalfDType; 2] = [HalfDType::F16, HalfDType::Bf16];

    #[test]
    fn the_ends_of_the_formats_are_where_rounding_to_nearest_even_puts_them() {
        // Halfway between the largest number and the next power of two, and half the smallest one.
        for (half, too_large, too_small) in [
            (HalfDType::F16, 65520.0, 2f64.powi(-25)),
            (
                HalfDType::Bf16,
                (2.0 - 2f64.powi(-8)) * 2f64.powi(127),
                2f64.powi(-134),
            ),
        ] {
            assert_eq!(Fit::of(too_large, half), Fit::TooLarge);
            assert_eq!(Fit::of(too_large * (1.0 - 1e-6), half), Fit::Held);
            assert_eq!(Fit::of(too_small, half), Fit::TooSmall);
            assert_eq!(Fit::of(too_small * (1.0 + 1e-6), half), Fit::Held);
            for held in [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                assert_eq!(Fit::of(held, half), Fit::Held);
            }
        }
    }

    proptest! {
        #[test]
        fn a_saturated_number_is_held_and_the_nearest_that_is(
            value in proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::INFINITE
        ) {
            for half in HALVES {
                let saturated: f64 = saturate(Scalar::Float(value), half).elem();
                prop_assert_ne!(Fit::of(saturated, half), Fit::TooLarge);
                if Fit::of(value, half) == Fit::TooLarge {
                    prop_assert_eq!(saturated.abs(), half.max());
                    prop_assert_eq!(saturated.is_sign_negative(), value.is_sign_negative());
                } else {
                    prop_assert_eq!(saturated, value);
                }
            }
        }

        #[test]
        fn only_a_fill_keeps_a_number_beyond_the_range_in_half(value in 65_520.0..1e30f64) {
            let leaves = |role| leaves_half(role, &[Scalar::Float(-value)], HalfDType::F16);
            prop_assert!(!leaves(ScalarRole::Fill));
            prop_assert!(leaves(ScalarRole::Operand));
            prop_assert!(leaves(ScalarRole::Divisor));
            prop_assert!(leaves(ScalarRole::Constant));
        }

        #[test]
        fn every_role_leaves_half_for_a_number_that_would_be_zero(value in 1e-30..2.9e-8f64) {
            for role in [
                ScalarRole::Operand, ScalarRole::Divisor, ScalarRole::Constant, ScalarRole::Fill,
            ] {
                prop_assert!(leaves_half(role, &[Scalar::Float(value)], HalfDType::F16));
                prop_assert!(!leaves_half(role, &[Scalar::Float(0.0)], HalfDType::F16)
                    || role == ScalarRole::Divisor);
            }
        }
    }
}
