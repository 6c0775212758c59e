//! Burn's autodiff, where softmax, log_softmax and layer_norm are one operation each and keep one half
//! tensor for backward.
//!
//! A file per operation; all others are [passed on](crate::delegate) to Burn's autodiff.

#![deny(clippy::missing_trait_methods)]

#[cfg(feature = "distributed")]
mod distributed;
mod layer_norm;
mod softmax;

use core::marker::PhantomData;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::{CheckpointStrategy, NoCheckpointing};
#[cfg(not(feature = "distributed"))]
use burn_backend::Backend as InnerBackend;
use burn_backend::backend::AutodiffBackend;
#[cfg(feature = "distributed")]
use burn_backend::distributed::{
    DistributedBackend as InnerBackend, DistributedParamId, DistributedParams,
};
use burn_backend::{Backend, BackendTypes, TensorMetadata};

use crate::delegate::signatures::*;
use crate::{Policy, delegate, scope};

/// Burn's autodiff with less kept for backward: `MixedPrecision<LeanAutodiff<FastBackward<B>>>`.
///
/// Burn records softmax, log_softmax and layer_norm piece by piece, and the pieces keep one or two f32
/// tensors of the size of the whole. Here each is one operation (and softmin, which is a softmax). For
/// backward it keeps what its gradient is made of, in half: the probabilities, or the normalized tensor
/// (and a deviation per row). Gradients are computed in f32 from it.
///
/// `burn::tensor::module::attention` has a softmax in pieces of its own, which stays as it is.
///
/// Its tensors are those of `Autodiff<B, C>`, and every other operation is passed on. On a device that was
/// never initialised, with the policy off, in [`scope::full`](crate::scope::full) and with
/// [`AmpConfig::with_lean_backward`](crate::AmpConfig::with_lean_backward) set to false every result is
/// that of `Autodiff<B, C>`, bit by bit.
///
/// # Numerics
///
/// What is kept is rounded once, to 11 bits in f16 and 8 in bf16, as every operand of a half matrix
/// product is. Probabilities are kept times 2^15, so in f16 those down to 1.9e-9 have all digits and none
/// above 9e-13 is lost, and are divided by their sum before they are used: 1 - p is as exact as p, and a
/// gradient that is the same for all classes leaves nothing. docs/numerics.md has the bounds.
///
/// # Example
///
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::{Tensor, activation::softmax};
/// use burn_mixed_precision::{AmpConfig, FastBackward, LeanAutodiff, MixedPrecision, OptLevel};
///
/// type B = MixedPrecision<LeanAutodiff<FastBackward<Flex>>>;
///
/// let amp = AmpConfig::new(OptLevel::O1).build()?;
/// amp.scope(|| {
///     let scores = Tensor::<B, 2>::from_data([[1.0, 2.0]], &Default::default()).require_grad();
///     let first = softmax(scores.clone(), 1).slice([0..1, 0..1]);
///     let grad = scores.grad(&first.backward()).unwrap().into_data();
///     let p = 1.0 / (1.0 + 1f32.exp()); // of the first; its gradient is p (1 - p)
///     assert!((grad.to_vec::<f32>().unwrap()[0] - p * (1.0 - p)).abs() < 1e-3 * p);
/// });
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LeanAutodiff<B, C = NoCheckpointing> {
    _autodiff: PhantomData<Autodiff<B, C>>,
}

/// The dtype to keep tensors of an operation in; `None` to leave the operation to Burn's autodiff.
fn kept_dtype<B: Backend, C: CheckpointStrategy>(
    tensor: &FloatTensor<Autodiff<B, C>>,
) -> Option<FloatDType> {
    let device = || B::float_device(&tensor.primitive);
    let half = scope::policy(device, |policy| {
        policy
            .filter(|policy| policy.lean_backward())
            .map(Policy::half)
    })?;
    match tensor.primitive.dtype() {
        DType::F32 => Some(half.float_dtype()),
        own @ (DType::F16 | DType::BF16) => Some(own.into()),
        _ => None,
    }
}

impl<B: Backend, C: CheckpointStrategy> BackendTypes for LeanAutodiff<B, C> {
    type Device = B::Device;

    type FloatTensorPrimitive = FloatTensor<Autodiff<B, C>>;
    type FloatElem = B::FloatElem;

    type IntTensorPrimitive = B::IntTensorPrimitive;
    type IntElem = B::IntElem;

    type BoolTensorPrimitive = B::BoolTensorPrimitive;
    type BoolElem = B::BoolElem;

    type QuantizedTensorPrimitive = B::QuantizedTensorPrimitive;
}

impl<B: Backend, C: CheckpointStrategy> Backend for LeanAutodiff<B, C> {
    delegate::backend!(Autodiff<B, C>);

    fn name(device: &Self::Device) -> String {
        format!("lean-{}", Autodiff::<B, C>::name(device))
    }
}

