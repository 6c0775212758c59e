#![deny(clippy::missing_trait_methods)]

use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{FloatDType, TensorMetadata};

use crate::tensor::MixedTensor;
use crate::{HalfDType, MixedPrecision, cast, observe, scope};

/// The gradients of one backward pass, which remember the loss scale they were computed with.
pub struct MixedGradients<B: AutodiffBackend> {
    inner: B::Gradients,
    /// `None` when no scaler was attached.
    scale: Option<f32>,
}

impl<B: AutodiffBackend> MixedGradients<B> {
    /// The factor that the loss was multiplied by; 1 without a scaler.
    pub fn loss_scale(&self) -> f32 {
        self.scale.unwrap_or(1.0)
    }

    /// The gradients as backward computed them: scaled, and those of half copies apart.
    pub fn into_inner(self) -> B::Gradients {
        self.inner
    }

    /// Makes one true gradient of a leaf's own and those of its half copies.
    ///
    /// Unscaled in f32 when a scaler is attached: in half, dividing would flush to zero again what
    /// the scale has saved. Otherwise in the leaf's own dtype, as without the decorator.
    fn collect(
        &self,
        leaf: &MixedTensor<B>,
        own: Option<FloatTensor<B::InnerBackend>>,
        of_copies: Vec<FloatTensor<B::InnerBackend>>,
    ) -> Option<MixedTensor<B::InnerBackend>> {
        if self.scale.is_none() && of_copies.is_empty() {
            return own.map(MixedTensor::new);
        }
        let dtype = match (self.scale, HalfDType::of(leaf.inner.dtype())) {
            (Some(_), Some(_)) => FloatDType::F32,
            _ => leaf.inner.dtype().into(),
        };
        let gradient = own
            .into_iter()
            .chain(of_copies)
            .map(|part| cast::to_dtype::<B::InnerBackend>(part, dtype))
            .reduce(B::InnerBackend::float_add)?;
        let gradient = match self.scale {
            // The quotient is taken in f64: 1/scale is exact for powers of two, and rounded once
            // for any other scale.
            Some(scale) if scale != 1.0 => B::InnerBackend::float_mul_scalar(
                gradient,
                ((1.0 / f64::from(scale)) as f32).into(),
            ),
            _ => gradient,
        };
        Some(MixedTensor::new(gradient))
    }
}

impl<B: AutodiffBackend> AutodiffBackend for MixedPrecision<B> {
    type InnerBackend = MixedPrecision<B::InnerBackend>;
    type Gradients = MixedGradients<B>;

    /// The loss is widened to f32 before it is scaled: 65536 itself is not finite in f16.
    fn backward(tensor: FloatTensor<Self>) -> Self::Gradients {
        let device = B::float_device(&tensor.inner);
        let scale = scope::loss_scale(&device);
        let root = match scale {
            Some(scale) => {
                let loss = match HalfDType::of(tensor.inner.dtype()) {
                    Some(_) => cast::to_dtype::<B>(tensor.inner, FloatDType::F32),
                    None => tensor.inner,
                };
                B::float_mul_scalar(loss, scale.into())
            }
            None => tensor.inner,
        };
        MixedGradients {
            inner: observe::backward(&device, scale.or(scope::hand_scale()), || B::backward(root)),
            scale,
        }
    }

    fn grad(
        tensor: &FloatTensor<Self>,
        grads: &Self::Gradients,
    ) -> Option<FloatTensor<Self::InnerBackend>> {
        let own = B::grad(&tensor.inner, &grads.inner);
        let of_copies = tensor
            .copies()
            .iter()
            .filter_map(|copy| B::grad(copy, &grads.inner))
            .collect();
        grads.collect(tensor, own, of_copies)
    }

    fn grad_remove(
        tensor: &FloatTensor<Self>,
        grads: &mut Self::Gradients,
    ) -> Option<FloatTensor<Self::InnerBackend>> {
        let own = B::grad_remove(&tensor.inner, &mut grads.inner);
        let of_copies = tensor
            .copies()
            .iter()
            .filter_map(|copy| B::grad_remove(copy, &mut grads.inner))
            .collect();
        grads.collect(tensor, own, of_copies)
    }

    /// Takes a true gradient, and keeps it scaled as its neighbours are.
    fn grad_replace(
        tensor: &FloatTensor<Self>,
        grads: &mut Self::Gradients,
        grad: FloatTensor<Self::InnerBackend>,
    ) {
        for copy in tensor.copies() {
            B::grad_remove(&copy, &mut grads.inner);
        }
        let grad = match grads.scale {
            Some(scale) if scale != 1.0 => {
                let grad = match HalfDType::of(grad.inner.dtype()) {
                    Some(_) => cast::to_dtype::<B::InnerBackend>(grad.inner, FloatDType::F32),
                    None => grad.inner,
                };
                B::InnerBackend::float_mul_scalar(grad, scale.into())
            }
            _ => grad.inner,
        };
        B::grad_replace(&tensor.inner, &mut grads.inner, grad)
    }

    fn inner(tensor: FloatTensor<Self>) -> FloatTensor<Self::InnerBackend> {
        tensor.map(B::inner)
    }

    fn int_inner(tensor: IntTensor<Self>) -> IntTensor<Self::InnerBackend> {
        B::int_inner(tensor)
    }

    fn bool_inner(tensor: BoolTensor<Self>) -> BoolTensor<Self::InnerBackend> {
        B::bool_inner(tensor)
    }

    fn q_inner(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self::InnerBackend> {
        B::q_inner(tensor)
    }

    fn from_inner(tensor: FloatTensor<Self::InnerBackend>) -> FloatTensor<Self> {
        tensor.map(B::from_inner)
    }

    fn int_from_inner(tensor: IntTensor<Self::InnerBackend>) -> IntTensor<Self> {
        B::int_from_inner(tensor)
    }

    fn bool_from_inner(tensor: BoolTensor<Self::InnerBackend>) -> BoolTensor<Self> {
        B::bool_from_inner(tensor)
    }

    fn q_from_inner(tensor: QuantizedTensor<Self::InnerBackend>) -> QuantizedTensor<Self> {
        B::q_from_inner(tensor)
    }

    /// Gives up the cast cache: gradients are averaged across devices on the marked tensor itself,
    /// so each cast must be recorded as an operation on it.
    #[cfg(feature = "distributed")]
    fn set_distributed_params(
        tensor: FloatTensor<Self>,
        param_id: burn_backend::distributed::DistributedParamId,
    ) -> FloatTensor<Self> {
        MixedTensor::new(B::set_distributed_params(tensor.inner, param_id))
    }

    #[cfg(feature = "distributed")]
    fn distributed_params(
        tensor: &FloatTensor<Self>,
    ) -> Option<burn_backend::distributed::DistributedParams> {
        B::distributed_params(&tensor.inner)
    }

    #[cfg(feature = "distributed")]
    fn is_distributed(tensor: &FloatTensor<Self>) -> bool {
        B::is_distributed(&tensor.inner)
    }
}
