//! Burn and the Rust ecosystem.

use burn::nn::LinearConfig;
use burn::tensor::{DType, Tensor};
use burn_amp::{GradScaler, HalfDType, LossScaleConfig, OptLevel, StepStatus};

use crate::one_weight::{OneWeight, amp_sgd, sgd, step, stored};
use crate::support::{HALVES, Mixed, amp, unit_roundoff};

/// 4096 products of 1: an f16 accumulator stops at 2048, where the next number is 2050, and a bf16 one
/// at 256.
///
/// Of matrices: Burn's CPU backend adds up products with a single row or column in f16
/// (docs/numerics.md).
#[test]
fn row_71_products_add_up_in_f32() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let device = Default::default();
            let rows = Tensor::<Mixed, 2>::ones([2, 4096], &device);
            let columns = Tensor::<Mixed, 2>::ones([4096, 2], &device);
            let product = rows.clone().matmul(columns.clone());
            assert_eq!(product.dtype(), half.dtype());
            assert_eq!(stored(product), [4096.0; 4]);
            let layer = LinearConfig::new(4096, 2).with_bias(false);
            let mut layer = layer.init::<Mixed>(&device);
            layer.weight = layer.weight.map(|weight| weight.ones_like());
            assert_eq!(stored(layer.forward(rows)), [4096.0; 4], "{half}");
            // And one of backward: 4096 rows that agree.
            let weight = Tensor::<Mixed, 2>::ones([2, 2], &device).require_grad();
            let product = columns.matmul(weight.clone());
            let grads = product.cast(DType::F32).sum().backward();
            assert_eq!(stored(weight.grad(&grads).unwrap()), [4096.0; 4], "{half}");
        });
    }
}

#[test]
fn row_72_a_nan_gradient_never_enters_a_parameter() {
    for level in [OptLevel::O1, OptLevel::O2] {
        for half in HALVES {
            let amp = amp(level, half);
            amp.scope(|| {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut optim = amp_sgd(&amp, LossScaleConfig::fixed(4.0));
                    let model = amp.cast_model(OneWeight::<Mixed>::new(&[1.0, 2.0]));
                    let model = step(model, &mut optim, 1.0, |model| model.loss(&[1.0, bad]));
                    assert_eq!(model.values(), [1.0, 2.0], "{level} {half} {bad}");
                    let said = optim.last_step().unwrap();
                    assert_eq!(said.non_finite.unwrap().parameters, ["weight"]);
                }
            });
        }
    }
}

/// The next number after 2048 in f16 is 2050, after 256 in bf16 258; halfway between, the even one.
#[test]
fn row_73_rounding_to_half_is_to_the_nearest_even() {
    for (half, value, rounded) in [
        (HalfDType::F16, 2049.0, 2048.0),
        (HalfDType::F16, 2051.0, 2052.0),
        (HalfDType::Bf16, 257.0, 256.0),
        (HalfDType::Bf16, 259.0, 260.0),
    ] {
        let x = Tensor::<Mixed, 1>::from_floats([value], &Default::default());
        assert_eq!(stored(x.cast(half.dtype())), [rounded]);
        assert_eq!(half.round(value), rounded as f64);
    }
}

/// What accumulates in half shows: sums of 512 products that an f32 accumulator rounds once.
#[test]
fn row_74_the_accumulator_can_be_measured() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let wave = |phase: f32| {
                let values: Vec<f32> = (0..4 * 512)
                    .map(|i| (0.7 * i as f32 + phase).sin())
                    .collect();
                let tensor =
                    Tensor::<Mixed, 1>::from_floats(values.as_slice(), &Default::default());
                tensor.reshape([4, 512]).cast(half.dtype())
            };
            let (a, b) = (wave(0.0), wave(0.3).transpose());
            let exact = a
                .clone()
                .cast(DType::F64)
                .matmul(b.clone().cast(DType::F64));
            let product = a.matmul(b).cast(DType::F64);
            let norm = |x: Tensor<Mixed, 2>| {
                let squares = x.powf_scalar(2.0).sum().into_data().iter::<f64>().next();
                squares.unwrap().sqrt()
            };
            let error = norm(product - exact.clone()) / norm(exact);
            assert!(
                error <= unit_roundoff(half),
                "{half}: one rounding, not 512: {error:e}"
            );
        });
    }
}

/// Scale, look, step and update, with a batch that overflows in between.
#[test]
fn row_75_a_scaler_is_a_type_of_its_own() {
    let mut scaler = GradScaler::new(LossScaleConfig::torch().with_growth_interval(2)).unwrap();
    let mut model = OneWeight::<Mixed>::new(&[1.0]);
    let mut optim = sgd();
    let mut scales = Vec::new();
    for gradient in [0.25, f32::INFINITY, 0.25, 0.25] {
        let grads = scaler.scale(model.loss(&[gradient])).backward(&model);
        model = scaler.step(&mut optim, 1.0, model, grads);
        scaler.update().unwrap();
        scales.push(scaler.get_scale());
    }
    assert_eq!(scales, [65_536.0, 32_768.0, 32_768.0, 65_536.0]);
    assert_eq!(model.values(), [0.25]);
    assert_eq!(scaler.last_step().unwrap().status, StepStatus::Applied);
}
