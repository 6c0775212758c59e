//! Inputs that are the same on every backend and in every dtype.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

/// A linear congruential generator, Knuth's MMIX constants, for numbers that Python repeats.
struct Numbers(u64);

impl Iterator for Numbers {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Some((self.0 >> 32) as u32)
    }
}

/// Uniform numbers of mean 0 and variance 1.
pub fn floats<B: Backend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    let values: Vec<f32> = Numbers(1)
        .take(shape.iter().product())
        .map(|n| (f64::from(n) / f64::from(u32::MAX) - 0.5) as f32 * 12f32.sqrt())
        .collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Class numbers below `classes`.
pub fn classes<B: Backend, const D: usize>(
    shape: [usize; D],
    classes: usize,
    device: &B::Device,
) -> Tensor<B, D, Int> {
    let values: Vec<i32> = Numbers(2)
        .take(shape.iter().product())
        .map(|n| (n as usize % classes) as i32)
        .collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}
