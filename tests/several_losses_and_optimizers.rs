//! Several models, losses and optimizers: whose scale moves, and who skips with whom. What Apex's own
//! tests assert of them stands in `tests/peers/losses.rs`.

mod support;
#[path = "support/topologies.rs"]
mod topologies;

use burn::module::Param;
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{FloatDType, Tensor};
use burn_amp::{AmpConfig, AmpOptimizer, OptLevel, Scaler};
use support::Mixed;
use topologies::{Kept, Scales, TWO_TWO_TWO, Training, W0, W1, settings};

#[test]
fn linked_optimizers_skip_together() {
    let amp = settings(OptLevel::O2, Scales::PerLoss);
    amp.scope(|| {
        let mut training = Training::new(TWO_TWO_TWO, Scales::PerLoss, &amp);
        training.linked = true;
        assert_eq!(training.iterate(Some((0, W1)), &[]), [true, true]);
        assert_eq!(training.iterate(None, &[]), [false, false]);
        // The scale of the loss that was clean has not moved for the other's overflow.
        assert_eq!(training.scaler.loss_scale(0).scale(), 2.0);
        assert_eq!(training.scaler.loss_scale(1).scale(), 16.0);
    });
}

#[test]
fn a_shared_scale_moves_once_per_iteration() {
    let amp = settings(OptLevel::O1, Scales::Shared);
    amp.scope(|| {
        let mut training = Training::new(TWO_TWO_TWO, Scales::Shared, &amp);
        training.iterate(Some((1, W0)), &[]);
        assert_eq!(training.scaler.loss_scale(0).scale(), 2.0);
        assert_eq!(training.scaler.loss_scale(0).state().steps, 1);
    });
}

/// A loss whose gradient is `by` in each element, in f16.
fn loss_of(weight: &Param<Tensor<Mixed, 1>>, by: f32) -> Tensor<Mixed, 1> {
    let half = weight.val().cast(FloatDType::F16);
    half.mul_scalar(by).sum()
}

#[test]
fn optimizers_with_a_scaler_each_do_not_push_the_scale_to_its_floor() {
    let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
    amp.scope(|| {
        let kept = || Kept::<Mixed> {
            weight: Param::from_tensor(Tensor::ones([2], &Default::default())),
        };
        let (mut first, mut second) = (kept(), kept());
        let mut first_optim = AmpOptimizer::<_, Mixed>::new(SgdConfig::new().init(), &amp);
        let mut second_optim = AmpOptimizer::<_, Mixed>::new(SgdConfig::new().init(), &amp);
        for _ in 0..12 {
            // Fits into f16 up to a scale of 64.
            let grads = loss_of(&first.weight, 1000.0).backward();
            let grads = GradientsParams::from_grads(grads, &first);
            first = first_optim.step(1e-6, first, grads);
            let grads = loss_of(&second.weight, 0.25).backward();
            let grads = GradientsParams::from_grads(grads, &second);
            second = second_optim.step(1e-6, second, grads);
        }
        assert!(first_optim.last_step().unwrap().was_applied());
        assert_eq!(first_optim.loss_scale().scale(), 64.0);
        assert_eq!(amp.loss_scales().get(0), 64.0);
    });
}

#[test]
fn the_norm_of_an_applied_step_is_finite_although_another_loss_overflowed() {
    let amp = settings(OptLevel::O1, Scales::PerLoss);
    amp.scope(|| {
        let model = Kept::<Mixed> {
            weight: Param::from_tensor(Tensor::ones([2], &Default::default())),
        };
        let scaler = Scaler::new(&amp);
        let mut optim = AmpOptimizer::<_, Mixed>::with_scaler(SgdConfig::new().init(), &scaler);
        scaler.set_loss_scale(0, 1024.0).unwrap();
        scaler.set_loss_scale(1, 1024.0).unwrap();
        let of = |by| GradientsParams::from_grads(loss_of(&model.weight, by).backward(), &model);
        let (clean, overflowing) = (of(0.25), of(1000.0));
        let inspection = scaler.inspect::<Mixed>();
        let inspection = inspection.gradients(0, &model, &clean);
        let verdict = inspection.gradients(1, &model, &overflowing).judge();
        optim.step_with(&verdict, &[0], 0.1, model.clone(), clean);
        let outcome = optim.last_step().unwrap();
        assert!(outcome.was_applied());
        assert_eq!(outcome.grad_norm, Some(0.125f64.sqrt()));
    });
}

#[test]
#[should_panic(expected = "none of the losses [1] was inspected")]
fn a_step_for_a_loss_that_nobody_inspected_is_refused() {
    let amp = settings(OptLevel::O1, Scales::PerLoss);
    amp.scope(|| {
        let model = Kept::<Mixed> {
            weight: Param::from_tensor(Tensor::ones([2], &Default::default())),
        };
        let scaler = Scaler::new(&amp);
        let mut optim = AmpOptimizer::<_, Mixed>::with_scaler(SgdConfig::new().init(), &scaler);
        let grads = loss_of(&model.weight, 0.25).backward();
        let grads = GradientsParams::from_grads(grads, &model);
        let verdict = scaler
            .inspect::<Mixed>()
            .gradients(0, &model, &grads)
            .judge();
        optim.step_with(&verdict, &[1], 0.1, model, grads);
    });
}
