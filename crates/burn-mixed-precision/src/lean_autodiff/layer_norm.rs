//! layer_norm, which keeps the normalized tensor and a deviation per row.

#![expect(
    clippy::missing_trait_methods,
    reason = "`prepare` of `Backward` is not to be replaced"
)]

use burn::backend::Autodiff;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType, Shape, TensorMetadata};

use crate::cast::uncounted;

/// With n = (x - mean) / deviation, y = n gamma + beta, and c = dy gamma - mean(dy gamma):
/// dx = (c - n mean(n c)) / deviation, dgamma = sum of n dy, dbeta = sum of dy over all rows.
#[derive(Debug)]
struct LayerNorm;

#[derive(Debug, Clone)]
struct Kept<T> {
    normalized: T,
    /// A number per row, in the dtype of the operation.
    deviation: T,
    gamma: T,
}

impl<T: Clone> Kept<T> {
    /// The gradients of x, gamma and beta, of those that are asked for.
    fn gradients<B: Backend<FloatTensorPrimitive = T>>(
        self,
        grads: &mut Gradients,
        grad: T,
        [x, gamma, beta]: [Option<NodeId>; 3],
    ) where
        T: TensorMetadata,
    {
        let dtype = FloatDType::from(grad.dtype());
        let wide = |tensor| uncounted::<B>(tensor, FloatDType::F32);
        let mut register = |node, grad| grads.register::<B>(node, uncounted::<B>(grad, dtype));
        let (grad, normalized) = (wide(grad), wide(self.normalized));
        if let Some(node) = gamma {
            let weighted = B::float_mul(grad.clone(), normalized.clone());
            register(node, sum_of_rows::<B>(weighted));
        }
        if let Some(node) = beta {
            register(node, sum_of_rows::<B>(grad.clone()));
        }
        if let Some(node) = x {
            let last = grad.shape().num_dims() - 1;
            let gamma = along_last::<B>(wide(self.gamma), &grad.shape());
            // Centered first: rounded, the normalized tensor has no mean of exactly 0.
            let inner = B::float_mul(grad, gamma);
            let centered = B::float_sub(inner.clone(), B::float_mean_dim(inner, last));
            let along = B::float_mul(centered.clone(), normalized.clone());
            let along = B::float_mul(normalized, B::float_mean_dim(along, last));
            let grad = B::float_sub(centered, along);
            register(node, B::float_div(grad, wide(self.deviation)));
        }
    }
}

/// Sums over all dimensions but the last.
fn sum_of_rows<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let shape = tensor.shape();
    let width = shape[shape.num_dims() - 1];
    let rows = shape.num_elements() / width.max(1);
    let sum = B::float_sum_dim(B::float_reshape(tensor, Shape::new([rows, width])), 0);
    B::float_reshape(sum, Shape::new([width]))
}

/// A vector in a shape that broadcasts along the last dimension.
fn along_last<B: Backend>(vector: FloatTensor<B>, shape: &Shape) -> FloatTensor<B> {
    let last = shape.num_dims() - 1;
    let dims: Vec<usize> = (0..=last)
        .map(|dim| if dim == last { shape[dim] } else { 1 })
        .collect();
    B::float_reshape(vector, Shape::from(dims))
}

impl<B: Backend> Backward<B, 2> for LayerNorm {
    type State = Kept<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [x, gamma] = ops.parents.map(|node| node.map(|node| node.id));
        ops.state.gradients::<B>(grads, grad, [x, gamma, None]);
    }
}

impl<B: Backend> Backward<B, 3> for LayerNorm {
    type State = Kept<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|node| node.map(|node| node.id));
        ops.state.gradients::<B>(grads, grad, parents);
    }
}

/// The arithmetic of Burn's `layer_norm`, in the same order.
pub(super) fn layer_norm<B: Backend, C: CheckpointStrategy>(
    tensor: FloatTensor<Autodiff<B, C>>,
    gamma: FloatTensor<Autodiff<B, C>>,
    beta: Option<FloatTensor<Autodiff<B, C>>>,
    epsilon: f64,
    kept: FloatDType,
) -> FloatTensor<Autodiff<B, C>> {
    let shape = tensor.primitive.shape();
    let last = shape.num_dims() - 1;
    let mean = B::float_mean_dim(tensor.primitive.clone(), last);
    let centered = B::float_sub(tensor.primitive, mean);
    let variance = B::float_mean_dim(B::float_mul(centered.clone(), centered.clone()), last);
    let deviation = B::float_sqrt(B::float_add_scalar(variance, epsilon.into()));
    let normalized = B::float_div(centered, deviation.clone());
    let scaled = B::float_mul(
        normalized.clone(),
        along_last::<B>(gamma.primitive.clone(), &shape),
    );
    let keep = || Kept {
        normalized: uncounted::<B>(normalized, kept),
        deviation,
        gamma: gamma.primitive,
    };
    match beta {
        Some(beta) => {
            let output = B::float_add(scaled, along_last::<B>(beta.primitive, &shape));
            let nodes = [tensor.node, gamma.node, beta.node];
            let step = Backward::<B, 3>::prepare::<C>(LayerNorm, nodes);
            match step.compute_bound().stateful() {
                OpsKind::Tracked(step) => step.finish(keep(), output),
                OpsKind::UnTracked(step) => step.finish(output),
            }
        }
        None => {
            let step = Backward::<B, 2>::prepare::<C>(LayerNorm, [tensor.node, gamma.node]);
            match step.compute_bound().stateful() {
                OpsKind::Tracked(step) => step.finish(keep(), scaled),
                OpsKind::UnTracked(step) => step.finish(scaled),
            }
        }
    }
}
