//! softmax, log_softmax and layer_norm keep one half tensor for backward: their gradients are those of f64
//! up to the rounding of that tensor, and Burn's own, bit by bit, where the policy leaves them alone.

mod support;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::activation::{log_softmax, softmax, softmin};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor, TensorData};
use burn_amp::{
    AmpBackend, AmpConfig, FastBackward, HalfDType, LeanAutodiff, MixedPrecision, OptLevel, scope,
};
use proptest::prelude::*;
use support::{Bare, HALVES, amp, unit_roundoff};

type B = AmpBackend<Bare>;

/// Of Burn's `LayerNormConfig`.
const EPSILON: f64 = 1e-5;

/// Rows of the tensors here.
const ROWS: usize = 3;

fn tensor<B: AutodiffBackend>(numbers: &[f32], rows: usize) -> Tensor<B, 2> {
    let shape = [rows, numbers.len() / rows];
    Tensor::from_data(
        TensorData::new(numbers.to_vec(), shape),
        &Default::default(),
    )
}

fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    scope::disabled(|| tensor.into_data().convert::<f64>().to_vec().unwrap())
}

/// The gradient of x when y = `op(x)` has the gradient `dy`.
fn gradient<B: AutodiffBackend>(
    op: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>,
    x: &[f32],
    dy: &[f32],
) -> Vec<f64> {
    let x = tensor::<B>(x, ROWS).require_grad();
    let grads = (op(x.clone()) * tensor(dy, ROWS)).sum().backward();
    numbers(x.grad(&grads).unwrap())
}

fn exact_softmax(row: &[f32]) -> Vec<f64> {
    let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
    let max = row.iter().copied().fold(f64::MIN, f64::max);
    let exp: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.iter().map(|x| x / sum).collect()
}

/// What f32 arithmetic over a row of this width adds, in parts of what is summed: each of the few
/// operations and each addition of the two sums rounds once.
fn f32_part(width: usize) -> f64 {
    (2 * width + 20) as f64 * f64::from(f32::EPSILON) / 2.0
}

#[track_caller]
fn assert_within(got: &[f64], exact: &[f64], bound: &[f64]) {
    for ((got, exact), bound) in got.iter().zip(exact).zip(bound) {
        let error = (got - exact).abs();
        assert!(error <= *bound, "{got} for {exact}: {error} beyond {bound}");
    }
}

