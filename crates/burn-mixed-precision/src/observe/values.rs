use core::fmt;

use burn::tensor::{Bool, Tensor, TensorPrimitive};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, FloatDType, Shape, TensorMetadata};
use serde::{Deserialize, Serialize};

use crate::cast;

/// The numbers of an observed tensor, on whatever backend it lives.
pub trait Values {
    /// Its extremes and how many of its elements are no numbers, computed on its device.
    ///
    /// Asking does not wait for the device; [`Pending::read`] does.
    fn extremes(&self) -> Pending;

    /// Its elements as f64, read to the host: all of them, or at most `most` evenly spaced ones.
    fn sample(&self, most: usize) -> Vec<f64>;
}

/// The tensor of a backend, kept out of any autodiff graph.
pub(super) struct Floats<B: Backend> {
    flat: Tensor<B, 1>,
}

impl<B: Backend> Floats<B> {
    pub(super) fn new(tensor: FloatTensor<B>) -> Self {
        let elements = tensor.shape().num_elements();
        let flat = B::float_reshape(B::float_detach(tensor), Shape::new([elements]));
        Floats {
            flat: Tensor::from_primitive(TensorPrimitive::Float(flat)),
        }
    }

    /// In f32 at least, so that counts can be added up.
    fn wide(&self) -> Tensor<B, 1> {
        let tensor = self.flat.clone().into_primitive().tensor();
        let dtype = match tensor.dtype() {
            DType::F64 => FloatDType::F64,
            _ => FloatDType::F32,
        };
        Tensor::from_primitive(TensorPrimitive::Float(cast::uncounted::<B>(tensor, dtype)))
    }
}

impl<B: Backend> Values for Floats<B> {
    fn extremes(&self) -> Pending {
        let elements = self.flat.shape().num_elements() as u64;
        if elements == 0 {
            return Pending(Box::new(Extremes::default));
        }
        let x = self.wide();
        let count = |mask: Tensor<B, 1, Bool>| x.zeros_like().mask_fill(mask, 1.0).sum();
        let (nan, zero) = (x.clone().is_nan(), x.clone().equal_elem(0.0));
        let positive = x.clone().equal_elem(f64::INFINITY);
        let negative = x.clone().equal_elem(f64::NEG_INFINITY);
        let odd = nan
            .clone()
            .bool_or(positive.clone())
            .bool_or(negative.clone());
        let magnitude = x.clone().abs();
        let largest = magnitude.clone().mask_fill(odd.clone(), 0.0).max();
        let smallest = magnitude
            .mask_fill(odd.bool_or(zero.clone()), f32::MAX)
            .min();
        let all = Tensor::cat(
            vec![
                largest,
                smallest,
                count(zero),
                count(positive),
                count(negative),
                count(nan),
            ],
            0,
        );
        Pending(Box::new(move || {
            let numbers: Vec<f64> = all.into_data().iter::<f64>().collect();
            let [largest, smallest, zeros, positive, negative, nans] = numbers[..] else {
                unreachable!("six numbers were put behind one another")
            };
            Extremes {
                elements,
                largest,
                smallest: if largest == 0.0 { 0.0 } else { smallest },
                zeros: zeros as u64,
                positive_infinities: positive as u64,
                negative_infinities: negative as u64,
                nans: nans as u64,
            }
        }))
    }

    fn sample(&self, most: usize) -> Vec<f64> {
        let elements = self.flat.shape().num_elements();
        let step = elements.div_ceil(most.max(1)).max(1);
        let flat = match step {
            1 => self.flat.clone(),
            step => self.flat.clone().slice_with_step(elements, step),
        };
        flat.into_data().iter::<f64>().collect()
    }
}

/// Every `step`-th element.
trait SliceWithStep {
    fn slice_with_step(self, elements: usize, step: usize) -> Self;
}

