//! Casting regions, caches, recomputation, threads.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, Module};
use burn::nn::{GruConfig, Linear, LinearConfig, Lstm, LstmConfig, LstmState, RnnConfig};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use burn_amp::{
    AmpConfig, AmpOptimizer, CastRule, HalfDType, LossScaling, MixedPrecision, ModelType, Op,
    OptLevel, Policy, custom, measure, scope,
};

use crate::log_capture::warnings;
use crate::one_weight::{OneWeight, sgd, stored};
use crate::support::net::fixed;
use crate::support::{Bare, HALVES, Mixed, amp};

fn linear<B: burn::tensor::backend::Backend>() -> Linear<B> {
    fixed(LinearConfig::new(4, 4).init::<B>(&Default::default()))
}

fn input<B: burn::tensor::backend::Backend>() -> Tensor<B, 2> {
    Tensor::from_floats(
        [[0.5, -1.0, 0.25, 2.0], [1.0, 0.75, -0.5, 1.5]],
        &Default::default(),
    )
}

fn weight_gradient<B: AutodiffBackend>(layer: &Linear<B>, loss: Tensor<B, 1>) -> Vec<f32> {
    stored(
        layer
            .weight
            .val()
            .grad(&loss.backward())
            .expect("a gradient"),
    )
}

#[test]
fn row_41_an_evaluation_in_between_does_not_cost_the_gradient() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let (first, after) = (linear::<Mixed>(), linear::<Mixed>());
        let alone = weight_gradient(&first, first.forward(input()).sum());
        // The untracked forward comes first and fills the cache.
        after.valid().forward(input());
        after.clone().no_grad().forward(input());
        assert_eq!(weight_gradient(&after, after.forward(input()).sum()), alone);
        assert!(alone.iter().any(|gradient| *gradient != 0.0));
    });
}

#[test]
fn row_42_a_hundred_evaluations_make_the_copies_of_the_first() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let layer = linear::<Mixed>().valid();
        let x = input().cast(DType::F16);
        let (_, first) = measure(|| layer.forward(x.clone()));
        assert_eq!(first.made, 2, "weight and bias");
        let (_, later) = measure(|| (0..100).for_each(|_| drop(layer.forward(x.clone()))));
        assert_eq!(
            (later.made, later.saved),
            (0, 200),
            "and no further copy is kept"
        );
    });
}

#[test]
fn row_43_a_weight_is_cast_once_per_update_and_a_frozen_one_once() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let x = input().cast(DType::F16);
        let mut layer = linear::<Mixed>();
        let thrice = |layer: &Linear<Mixed>| {
            let (outputs, count) = measure(|| [(); 3].map(|()| layer.forward(x.clone())));
            (outputs, count.made)
        };
        let (outputs, made) = thrice(&layer);
        assert_eq!(made, 2, "weight and bias, three uses");
        let loss = Tensor::cat(outputs.to_vec(), 0).cast(DType::F32).sum();
        let grads = GradientsParams::from_grads(loss.backward(), &layer);
        layer = burn::optim::SgdConfig::new().init().step(0.1, layer, grads);
        assert_eq!(thrice(&layer).1, 2, "updated, it is cast again");
        let frozen = layer.no_grad();
        thrice(&frozen);
        assert_eq!(thrice(&frozen).1, 0);
    });
    // The switch is where the weights are: a half model has nothing to cast.
    let o2 = amp(OptLevel::O2, HalfDType::F16);
    o2.scope(|| {
        let layer = o2.cast_model(linear::<Mixed>());
        let x = input().cast(DType::F16);
        assert_eq!(measure(|| layer.forward(x.clone())).1.made, 0);
    });
}

#[test]
fn row_44_tensors_that_agree_are_not_cast() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let x = input::<Mixed>().cast(half.dtype());
            let (_, count) = measure(|| {
                let product = x.clone().matmul(x.clone().transpose());
                let sum = product.clone() + product;
                sum.reshape([4]).slice(0..2).unsqueeze::<2>().expand([3, 2])
            });
            assert_eq!(count.made, 0);
            let (_, count) = measure(|| input::<Mixed>().exp().log().sum());
            assert_eq!(count.made, 0, "f32 in f32 operations");
        });
    }
    // A broadcast weight is cast as small as it is: bias [4], not [2, 4].
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let product = input::<Mixed>().cast(DType::F16);
        let bias = Tensor::<Mixed, 2>::ones([1, 4], &Default::default());
        let (sum, _) = measure(|| product.mul(bias));
        assert_eq!(sum.dtype(), DType::F16);
    });
}

