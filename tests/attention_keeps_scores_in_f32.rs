//! Attention multiplies in half and does the rest in f32, so that its scores do not leave the range of
//! f16, its masks stay finite and its softmax is as accurate as an f32 one.

mod support;

use burn::tensor::backend::Backend;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, DType, Tensor, TensorData};
use burn_amp::{HalfDType, MixedPrecision, OptLevel, scope};
use support::{Bare, HALVES, Mixed, amp, unit_roundoff};

/// Batch 2, heads 2, queries 3, keys 5, width 8.
const QUERY: [usize; 4] = [2, 2, 3, 8];
const KEY: [usize; 4] = [2, 2, 5, 8];
const SCORES: [usize; 4] = [2, 2, 3, 5];

fn wave<B: Backend>(shape: [usize; 4], phase: f32, dtype: DType) -> Tensor<B, 4> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| (0.7 * i as f32 + phase).sin()).collect();
    Tensor::<B, 4>::from_data(TensorData::new(values, shape), &Default::default())
        .cast(HalfDType::Bf16.dtype()) // so that the inputs themselves are exact in any dtype
        .cast(dtype)
        .detach()
}

#[derive(Clone, Copy, Debug)]
struct Case {
    masked: bool,
    /// The bias beside keys that are masked, if there is a bias.
    bias: Option<f32>,
    options: AttentionModuleOptions,
}

fn cases() -> Vec<Case> {
    let plain = Case {
        masked: false,
        bias: None,
        options: AttentionModuleOptions::default(),
    };
    let options = |scale, softcap, is_causal| Case {
        options: AttentionModuleOptions {
            scale,
            softcap,
            is_causal,
        },
        ..plain
    };
    vec![
        plain,
        Case {
            masked: true,
            ..plain
        },
        Case {
            bias: Some(-1e9),
            ..plain
        },
        Case {
            masked: true,
            bias: Some(0.5),
            ..options(Some(0.3), Some(2.0), true)
        },
        options(None, None, true),
        options(Some(0.7), None, false),
        options(Some(-3.0), None, false),
        options(None, Some(0.5), false),
    ]
}

fn mask<B: Backend>() -> Tensor<B, 4, Bool> {
    // Of the last query every key is masked.
    let hidden = |i: usize| i % 15 >= 10 || i % 4 == 3;
    let values: Vec<bool> = (0..60).map(hidden).collect();
    Tensor::from_data(TensorData::new(values, SCORES), &Default::default())
}

fn bias<B: Backend>(masked: f32) -> Tensor<B, 4> {
    let value = |i: usize| {
        if i.is_multiple_of(3) {
            masked
        } else {
            0.25 * (i % 5) as f32
        }
    };
    let values: Vec<f32> = (0..60).map(value).collect();
    Tensor::from_data(TensorData::new(values, SCORES), &Default::default())
}

fn run<B: Backend>(case: &Case, inputs: [Tensor<B, 4>; 3]) -> Tensor<B, 4> {
    let [query, key, value] = inputs;
    let mask = case.masked.then(mask::<B>);
    attention(
        query,
        key,
        value,
        mask,
        case.bias.map(bias::<B>),
        case.options,
    )
}

fn inputs<B: Backend>(dtype: DType) -> [Tensor<B, 4>; 3] {
    [
        wave(QUERY, 0.0, dtype),
        wave(KEY, 1.0, dtype),
        wave(KEY, 2.0, dtype),
    ]
}

