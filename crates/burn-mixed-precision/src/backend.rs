#![deny(clippy::missing_trait_methods)]

use core::marker::PhantomData;

use burn_backend::{Backend, BackendTypes};

use crate::delegate;
use crate::delegate::signatures::*;
use crate::tensor::MixedTensor;

/// Runs the operations of a backend in the dtypes that a [policy](crate::Policy) gives them.
///
/// Which policy holds is found by the device ([`AmpConfig::init`](crate::AmpConfig::init)), with
/// [regions](crate::scope) that override it on a thread. On a device that was never initialised,
/// every result is that of `B`, bit by bit.
///
/// # Order
///
/// `MixedPrecision<Autodiff<B>>` is the order to use: casts become part of the autodiff graph.
/// `Autodiff<MixedPrecision<B>>` compiles and trains too, with other numbers. With f16 at O1, on a
/// linear layer followed by `log_softmax`:
///
/// | | `MixedPrecision<Autodiff<B>>` | `Autodiff<MixedPrecision<B>>` |
/// |---|---|---|
/// | the policy sees `log_softmax` | whole, in f32: output f32 | only its pieces: some in half |
/// | `attention` | whole: its scores are f32 | only its pieces: scores in half can overflow |
/// | dtype of a weight's gradient | f32, that of the weight | mostly half, that of the product |
/// | dtypes of backward | those of forward | decided again, by the policy in force then |
/// | loss scaling in `backward` | yes | no: `backward` is not seen |
/// | casts of a weight used twice | 1 | 2: leaves are not seen, so there is no cache |
///
/// # Custom kernels
///
/// [`MixedTensor::into_inner`] and [`MixedTensor::new`] cross the decorator, and
/// [`custom`](crate::custom) casts the inputs of an operation that Burn does not know.
#[derive(Clone, Copy, Debug, Default)]
pub struct MixedPrecision<B> {
    _backend: PhantomData<B>,
}

impl<B: Backend> BackendTypes for MixedPrecision<B> {
    type Device = B::Device;

    type FloatTensorPrimitive = MixedTensor<B>;
    type FloatElem = B::FloatElem;

    type IntTensorPrimitive = B::IntTensorPrimitive;
    type IntElem = B::IntElem;

    type BoolTensorPrimitive = B::BoolTensorPrimitive;
    type BoolElem = B::BoolElem;

    type QuantizedTensorPrimitive = B::QuantizedTensorPrimitive;
}

impl<B: Backend> Backend for MixedPrecision<B> {
    delegate::backend!(B);

    fn name(device: &Self::Device) -> String {
        format!("mixed-precision<{}>", B::name(device))
    }
}