#[test]
fn row_45_a_half_model_infers_without_casts() {
    for half in HALVES {
        let o3 = amp(OptLevel::O3, half);
        o3.scope(|| {
            let model = o3.cast_model(linear::<Mixed>()).valid();
            let x = input().cast(half.dtype());
            let (output, count) = measure(|| model.forward(x));
            assert_eq!(
                (output.dtype(), count.made, count.saved),
                (half.dtype(), 0, 0)
            );
        });
    }
}

/// Activations that are recomputed in backward come back in the dtypes of forward, whatever region
/// backward runs in.
#[test]
fn row_46_recomputed_activations_have_the_dtypes_of_forward() {
    type Recomputing = MixedPrecision<Autodiff<Bare, BalancedCheckpointing>>;

    fn gradient<B: AutodiffBackend>(backward_in: Option<&burn_amp::Amp>) -> Vec<f32> {
        let layer = linear::<B>();
        let forward = || {
            let x = layer.forward(input());
            let x = (x.clone() * 0.5 + 1.0).tanh() * x;
            layer.forward(x).sum()
        };
        let loss = amp(OptLevel::O1, HalfDType::F16).scope(forward);
        match backward_in {
            Some(amp) => amp.scope(|| weight_gradient(&layer, loss)),
            None => weight_gradient(&layer, loss),
        }
    }
    let kept = gradient::<Mixed>(None);
    assert_eq!(gradient::<Recomputing>(None), kept);
    let other = amp(OptLevel::O3, HalfDType::Bf16);
    assert_eq!(gradient::<Recomputing>(Some(&other)), kept);
}

#[test]
fn row_47_backward_on_another_thread_is_the_same_backward() {
    let layer = linear::<Mixed>();
    let forward = || layer.forward(input().mul_scalar(0.3)).powi_scalar(2).sum();
    let here = amp(OptLevel::O1, HalfDType::Bf16).scope(|| weight_gradient(&layer, forward()));
    let loss = amp(OptLevel::O1, HalfDType::Bf16).scope(forward);
    let there = std::thread::scope(|threads| {
        threads
            .spawn(|| weight_gradient(&layer, loss))
            .join()
            .unwrap()
    });
    assert_eq!(there, here);
    let in_f32 = weight_gradient(&layer, scope::disabled(forward));
    assert_ne!(here, in_f32, "it was bf16");
}

#[test]
fn row_48_rules_can_be_asked_for_and_overridden() {
    let policy = Policy::new(OptLevel::O1, HalfDType::F16);
    assert_eq!(policy.rule(Op::FloatMatmul), CastRule::Lower);
    let amp = AmpConfig::new(OptLevel::O1)
        .with_rule(Op::FloatExp, CastRule::Lower)
        .build()
        .unwrap();
    amp.scope(|| {
        assert_eq!(
            scope::current_policy(&input::<Mixed>().device()).rule(Op::FloatExp),
            CastRule::Lower
        );
        assert_eq!(input::<Mixed>().exp().dtype(), DType::F16);
        // And for a block: a layer that shall stay in f32.
        let full = Policy::new(OptLevel::O1, HalfDType::F16).with_rule(Op::Linear, CastRule::Full);
        let layer = linear::<Mixed>();
        let kept = scope::with_policy(full, || layer.forward(input()).dtype());
        assert_eq!(
            (kept, layer.forward(input()).dtype()),
            (DType::F32, DType::F16)
        );
    });
}

