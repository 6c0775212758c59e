//! Stepping, clipping, schedulers, accumulation.

use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::optim::{AdamConfig, GradientsAccumulator, GradientsParams, Optimizer};
use burn::tensor::DType;
use burn_amp::{
    AmpConfig, AmpOptimizer, AmpScheduler, GradScaler, HalfDType, LossScaleConfig, OptLevel,
    StepStatus, host_reads,
};

use crate::one_weight::{OneWeight, amp_sgd, outcome, sgd, step};
use crate::support::gradients::gradients;
use crate::support::{HALVES, Mixed, amp};

fn f16() -> burn_amp::Amp {
    amp(OptLevel::O1, HalfDType::F16)
}

/// [3, 4] has the norm 5, so clipped to 1 it is [0.6, 0.8]; clipped while scaled by 65536 it would be
/// [9.2e-6, 1.2e-5] after unscaling.
#[test]
fn row_28_clipping_acts_on_true_gradients() {
    let amp = f16();
    amp.scope(|| {
        let rule = LossScaleConfig::default();
        let mut optim = amp_sgd(&amp, rule).with_clip_norm(1.0).unwrap();
        let model = OneWeight::<Mixed>::new(&[0.0, 0.0]);
        let model = step(model, &mut optim, 1.0, |model| model.loss(&[3.0, 4.0]));
        // Torch's formula has 1e-6 beside the norm: a relative 2e-7.
        for (moved, expected) in model.values().iter().zip([-0.6, -0.8]) {
            assert!((moved - expected).abs() < 1e-6, "{moved}");
        }
        // Burn's own clipping, inside the optimizer, sees them too.
        let clipping = burn::grad_clipping::GradientClippingConfig::Norm(1.0);
        let sgd = burn::optim::SgdConfig::new().with_gradient_clipping(Some(clipping));
        let mut optim = AmpOptimizer::new(sgd.init(), &amp);
        let model = OneWeight::<Mixed>::new(&[0.0, 0.0]);
        let model = step(model, &mut optim, 1.0, |model| model.loss(&[3.0, 4.0]));
        for (moved, expected) in model.values().iter().zip([-0.6, -0.8]) {
            assert!((moved - expected).abs() < 1e-6, "{moved}");
        }
    });
}

#[test]
fn row_29_the_norm_for_the_log_is_the_true_one() {
    let amp = f16();
    amp.scope(|| {
        let mut optim = amp_sgd(&amp, LossScaleConfig::default())
            .with_clip_norm(1.0)
            .unwrap();
        let outcome = outcome(&mut optim, &[&[3.0, 4.0]]);
        assert_eq!(outcome.grad_norm, Some(5.0), "unscaled and unclipped");
        assert_eq!(outcome.scale_after(0), Some(65_536.0));
    });
}

/// Four rates of a linear schedule, the second step skipped: the third rate is the second again, the
/// fourth what the third would have been.
#[test]
fn row_30_the_schedule_waits_for_a_skipped_step() {
    let amp = f16();
    amp.scope(|| {
        let linear = || LinearLrSchedulerConfig::new(1e-2, 1e-3, 20).init().unwrap();
        let mut optim = amp_sgd(&amp, LossScaleConfig::default());
        let mut schedule = AmpScheduler::new(linear(), optim.monitor());
        let mut model = OneWeight::<Mixed>::new(&[1.0]);
        let mut rates = Vec::new();
        for gradient in [1.0, f32::INFINITY, 1.0, 1.0] {
            rates.push(schedule.step());
            model = step(model, &mut optim, rates[0], |model| model.loss(&[gradient]));
        }
        let mut plain = linear();
        let plain: Vec<_> = (0..3).map(|_| plain.step()).collect();
        assert_eq!(rates, [plain[0], plain[1], plain[1], plain[2]]);
    });
}

#[test]
fn row_31_what_became_of_a_step_does_not_go_stale() {
    let amp = f16();
    amp.scope(|| {
        let mut optims = [(); 2].map(|()| amp_sgd(&amp, LossScaleConfig::default()));
        let mut status =
            |which: usize, gradient: f32| outcome(&mut optims[which], &[&[gradient]]).status;
        assert_eq!(status(0, f32::NAN), StepStatus::Skipped);
        assert_eq!(
            status(1, 1.0),
            StepStatus::Applied,
            "each optimizer has its own"
        );
        assert_eq!(
            status(0, 1.0),
            StepStatus::Applied,
            "after a clean step nothing is left"
        );
    });
}