fn rows() -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
    (2..20usize).prop_flat_map(|width| {
        let numbers = |range| prop::collection::vec(range, ROWS * width);
        (numbers(-6f32..6.0), numbers(-1f32..1.0))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// dx = p (dy - s) with s = sum(p dy): p is off by 2 u p (1 - p), and its sum is 1.
    #[test]
    fn a_gradient_of_softmax_is_off_by_the_rounding_of_probabilities((x, dy) in rows()) {
        let width = x.len() / ROWS;
        for half in HALVES {
            let (u, f32_part) = (unit_roundoff(half), f32_part(width));
            let got = amp(OptLevel::O1, half).scope(|| gradient::<B>(|x| softmax(x, 1), &x, &dy));
            for ((x, dy), got) in x.chunks(width).zip(dy.chunks(width)).zip(got.chunks(width)) {
                let p = exact_softmax(x);
                let dy: Vec<f64> = dy.iter().map(|dy| f64::from(*dy)).collect();
                let mean = |of: &[f64]| p.iter().zip(of).map(|(p, of)| p * of).sum::<f64>();
                let s = mean(&dy);
                let from_s: Vec<f64> = dy.iter().map(|dy| (dy - s).abs()).collect();
                let sizes = mean(&dy.iter().map(|dy| dy.abs()).collect::<Vec<f64>>());
                let exact: Vec<f64> = dy.iter().zip(&p).map(|(dy, p)| p * (dy - s)).collect();
                let bound: Vec<f64> = (0..width).map(|i| {
                    let rounding = 2.0 * u * p[i] * (from_s[i] + mean(&from_s));
                    (rounding + f32_part * p[i] * (dy[i].abs() + 2.0 * sizes)) * 1.01
                }).collect();
                assert_within(got, &exact, &bound);
            }
        }
    }

    /// dx = dy - p sum(dy): p is off by 2 u p (1 - p).
    #[test]
    fn a_gradient_of_log_softmax_is_off_by_the_rounding_of_probabilities((x, dy) in rows()) {
        let width = x.len() / ROWS;
        for half in HALVES {
            let (u, f32_part) = (unit_roundoff(half), f32_part(width));
            let got = amp(OptLevel::O1, half).scope(|| gradient::<B>(|x| log_softmax(x, 1), &x, &dy));
            for ((x, dy), got) in x.chunks(width).zip(dy.chunks(width)).zip(got.chunks(width)) {
                let p = exact_softmax(x);
                let dy: Vec<f64> = dy.iter().map(|dy| f64::from(*dy)).collect();
                let (sum, sizes) = (dy.iter().sum::<f64>(), dy.iter().map(|dy| dy.abs()).sum::<f64>());
                let exact: Vec<f64> = dy.iter().zip(&p).map(|(dy, p)| dy - p * sum).collect();
                // exp of a logarithm is off by that one's error, which is up to the largest |x - max|, 12.
                let of_exp = 16.0 * f64::from(f32::EPSILON);
                let bound: Vec<f64> = dy.iter().zip(&p)
                    .map(|(dy, p)| {
                        let rounding = 2.0 * u * p * (1.0 - p) * sum.abs();
                        (rounding + of_exp * p * sum.abs() + f32_part * (dy.abs() + p * sizes)) * 1.01
                    })
                    .collect();
                assert_within(got, &exact, &bound);
            }
        }
    }

    /// dx = (c - n mean(n c)) / deviation with c = d - mean(d): n is off by a part u, and so is the mean.
    #[test]
    fn gradients_of_layer_norm_are_off_by_the_rounding_of_the_normalized((x, dy) in rows()) {
        let width = x.len() / ROWS;
        let gamma: Vec<f32> = (0..width).map(|i| 0.5 + 0.25 * (i % 5) as f32).collect();
        for (half, bias) in HALVES.into_iter().flat_map(|half| [(half, true), (half, false)]) {
            let f32_part = f32_part(width);
            let u = unit_roundoff(half) + f32_part;
            // Half a step of f16 below 6.1e-5.
            let subnormal = if half == HalfDType::F16 { 2f64.powi(-25) } else { 0.0 };
            let mut norm: LayerNorm<B> = LayerNormConfig::new(width).with_bias(bias).init(&Default::default());
            norm.gamma = Param::from_data(TensorData::new(gamma.clone(), [width]), &Default::default());
            let x_leaf = tensor::<B>(&x, ROWS).require_grad();
            let grads = amp(OptLevel::O1, half).scope(|| (norm.forward(x_leaf.clone()) * tensor(&dy, ROWS)).sum().backward());
            let got = numbers(x_leaf.grad(&grads).unwrap());
            let got_gamma = numbers(norm.gamma.val().grad(&grads).unwrap());

            let (mut exact_gamma, mut bound_gamma, mut exact_beta) = (vec![0.0; width], vec![0.0; width], vec![0.0; width]);
            for ((x, dy), got) in x.chunks(width).zip(dy.chunks(width)).zip(got.chunks(width)) {
                let mean_of = |numbers: &[f64]| numbers.iter().sum::<f64>() / width as f64;
                let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
                let mean = mean_of(&x);
                let centered: Vec<f64> = x.iter().map(|x| x - mean).collect();
                let squares: Vec<f64> = centered.iter().map(|c| c * c).collect();
                let deviation = (mean_of(&squares) + EPSILON).sqrt();
                let n: Vec<f64> = centered.iter().map(|c| c / deviation).collect();
                // What centering in f32 costs, in parts of the largest number.
                let centering = f32_part * x.iter().fold(0.0, |most: f64, x| most.max(x.abs())) / deviation;
                let d: Vec<f64> = dy.iter().zip(&gamma).map(|(dy, gamma)| f64::from(*dy) * f64::from(*gamma)).collect();
                let offset = mean_of(&d);
                let c: Vec<f64> = d.iter().map(|d| d - offset).collect();
                let nc: Vec<f64> = n.iter().zip(&c).map(|(n, c)| n * c).collect();
                let sizes = |of: &[f64]| mean_of(&of.iter().map(|of| of.abs()).collect::<Vec<f64>>());
                let (d_sizes, nc_sizes) = (sizes(&d), sizes(&nc));
                let slope = mean_of(&nc);
                let exact: Vec<f64> = c.iter().zip(&n).map(|(c, n)| (c - n * slope) / deviation).collect();
                let bound: Vec<f64> = n.iter().zip(&d).map(|(n, d)| {
                    let of_n = u * n.abs() + subnormal + centering;
                    let of_slope = u * nc_sizes + (subnormal + centering) * sizes(&c);
                    let of_f32 = (f32_part + centering) * (d.abs() + d_sizes + n.abs() * nc_sizes);
                    (of_n * slope.abs() + n.abs() * of_slope + of_f32) / deviation * 1.01
                }).collect();
                assert_within(got, &exact, &bound);
                for i in 0..width {
                    let dy = f64::from(dy[i]);
                    exact_gamma[i] += n[i] * dy;
                    exact_beta[i] += dy;
                    bound_gamma[i] += (u * n[i].abs() + subnormal + centering) * dy.abs() * 1.01;
                }
            }
            assert_within(&got_gamma, &exact_gamma, &bound_gamma);
            if let Some(beta) = &norm.beta {
                let got = numbers(beta.val().grad(&grads).unwrap());
                assert_within(&got, &exact_beta, &vec![ROWS as f64 * f64::from(f32::EPSILON); width]);
            }
        }
    }
}

/// Of two classes that differ by 20 one has the probability 2e-9, which f16 would make zero.
#[test]
fn a_probability_that_f16_cannot_hold_has_its_gradient() {
    let p = 1.0 / (1.0 + 20f64.exp());
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let x = tensor::<B>(&[20.0, 0.0], 1).require_grad();
            let grads = log_softmax(x.clone(), 1)
                .slice([0..1, 0..1])
                .sum()
                .backward();
            let got = numbers(x.grad(&grads).unwrap())[1];
            assert!(
                (got + p).abs() <= 2.0 * unit_roundoff(half) * p,
                "{half}: {got} for {}",
                -p
            );
        });
    }
}