#[test]
fn row_49_an_operation_of_ones_own_has_a_rule_forward_and_backward() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let x = input::<Mixed>().cast(DType::F16).detach().require_grad();
        let inside = std::cell::Cell::new(None);
        let primitive = x.clone().into_primitive().tensor();
        let squared = custom::run(CastRule::Full, [primitive], |[x]| {
            use burn::tensor::TensorMetadata;
            use burn::tensor::ops::FloatTensorOps;
            inside.set(Some(x.dtype()));
            <Autodiff<Bare>>::float_mul(x.clone(), x)
        });
        let squared = Tensor::<Mixed, 2>::from_primitive(TensorPrimitive::Float(squared));
        assert_eq!(
            (inside.get(), squared.dtype()),
            (Some(DType::F32), DType::F32)
        );
        let gradient = x.grad(&squared.sum().backward()).unwrap();
        assert_eq!(gradient.dtype(), DType::F16);
        let twice: Vec<f32> = stored(x).iter().map(|x| 2.0 * x).collect();
        assert_eq!(stored(gradient), twice);
    });
}

#[test]
fn row_50_recurrent_modules_take_any_state_and_return_one_dtype() {
    let device = Default::default();
    for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        for half in HALVES {
            let amp = amp(level, half);
            amp.scope(|| {
                let lstm: Lstm<Mixed> = amp.cast_model(LstmConfig::new(4, 3, true).init(&device));
                let gru = amp.cast_model(GruConfig::new(4, 3, true).init::<Mixed>(&device));
                let rnn = amp.cast_model(RnnConfig::new(4, 3, true).init::<Mixed>(&device));
                for input_dtype in [DType::F32, half.dtype()] {
                    let x = || Tensor::<Mixed, 3>::ones([2, 5, 4], &device).cast(input_dtype);
                    let zeros = |dtype| Tensor::<Mixed, 2>::zeros([2, 3], &device).cast(dtype);
                    for state in [None, Some(DType::F32), Some(half.dtype())] {
                        let of = || state.map(zeros);
                        let lstm_state = of()
                            .zip(of())
                            .map(|(cell, hidden)| LstmState::new(cell, hidden));
                        // Burn fills an f32 tensor step by step.
                        let outputs = [
                            lstm.forward(x(), lstm_state).0.dtype(),
                            gru.forward(x(), state.map(&zeros)).dtype(),
                            rnn.forward(x(), None).0.dtype(),
                        ];
                        assert_eq!(
                            outputs,
                            [DType::F32; 3],
                            "{level} {half} {input_dtype:?} {state:?}"
                        );
                    }
                }
                // Concatenation of half and f32, in either order.
                let [a, b] = [half.dtype(), DType::F32]
                    .map(|dtype| Tensor::<Mixed, 2>::ones([1, 2], &device).cast(dtype));
                assert_eq!(
                    Tensor::cat(vec![a.clone(), b.clone()], 0).dtype(),
                    DType::F32
                );
                assert_eq!(Tensor::cat(vec![b, a], 1).dtype(), DType::F32);
            });
        }
    }
}

#[test]
fn row_51_inference_at_the_trained_level_needs_no_optimizer() {
    for level in OptLevel::ALL {
        for half in HALVES {
            let amp = amp(level, half);
            amp.scope(|| {
                let layer = amp.cast_model(linear::<Mixed>());
                let trained = layer.forward(input());
                let valid = layer.valid().forward(input());
                assert_eq!(valid.dtype(), trained.dtype());
                assert_eq!(stored(valid), stored(trained), "{level} {half}");
            });
        }
    }
}

#[test]
fn row_52_the_dtype_of_outputs_is_a_setting() {
    let output = |config: AmpConfig| {
        let amp = config.build().unwrap();
        amp.scope(|| {
            let layer = amp.cast_model(linear::<Mixed>());
            amp.forward(input(), |x| layer.forward(x)).dtype()
        })
    };
    for half in HALVES {
        let o2 = || AmpConfig::new(OptLevel::O2).with_half(half);
        assert_eq!(output(o2()), DType::F32);
        assert_eq!(
            output(o2().with_cast_model_outputs(ModelType::Half)),
            half.dtype()
        );
    }
    // A metric that reads half outputs to the host sees f32 anyway.
    let o1 = amp(OptLevel::O1, HalfDType::F16);
    o1.scope(|| {
        let data = linear::<Mixed>().forward(input()).into_data();
        assert!(data.to_vec::<f32>().is_ok());
    });
}

