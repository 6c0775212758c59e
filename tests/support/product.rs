//! Which dtype a served or routed backend computes in, seen from its client.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, ElementConversion, Tensor};

/// A product that f16 cannot hold: which dtype it was computed in shows in its value.
pub fn product<B: Backend>(device: &B::Device) -> (f32, DType) {
    let x = Tensor::<B, 2>::full([1, 1], 300.0, device);
    let product = x.clone().matmul(x);
    let dtype = product.dtype();
    (product.into_scalar().elem(), dtype)
}
