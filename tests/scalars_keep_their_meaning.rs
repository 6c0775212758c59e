//! A number beside a half tensor neither becomes infinite nor vanishes, whatever takes it.

mod support;

use std::collections::BTreeSet;

use burn::tensor::activation::{hard_sigmoid, leaky_relu};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, DType, Tensor, TensorData, TensorPrimitive};
use burn_amp::{AmpConfig, HalfDType, MixedPrecision, Op, OptLevel, ScalarRole, scope};
use support::{Bare, HALVES, Inside, Mixed, amp};

type Decorated = MixedPrecision<Bare>;

/// An operation, and its numbers: one for each place that takes one.
struct Case<B: Backend> {
    op: Op,
    run: fn(Tensor<B, 1>, f64) -> Tensor<B, 1>,
}

fn case<B: Backend>(op: Op, run: fn(Tensor<B, 1>, f64) -> Tensor<B, 1>) -> Case<B> {
    Case { op, run }
}

/// Truth values as numbers of the kind that the number beside the comparison decides nothing about.
fn truth<B: Backend>(values: Tensor<B, 1, Bool>) -> Tensor<B, 1> {
    values.int().float()
}

/// Of zeros, whose variance is zero: only the epsilon keeps it from dividing by that.
fn layer_norm<B: Backend>(zeros: Tensor<B, 1>, epsilon: f64) -> Tensor<B, 1> {
    let gamma = zeros.ones_like().into_primitive().tensor();
    let normed = B::layer_norm(zeros.into_primitive().tensor(), gamma, None, epsilon);
    Tensor::from_primitive(TensorPrimitive::Float(normed))
}

fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        case(Op::FloatAddScalar, |x, s| x.add_scalar(s)),
        case(Op::FloatSubScalar, |x, s| x.sub_scalar(s)),
        case(Op::FloatMulScalar, |x, s| x.mul_scalar(s)),
        case(Op::FloatDivScalar, |x, s| x.div_scalar(s)),
        case(Op::FloatRemainderScalar, |x, s| x.remainder_scalar(s)),
        case(Op::FloatPowiScalar, |x, s| {
            x.powi_scalar(s.clamp(-1e5, 1e5) as i64)
        }),
        case(Op::FloatPowfScalar, |x, s| {
            x.powf_scalar(s.clamp(-1e18, 1e18))
        }),
        case(Op::FloatEqualElem, |x, s| truth(x.equal_elem(s))),
        case(Op::FloatNotEqualElem, |x, s| truth(x.not_equal_elem(s))),
        case(Op::FloatGreaterElem, |x, s| truth(x.greater_elem(s))),
        case(Op::FloatGreaterEqualElem, |x, s| {
            truth(x.greater_equal_elem(s))
        }),
        case(Op::FloatLowerElem, |x, s| truth(x.lower_elem(s))),
        case(Op::FloatLowerEqualElem, |x, s| truth(x.lower_equal_elem(s))),
        case(Op::LeakyRelu, |x, s| leaky_relu(x, s)),
        case(Op::HardSigmoid, |x, s| hard_sigmoid(x, s, 0.5)),
        case(Op::HardSigmoid, |x, s| hard_sigmoid(x, 0.2, s)),
        case(Op::LayerNorm, |x, s| layer_norm(x.zeros_like(), s.abs())),
        case(Op::FloatMaskFill, |x, s| {
            let mask = x.clone().greater_elem(0.5);
            x.mask_fill(mask, s)
        }),
        case(Op::FloatClamp, |x, s| x.clamp(-s.abs(), s.abs())),
        case(Op::FloatClampMin, |x, s| x.clamp_min(s)),
        case(Op::FloatClampMax, |x, s| x.clamp_max(s)),
    ]
}

/// Zero is where a guard matters, infinity where a comparison with a large number does.
fn input<B: Backend>(dtype: DType) -> Tensor<B, 1> {
    let values = [0.0, 1.0, -2.0, 0.25, 300.0, f32::INFINITY];
    Tensor::<B, 1>::from_floats(values, &Default::default()).cast(dtype)
}

const NUMBERS: [f64; 10] = [
    65_536.0,
    -1e5,
    -1e9,
    1e30,
    f32::MIN as f64,
    1e-8,
    -1e-8,
    1e-12,
    -1e-30,
    1e-41,
];