fn values<B: Backend>(tensor: Tensor<B, 4>) -> Vec<f64> {
    let data = scope::disabled(|| tensor.into_data()).convert::<f64>();
    data.to_vec().unwrap()
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

fn error(ours: &[f64], exact: &[f64]) -> f64 {
    norm(ours.iter().zip(exact).map(|(a, b)| a - b)) / norm(exact.iter().copied())
}

/// Roundings on the path of values: the value, the weight, the output; and of scores of at most
/// about 1, an error of which changes a weight by as much: query and key, the product.
const ROUNDINGS: f64 = 3.0 + 3.0;

fn in_f64(case: &Case) -> Vec<f64> {
    // Burn's own composite on the bare backend.
    let [query, key, value] = inputs::<Bare>(DType::F64);
    let mask = case.masked.then(mask::<Bare>);
    let bias = case
        .bias
        .map(|masked| bias::<Bare>(masked).cast(DType::F64));
    values(burn::tensor::module::attention_fallback(
        query,
        key,
        value,
        mask,
        bias,
        case.options,
    ))
}

#[test]
fn it_is_as_accurate_as_its_roundings_let_it_be() {
    for case in cases() {
        let exact = in_f64(&case);
        for half in HALVES {
            let bound = ROUNDINGS * unit_roundoff(half);
            for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
                for dtype in [DType::F32, half.dtype()] {
                    let (train, valid) = amp(level, half).scope(|| {
                        let valid = run(&case, inputs::<MixedPrecision<Bare>>(dtype));
                        let tracked = inputs::<Mixed>(dtype).map(Tensor::require_grad);
                        (run(&case, tracked).inner(), valid)
                    });
                    for ours in [train, valid] {
                        assert_eq!(ours.dtype(), half.dtype());
                        let error = error(&values(ours), &exact);
                        assert!(error <= bound, "{case:?} at {level}, {half}: {error:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn its_gradients_are_too() {
    let gradients = |case: &Case, dtype| {
        let leaves = inputs::<Mixed>(dtype).map(Tensor::require_grad);
        let output = run(case, leaves.clone()).cast(DType::F32);
        let weights = wave::<Mixed>(QUERY, 3.0, DType::F32);
        let grads = scope::disabled(|| (output * weights).sum()).backward();
        leaves.map(|leaf| {
            let grad = leaf.grad(&grads).unwrap();
            assert_eq!(grad.dtype(), dtype);
            values(grad)
        })
    };
    for case in cases() {
        let exact = amp(OptLevel::O0, HalfDType::F16).scope(|| gradients(&case, DType::F32));
        for half in HALVES {
            // In backward each operation rounds at most three times as often, and the gradient is
            // rounded when it arrives and when it leaves.
            let bound = (3.0 * ROUNDINGS + 2.0) * unit_roundoff(half);
            for dtype in [DType::F32, half.dtype()] {
                let ours = amp(OptLevel::O1, half).scope(|| gradients(&case, dtype));
                for (ours, exact) in ours.iter().zip(&exact) {
                    let error = error(ours, exact);
                    assert!(error <= bound, "{case:?} in {half} of {dtype:?}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn scores_beyond_the_half_range_pick_the_largest() {
    // 64 x 112 x 112 is 802 816, far beyond 65504, also divided by 8; 300 gives 5.8 million.
    for queries_and_keys in [90.0, 112.0, 300.0] {
        for case in [cases()[0], cases()[4]] {
            amp(OptLevel::O1, HalfDType::F16).scope(|| {
                let device = Default::default();
                let q = Tensor::<Mixed, 4>::full([1, 1, 2, 64], queries_and_keys, &device);
                // The first key agrees with the queries, the second not quite.
                let k = Tensor::cat(
                    vec![q.clone().slice([0..1, 0..1, 0..1]), {
                        q.clone().slice([0..1, 0..1, 0..1]).mul_scalar(0.75)
                    }],
                    2,
                );
                let v = Tensor::<Mixed, 4>::from_floats([[[[1.0; 64], [2.0; 64]]]], &device);
                let q = q.require_grad();
                let output = run(&case, [q.clone(), k, v]);
                let grads = output.clone().cast(DType::F32).sum().backward();
                assert!(
                    values(output).iter().all(|x| *x == 1.0),
                    "{queries_and_keys}"
                );
                let gradient = values(q.grad(&grads).unwrap());
                assert!(
                    gradient.iter().all(|x| *x == 0.0),
                    "{queries_and_keys}: {gradient:?}"
                );
            });
        }
    }
}

#[test]
fn small_queries_keep_their_digits() {
    // Elements of 2^-4 and above are scaled exactly; these attend as the same ones in f32 do.
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let [q, k, v] = inputs::<Mixed>(DType::F32);
        let case = cases()[0];
        let quarter = run(
            &case,
            [
                q.clone().mul_scalar(0.25),
                k.clone().mul_scalar(4.0),
                v.clone(),
            ],
        );
        assert_eq!(values(quarter), values(run(&case, [q, k, v])));
    });
}
