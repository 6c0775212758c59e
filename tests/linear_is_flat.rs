//! `linear` over inputs of rank three and more is one product per gradient.

mod support;

use burn::module::Param;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Distribution, Tensor, TensorData};
use burn_amp::{AmpConfig, HalfDType, OptLevel, scope};
use support::{HALVES, Mixed, Plain, amp, unit_roundoff};

fn values<const D: usize>(tensor: Tensor<Mixed, D>) -> Vec<f32> {
    tensor.into_data().to_vec().unwrap()
}

/// Output and weight gradient of one layer for a loss that weighs each output.
fn run<const D: usize>(
    layer: &Linear<Mixed>,
    x: &Tensor<Mixed, D>,
    weights: &Tensor<Mixed, D>,
) -> (Vec<f32>, Vec<f32>) {
    let y = layer.forward(x.clone());
    let grads = (y.clone() * weights.clone()).sum().backward();
    let grad = layer.weight.val().grad(&grads).expect("gradient");
    (values(y), grad.into_data().to_vec().unwrap())
}

fn settings(half: HalfDType, flat: bool) -> burn_amp::Amp {
    AmpConfig::new(OptLevel::O1)
        .with_half(half)
        .with_flat_linear(flat)
        .build()
        .unwrap()
}

#[test]
fn flat_and_batched_agree_within_the_half_format() {
    let device = Default::default();
    let normal = Distribution::Normal(0.0, 1.0);
    let layer: Linear<Mixed> = LinearConfig::new(16, 8).init(&device);
    let x = Tensor::<Mixed, 4>::random([3, 2, 5, 16], normal, &device);
    let weights = Tensor::<Mixed, 4>::random([3, 2, 5, 8], normal, &device);
    for half in HALVES {
        let flat = settings(half, true).scope(|| run(&layer, &x, &weights));
        let batched = settings(half, false).scope(|| run(&layer, &x, &weights));
        let close = |a: &[f32], b: &[f32], roundings: f64| {
            let largest = a.iter().fold(0f64, |max, v| max.max(f64::from(v.abs())));
            let bound = roundings * unit_roundoff(half) * largest;
            let within = |(a, b): (&f32, &f32)| f64::from((a - b).abs()) <= bound;
            assert_eq!(a.len(), b.len());
            assert!(a.iter().zip(b).all(within), "{half}: {a:?} against {b:?}");
        };
        close(&flat.0, &batched.0, 2.0);
        // The batched gradient rounds six products and their sum.
        close(&flat.1, &batched.1, 8.0);
    }
}

#[test]
fn it_is_on_at_every_level_with_a_policy_and_can_be_switched_off() {
    for level in OptLevel::ALL {
        let config = AmpConfig::new(level);
        assert_eq!(config.policy().flattens_linear(), level != OptLevel::O0);
        assert!(!config.with_flat_linear(false).policy().flattens_linear());
    }
}

#[test]
fn without_a_policy_nothing_is_flattened() {
    let device = Default::default();
    let x = Tensor::<Mixed, 3>::random([3, 5, 16], Distribution::Default, &device);
    let weight = Tensor::<Mixed, 2>::random([16, 8], Distribution::Default, &device);
    let bare = |tensor: TensorData| Tensor::<Plain, 3>::from_data(tensor, &device);
    let expected = Linear {
        weight: Param::from_tensor(Tensor::<Plain, 2>::from_data(weight.to_data(), &device)),
        bias: None,
    };
    let expected = expected.forward(bare(x.to_data())).into_data();
    let layer = Linear {
        weight: Param::from_tensor(weight),
        bias: None,
    };
    assert_eq!(
        scope::disabled(|| layer.forward(x.clone())).into_data(),
        expected
    );
    let off = amp(OptLevel::O0, HalfDType::F16).scope(|| layer.forward(x));
    assert_eq!(off.into_data(), expected);
}
