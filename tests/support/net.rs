//! A small model with a norm, and its exact contents.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, Relu};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

#[derive(Module, Debug)]
pub struct Net<B: Backend> {
    pub first: Linear<B>,
    pub norm: BatchNorm<B>,
    pub last: Linear<B>,
}

impl<B: Backend> Net<B> {
    pub fn new(device: &B::Device) -> Self {
        let net = Net {
            first: LinearConfig::new(6, 8).init(device),
            norm: BatchNormConfig::new(8).init(device),
            last: LinearConfig::new(8, 3).init(device),
        };
        fixed(net)
    }

    pub fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let x = Relu::new().forward(self.norm.forward(self.first.forward(x)));
        self.last.forward(x).powi_scalar(2).mean()
    }
}

/// Gives parameters initial values that depend on nothing but their order.
pub fn fixed<B: Backend, M: Module<B>>(model: M) -> M {
    model.map(&mut Fixed { next: 0 })
}

/// Initial values without a random generator, which all tests of a file would share.
struct Fixed {
    next: usize,
}

impl<B: Backend> ModuleMapper<B> for Fixed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if !param.is_require_grad() && B::ad_enabled(&param.val().device()) {
            return param; // Running statistics start as Burn has them.
        }
        param.map(|tensor| {
            let shape = tensor.shape();
            let values: Vec<f32> = (0..shape.num_elements())
                .map(|_| {
                    self.next += 1;
                    ((self.next * 37) % 101) as f32 / 101.0 - 0.5
                })
                .collect();
            let data = TensorData::new(values, shape);
            let tracked = tensor.is_require_grad();
            Tensor::from_data(data, &tensor.device()).set_require_grad(tracked)
        })
    }
}

/// Every float tensor of a model with its dtype, exactly.
pub fn bits<B: Backend, M: Module<B>>(model: &M) -> Vec<(ParamId, TensorData)> {
    struct Read(Vec<(ParamId, TensorData)>);
    impl<B: Backend> ModuleVisitor<B> for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            // As stored: half stays half.
            let data = burn_amp::scope::disabled(|| param.val().into_data());
            self.0.push((param.id, data));
        }
    }
    let mut read = Read(Vec::new());
    model.visit(&mut read);
    read.0
}

/// A batch that depends on nothing but its number.
pub fn batch<B: Backend>(step: usize) -> Tensor<B, 2> {
    let values: Vec<f32> = (0..24)
        .map(|i| ((i * 7 + step * 13) % 11) as f32 / 5.0 - 1.0)
        .collect();
    Tensor::<B, 1>::from_floats(values.as_slice(), &Default::default()).reshape([4, 6])
}
