//! Rounding to half at random, so that what is lost in one step is not lost in all.

use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, FloatDType, Tensor};
use burn_mixed_precision::HalfDType;

/// Rounds f32 values to one of the two half numbers around each, with the probability that makes the
/// expectation the value.
///
/// # Numerics
///
/// Numbers that half has stay. Below the smallest normal number of half the nearest one is taken, as
/// beyond the largest.
pub(crate) fn round<B: Backend, const D: usize>(
    values: Tensor<B, D>,
    half: HalfDType,
) -> Tensor<B, D> {
    let dtype = half.float_dtype();
    let nearest_half = |x: Tensor<B, D>| x.cast(dtype).cast(FloatDType::F32);
    let nearest = nearest_half(values.clone());
    let error = values - nearest.clone();
    // A bit more than half a unit in the last place of any number, and less than one and a half of
    // the smaller units below a power of two: rounded, it is the next number.
    let nudge = match half {
        HalfDType::F16 => 2f64.powi(-11) * (1.0 + 2f64.powi(-6)),
        HalfDType::Bf16 => 2f64.powi(-8) * (1.0 + 2f64.powi(-6)),
    };
    let other = nearest.clone().abs().mul_scalar(nudge) * error.clone().sign();
    let other = nearest_half(nearest.clone() + other);
    // 0 / 0 where there is no other number, and NaN is never greater.
    let chance = error.abs() / (other.clone() - nearest.clone()).abs();
    let options = (&nearest.device(), nearest.dtype());
    let draw = Tensor::random(nearest.shape(), Distribution::Uniform(0.0, 1.0), options);
    nearest.mask_where(chance.greater(draw), other).cast(dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::Flex;

    fn rounded(value: f32, half: HalfDType) -> Vec<f32> {
        let values = Tensor::<Flex, 1>::full([20_000], value, &Default::default());
        let data = round(values, half).into_data().convert::<f32>();
        data.to_vec().unwrap()
    }

    #[test]
    fn a_value_becomes_one_of_its_neighbours_and_on_the_average_itself() {
        for half in [HalfDType::F16, HalfDType::Bf16] {
            let ulp = match half {
                HalfDType::F16 => 2f64.powi(-10),
                HalfDType::Bf16 => 2f64.powi(-7),
            };
            // On both sides of a power of two, and inside; a share of the unit there.
            for (low, unit) in [
                (1.0, ulp),
                (1.5, ulp),
                (1.0 - ulp / 2.0, ulp / 2.0),
                (2.0, 2.0 * ulp),
            ] {
                for share in [0.1, 0.5, 0.9] {
                    for sign in [1.0, -1.0] {
                        let value = sign * (low + share * unit);
                        let results = rounded(value as f32, half);
                        let neighbours = [sign * low, sign * (low + unit)];
                        assert!(results.iter().all(|x| neighbours.contains(&(*x as f64))));
                        let mean = results.iter().map(|x| *x as f64).sum::<f64>() / 2e4;
                        // Six standard deviations of a mean of 20000 draws of at most half a unit.
                        let bound = 6.0 * 0.5 * unit / 2e4f64.sqrt();
                        assert!((mean - value).abs() <= bound, "{half} {value}: {mean}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_half_has_stays() {
        for value in [0.0, 1.0, -0.5, 1.5, 256.0, 6.103_515_6e-5, f32::INFINITY] {
            let results = rounded(value, HalfDType::F16);
            assert!(results.iter().all(|x| *x == value), "{value}");
        }
        assert!(
            rounded(f32::NAN, HalfDType::Bf16)
                .iter()
                .all(|x| x.is_nan())
        );
    }
}
