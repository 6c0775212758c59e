//! A model of one weight vector, whose gradient is what the test says.

use burn::module::{Module, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};
use burn_amp::{Amp, AmpOptimizer, LossScaleConfig, MixedPrecision, StepOutcome, scope};

use crate::support::{Bare, Mixed};

#[derive(Module, Debug)]
pub struct OneWeight<B: Backend> {
    pub weight: Param<Tensor<B, 1>>,
}

impl<B: Backend> OneWeight<B> {
    pub fn new(values: &[f32]) -> Self {
        let weight = Tensor::<B, 1>::from_floats(values, &Default::default());
        OneWeight {
            weight: Param::from_tensor(weight),
        }
    }

    /// A loss whose gradient is this, in f32.
    pub fn loss(&self, gradient: &[f32]) -> Tensor<B, 1> {
        let gradient = Tensor::<B, 1>::from_floats(gradient, &Default::default());
        (self.weight.val() * gradient).sum()
    }

    /// The same, through an f16 copy of the weight: its gradient has to fit into f16 once scaled.
    pub fn loss_through_f16(&self, by: f32) -> Tensor<B, 1> {
        let half = self.weight.val().cast(FloatDType::F16);
        half.mul_scalar(by).sum()
    }

    /// The values as stored.
    pub fn values(&self) -> Vec<f32> {
        stored(self.weight.val())
    }
}

pub fn stored<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    let data = scope::disabled(|| tensor.into_data());
    data.convert::<f32>().to_vec().unwrap()
}

pub type PlainSgd = OptimizerAdaptor<Sgd<MixedPrecision<Bare>>, OneWeight<Mixed>, Mixed>;
pub type AmpSgd = AmpOptimizer<PlainSgd, Mixed>;

pub fn sgd() -> PlainSgd {
    SgdConfig::new().init()
}

/// SGD under these settings, with a rule for the scale.
pub fn amp_sgd(amp: &Amp, rule: LossScaleConfig) -> AmpSgd {
    AmpOptimizer::new(sgd(), amp).with_loss_scale(rule).unwrap()
}

/// One step of a model at a loss.
pub fn step<O: Optimizer<OneWeight<Mixed>, Mixed>>(
    model: OneWeight<Mixed>,
    optim: &mut O,
    lr: f64,
    loss: impl FnOnce(&OneWeight<Mixed>) -> Tensor<Mixed, 1>,
) -> OneWeight<Mixed> {
    let grads = GradientsParams::from_grads(loss(&model).backward(), &model);
    optim.step(lr, model, grads)
}

/// Steps with these gradients in turn, at learning rate 1; what became of the last.
pub fn outcome(optim: &mut AmpSgd, gradients: &[&[f32]]) -> StepOutcome {
    let mut model = OneWeight::<Mixed>::new(&vec![1.0; gradients[0].len()]);
    for gradient in gradients {
        model = step(model, optim, 1.0, |model| model.loss(gradient));
    }
    optim.last_step().unwrap()
}