impl<B: Backend, C: CheckpointStrategy> ActivationOps<Self> for LeanAutodiff<B, C> {
    delegate::activation!(Autodiff<B, C>);

    fn softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        match kept_dtype::<B, C>(&tensor) {
            Some(kept) => softmax::softmax::<B, C>(tensor, dim, kept),
            None => Autodiff::<B, C>::softmax(tensor, dim),
        }
    }

    fn log_softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        match kept_dtype::<B, C>(&tensor) {
            Some(kept) => softmax::log_softmax::<B, C>(tensor, dim, kept),
            None => Autodiff::<B, C>::log_softmax(tensor, dim),
        }
    }

    /// As Burn has it.
    fn softmin(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        Self::softmax(Self::float_neg(tensor), dim)
    }
}

impl<B: Backend, C: CheckpointStrategy> ModuleOps<Self> for LeanAutodiff<B, C> {
    delegate::module!(Autodiff<B, C>);

    forward! { Autodiff<B, C> =>
        fn conv1d_weight_backward(x: FloatTensor<Self>, weight: FloatTensor<Self>, output_grad: FloatTensor<Self>, options: ConvOptions<1>) -> FloatTensor<Self>;
        fn conv2d_weight_backward(x: FloatTensor<Self>, weight: FloatTensor<Self>, output_grad: FloatTensor<Self>, options: ConvOptions<2>) -> FloatTensor<Self>;
        fn conv3d_weight_backward(x: FloatTensor<Self>, weight: FloatTensor<Self>, output_grad: FloatTensor<Self>, options: ConvOptions<3>) -> FloatTensor<Self>;
    }

    fn layer_norm(
        tensor: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        match kept_dtype::<B, C>(&tensor) {
            Some(kept) => layer_norm::layer_norm::<B, C>(tensor, gamma, beta, epsilon, kept),
            None => Autodiff::<B, C>::layer_norm(tensor, gamma, beta, epsilon),
        }
    }
}

impl<B: Backend, C: CheckpointStrategy> FloatTensorOps<Self> for LeanAutodiff<B, C> {
    delegate::tensor!(Autodiff<B, C>);

    forward! { Autodiff<B, C> =>
        fn float_mul_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
    }
}

impl<B: Backend, C: CheckpointStrategy> IntTensorOps<Self> for LeanAutodiff<B, C> {
    delegate::int_tensor!(Autodiff<B, C>);
}

impl<B: Backend, C: CheckpointStrategy> BoolTensorOps<Self> for LeanAutodiff<B, C> {
    delegate::bool_tensor!(Autodiff<B, C>);
}

impl<B: Backend, C: CheckpointStrategy> QTensorOps<Self> for LeanAutodiff<B, C> {
    delegate::qtensor!(Autodiff<B, C>);
}

impl<B: Backend, C: CheckpointStrategy> TransactionOps<Self> for LeanAutodiff<B, C> {
    delegate::transaction!(Autodiff<B, C>);
}

impl<B: InnerBackend, C: CheckpointStrategy> AutodiffBackend for LeanAutodiff<B, C> {
    type InnerBackend = B;
    type Gradients = <Autodiff<B, C> as AutodiffBackend>::Gradients;

    forward! { Autodiff<B, C> =>
        fn backward(tensor: FloatTensor<Self>) -> Self::Gradients;
        fn grad(tensor: &FloatTensor<Self>, grads: &Self::Gradients) -> Option<FloatTensor<B>>;
        fn grad_remove(tensor: &FloatTensor<Self>, grads: &mut Self::Gradients) -> Option<FloatTensor<B>>;
        fn grad_replace(tensor: &FloatTensor<Self>, grads: &mut Self::Gradients, grad: FloatTensor<B>);
        fn inner(tensor: FloatTensor<Self>) -> FloatTensor<B>;
        fn int_inner(tensor: IntTensor<Self>) -> IntTensor<B>;
        fn bool_inner(tensor: BoolTensor<Self>) -> BoolTensor<B>;
        fn q_inner(tensor: QuantizedTensor<Self>) -> QuantizedTensor<B>;
        fn from_inner(tensor: FloatTensor<B>) -> FloatTensor<Self>;
        fn int_from_inner(tensor: IntTensor<B>) -> IntTensor<Self>;
        fn bool_from_inner(tensor: BoolTensor<B>) -> BoolTensor<Self>;
        fn q_from_inner(tensor: QuantizedTensor<B>) -> QuantizedTensor<Self>;
    }

    #[cfg(feature = "distributed")]
    forward! { Autodiff<B, C> =>
        fn set_distributed_params(tensor: FloatTensor<Self>, param_id: DistributedParamId) -> FloatTensor<Self>;
        fn distributed_params(tensor: &FloatTensor<Self>) -> Option<DistributedParams>;
        fn is_distributed(tensor: &FloatTensor<Self>) -> bool;
    }
}
