//! A decorator that stands inside autodiff, where the operations of backward are visible.
//!
//! All but the weight gradients of convolutions is [passed on](crate::delegate).

#![deny(clippy::missing_trait_methods)]

#[cfg(feature = "distributed")]
mod distributed;
mod im2col;
mod module;
mod tensor;

use core::marker::PhantomData;

use burn_backend::{Backend, BackendTypes, TensorMetadata};
use serde::{Deserialize, Serialize};

use crate::delegate::signatures::*;
use crate::{Policy, delegate, scope};

pub use im2col::Im2col;

/// Computes the weight gradients of convolutions as matrix products where that is faster, inside
/// autodiff: `MixedPrecision<Autodiff<FastBackward<B>>>`.
///
/// Its tensors are those of `B`, and every other operation is passed on. [`ConvBackward`] says which
/// way is taken; on a device that was never initialised, and with the policy off, every result is
/// that of `B`, bit by bit.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastBackward<B> {
    _backend: PhantomData<B>,
}

/// How [`FastBackward`] computes the weight gradient of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ConvBackward {
    /// As a matrix product where that was measured to be faster, otherwise with Burn's own kernel.
    #[default]
    Fastest,
    /// As a matrix product on every device and for every size, to try and to measure.
    Im2col,
    /// With Burn's own kernel.
    Kernel,
}

impl ConvBackward {
    /// Every setting.
    pub const ALL: [ConvBackward; 3] = [
        ConvBackward::Fastest,
        ConvBackward::Im2col,
        ConvBackward::Kernel,
    ];
}

/// The layout to compute this weight gradient in; `None` for Burn's own kernel.
fn choose<B: Backend, const N: usize>(
    x: &FloatTensor<B>,
    weight: &FloatTensor<B>,
    output_grad: &FloatTensor<B>,
    options: &ConvOptions<N>,
) -> Option<Im2col> {
    let device = B::float_device(x);
    let setting = scope::policy(
        || device.clone(),
        |policy| policy.map_or(ConvBackward::Kernel, Policy::conv_backward),
    );
    let alike = x.dtype() == weight.dtype() && x.dtype() == output_grad.dtype();
    match setting {
        _ if !alike => None,
        ConvBackward::Kernel => None,
        ConvBackward::Im2col => Some(Im2col::ChannelsFirst),
        ConvBackward::Fastest => {
            let name = B::name(&device);
            Im2col::fastest(&name, &weight.shape(), &output_grad.shape(), options)
        }
    }
}

impl<B: Backend> BackendTypes for FastBackward<B> {
    type Device = B::Device;

    type FloatTensorPrimitive = B::FloatTensorPrimitive;
    type FloatElem = B::FloatElem;

    type IntTensorPrimitive = B::IntTensorPrimitive;
    type IntElem = B::IntElem;

    type BoolTensorPrimitive = B::BoolTensorPrimitive;
    type BoolElem = B::BoolElem;

    type QuantizedTensorPrimitive = B::QuantizedTensorPrimitive;
}

impl<B: Backend> Backend for FastBackward<B> {
    delegate::backend!(B);

    fn name(device: &Self::Device) -> String {
        format!("fast-backward<{}>", B::name(device))
    }
}

impl<B: Backend> ActivationOps<Self> for FastBackward<B> {
    delegate::activation!(B);

    forward! {
        fn softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn log_softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn softmin(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
    }
}

impl<B: Backend> IntTensorOps<Self> for FastBackward<B> {
    delegate::int_tensor!(B);
}

impl<B: Backend> BoolTensorOps<Self> for FastBackward<B> {
    delegate::bool_tensor!(B);
}

impl<B: Backend> QTensorOps<Self> for FastBackward<B> {
    delegate::qtensor!(B);
}

impl<B: Backend> TransactionOps<Self> for FastBackward<B> {
    delegate::transaction!(B);
}