#[test]
fn row_53_one_option_says_it_all() {
    let parsed = |text: &str| {
        let config: AmpConfig = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        (config.opt_level(), config.half(), config.loss_scale())
    };
    let (f16, bf16) = (HalfDType::F16, HalfDType::Bf16);
    let (dynamic, none) = (LossScaling::Dynamic, LossScaling::Static(1.0));
    for text in [
        "fp16", "FP16", "f16", "float16", "half", "true", "O1", "o1", "O1 f16", "F16,O1",
    ] {
        assert_eq!(parsed(text), (OptLevel::O1, f16, dynamic), "{text}");
    }
    for text in ["bf16", "BF16", "bfloat16", "O1 bf16"] {
        assert_eq!(parsed(text), (OptLevel::O1, bf16, none), "{text}");
    }
    for text in ["fp32", "f32", "false", "no", "O0"] {
        assert_eq!(parsed(text), (OptLevel::O0, f16, none), "{text}");
    }
    assert_eq!(parsed("O2, bf16"), (OptLevel::O2, bf16, none));
    let refused = |text: &str| text.parse::<AmpConfig>().unwrap_err().to_string();
    assert!(refused("01").contains("the letter O"), "{}", refused("01"));
    for text in ["", "fp8", "O1 O2", "bf16 f16", "int8"] {
        let message = refused(text);
        assert!(
            message.contains("bf16") && message.contains("O0 to O3"),
            "{text}: {message}"
        );
    }
    assert!(
        refused("O0 bf16").contains("O0 is plain f32"),
        "{}",
        refused("O0 bf16")
    );
    assert!(refused("O7").contains("O0, O1, O2 and O3"));
}

/// 1e-4 * 1e-4 is 1e-8, which f16 rounds to 0; scaled by 65536 it is 6.55e-4, and unscaled again
/// 1e-8 up to the roundings of 1e-4 (2^-11) and of the product.
#[test]
fn row_54_f16_without_a_scaler_warns_and_with_one_keeps_small_gradients() {
    assert_eq!(HalfDType::F16.round(1e-4 * 1e-4), 0.0);
    let gradient = |amp: &burn_amp::Amp, scaled: bool| {
        amp.scope(|| {
            let weight =
                Tensor::<Mixed, 2>::from_floats([[1.0]], &Default::default()).require_grad();
            let x = Tensor::<Mixed, 2>::from_floats([[1e-4]], &Default::default());
            let _scaler =
                scaled.then(|| AmpOptimizer::<_, Mixed>::new(sgd(), amp).scaler().clone());
            if scaled {
                amp.loss_scales().set(0, 65_536.0);
            }
            let product = x.matmul(weight.clone()); // in f16
            let loss = product.cast(DType::F32).mul_scalar(1e-4).sum();
            stored(weight.grad(&loss.backward()).unwrap())[0]
        })
    };
    let f16 = || amp(OptLevel::O1, HalfDType::F16);
    let mut lost = 1.0;
    let without = f16();
    let said = warnings(|| {
        lost = gradient(&without, false);
        gradient(&without, false);
    });
    assert_eq!(lost, 0.0);
    assert_eq!(said.len(), 1, "once: {said:?}");
    for part in ["f16", "AmpOptimizer", "GradScaler"] {
        assert!(said[0].contains(part), "{part} in {said:?}");
    }
    let mut kept = 0.0;
    let said = warnings(|| kept = gradient(&f16(), true));
    assert_eq!(said, Vec::<String>::new());
    assert!(
        (kept / 1e-8 - 1.0).abs() <= 3.0 * 2f32.powi(-11),
        "{kept:e}"
    );
    // Neither by hand nor in bf16, nor with the scale set to 1, is there anything to say.
    let said = warnings(|| {
        let by_hand = burn_amp::GradScaler::new(Default::default()).unwrap();
        f16().scope(|| {
            let model = OneWeight::<Mixed>::new(&[1.0]);
            by_hand
                .scale(model.loss(&[1.0]))
                .backward(&model)
                .is_empty()
        });
        gradient(&amp(OptLevel::O1, HalfDType::Bf16), false);
        let one = AmpConfig::new(OptLevel::O1).with_loss_scale(LossScaling::Static(1.0));
        gradient(&one.build().unwrap(), false);
    });
    assert_eq!(said, Vec::<String>::new());
}