fn stored<B: Backend>(tensor: Tensor<B, 1>) -> TensorData {
    scope::disabled(|| tensor.into_data())
}

fn held(number: f64, half: HalfDType) -> bool {
    half.round(number).is_finite() && half.round(number) != 0.0
}

/// Whether an operation has a number like this: whole exponents are i64 in Burn, of powf too.
fn takes(op: Op, number: f64, half: HalfDType) -> bool {
    match op {
        Op::FloatPowiScalar => half == HalfDType::F16 && number.is_finite() && number.abs() > 1.0,
        Op::FloatPowfScalar => number.abs() < 1e18,
        _ => true,
    }
}

/// What the documentation of `ScalarRole` promises, from the same call in f32.
fn promised(role: ScalarRole, number: f64, half: HalfDType, in_f32: TensorData) -> TensorData {
    let max = half.max() as f32;
    let too_large = number.abs() > 1.0;
    match role {
        ScalarRole::Operand | ScalarRole::Divisor => in_f32,
        ScalarRole::Constant => in_f32.convert_dtype(half.dtype()),
        ScalarRole::Fill if !too_large => in_f32,
        ScalarRole::Fill => {
            // Infinities of the input that the operation leaves alone stay.
            let saturate = |value: f32| match value.abs() == number.abs() as f32 {
                true => value.clamp(-max, max),
                false => value,
            };
            let shape = in_f32.shape.clone();
            let values: Vec<f32> = in_f32.iter::<f32>().map(saturate).collect();
            TensorData::new(values, shape).convert_dtype(half.dtype())
        }
    }
}

#[test]
fn every_operation_with_a_number_is_here() {
    let here: BTreeSet<_> = cases::<Bare>()
        .into_iter()
        .map(|case| case.op.name())
        .collect();
    let all = Op::ALL.iter().filter(|op| op.scalar_role().is_some());
    // `powf_scalar` and `powi_scalar` call these two on the inner backend.
    let inner = [Op::FloatPowiScalarImpl, Op::FloatPowfScalarImpl];
    let all: BTreeSet<_> = all
        .filter(|op| !inner.contains(op))
        .map(|op| op.name())
        .collect();
    assert_eq!(here, all);
}

