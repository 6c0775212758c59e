//! A weight is cast once per update, however often it is used, and its gradient is never lost.

mod support;

use burn::module::{AutodiffModule, Module};
use burn::nn::{LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{DType, Distribution, Tensor};
use burn_amp::{HalfDType, OptLevel, measure, scope};
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
            let gates_after_the_first = 3; // They read the half copy of the step that it made.
            assert_eq!(
                long.saved,
                50 * (weights + gates_after_the_first),
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

#[test]
fn every_step_makes_the_same_number_of_casts() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let mut layers = [linear(), linear()];
        let mut sgd = SgdConfig::new().init();
        let counts = [(); 5].map(|()| {
            let (_, count) = measure(|| {
                let x = layers[1].forward(layers[0].forward(random([3, 4])));
                let grads = GradientsParams::from_grads(x.sum().backward(), &layers);
                layers = scope::disabled(|| sgd.step(0.1, layers.clone(), grads));
            });
            count
        });
        assert_eq!(
            counts[0].made,
            1 + 4 + 1 + 4,
            "input, parameters, sum, their gradients"
        );
        assert_eq!(counts, [counts[0]; 5]);
    });
}

#[test]
fn frozen_weights_are_cast_once_for_ever() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let layer = linear().no_grad();
        let x = random([3, 4]).cast(HalfDType::F16.dtype());
        let (_, first) = measure(|| layer.forward(x.clone()));
        assert_eq!(first.made, 2, "weight and bias");
        let (_, later) = measure(|| {
            for _ in 0..10 {
                layer.forward(x.clone());
                layer.valid().forward(x.clone().inner());
            }
        });
        assert_eq!((later.made, later.saved), (0, 40));
    });
}

#[test]
fn a_copy_made_before_backward_serves_after_it() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let (layer, x) = (linear(), random([3, 4]));
        let before = grads(&layer, x.clone());
        let (after, count) = measure(|| layer.forward(x.clone()));
        assert_eq!(
            (count.made, count.saved),
            (1, 2),
            "only the input is cast again"
        );
        let gradient = layer.weight.val().grad(&after.sum().backward()).unwrap();
        assert_eq!(gradient.to_data().to_vec::<f32>().unwrap(), before.0);
    });
}

#[test]
fn clones_of_a_parameter_share_its_copy() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let (layer, x) = (linear(), random([3, 4]));
        layer.forward(x.clone());
        let twin = layer.clone();
        let (y, count) = measure(|| twin.forward(x));
        assert_eq!(count.made, 1, "only the input");
        let grads = y.sum().backward();
        assert!(
            layer.weight.val().grad(&grads).is_some(),
            "one leaf, one gradient"
        );
    });
}

#[test]
fn a_weight_lowered_to_both_half_dtypes_gets_both_gradients() {
    let weight = random([4, 4]).require_grad();
    let x = random([3, 4]);
    let product = || x.clone().matmul(weight.clone()).sum();
    let loss_f16 = amp(OptLevel::O1, HalfDType::F16).scope(product);
    let loss_bf16 = amp(OptLevel::O1, HalfDType::Bf16).scope(product);
    let gradient = |loss: Tensor<Mixed, 1>| {
        let grad = weight.grad(&loss.backward()).unwrap();
        grad.into_data().to_vec::<f32>().unwrap()
    };
    let alone = [
        gradient(amp(OptLevel::O1, HalfDType::F16).scope(product)),
        gradient(amp(OptLevel::O1, HalfDType::Bf16).scope(product)),
    ];
    let together = gradient(loss_f16 + loss_bf16);
    let sums = alone[0].iter().zip(&alone[1]).map(|(a, b)| a + b);
    assert_eq!(together, sums.collect::<Vec<f32>>());
}

#[test]
fn a_weight_used_in_half_and_in_f32_gets_both_gradients() {
    let weight = random([4, 4]).require_grad();
    let x = random([3, 4]);
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let gradient = |loss: Tensor<Mixed, 1>| {
            let grad = weight.grad(&loss.backward()).unwrap();
            grad.into_data().to_vec::<f32>().unwrap()
        };
        let product = || x.clone().matmul(weight.clone()).sum();
        let decay = || weight.clone().powi_scalar(2).sum();
        let alone = [gradient(product()), gradient(decay())];
        let sums = alone[0].iter().zip(&alone[1]).map(|(a, b)| a + b);
        assert_eq!(gradient(product() + decay()), sums.collect::<Vec<f32>>());
    });
}

#[test]
fn q_k_and_v_of_one_layer_norm_read_one_copy() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let norm = LayerNormConfig::new(4).init::<Mixed>(&Default::default());
        let projections = [linear(), linear(), linear()];
        let x = random([3, 4]);
        for projection in &projections {
            projection.forward(x.clone()); // so that only the norm's output is left to be cast
        }
        let (_, count) = measure(|| {
            let normed = norm.forward(x);
            projections
                .each_ref()
                .map(|projection| projection.forward(normed.clone()))
        });
        assert_eq!((count.made, count.saved), (1, 2 + 3 * 2));
    });
}

#[test]
fn a_copy_of_a_result_dies_with_its_graph() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let (weight, x) = (random([4, 4]).require_grad(), random([3, 4]));
        let gradient = || {
            let normed = weight.clone().exp(); // f32, read twice in half
            let loss = x.clone().matmul(normed.clone()).sum() + x.clone().matmul(normed).sum();
            let grad = weight.grad(&loss.backward()).unwrap();
            grad.into_data().to_vec::<f32>().unwrap()
        };
        let first = gradient();
        assert!(first.iter().any(|x| *x != 0.0));
        assert_eq!(gradient(), first);
    });
}
