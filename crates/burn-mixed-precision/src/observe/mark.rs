//! Marks that let the inner position see gradients.
//!
//! Backward runs inside Burn's autodiff, where nothing tells which forward call a gradient belongs
//! to. A mark is a multiplication by a number that carries the call's number in place of a value:
//! [`FastBackward`](crate::FastBackward) knows it and multiplies nothing, and autodiff hands the same
//! number back in backward, with the gradient.

use core::sync::atomic::{AtomicU32, Ordering};
use std::cell::Cell;

use burn_backend::{Backend, FloatDType, Scalar, Shape};

/// The upper half of the number: about 7.0e18 as a factor, which no program multiplies by.
const TAG: u64 = 0x616d_706d << 32;

/// Asks whether anybody knows marks.
const QUESTION: u32 = 0;

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static ANSWERED: Cell<bool> = const { Cell::new(false) };
}

/// A number for a new mark, never used before in this process (in its first 4 billion).
pub(super) fn new() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed).max(1)
}

/// The factor that stands for a mark.
pub(super) fn factor(mark: u32) -> Scalar {
    Scalar::UInt(TAG | u64::from(mark))
}

/// The mark that a factor stands for.
pub(crate) fn of(factor: Scalar) -> Option<u32> {
    match factor {
        Scalar::UInt(number) if number & !0xffff_ffff == TAG => {
            let mark = number as u32;
            if mark == QUESTION {
                ANSWERED.set(true);
            }
            Some(mark)
        }
        _ => None,
    }
}

/// Whether a backend has somebody inside who knows marks; anybody else would multiply by them.
pub(super) fn are_known<B: Backend>(device: &B::Device) -> bool {
    ANSWERED.set(false);
    let probe = B::float_zeros(Shape::new([1]), device, FloatDType::F32);
    B::float_mul_scalar(probe, factor(QUESTION));
    ANSWERED.replace(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_are_taken_for_marks() {
        assert_eq!(of(factor(7)), Some(7));
        for factor in [
            Scalar::UInt(7),
            Scalar::Int(TAG as i64),
            Scalar::Float(TAG as f64),
        ] {
            assert_eq!(of(factor), None);
        }
    }

    #[test]
    fn marks_are_known_inside_autodiff_only_with_the_inner_position() {
        use burn::backend::{Autodiff, Flex};
        let device = Default::default();
        assert!(!are_known::<Autodiff<Flex>>(&device));
        assert!(are_known::<Autodiff<crate::FastBackward<Flex>>>(&device));
    }
}