#[test]
fn a_number_that_half_cannot_hold_acts_as_in_f32() {
    let mut failures = Vec::new();
    for (ours, bare) in cases::<Decorated>().iter().zip(&cases::<Bare>()) {
        let role = ours.op.scalar_role().unwrap();
        for (level, half) in [OptLevel::O1, OptLevel::O2, OptLevel::O3]
            .into_iter()
            .flat_map(|level| HALVES.map(|half| (level, half)))
        {
            for number in NUMBERS.into_iter().filter(|number| !held(*number, half)) {
                if !takes(bare.op, number, half) {
                    continue;
                }
                // An f32 number has to be one, or f32 itself is no reference.
                let in_f32 = stored((bare.run)(input(DType::F32), number));
                let expected = promised(role, number, half, in_f32);
                let ours = amp(level, half).scope(|| (ours.run)(input(half.dtype()), number));
                let (ours, name) = (stored(ours), bare.op.name());
                // `full` and `full_then_lower` rules compute in f32 with or without the number.
                let [a, b] = [&ours, &expected].map(|data| data.clone().convert_dtype(DType::F32));
                let same = a == b;
                let full_norm = ours.dtype == DType::F32 && bare.op == Op::LayerNorm;
                if !(same && ours.dtype == expected.dtype || full_norm && level == OptLevel::O1) {
                    failures.push(format!(
                        "{name} with {number:e} at {level}, {half}: {ours:?}, not {expected:?}"
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_number_that_half_holds_changes_nothing() {
    for (ours, bare) in cases::<Decorated>().iter().zip(&cases::<Bare>()) {
        for half in HALVES {
            // The ends of f16, a usual epsilon, and infinity, which is meant.
            for number in [65_504.0, 1e-5, -1e-7, 0.5, f64::NEG_INFINITY] {
                let whole = !takes(bare.op, number, half);
                let divides = bare.op == Op::FloatDivScalar && !held(number.recip(), half);
                if bare.op.default_rule(OptLevel::O3) != burn_amp::CastRule::AsIs
                    || divides
                    || whole
                {
                    continue;
                }
                let ours =
                    amp(OptLevel::O3, half).scope(|| (ours.run)(input(half.dtype()), number));
                let bare_result = stored((bare.run)(input(half.dtype()), number));
                assert_eq!(
                    stored(ours),
                    bare_result,
                    "{} with {number:e} in {half}",
                    bare.op
                );
            }
        }
    }
}

#[test]
fn without_the_guard_or_the_policy_the_bits_are_the_backends() {
    for half in HALVES {
        let unguarded = AmpConfig::new(OptLevel::O3)
            .with_half(half)
            .with_scalar_guard(false)
            .build()
            .unwrap();
        for amp in [unguarded, amp(OptLevel::O0, half)] {
            for (ours, bare) in cases::<Decorated>().iter().zip(&cases::<Bare>()) {
                for number in NUMBERS {
                    let ours = amp.scope(|| (ours.run)(input(half.dtype()), number));
                    let bare_result = stored((bare.run)(input(half.dtype()), number));
                    assert_eq!(
                        stored(ours),
                        bare_result,
                        "{} with {number:e} in {half} at {}",
                        bare.op,
                        amp.config().opt_level()
                    );
                }
            }
        }
    }
}

#[test]
fn an_explicit_rule_of_half_stays_half_and_still_saturates_a_fill() {
    let lower = burn_amp::CastRule::Lower;
    let amp = AmpConfig::new(OptLevel::O1)
        .with_rule(Op::FloatAddScalar, lower)
        .with_rule(Op::FloatMaskFill, lower)
        .build()
        .unwrap();
    amp.scope(|| {
        let x = input::<Decorated>(DType::F32);
        assert_eq!(x.clone().add_scalar(1e-8).dtype(), DType::F16);
        let mask = x.clone().equal_elem(0.0);
        let filled = x.mask_fill(mask, -1e9);
        assert_eq!(filled.dtype(), DType::F16);
        assert_eq!(filled.into_data().iter::<f32>().next(), Some(-65504.0));
    });
}

#[test]
fn gradients_pass_through_as_in_f32() {
    // The gradient of x / 1e-5 is 1e5, which f16 cannot hold; behind a factor of 1e-3 it is 100.
    let gradient = |dtype, divisor: f64| {
        let x = Tensor::<Mixed, 1>::from_floats([0.0, 0.25], &Default::default())
            .cast(dtype)
            .detach()
            .require_grad();
        let y = x.clone().div_scalar(divisor).mul_scalar(divisor * 100.0);
        let grads = y.cast(DType::F32).sum().backward();
        x.grad(&grads).unwrap().into_data().convert::<f32>()
    };
    for (level, half) in [
        (OptLevel::O1, HalfDType::F16),
        (OptLevel::O3, HalfDType::F16),
    ] {
        for divisor in [1e-5, 1e-8 * 2f64.powi(14), 70_000.0] {
            amp(level, half).scope(|| {
                let in_half = gradient(half.dtype(), divisor);
                let in_f32 = gradient(DType::F32, divisor);
                for (a, b) in in_half.iter::<f32>().zip(in_f32.iter::<f32>()) {
                    // Four roundings: of the factor, the reciprocal, and after each product.
                    assert!(
                        (a - b).abs() <= b.abs() * 2f32.powi(-9),
                        "{divisor}: {a}, not {b}"
                    );
                }
            });
        }
    }
}

/// With the decorator inside of autodiff backward is under the policy too.
#[test]
fn the_other_order_guards_as_well() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let x = Tensor::<Inside, 1>::from_floats([0.0, 0.25], &Default::default())
            .cast(DType::F16)
            .detach()
            .require_grad();
        let guarded = x.clone().add_scalar(1e-8).log().mul_scalar(1e-8);
        let halved = x.clone().div_scalar(1e-5).mul_scalar(1e-3);
        assert_eq!(guarded.dtype(), DType::F32);
        let grads = (guarded + halved.cast(DType::F32)).sum().backward();
        let gradient = x.grad(&grads).unwrap().into_data().convert::<f32>();
        // 1e-8 / (x + 1e-8) + 1e-3 / 1e-5: 101 and 100.00000004; rounded where it passes half.
        for (gradient, expected) in gradient.iter::<f32>().zip([101.0, 100.0]) {
            assert!(
                (gradient / expected - 1.0f32).abs() <= 2f32.powi(-9),
                "{gradient}"
            );
        }
    });
}
