//! Regions, the cast cache, recomputation and custom operations: Apex's `test_cache`, torch's tests of
//! `autocast` itself.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, Param};
use burn::nn::LinearConfig;
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use burn_amp::{
    AmpConfig, AmpError, CastRule, HalfDType, LossScaling, MixedPrecision, MixedTensor, OptLevel,
    Policy, custom, measure, scope,
};

use crate::support::{Bare, HALVES, Mixed, Plain, amp, unless_it_panics};
use crate::{Dot, F32_AND_F16, constant, floats, gradient_dtype, leaf, o1, stored};

type T<const D: usize> = Tensor<Mixed, D>;
type Checkpointed = MixedPrecision<Autodiff<Bare, BalancedCheckpointing>>;

/// Apex's three toy modules: one weight, used twice.
#[derive(Debug, Clone, Copy)]
enum Toy {
    MmMm,
    PowPow,
    MulMul,
}

/// With every dtype chosen by the caller: the whole of it is what the decorator has to reproduce.
fn toy<B: AutodiffBackend>(
    toy: Toy,
    x: Tensor<B, 2>,
    w: Tensor<B, 2>,
    cast: impl Fn(Tensor<B, 2>) -> Tensor<B, 2>,
    sum: impl Fn(Tensor<B, 2>) -> Tensor<B, 1>,
) -> Tensor<B, 1> {
    let y = match toy {
        Toy::MmMm => cast(cast(x).matmul(cast(w.clone()))).matmul(cast(w)),
        Toy::PowPow => cast(cast(cast(w.clone()) + 2.0).powf(cast(x))).powf(cast(w)),
        Toy::MulMul => cast(cast(x) * cast(w.clone())) * cast(w),
    };
    sum(y)
}

/// The dtype in which a toy's operations run at O1, on an f32 input.
fn dtype_of(toy: Toy) -> DType {
    match toy {
        Toy::MmMm => DType::F16,
        Toy::PowPow | Toy::MulMul => DType::F32,
    }
}

#[test]
fn a11_train_eval_train_sees_each_weight_as_it_is() {
    for kind in [Toy::MmMm, Toy::PowPow, Toy::MulMul] {
        for dtype in F32_AND_F16 {
            let steps = |shift: f64| constant::<Mixed, 2>([4, 4], dtype) - shift;
            o1(|| {
                for (phase, shift) in [(0, 0.0), (1, 1.0), (2, 2.0)] {
                    let w = steps(shift).require_grad();
                    let x = constant::<Mixed, 2>([4, 4], DType::F32);
                    // A forward pass that tracks nothing, before and between.
                    let _ = toy(kind, x.clone(), w.clone().detach(), |t| t, Tensor::sum);
                    let loss = toy(kind, x, w.clone(), |t| t, Tensor::sum);
                    if phase == 1 {
                        continue;
                    }
                    let got = (floats(&loss), w.grad(&loss.backward()).unwrap());
                    // x ^ w is undefined for negative bases; what is undefined is so for both.
                    let run_in = dtype_of(kind);
                    let plain = constant::<Plain, 2>([4, 4], dtype) - shift;
                    let plain = plain.require_grad();
                    let x = constant::<Plain, 2>([4, 4], DType::F32);
                    let by_hand = |t: Tensor<Plain, 2>| t.cast(run_in);
                    let sum = |t: Tensor<Plain, 2>| t.cast(DType::F32).sum();
                    let loss = toy(kind, x, plain.clone(), by_hand, sum);
                    let control = floats(&loss);
                    let grad = plain.grad(&loss.backward()).unwrap();
                    let context = format!("{kind:?} {dtype:?} phase {phase}");
                    let same = |a: &[f32], b: &[f32]| {
                        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        bits(a) == bits(b)
                    };
                    assert!(same(&got.0, &control), "{context}: {got:?} {control:?}");
                    assert_eq!(got.1.dtype(), grad.dtype(), "{context}");
                    let (ours, theirs) = (floats(&got.1), floats(&grad));
                    assert!(same(&ours, &theirs), "{context}: {ours:?} {theirs:?}");
                }
            });
        }
    }
}

