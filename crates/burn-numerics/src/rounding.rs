use burn_mixed_precision::HalfDType;
use serde::Serialize;

/// What rounding to a half dtype did to numbers.
///
/// # Example: one flushed, one overflowed
///
/// ```
/// use burn_mixed_precision::HalfDType;
/// use burn_numerics::Rounding;
///
/// let cast = Rounding::of(&[1e-8, 1.0, 1e5], HalfDType::F16);
/// assert_eq!((cast.elements, cast.flushed, cast.overflowed), (3, 1, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rounding {
    /// The dtype.
    pub half: HalfDType,
    /// The numbers that were rounded.
    pub elements: u64,
    /// Those that became zero and were none.
    pub flushed: u64,
    /// Those that became infinite and were finite.
    pub overflowed: u64,
    /// The sum of the magnitudes of those that were finite and stayed so.
    pub magnitude: f64,
    /// The sum of their errors.
    pub error: f64,
}

impl Rounding {
    /// Rounds numbers, ties to even, as a cast on a device does.
    pub fn of(numbers: &[f64], half: HalfDType) -> Self {
        let mut rounding = Rounding {
            half,
            elements: numbers.len() as u64,
            flushed: 0,
            overflowed: 0,
            magnitude: 0.0,
            error: 0.0,
        };
        for number in numbers.iter().copied().filter(|x| x.is_finite()) {
            let rounded = half.round(number);
            rounding.flushed += u64::from(rounded == 0.0 && number != 0.0);
            if rounded.is_infinite() {
                rounding.overflowed += 1;
            } else {
                rounding.magnitude += number.abs();
                rounding.error += (number - rounded).abs();
            }
        }
        rounding
    }

    /// Adds the counts and sums of another rounding to the same dtype.
    pub fn merge(&mut self, other: &Rounding) {
        self.elements += other.elements;
        self.flushed += other.flushed;
        self.overflowed += other.overflowed;
        self.magnitude += other.magnitude;
        self.error += other.error;
    }

    /// The error of the tensor as a whole: the sum of errors over the sum of magnitudes.
    ///
    /// At most the dtype's unit roundoff (2^-11 for f16, 2^-8 for bf16) unless numbers are flushed or
    /// subnormal, and 1 if all are flushed. Small numbers beside large ones, the tail of a softmax, do
    /// not raise it: losing them costs nothing.
    pub fn relative_error(&self) -> f64 {
        match self.magnitude {
            0.0 => 0.0,
            magnitude => self.error / magnitude,
        }
    }

    /// Whether the tensor loses more than rounding takes: an error of 8 unit roundoffs, three binary
    /// digits of the dtype's.
    pub fn loses_digits(&self) -> bool {
        self.relative_error() > tolerance(self.half)
    }
}

/// The relative error from which a tensor is said to lose digits.
pub(crate) fn tolerance(half: HalfDType) -> f64 {
    8.0 * match half {
        HalfDType::F16 => 1.0 / 2048.0,
        HalfDType::Bf16 => 1.0 / 256.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_zero_an_infinity_and_nan_are_no_losses() {
        let odd = [0.0, f64::INFINITY, f64::NAN, 2.0];
        let cast = Rounding::of(&odd, HalfDType::F16);
        assert_eq!((cast.elements, cast.flushed, cast.overflowed), (4, 0, 0));
        assert_eq!(cast.relative_error(), 0.0);
    }

    #[test]
    fn small_numbers_beside_large_ones_cost_no_digits_and_alone_they_do() {
        let beside = Rounding::of(&[1e-9, 1e-8, 0.5], HalfDType::F16);
        assert_eq!(beside.flushed, 2);
        assert!(!beside.loses_digits());
        let alone = Rounding::of(&[1e-9, 1e-8], HalfDType::F16);
        assert_eq!(alone.relative_error(), 1.0);
        assert!(alone.loses_digits());
        assert!(!Rounding::of(&[1e-9, 1e-8], HalfDType::Bf16).loses_digits());
    }
}
