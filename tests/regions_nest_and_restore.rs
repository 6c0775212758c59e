//! A region's policy holds inside it, on its thread, and nowhere else.

mod support;

use burn::tensor::{DType, Tensor};
use burn_amp::{CastRule, HalfDType, Op, OptLevel, Policy, scope};
use support::{Bare, Mixed, amp, unless_it_panics};

type Device = burn::tensor::Device<Bare>;

fn current() -> Policy {
    scope::current_policy(&Device::default())
}

/// The dtype that an f32 matmul comes out in: what the policy in force does, not what it says.
fn matmul() -> DType {
    let x = Tensor::<Mixed, 2>::ones([2, 2], &Default::default());
    x.clone().matmul(x).dtype()
}

fn half_exp() -> DType {
    let x = Tensor::<Mixed, 1>::ones([2], &Default::default());
    x.cast(DType::F16).exp().dtype()
}

#[test]
fn the_innermost_region_wins_and_leaving_it_restores_the_outer_one() {
    assert_eq!(current(), Policy::off());
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        assert_eq!(matmul(), DType::F16);
        scope::disabled(|| {
            assert_eq!(matmul(), DType::F32);
            assert_eq!(half_exp(), DType::F16);
            amp(OptLevel::O1, HalfDType::Bf16).scope(|| {
                assert_eq!(matmul(), DType::BF16);
                scope::full(|| {
                    assert_eq!(matmul(), DType::F32);
                    assert_eq!(half_exp(), DType::F32);
                });
                assert_eq!(matmul(), DType::BF16);
            });
            assert_eq!(current(), Policy::off());
        });
        assert_eq!(matmul(), DType::F16);
    });
    assert_eq!(matmul(), DType::F32);
}

#[test]
fn a_policy_of_its_own_replaces_the_whole_table() {
    let lower_exp =
        Policy::new(OptLevel::O3, HalfDType::Bf16).with_rule(Op::FloatExp, CastRule::Lower);
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        scope::with_policy(lower_exp.clone(), || {
            assert_eq!(current(), lower_exp);
            assert_eq!(matmul(), DType::BF16);
        });
        assert_eq!(current(), Policy::new(OptLevel::O1, HalfDType::F16));
    });
}

#[test]
fn a_region_returns_its_blocks_value() {
    assert_eq!(scope::disabled(|| 7), 7);
    assert_eq!(amp(OptLevel::O1, HalfDType::F16).scope(|| "value"), "value");
}

#[test]
fn a_panic_restores_the_outer_region() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let panicked = unless_it_panics(|| {
            scope::disabled(|| {
                amp(OptLevel::O1, HalfDType::Bf16).scope(|| panic!("inside two regions"))
            })
        });
        assert_eq!(panicked, None::<()>);
        assert_eq!(matmul(), DType::F16);
    });
    let panicked: Option<()> =
        unless_it_panics(|| amp(OptLevel::O1, HalfDType::F16).scope(|| panic!("inside a region")));
    assert!(panicked.is_none());
    assert_eq!(matmul(), DType::F32);
}

#[test]
fn a_mixed_operation_that_panics_leaves_the_policy_as_it_was() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let ones = |shape| Tensor::<Mixed, 2>::ones(shape, &Default::default());
        let result = unless_it_panics(|| ones([2, 3]).matmul(ones([2, 3])));
        assert!(result.is_none(), "shapes that do not fit");
        assert_eq!(matmul(), DType::F16);
    });
}

#[test]
fn threads_do_not_inherit_a_region() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let elsewhere = std::thread::scope(|threads| threads.spawn(matmul).join().unwrap());
        assert_eq!(elsewhere, DType::F32, "the device has no settings");
        assert_eq!(matmul(), DType::F16);
    });
}

/// A weight and a loss whose gradient is 1, in a region with a scaler and these scales.
fn gradient_is_true_and_scaled_by(loss_id: usize, expected_scale: f32) {
    scope::with_loss_id(loss_id, || {
        let weight = Tensor::<Mixed, 1>::ones([1], &Default::default()).require_grad();
        let grads = weight.clone().sum().backward();
        assert_eq!(grads.loss_scale(), expected_scale);
        let grad = weight.grad(&grads).unwrap();
        assert_eq!(grad.into_data().to_vec::<f32>().unwrap(), [1.0]);
    });
}

#[test]
fn every_loss_has_its_own_scale() {
    let amp = burn_amp::AmpConfig::new(OptLevel::O1)
        .with_num_losses(3)
        .build()
        .unwrap();
    amp.loss_scales().set(1, 4.0);
    amp.loss_scales().set(2, 16.0);
    amp.scope(|| gradient_is_true_and_scaled_by(1, 1.0)); // no scaler is attached yet
    amp.loss_scales().attach();
    amp.scope(|| {
        gradient_is_true_and_scaled_by(0, 1.0);
        scope::with_loss_id(1, || {
            gradient_is_true_and_scaled_by(2, 16.0);
            gradient_is_true_and_scaled_by(1, 4.0);
            scope::disabled(|| gradient_is_true_and_scaled_by(1, 4.0));
            scope::with_policy(Policy::full(), || gradient_is_true_and_scaled_by(1, 4.0));
        });
        let unknown = unless_it_panics(|| gradient_is_true_and_scaled_by(3, 1.0));
        assert!(unknown.is_none(), "loss id 3 of 3");
        gradient_is_true_and_scaled_by(0, 1.0);
    });
}

#[test]
fn backward_needs_no_region() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let x = Tensor::<Mixed, 2>::ones([2, 2], &Default::default()).require_grad();
    let loss = amp.scope(|| x.clone().matmul(x.clone()).sum());
    let grads = loss.backward();
    assert_eq!(x.grad(&grads).unwrap().dtype(), DType::F32);
}