#[test]
fn row_32_a_step_waits_for_the_device_at_most_once() {
    let reads = |amp: burn_amp::Amp, check: bool| {
        amp.scope(|| {
            let mut optim = AmpOptimizer::new(sgd(), &amp);
            if !check {
                optim = optim.with_finite_check(false).unwrap();
            }
            let model = OneWeight::<Mixed>::new(&[1.0]);
            let grads = GradientsParams::from_grads(model.loss(&[1.0]).backward(), &model);
            let before = host_reads();
            optim.step(0.1, model, grads);
            optim.loss_scale().scale();
            host_reads() - before
        })
    };
    assert_eq!(reads(f16(), true), 1);
    assert_eq!(reads(amp(OptLevel::O1, HalfDType::Bf16), false), 0);
}

/// [3, 0] and [0, 4] make [3, 4] with the norm 5: unscaled and clipped once per window, in two windows
/// one after the other.
#[test]
fn row_33_accumulation_and_clipping_go_together() {
    let mut scaler = GradScaler::new(LossScaleConfig::default().with_init(1024.0)).unwrap();
    let amp = f16();
    burn_amp::scope::without_loss_scale(|| {
        amp.scope(|| {
            let mut model = OneWeight::<Mixed>::new(&[0.0, 0.0]);
            let mut optim = sgd();
            for window in 1..=2 {
                let micro = |x: &[f32]| scaler.scale(model.loss(x)).backward(&model);
                let mut grads = micro(&[3.0, 0.0]);
                grads.accumulate(&model, micro(&[0.0, 4.0]));
                let mut grads = scaler.unscale(&model, grads);
                assert_eq!(grads.clip_norm(&model, 1.0), Some(5.0));
                // Clipped again it is what it is: the norm is 1.
                let again = grads.clip_norm(&model, 1.0).unwrap();
                assert!((again - 1.0).abs() < 1e-6, "{again}");
                model = scaler.step(&mut optim, 1.0, model, grads);
                scaler.update().unwrap();
                for (moved, expected) in model.values().iter().zip([-0.6, -0.8]) {
                    assert!((moved - expected * window as f32).abs() < 4e-6, "{moved}");
                }
            }
            // A window that the user drops leaves nothing behind.
            let dropped = scaler.scale(model.loss(&[1.0, 1.0])).backward(&model);
            let _ = scaler.unscale(&model, dropped);
            let grads = scaler.scale(model.loss(&[1.0, 1.0])).backward(&model);
            scaler.step(&mut optim, 1.0, model, grads);
            assert!(!scaler.update().unwrap().found_inf);
        });
    });
}

/// Growth is due at every step here, and still both micro-batches of a window have one scale. Gradients
/// of different scales would add up all the same, since each is unscaled by its own.
#[test]
fn row_34_the_scale_holds_still_within_a_window() {
    let amp = f16();
    amp.scope(|| {
        let rule = LossScaleConfig::default().with_growth_interval(1);
        let mut optim = amp_sgd(&amp, rule);
        let mut model = OneWeight::<Mixed>::new(&[0.0]);
        let mut scales = Vec::new();
        for _ in 0..2 {
            let mut window = GradientsAccumulator::new();
            for gradient in [0.5, 0.25] {
                scales.push(amp.loss_scales().get(0));
                let grads = GradientsParams::from_grads(model.loss(&[gradient]).backward(), &model);
                window.accumulate(&model, grads);
            }
            model = optim.step(1.0, model, window.grads());
        }
        assert_eq!(scales, [65_536.0, 65_536.0, 131_072.0, 131_072.0]);
        assert_eq!(model.values(), [-1.5]);
        // Across a change of scale.
        let of =
            |gradient: f32| GradientsParams::from_grads(model.loss(&[gradient]).backward(), &model);
        let mut window = GradientsAccumulator::new();
        window.accumulate(&model, of(0.5));
        optim.scaler().set_loss_scale(0, 8.0).unwrap();
        window.accumulate(&model, of(0.25));
        let model = optim.step(1.0, model.clone(), window.grads());
        assert_eq!(model.values(), [-2.25]);
    });
}

