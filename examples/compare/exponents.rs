//! Where the gradients of a training lie among the powers of two.

use core::ops::Range;
use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

/// How many finite, nonzero gradient elements have each binary exponent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exponents {
    /// `floor(log2 |g|)` and the number of elements there.
    pub counts: BTreeMap<i32, u64>,
    /// Elements that are zero, which have no exponent.
    pub zeros: u64,
}

impl Exponents {
    /// Counts all gradients of a step.
    pub fn of<B: AutodiffBackend>(model: &impl Module<B>, grads: &GradientsParams) -> Self {
        let mut exponents = Exponents::default();
        model.visit(&mut Elements {
            grads,
            exponents: &mut exponents,
        });
        exponents
    }

    /// Adds the counts of `other`, as they were if its elements were multiplied by `2^shift`.
    pub fn add(&mut self, other: &Exponents, shift: i32) {
        for (exponent, count) in &other.counts {
            *self.counts.entry(exponent + shift).or_default() += count;
        }
        self.zeros += other.zeros;
    }

    /// All elements that were counted.
    pub fn total(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.zeros
    }

    /// The share of all elements, from 0 to 1, whose exponent is in this range.
    pub fn share(&self, range: Range<i32>) -> f64 {
        let inside = self.counts.range(range).map(|(_, count)| count);
        inside.sum::<u64>() as f64 / self.total().max(1) as f64
    }

    fn element(&mut self, value: f32) {
        if value == 0.0 {
            self.zeros += 1;
        } else if let Some(exponent) = exponent(value) {
            *self.counts.entry(exponent).or_default() += 1;
        }
    }
}

/// `floor(log2 |value|)` of a finite number that is not zero.
fn exponent(value: f32) -> Option<i32> {
    // Exact, since every f32 is a normal f64.
    let biased = (f64::from(value).to_bits() >> 52 & 0x7ff) as i32;
    (value.is_finite() && value != 0.0).then_some(biased - 1023)
}

struct Elements<'a> {
    grads: &'a GradientsParams,
    exponents: &'a mut Exponents,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Elements<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(grad) = self.grads.get::<B::InnerBackend, D>(param.id) {
            let values = grad.into_data().convert::<f32>();
            for value in values.iter::<f32>() {
                self.exponents.element(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_ieee_754() {
        for (value, expected) in [
            (1.0, Some(0)),
            (-1.999, Some(0)),
            (0.5, Some(-1)),
            (65504.0, Some(15)),
            (6e-8, Some(-24)),
            (f32::from_bits(1), Some(-149)),
            (f32::MAX, Some(127)),
            (0.0, None),
            (f32::INFINITY, None),
            (f32::NAN, None),
        ] {
            assert_eq!(exponent(value), expected, "{value}");
        }
    }

    #[test]
    fn a_scale_moves_elements_into_a_range() {
        let mut exponents = Exponents::default();
        for value in [0.0, 1e-8, 1.0, 2.0] {
            exponents.element(value);
        }
        assert_eq!((exponents.total(), exponents.zeros), (4, 1));
        // 1e-8 is 2^-27 times a number below 2.
        for (shift, share) in [(0, 0.5), (3, 0.75), (16, 0.25)] {
            let mut scaled = Exponents::default();
            scaled.add(&exponents, shift);
            assert_eq!(scaled.share(-24..16), share, "{shift}");
        }
    }
}
