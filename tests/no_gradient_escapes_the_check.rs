//! The finite check sees every element of every gradient, whatever its size, and the norm is right.

mod support;

use burn::module::{Module, Param};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_amp::{AmpOptimizer, HalfDType, OptLevel, StepOutcome};
use support::{Mixed, amp};

/// Vectors shorter and longer than a partial sum, odd and even ones, and a model's largest matrix.
const SIZES: [usize; 10] = [1, 2, 255, 511, 512, 513, 1024, 9_999, 262_144, 600_000];

#[derive(Module, Debug)]
struct Parameters<B: Backend> {
    all: Vec<Param<Tensor<B, 1>>>,
}

fn value(index: usize) -> f32 {
    ((index * 37) % 101) as f32 / 101.0 - 0.5
}

fn gradients() -> Vec<Vec<f32>> {
    let gradient = |size: usize| (0..size).map(|i| value(i + size)).collect();
    SIZES.map(gradient).to_vec()
}

/// A step with these gradients.
fn step(gradients: &[Vec<f32>]) -> StepOutcome {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let device = Default::default();
    let parameters = Parameters::<Mixed> {
        all: SIZES
            .iter()
            .map(|size| Param::from_tensor(Tensor::zeros([*size], &device)))
            .collect(),
    };
    let mut grads = GradientsParams::new();
    for (param, gradient) in parameters.all.iter().zip(gradients) {
        let data = TensorData::new(gradient.clone(), [gradient.len()]);
        grads.register(
            param.id,
            Tensor::<burn_amp::MixedPrecision<support::Bare>, 1>::from_data(data, &device),
        );
    }
    let mut optim = AmpOptimizer::new(SgdConfig::new().init::<Mixed, Parameters<Mixed>>(), &amp);
    amp.scope(|| {
        optim.step(0.1, parameters, grads);
        optim.last_step().expect("a step was made")
    })
}

fn exact_norm(gradients: &[Vec<f32>]) -> f64 {
    let square = |v: &f32| f64::from(*v).powi(2);
    gradients.iter().flatten().map(square).sum::<f64>().sqrt()
}

#[test]
fn the_norm_is_that_of_f64() {
    let gradients = gradients();
    let norm = step(&gradients).grad_norm.unwrap();
    let exact = exact_norm(&gradients);
    // A partial sum of n positive terms, one after the other, is off by n half ulps of f32 at most;
    // 874,000 elements make 3414 sums of 256. The root halves the relative error.
    let bound = 256.0 * 2f64.powi(-24) / 2.0;
    assert!((norm / exact - 1.0).abs() < bound, "{norm} against {exact}");
}

#[test]
fn one_element_that_is_not_finite_is_found_wherever_it_is() {
    for (index, size) in SIZES.into_iter().enumerate() {
        for at in [0, size / 2, size - 1] {
            for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                let mut gradients = gradients();
                gradients[index][at] = bad;
                let outcome = step(&gradients);
                let found = outcome.non_finite.unwrap_or_else(|| {
                    panic!("{bad} at {at} of {size} elements was not seen");
                });
                assert_eq!(found.parameters, [format!("all.{index}")]);
                assert_eq!(
                    (found.inf, found.nan),
                    (bad.is_infinite().into(), bad.is_nan().into())
                );
            }
        }
    }
}

#[test]
fn squares_beyond_f32_are_no_overflow() {
    let mut gradients = gradients();
    gradients[3][7] = 1e30;
    gradients[9][599_999] = f32::MAX;
    let outcome = step(&gradients);
    assert!(outcome.was_applied(), "{outcome:?}");
    let (norm, exact) = (outcome.grad_norm.unwrap(), exact_norm(&gradients));
    assert!(
        (norm / exact - 1.0).abs() < 2f64.powi(-23),
        "{norm} against {exact}"
    );
}