impl<B: Backend> SliceWithStep for Tensor<B, 1> {
    fn slice_with_step(self, elements: usize, step: usize) -> Self {
        self.slice(burn::tensor::Slice::new(
            0,
            Some(elements as isize),
            step as isize,
        ))
    }
}

/// [`Extremes`] that the device may still be computing.
pub struct Pending(Box<dyn FnOnce() -> Extremes + Send>);

impl Pending {
    /// Waits for the device and reads them.
    pub fn read(self) -> Extremes {
        (self.0)()
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

/// What the numbers of a tensor span, and how many are no numbers.
///
/// # Numerics
///
/// Counts are added up in f32: beyond 2^24 they are rounded, but never to 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Extremes {
    /// How many elements there are.
    pub elements: u64,
    /// The largest magnitude of a finite element; 0 if there is none.
    pub largest: f64,
    /// The smallest magnitude of a finite element that is not 0; 0 if there is none.
    pub smallest: f64,
    /// Elements that are 0.
    pub zeros: u64,
    /// Elements that are +inf.
    pub positive_infinities: u64,
    /// Elements that are -inf.
    pub negative_infinities: u64,
    /// Elements that are NaN.
    pub nans: u64,
}

impl Extremes {
    /// Elements that are +inf or -inf.
    pub fn infinities(&self) -> u64 {
        self.positive_infinities + self.negative_infinities
    }

    /// Whether every element is a finite number.
    pub fn is_finite(&self) -> bool {
        self.infinities() == 0 && self.nans == 0
    }
}

impl fmt::Display for Extremes {
    /// As `1.2e-3 to 4.5e1, 3 inf, 1 NaN of 4096`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1e} to {:.1e}", self.smallest, self.largest)?;
        if self.is_finite() {
            return Ok(());
        }
        for (count, name) in [
            (self.positive_infinities, "inf"),
            (self.negative_infinities, "-inf"),
            (self.nans, "NaN"),
        ] {
            if count > 0 {
                write!(f, ", {count} {name}")?;
            }
        }
        write!(f, " of {}", self.elements)
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::DType;

    use super::*;

    fn values(numbers: &[f32], dtype: DType) -> Floats<Flex> {
        let tensor = Tensor::<Flex, 1>::from_data(
            burn::tensor::TensorData::from(numbers).convert_dtype(dtype),
            (&Default::default(), dtype),
        );
        Floats::new(tensor.into_primitive().tensor())
    }

    #[test]
    fn extremes_are_those_of_the_finite_elements() {
        let odd = [
            0.0,
            -2.0,
            3e-5,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
        ];
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let seen = values(&odd, dtype).extremes().read();
            assert_eq!(
                (seen.elements, seen.zeros, seen.nans),
                (7, 2, 1),
                "{dtype:?}"
            );
            assert_eq!((seen.positive_infinities, seen.negative_infinities), (1, 1));
            assert_eq!(seen.largest, 2.0);
            assert!(
                (seen.smallest / 3e-5 - 1.0).abs() < 2f64.powi(-8),
                "{}",
                seen.smallest
            );
        }
    }

    #[test]
    fn extremes_of_nothing_finite_are_zero() {
        for numbers in [&[f32::NAN, f32::INFINITY][..], &[0.0], &[]] {
            let seen = values(numbers, DType::F32).extremes().read();
            assert_eq!((seen.largest, seen.smallest), (0.0, 0.0));
            assert_eq!(seen.elements, numbers.len() as u64);
        }
    }

    #[test]
    fn a_sample_is_evenly_spaced_and_at_most_as_large_as_asked() {
        let numbers: Vec<f32> = (0..10).map(|n| n as f32).collect();
        let values = values(&numbers, DType::F16);
        assert_eq!(
            values.sample(10),
            numbers.iter().map(|n| f64::from(*n)).collect::<Vec<_>>()
        );
        assert_eq!(values.sample(4), [0.0, 3.0, 6.0, 9.0]);
    }
}