#[test]
fn a12_a_weight_used_twice_gets_one_true_gradient_at_scale_4() {
    for dtype in F32_AND_F16 {
        let config = AmpConfig::new(OptLevel::O1).with_loss_scale(LossScaling::Static(4.0));
        let amp = config.build().unwrap();
        amp.loss_scales().set(0, 4.0);
        amp.loss_scales().attach();
        amp.scope(|| {
            let w = leaf::<Mixed, 2>([4, 4], dtype);
            let x = constant::<Mixed, 2>([4, 4], DType::F32);
            let loss = x.clone().matmul(w.clone()).matmul(w.clone()).sum();
            let mut grads = loss.backward();
            assert_eq!(grads.loss_scale(), 4.0);
            let got = w.grad_remove(&mut grads).unwrap();
            assert!(w.grad(&grads).is_none(), "one gradient: it has been taken");
            assert_eq!(got.dtype(), DType::F32, "unscaled in f32");

            let plain = leaf::<Plain, 2>([4, 4], DType::F32);
            let x = constant::<Plain, 2>([4, 4], DType::F32);
            let loss = x.matmul(plain.clone()).matmul(plain.clone()).sum();
            let control = plain.grad(&loss.backward()).unwrap();
            // Roundings: the weight is exact; two products forward and backward, and the sum of two
            // gradients: 5, of terms up to 4 * 4 * (3/4)^2 = 9.
            let bound = 5.0 * 9.0 * 2f32.powi(-11);
            for (got, control) in floats(&got).into_iter().zip(floats(&control)) {
                assert!((got - control).abs() <= bound, "{got} {control}");
            }
        });
    }
}

#[test]
fn t14_regions_nest_and_are_left_by_a_panic_too() {
    let matmul = || {
        leaf::<Mixed, 2>([2, 2], DType::F32)
            .matmul(leaf([2, 2], DType::F32))
            .dtype()
    };
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        amp(OptLevel::O1, HalfDType::Bf16).scope(|| {
            assert_eq!(matmul(), DType::BF16);
            assert_eq!(scope::disabled(matmul), DType::F32);
            assert_eq!(matmul(), DType::BF16);
        });
        let left = unless_it_panics(|| scope::full(|| -> () { panic!("out of the region") }));
        assert!(left.is_none());
        assert_eq!(matmul(), DType::F16);
    });
    assert_eq!(matmul(), DType::F32);
    // torch's decorator form is a function that opens the region itself.
    fn decorated() -> DType {
        o1(|| {
            leaf::<Mixed, 2>([2, 2], DType::F32)
                .matmul(leaf([2, 2], DType::F32))
                .dtype()
        })
    }
    assert_eq!((decorated(), matmul()), (DType::F16, DType::F32));
}

#[test]
fn t15_a_weight_is_cast_once_until_it_is_updated() {
    o1(|| {
        let layer = LinearConfig::new(4, 4)
            .with_bias(false)
            .init::<Mixed>(&Default::default());
        let x = || leaf::<Mixed, 2>([2, 4], DType::F16);
        let casts = |layer: &burn::nn::Linear<Mixed>| {
            let (y, count) = measure(|| layer.forward(layer.forward(x())).sum());
            // The sum widens its input. The region may have been left in between: the copy is the
            // weight's, not the region's.
            (y, count.made - 1, count.saved)
        };
        let (y, made, saved) = casts(&layer);
        assert_eq!((made, saved), (1, 1));
        let (_, made, saved) = o1(|| casts(&layer));
        assert_eq!((made, saved), (0, 2), "in another region too");
        let grads = GradientsParams::from_grads(y.backward(), &layer);
        let layer = SgdConfig::new().init().step(0.1, layer, grads);
        let (_, made, saved) = casts(&layer);
        assert_eq!((made, saved), (1, 1), "an updated weight is another tensor");
    });
}

#[test]
fn t16_untracked_passes_leave_nothing_behind() {
    o1(|| {
        let layer = LinearConfig::new(4, 4).init::<Mixed>(&Default::default());
        let x = || leaf::<Mixed, 2>([2, 4], DType::F32);
        let gradient = || {
            let grads = layer.forward(x()).sum().backward();
            floats(&layer.weight.val().grad(&grads).expect("tracked"))
        };
        let before = gradient();
        let counts: Vec<u64> = (0..5)
            .map(|_| measure(|| layer.valid().forward(x().inner())).1.made)
            .collect();
        assert_eq!(
            counts, [1; 5],
            "the input alone: nothing is made again or piles up"
        );
        assert_eq!(gradient(), before);
    });
}

#[test]
fn t17_recomputation_in_backward_runs_in_the_dtypes_of_forward() {
    fn gradients<B: AutodiffBackend>() -> (DType, [Vec<f32>; 2]) {
        let (w, v) = (
            leaf::<B, 2>([4, 4], DType::F32),
            leaf::<B, 2>([4, 4], DType::F32),
        );
        let (y, loss) = o1(|| {
            let x = constant::<B, 2>([4, 4], DType::F32);
            // Memory-bound operations, which are computed again, between products that are not.
            let hidden = burn::tensor::activation::sigmoid(x.matmul(w.clone())) * 2.0;
            let y = hidden.tanh().matmul(v.clone());
            (y.dtype(), y.sum())
        });
        // Outside of the region, as checkpointing runs.
        let grads = loss.backward();
        (y, [w, v].map(|leaf| floats(&leaf.grad(&grads).unwrap())))
    }
    let (dtype, again) = gradients::<Checkpointed>();
    assert_eq!(dtype, DType::F16);
    assert_eq!((dtype, again), gradients::<Mixed>());
}