/// A model with all three, and its gradients as stored.
fn all_three<B: AutodiffBackend>() -> Vec<TensorData> {
    let device = Default::default();
    let x: Vec<f32> = (0..24).map(|i| (i * 7 % 11) as f32 * 0.3 - 1.5).collect();
    let norm: LayerNorm<B> = LayerNormConfig::new(8).init(&device);
    let x = tensor::<B>(&x, ROWS).require_grad();
    let y = log_softmax(softmax(norm.forward(x.clone()), 1) * 4.0, 1);
    let grads = (y.clone() * y).sum().backward();
    let read = |grad: Tensor<B::InnerBackend, 2>| scope::disabled(|| grad.into_data());
    vec![
        read(x.grad(&grads).unwrap()),
        read(norm.gamma.val().grad(&grads).unwrap().unsqueeze()),
    ]
}

#[test]
fn left_alone_the_gradients_are_those_of_burns_autodiff_bit_by_bit() {
    type Lean = LeanAutodiff<Bare>;
    type Decorated = MixedPrecision<Autodiff<FastBackward<Bare>>>;

    let bare = all_three::<Autodiff<Bare>>();
    assert_eq!(all_three::<Lean>(), bare, "no device was initialised");
    let o0 = AmpConfig::new(OptLevel::O0).build().unwrap();
    assert_eq!(o0.scope(all_three::<B>), bare, "O0");
    let o1 = amp(OptLevel::O1, HalfDType::F16);
    o1.scope(|| {
        assert_eq!(
            scope::disabled(all_three::<B>),
            bare,
            "a region without casts"
        );
        let full = scope::full(all_three::<Decorated>);
        assert_eq!(scope::full(all_three::<B>), full, "a region in f32");
    });
    let fat = AmpConfig::new(OptLevel::O1)
        .with_lean_backward(false)
        .build()
        .unwrap();
    assert_eq!(
        fat.scope(all_three::<B>),
        fat.scope(all_three::<Decorated>),
        "switched off"
    );
    assert_ne!(
        o1.scope(all_three::<B>),
        fat.scope(all_three::<B>),
        "switched on"
    );
}

