//! Arithmetic on all gradients of a module at once.

use core::marker::PhantomData;

use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{FloatDType, Tensor};
use burn_mixed_precision::{HalfDType, scope};

/// What becomes of the dtype of a gradient.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// f32, or the gradient's own dtype if that is wider.
    Full,
    /// The dtype of its parameter.
    Parameter,
}

/// The module's gradients in f32, each multiplied by a factor; those of other parameters are gone.
///
/// Widened first: in half, a quotient flushes to zero what the loss scale has saved.
pub(crate) fn widen<B: AutodiffBackend, M: AutodiffModule<B>>(
    grads: GradientsParams,
    module: &M,
    factor: f64,
) -> GradientsParams {
    map::<B, M>(grads, module, factor, Target::Full)
}

/// The module's gradients, each rounded to the dtype of its parameter.
pub(crate) fn fit<B: AutodiffBackend, M: AutodiffModule<B>>(
    grads: GradientsParams,
    module: &M,
) -> GradientsParams {
    map::<B, M>(grads, module, 1.0, Target::Parameter)
}

/// The sum of two sets of gradients, in the dtypes they have.
pub(crate) fn sum<B: AutodiffBackend, M: AutodiffModule<B>>(
    left: GradientsParams,
    right: GradientsParams,
    module: &M,
) -> GradientsParams {
    scope::bare(|| {
        let mut sum = GradientsAccumulator::<M>::new();
        sum.accumulate::<B>(module, left);
        sum.accumulate::<B>(module, right);
        sum.grads()
    })
}

fn map<B: AutodiffBackend, M: AutodiffModule<B>>(
    grads: GradientsParams,
    module: &M,
    factor: f64,
    target: Target,
) -> GradientsParams {
    let mut map = Map::<B> {
        from: grads,
        into: GradientsParams::new(),
        factor,
        target,
        backend: PhantomData,
    };
    scope::bare(|| module.visit(&mut map));
    map.into
}

struct Map<B> {
    from: GradientsParams,
    into: GradientsParams,
    factor: f64,
    target: Target,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Map<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.from.remove::<B::InnerBackend, D>(param.id) else {
            return;
        };
        let dtype = match (self.target, HalfDType::of(grad.dtype())) {
            (Target::Full, Some(_)) => FloatDType::F32,
            (Target::Full, None) => grad.dtype().into(),
            (Target::Parameter, _) => param.val().dtype().into(),
        };
        let grad = match grad.dtype() == dtype.into() {
            true => grad,
            false => grad.cast(dtype),
        };
        let grad = match self.factor {
            1.0 => grad,
            factor => grad.mul_scalar(factor),
        };
        self.into.register::<B::InnerBackend, D>(param.id, grad);
    }
}
