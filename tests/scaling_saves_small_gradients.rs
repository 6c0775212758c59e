//! What loss scaling is for: gradients below the f16 range reach the weights all the same.

mod support;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn_amp::{AmpConfig, AmpOptimizer, LossScaling, MixedPrecision, OptLevel};
use support::net::fixed;
use support::{Bare, Mixed};

/// Brings the gradients of this problem down to about 2^-26, below half of f16's smallest
/// subnormal 2^-24: rounded to f16 they are zero.
const TINY: f32 = 1.0 / (1 << 22) as f32;

#[derive(Module, Debug)]
struct Regression<B: burn::tensor::backend::Backend> {
    first: Linear<B>,
    last: Linear<B>,
}

impl<B: AutodiffBackend> Regression<B> {
    fn new() -> Self {
        let device = Default::default();
        fixed(Regression {
            first: LinearConfig::new(2, 16).init(&device),
            last: LinearConfig::new(16, 1).init(&device),
        })
    }

    /// Learns `y = |a - b|`; the loss is in f32 and tiny.
    fn loss(&self) -> Tensor<B, 1> {
        let points: Vec<f32> = (0..64)
            .map(|i| ((i * 29) % 31) as f32 / 15.0 - 1.0)
            .collect();
        let x = Tensor::<B, 1>::from_floats(points.as_slice(), &Default::default());
        let x = x.reshape([32, 2]);
        let [a, b] = [x.clone().narrow(1, 0, 1), x.clone().narrow(1, 1, 1)];
        let y = (a - b).abs();
        let predicted = self
            .last
            .forward(Relu::new().forward(self.first.forward(x)));
        (predicted - y).powi_scalar(2).mean() * TINY
    }
}

/// All gradients in one row.
fn gradients<B: AutodiffBackend>(model: &Regression<B>, grads: &GradientsParams) -> Vec<f32> {
    struct Read<'a>(&'a GradientsParams, Vec<f32>);
    impl<B: AutodiffBackend> ModuleVisitor<B> for Read<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let grad = self
                .0
                .get::<B::InnerBackend, D>(param.id)
                .expect("has a gradient");
            self.1.extend(grad.into_data().iter::<f32>());
        }
    }
    let mut read = Read(grads, Vec::new());
    model.visit(&mut read);
    read.1
}

struct Run {
    /// Loss after training over loss before.
    remaining: f32,
    /// Share of the first step's gradient elements that are zero although they are not in f32.
    flushed: f64,
    final_scale: f32,
}

fn train(loss_scale: LossScaling) -> Run {
    let exact = {
        let model = Regression::<burn::backend::Autodiff<MixedPrecision<Bare>>>::new();
        let grads = GradientsParams::from_grads(model.loss().backward(), &model);
        gradients(&model, &grads)
    };
    let amp = AmpConfig::new(OptLevel::O1)
        .with_loss_scale(loss_scale)
        .build()
        .unwrap();
    amp.scope(|| {
        let mut model = Regression::<Mixed>::new();
        // Adam's eps must be small against the gradients, or it would hide them in f32 too.
        let adam = AdamConfig::new().with_epsilon(1e-15).init();
        let mut optim = AmpOptimizer::new(adam, &amp);
        let before = model.loss().into_scalar();
        let mut first = None;
        for _ in 0..200 {
            let grads = GradientsParams::from_grads(model.loss().backward(), &model);
            first.get_or_insert_with(|| gradients(&model, &grads));
            model = optim.step(0.01, model, grads);
        }
        let first = first.unwrap();
        let present = exact.iter().filter(|g| **g != 0.0).count();
        let lost = exact
            .iter()
            .zip(&first)
            .filter(|(e, g)| **e != 0.0 && **g == 0.0)
            .count();
        Run {
            remaining: model.loss().into_scalar() / before,
            flushed: lost as f64 / present as f64,
            final_scale: optim.loss_scale().scale(),
        }
    })
}

#[test]
fn gradients_near_2_to_minus_26_train_with_a_dynamic_scale_and_not_without() {
    let without = train(LossScaling::Static(1.0));
    let with = train(LossScaling::Dynamic);
    println!(
        "static scale 1: {:.1}% of gradient elements flushed to zero, {:.3} of the loss remains",
        100.0 * without.flushed,
        without.remaining
    );
    println!(
        "dynamic scale ({}): {:.1}% flushed, {:.3} of the loss remains",
        with.final_scale,
        100.0 * with.flushed,
        with.remaining
    );
    assert!(
        without.flushed > 0.99 && without.remaining == 1.0,
        "learns nothing"
    );
    assert!(with.flushed < 0.01 && with.remaining < 0.1, "learns");
}
