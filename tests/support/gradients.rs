//! Reads and spoils the parameters and gradients of any module, by their position in it.

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};

/// Every float tensor of a module as stored, half ones in half.
pub fn values<B: Backend, M: Module<B>>(module: &M) -> Vec<TensorData> {
    let bits = super::net::bits(module);
    bits.into_iter().map(|(_, data)| data).collect()
}

/// The gradient of every parameter, as stored; `None` where there is none.
pub fn gradients<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    grads: &GradientsParams,
) -> Vec<Option<TensorData>> {
    struct Read<'a>(&'a GradientsParams, Vec<Option<TensorData>>);
    impl<B: AutodiffBackend> ModuleVisitor<B> for Read<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let grad = self.0.get::<B::InnerBackend, D>(param.id);
            self.1
                .push(burn_amp::scope::disabled(|| grad.map(Tensor::into_data)));
        }
    }
    let mut read = Read(grads, Vec::new());
    module.visit(&mut read);
    read.1
}

/// Sets every element of the gradient of the parameter at a position.
pub fn poison<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    grads: &mut GradientsParams,
    position: usize,
    value: f32,
) {
    struct Poison<'a> {
        grads: &'a mut GradientsParams,
        left: usize,
        value: f32,
    }
    impl<B: AutodiffBackend> ModuleVisitor<B> for Poison<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            if self.left == 0 {
                let grad = self.grads.remove::<B::InnerBackend, D>(param.id);
                let grad = grad.expect("has a gradient").full_like(self.value);
                self.grads.register::<B::InnerBackend, D>(param.id, grad);
            }
            self.left = self.left.wrapping_sub(1);
        }
    }
    module.visit(&mut Poison {
        grads,
        left: position,
        value,
    });
}
