//! A weight is cast once per update, however often it is used, and its gradient is never lost.

mod support;

use burn::module::AutodiffModule;
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{DType, Distribution, Tensor};
use burn_amp::{HalfDType, OptLevel, measure};
use support::{HALVES, Mixed, amp};

fn random<const D: usize>(shape: [usize; D]) -> Tensor<Mixed, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn linear() -> Linear<Mixed> {
    LinearConfig::new(4, 4).init(&Default::default())
}

/// The gradient of weight and bias of a linear layer for the loss `sum(layer(x))`.
fn grads(layer: &Linear<Mixed>, x: Tensor<Mixed, 2>) -> (Vec<f32>, DType) {
    let grads = layer.forward(x).sum().backward();
    let grad = layer
        .weight
        .val()
        .grad(&grads)
        .expect("the weight has a gradient");
    (grad.to_data().to_vec().unwrap(), grad.dtype())
}

#[test]
fn an_lstm_of_fifty_steps_makes_one_cast_per_weight() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let lstm: Lstm<Mixed> = LstmConfig::new(8, 8, true).init(&Default::default());
            let weights = 4 * 2 * 2; // gates, input and hidden, weight and bias
            let (_, short) = measure(|| lstm.forward(random([2, 1, 8]), None));
            let (_, long) = measure(|| lstm.forward(random([2, 50, 8]), None));
            assert_eq!(
                long.saved,
                50 * weights,
                "every use of every step is answered"
            );
            let per_step = (short.made - weights, long.made);
            assert!(long.made < 50 * weights, "casts per step {per_step:?}");
        });
    }
}

#[test]
fn a_weight_used_in_two_graphs_gets_both_gradients() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let layer = linear();
        let (x, y) = (random([3, 4]), random([3, 4]));
        let apart = [grads(&layer, x.clone()).0, grads(&layer, y.clone()).0];
        // Both forward passes first: they share the weight's half copy.
        let (fx, fy) = (layer.forward(x).sum(), layer.forward(y).sum());
        let first = fx.backward();
        let second = fy.backward();
        for (together, apart) in [first, second].iter().zip(apart) {
            let grad = layer.weight.val().grad(together).expect("gradient");
            assert_eq!(grad.to_data().to_vec::<f32>().unwrap(), apart);
        }
    });
}

#[test]
fn gradients_of_f32_weights_are_f32() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            assert_eq!(grads(&linear(), random([3, 4])).1, DType::F32);
        });
    }
}

#[test]
fn an_updated_weight_is_cast_again_and_only_once() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let mut layer = linear();
        let mut sgd = SgdConfig::new().init();
        for _ in 0..3 {
            let x = random([3, 4]);
            let x_casts = 1;
            let ((a, b), count) =
                measure(|| (layer.forward(x.clone()).sum(), layer.forward(x).sum()));
            assert_eq!(count.made - 2 * x_casts, 2 + 2, "weight, bias, two sums");
            let grads = GradientsParams::from_grads((a + b).backward(), &layer);
            layer = sgd.step(0.1, layer, grads);
        }
    });
}

#[test]
fn an_untracked_forward_does_not_cost_a_later_one_its_gradient() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let layer = linear();
        let x = random([3, 4]);
        layer.valid().forward(x.clone().inner());
        let after_eval = grads(&layer, x.clone());
        assert_eq!(after_eval, grads(&layer, x.clone()));
        let (_, count) = measure(|| layer.valid().forward(x.inner()));
        assert_eq!(
            count.made, 1,
            "valid() carries the copies along: only the input is cast"
        );
    });
}