#[test]
fn row_35_no_gradients_are_no_step_and_no_news_for_the_scale() {
    let amp = f16();
    amp.scope(|| {
        let mut optim = amp_sgd(&amp, LossScaleConfig::default());
        let model = OneWeight::<Mixed>::new(&[1.0]);
        let model = step(model, &mut optim, 1.0, |model| model.loss(&[0.5]));
        let before = optim.loss_scale();
        let model = optim.step(1.0, model, GradientsParams::new());
        assert_eq!(optim.last_step().unwrap().status, StepStatus::NoGradients);
        assert_eq!(optim.loss_scale(), before);
        assert_eq!(model.values(), [0.5]);
        // By hand too.
        let mut scaler = GradScaler::new(LossScaleConfig::default()).unwrap();
        let before = *scaler.state();
        let other = OneWeight::<Mixed>::new(&[1.0]);
        let none = scaler.scale(other.loss(&[1.0])).backward(&model);
        let model = scaler.step(&mut sgd(), 1.0, model, none);
        scaler.update().unwrap();
        assert_eq!((*scaler.state(), model.values()), (before, vec![0.5]));
    });
}

#[test]
fn row_36_half_gradients_of_half_parameters_are_unscaled_in_f32() {
    for half in HALVES {
        let amp = amp(OptLevel::O2, half);
        amp.scope(|| {
            let mut optim = amp_sgd(&amp, LossScaleConfig::fixed(4.0));
            let model = amp.cast_model(OneWeight::<Mixed>::new(&[1.0]));
            assert_eq!(model.weight.val().dtype(), half.dtype());
            let grads = GradientsParams::from_grads(model.loss(&[2.0]).backward(), &model);
            let gradient = gradients::<Mixed, _>(&model, &grads)[0].clone().unwrap();
            assert_eq!(gradient.dtype, DType::F32);
            assert_eq!(gradient.to_vec::<f32>().unwrap(), [2.0]);
            let model = optim.step(1.0, model, grads);
            assert_eq!(model.values(), [-1.0]);
        });
    }
}

/// Unscaling apart, for clipping or a look, and leaving it to the step are the same ten steps.
#[test]
fn row_37_gradients_are_unscaled_once_whoever_asks() {
    let run = |apart: bool| {
        let mut scaler =
            GradScaler::new(LossScaleConfig::default().with_growth_interval(3)).unwrap();
        let mut optim = AdamConfig::new().init();
        let mut model = OneWeight::<Mixed>::new(&[1.0, -2.0]);
        for i in 0..10 {
            let loss = model.loss(&[0.1 * i as f32, -0.3]);
            let grads = scaler.scale(loss).backward(&model);
            model = match apart {
                true => {
                    let mut grads = scaler.unscale(&model, grads);
                    assert!(grads.norm() > 0.0);
                    scaler.step(&mut optim, 0.1, model, grads)
                }
                false => scaler.step(&mut optim, 0.1, model, grads),
            };
            scaler.update().unwrap();
        }
        (model.values(), *scaler.state())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn row_39_switched_off_it_is_the_plain_loop_bit_by_bit() {
    let plain = |wrap: bool| {
        let amp = AmpConfig::new(OptLevel::O0).build().unwrap();
        amp.scope(|| {
            let mut model = OneWeight::<Mixed>::new(&[1.0, -2.0]);
            let mut wrapped = AmpOptimizer::new(AdamConfig::new().init(), &amp);
            let mut bare = AdamConfig::new().init();
            for i in 0..10 {
                let loss = |model: &OneWeight<Mixed>| model.loss(&[0.1 * i as f32, -0.3]);
                model = match wrap {
                    true => step(model, &mut wrapped, 0.1, loss),
                    false => step(model, &mut bare, 0.1, loss),
                };
            }
            model.values()
        })
    };
    assert_eq!(plain(true), plain(false));
    let by_hand = {
        let mut scaler = GradScaler::disabled();
        let mut model = OneWeight::<Mixed>::new(&[1.0, -2.0]);
        let mut optim = AdamConfig::new().init();
        for i in 0..10 {
            let grads = scaler
                .scale(model.loss(&[0.1 * i as f32, -0.3]))
                .backward(&model);
            model = scaler.step(&mut optim, 0.1, model, grads);
            scaler.update().unwrap();
        }
        model.values()
    };
    assert_eq!(by_hand, plain(false));
}

#[test]
fn row_40_gradients_that_are_not_finite_are_not_shown() {
    for (gradient, shown) in [(1.0, true), (f32::INFINITY, false), (f32::NAN, false)] {
        let mut scaler = GradScaler::new(LossScaleConfig::default()).unwrap();
        let model = OneWeight::<Mixed>::new(&[1.0]);
        let grads = scaler.scale(model.loss(&[gradient])).backward(&model);
        let mut grads = scaler.unscale(&model, grads);
        assert_eq!(grads.gradients().is_some(), shown);
        assert_eq!(grads.gradients_mut().is_some(), shown);
        assert_eq!(grads.clip_norm(&model, 1.0).is_some(), shown);
    }
}