/// What is kept is kept by either strategy: nothing is computed again from what was rounded.
#[test]
fn checkpointing_changes_no_gradient() {
    let o1 = amp(OptLevel::O1, HalfDType::F16);
    let balanced = o1.scope(all_three::<AmpBackend<Bare, BalancedCheckpointing>>);
    assert_eq!(balanced, o1.scope(all_three::<B>));
}

#[test]
fn outputs_are_f32_at_o1_and_those_of_burns_autodiff() {
    type Decorated = MixedPrecision<Autodiff<Bare>>;
    fn outputs<B: AutodiffBackend>() -> Vec<TensorData> {
        let x = tensor::<B>(&[0.5, -1.0, 2.0, 3.0, 0.25, -4.0], 1).require_grad();
        let norm: LayerNorm<B> = LayerNormConfig::new(6).init(&Default::default());
        [
            softmax(x.clone(), 1),
            log_softmax(x.clone(), 1),
            norm.forward(x),
        ]
        .into_iter()
        .map(|y| {
            assert_eq!(y.dtype(), DType::F32);
            y.into_data()
        })
        .collect()
    }
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            for (lean, own) in outputs::<B>().iter().zip(outputs::<Decorated>()) {
                lean.assert_approx_eq::<f32>(&own, burn::tensor::Tolerance::rel_abs(4e-7, 1e-7));
            }
        });
    }
}

#[test]
fn a_frozen_norm_passes_gradients_on_and_gets_none() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let norm: LayerNorm<B> = LayerNormConfig::new(4).init(&Default::default());
        let frozen = norm.clone().no_grad();
        let x = tensor::<B>(&[1.0, 2.0, 3.0, 5.0], 1).require_grad();
        let first = |norm: &LayerNorm<B>| norm.forward(x.clone()).slice([0..1, 0..1]).sum();
        let grads = first(&frozen).backward();
        assert!(frozen.gamma.val().grad(&grads).is_none());
        let of_x = |grads| numbers(x.grad(&grads).unwrap());
        assert_eq!(of_x(grads), of_x(first(&norm).backward()));
    });
}

/// The bound of one class in the rows above, at the ends where it matters: of two classes that differ by 9
/// one has a loss of 1e-4, and 1 - p of it is its gradient.
#[test]
fn a_class_that_is_nearly_certain_has_its_gradient() {
    let rest = 1.0 / (1.0 + 9f64.exp());
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let x = tensor::<B>(&[9.0, 0.0], 1).require_grad();
            let grads = log_softmax(x.clone(), 1)
                .slice([0..1, 0..1])
                .sum()
                .backward();
            let got = numbers(x.grad(&grads).unwrap())[0];
            // 1 - p is a difference of two numbers near 1 in f32.
            let bound = 2.0 * unit_roundoff(half) * rest + 2.0 * f64::from(f32::EPSILON);
            assert!((got - rest).abs() <= bound, "{half}: {got} for {rest}");
        });
    }
}

#[test]
fn what_all_gradients_of_a_row_share_leaves_nothing() {
    let x = [
        0.3f32, 1.0, -0.5, 0.1, 0.8, -1.0, 0.0, 0.2, -0.3, 0.6, 0.4, -0.7,
    ];
    let dy = [0.0f32, 0.5, 0.0, -0.5];
    const SHARED: f32 = 1024.0;
    let dy: Vec<f32> = dy.into_iter().cycle().take(12).collect();
    let shifted: Vec<f32> = dy.iter().map(|dy| dy + SHARED).collect();
    let f32_part = f64::from(SHARED) * f32_part(4);
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let norm: LayerNorm<B> = LayerNormConfig::new(4).init(&Default::default());
            let of = |dy: &[f32]| {
                [
                    gradient::<B>(|x| softmax(x, 1), &x, dy),
                    gradient::<B>(|x| norm.forward(x), &x, dy),
                ]
            };
            for (own, shifted) in of(&dy).iter().zip(of(&shifted)) {
                // A deviation of 0.5 divides what is left.
                assert_within(&shifted, own, &[4.0 * f32_part; 12]);
            }
        });
    }
}

