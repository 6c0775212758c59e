//! softmax and log_softmax, which keep the probabilities.

#![expect(
    clippy::missing_trait_methods,
    reason = "`prepare` of `Backward` is not to be replaced"
)]

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType, TensorMetadata};

use crate::cast::uncounted;

/// What probabilities, which are at most 1, are multiplied by when they are kept: the largest power of two
/// that f16 (65504) holds. A power of two rounds nothing.
const SCALE: f32 = 32768.0;

/// Probabilities as they are kept for backward.
#[derive(Debug, Clone)]
struct Probabilities<T> {
    scaled: T,
    dim: usize,
}

impl<T: Clone> Probabilities<T> {
    fn keep<B: Backend<FloatTensorPrimitive = T>>(exact: T, dim: usize, dtype: FloatDType) -> Self {
        let wide = uncounted::<B>(exact, FloatDType::F32);
        let scaled = B::float_mul_scalar(wide, SCALE.into());
        Probabilities {
            scaled: uncounted::<B>(scaled, dtype),
            dim,
        }
    }

    /// In f32, with a sum of 1 again.
    ///
    /// Rounding moves that sum by up to u, and with it what a gradient that is the same for all
    /// classes leaves behind, and 1 - p of a class that is nearly certain.
    fn read<B: Backend<FloatTensorPrimitive = T>>(self) -> (T, usize) {
        let wide = uncounted::<B>(self.scaled, FloatDType::F32);
        let sum = B::float_sum_dim(wide.clone(), self.dim);
        (B::float_div(wide, sum), self.dim)
    }
}

/// With y = softmax(x): dx = y dy - y sum(y dy).
#[derive(Debug)]
struct Softmax;

impl<B: Backend> Backward<B, 1> for Softmax {
    type State = Probabilities<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (output, dim) = ops.state.read::<B>();
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            in_f32::<B>(grad, |grad| {
                let weighted = B::float_mul(grad, output.clone());
                let sum = B::float_sum_dim(weighted.clone(), dim);
                B::float_sub(weighted, B::float_mul(output, sum))
            })
        });
    }
}

/// With y = log_softmax(x): dx = dy - exp(y) sum(dy).
#[derive(Debug)]
struct LogSoftmax;

impl<B: Backend> Backward<B, 1> for LogSoftmax {
    type State = Probabilities<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (probabilities, dim) = ops.state.read::<B>();
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            in_f32::<B>(grad, |grad| {
                let sum = B::float_sum_dim(grad.clone(), dim);
                B::float_sub(grad, B::float_mul(probabilities, sum))
            })
        });
    }
}

/// Computes a gradient in f32 and gives it the dtype that the gradient behind it has.
fn in_f32<B: Backend>(
    grad: FloatTensor<B>,
    compute: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    let dtype = grad.dtype().into();
    uncounted::<B>(compute(uncounted::<B>(grad, FloatDType::F32)), dtype)
}

pub(super) fn softmax<B: Backend, C: CheckpointStrategy>(
    tensor: FloatTensor<Autodiff<B, C>>,
    dim: usize,
    kept: FloatDType,
) -> FloatTensor<Autodiff<B, C>> {
    let step = Backward::<B, 1>::prepare::<C>(Softmax, [tensor.node]);
    let output = B::softmax(tensor.primitive, dim);
    match step.compute_bound().stateful() {
        OpsKind::Tracked(step) => {
            let state = Probabilities::keep::<B>(output.clone(), dim, kept);
            step.finish(state, output)
        }
        OpsKind::UnTracked(step) => step.finish(output),
    }
}

pub(super) fn log_softmax<B: Backend, C: CheckpointStrategy>(
    tensor: FloatTensor<Autodiff<B, C>>,
    dim: usize,
    kept: FloatDType,
) -> FloatTensor<Autodiff<B, C>> {
    let step = Backward::<B, 1>::prepare::<C>(LogSoftmax, [tensor.node]);
    let output = B::log_softmax(tensor.primitive, dim);
    match step.compute_bound().stateful() {
        OpsKind::Tracked(step) => {
            let probabilities = B::float_exp(uncounted::<B>(output.clone(), FloatDType::F32));
            let state = Probabilities::keep::<B>(probabilities, dim, kept);
            step.finish(state, output)
        }
        OpsKind::UnTracked(step) => step.finish(output),
    }
}