/// The primitive of a tensor, as backend extensions get it.
fn primitive(tensor: T<2>) -> MixedTensor<Plain> {
    match tensor.into_primitive() {
        TensorPrimitive::Float(tensor) => tensor,
        TensorPrimitive::QFloat(_) => unreachable!("the graph has no quantized tensors"),
    }
}

/// A custom operation: x * x + x, with a look at the dtype in which it runs.
fn custom_operation(rule: CastRule, x: T<2>) -> (DType, T<2>) {
    let mut inside = DType::F64;
    let y = custom::run(rule, [primitive(x)], |[x]| {
        let x = Tensor::<Plain, 2>::from_primitive(TensorPrimitive::Float(x));
        inside = x.dtype();
        let y = x.clone() * x.clone() + x;
        assert_eq!(y.dtype(), inside, "no policy inside");
        match y.into_primitive() {
            TensorPrimitive::Float(tensor) => tensor,
            TensorPrimitive::QFloat(_) => unreachable!(),
        }
    });
    (inside, Tensor::from_primitive(TensorPrimitive::Float(y)))
}

#[test]
fn t18_a_custom_operation_runs_forward_and_backward_in_one_dtype() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let x = leaf::<Mixed, 2>([2, 2], DType::F32);
            let (inside, y) = custom_operation(CastRule::Lower, x.clone());
            assert_eq!([inside, y.dtype()], [half.dtype(); 2]);
            // 2x + 1, in half: the leaf's values are exact, so are the products' gradients.
            let grads = y.sum().backward();
            let expected: Vec<f32> = floats(&x).iter().map(|x| 2.0 * x + 1.0).collect();
            assert_eq!(floats(&x.grad(&grads).unwrap()), expected);
        });
    }
}

#[test]
fn t19_a_custom_operation_may_ask_for_f32() {
    o1(|| {
        let x = leaf::<Mixed, 2>([2, 2], DType::F16);
        let (inside, y) = custom_operation(CastRule::Full, x.clone());
        assert_eq!([inside, y.dtype()], [DType::F32; 2]);
        assert_eq!(gradient_dtype(&x, y), DType::F16);
    });
    // Outside of a region nothing is cast.
    let x = leaf::<Mixed, 2>([2, 2], DType::F16);
    let (inside, y) = custom_operation(CastRule::Full, x);
    assert_eq!([inside, y.dtype()], [DType::F16; 2]);
}

#[test]
fn t21_f16_is_the_default_and_an_unknown_or_unsupported_choice_is_an_error() {
    assert_eq!(AmpConfig::new(OptLevel::O1).half(), HalfDType::F16);
    assert!("cuda:bf15".parse::<HalfDType>().is_err());
    let message = "tf32".parse::<HalfDType>().unwrap_err().to_string();
    assert!(
        message.contains("tf32") && message.contains("bf16"),
        "{message}"
    );
    let error = AmpError::UnsupportedHalf {
        device: "Cpu".into(),
        half: HalfDType::Bf16,
    };
    assert!(error.to_string().contains("Capability::Fallback"));
    // Fallback, which torch does silently but for a warning, is a choice, and its settings are O0's.
    let off = Policy::new(OptLevel::O0, HalfDType::F16);
    assert!(!off.is_enabled());
}

#[test]
fn t22_backward_outside_of_the_region_gives_gradients_in_the_parameters_dtype() {
    for dtype in F32_AND_F16 {
        let model = Dot::<Mixed> {
            weight: Param::from_tensor(leaf([4], dtype)),
        };
        let loss = o1(|| (model.weight.val() * model.weight.val()).sum());
        assert_eq!(loss.dtype(), DType::F32);
        let grads = loss.backward();
        assert_eq!(model.weight.val().grad(&grads).unwrap().dtype(), dtype);
        let w = leaf::<Mixed, 2>([4, 4], dtype);
        let loss = o1(|| w.clone().matmul(w.clone()).sum());
        let grad = w.grad(&loss.backward()).unwrap();
        assert_eq!(grad.dtype(), dtype);
        assert_eq!(stored(&grad).dtype, dtype);
    }
}