/// The gradient of an operation at a shape, `dy` being no two numbers alike.
fn at_shape<B: AutodiffBackend, const D: usize>(
    shape: [usize; D],
    dtype: DType,
    op: impl FnOnce(Tensor<B, D>) -> Tensor<B, D>,
) -> Tensor<B::InnerBackend, D> {
    let data = |scale: f32, step: usize| {
        let count: usize = shape.iter().product();
        let numbers = (0..count).map(|i| scale * ((i * step % 17) as f32 - 8.0));
        Tensor::<B, D>::from_data(
            TensorData::new(numbers.collect::<Vec<f32>>(), shape),
            &Default::default(),
        )
    };
    let x = data(0.3, 7).cast(dtype).require_grad();
    let grads = (op(x.clone()) * data(0.1, 5)).sum().backward();
    x.grad(&grads).unwrap()
}

/// Every dimension of a shape. Of two numbers a norm leaves nearly nothing, whatever they are: so more.
fn every_dimension<const D: usize>(shape: [usize; D]) {
    type Burn = Autodiff<Bare>;
    type Op<B> = fn(Tensor<B, 4>, usize) -> Tensor<B, 4>;

    fn ops<B: AutodiffBackend>() -> [Op<B>; 4] {
        [softmax, log_softmax, softmin, |x, dim| {
            let last = x.dims().len() - 1;
            let x = x.swap_dims(dim, last);
            let norm: LayerNorm<B> = LayerNormConfig::new(x.dims()[last]).init(&Default::default());
            norm.forward(x).swap_dims(dim, last)
        }]
    }
    for half in HALVES {
        for dim in 0..D {
            for (at, (lean, own)) in ops::<B>().into_iter().zip(ops::<Burn>()).enumerate() {
                let lift = |dim: usize| 4 - D + dim;
                let lean = amp(OptLevel::O1, half).scope(|| {
                    at_shape::<B, D>(shape, DType::F32, |x| {
                        lean(x.unsqueeze(), lift(dim)).reshape(shape)
                    })
                });
                let own = at_shape::<Burn, D>(shape, DType::F32, |x| {
                    own(x.unsqueeze(), lift(dim)).reshape(shape)
                });
                let own = numbers(own);
                let largest = own.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                let bound = vec![8.0 * unit_roundoff(half) * largest + 1e-6; own.len()];
                assert_eq!(lean.dims(), shape);
                println!("{half}, operation {at} of {shape:?} along {dim}");
                assert_within(&numbers(lean), &own, &bound);
            }
        }
    }
}

#[test]
fn any_rank_and_any_dimension_has_its_gradient() {
    every_dimension([5]);
    every_dimension([4, 5]);
    every_dimension([6, 4, 5]);
    every_dimension([5, 4, 7, 6]);
}

/// At O3 tensors are half all along: what is kept is, and gradients are.
#[test]
fn half_tensors_have_half_gradients() {
    type Burn = Autodiff<Bare>;
    for half in HALVES {
        let dtype = DType::from(half.float_dtype());
        let shape = [3, 5];
        let o3 = amp(OptLevel::O3, half);
        o3.scope(|| {
            let device = Default::default();
            let mut norm: LayerNorm<B> = LayerNormConfig::new(5).init(&device);
            let to_half = |vector: Tensor<B, 1>| vector.cast(half.float_dtype());
            norm.gamma = norm.gamma.map(to_half);
            norm.beta = norm.beta.map(|beta| beta.map(to_half));
            let full: LayerNorm<Burn> = LayerNormConfig::new(5).init(&device);
            let lean = [
                at_shape::<B, 2>(shape, dtype, |x| softmax(x, 1)),
                at_shape::<B, 2>(shape, dtype, |x| log_softmax(x, 1)),
                at_shape::<B, 2>(shape, dtype, |x| norm.forward(x)),
            ];
            let own = [
                at_shape::<Burn, 2>(shape, DType::F32, |x| softmax(x, 1)),
                at_shape::<Burn, 2>(shape, DType::F32, |x| log_softmax(x, 1)),
                at_shape::<Burn, 2>(shape, DType::F32, |x| full.forward(x)),
            ];
            for (lean, own) in lean.into_iter().zip(own) {
                assert_eq!(lean.dtype(), dtype);
                let own = numbers(own);
                let largest = own.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                // Input, output, kept tensor and gradient are rounded, and each step of forward is.
                let bound = vec![32.0 * unit_roundoff(half) * largest; own.len()];
                assert_within(&numbers(lean), &own, &bound);
            }
        });
    }
}
