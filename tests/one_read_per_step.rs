//! The host waits for the device once per step, not once per parameter.

mod support;

use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn_amp::{AmpConfig, AmpOptimizer, HalfDType, LossScaling, OptLevel, host_reads};
use support::net::{Net, batch};
use support::{Mixed, amp};

fn reads_of_a_step(amp: &burn_amp::Amp, clip: Option<f64>, check: bool, overflow: bool) -> u64 {
    amp.scope(|| {
        let model = amp.cast_model(Net::<Mixed>::new(&Default::default()));
        let mut optim = AmpOptimizer::new(AdamConfig::new().init::<Mixed, Net<Mixed>>(), amp);
        if !check {
            optim = optim.with_finite_check(false).unwrap();
        }
        if let Some(norm) = clip {
            optim = optim.with_clip_norm(norm).unwrap();
        }
        let x = batch::<Mixed>(0).mul_scalar(if overflow { 1e30 } else { 1.0 });
        let grads = GradientsParams::from_grads(model.loss(x).backward(), &model);
        let before = host_reads();
        optim.step(0.01, model, grads);
        host_reads() - before
    })
}

#[test]
fn a_step_reads_once_with_and_without_clipping() {
    for level in [OptLevel::O1, OptLevel::O2] {
        for clip in [None, Some(1.0)] {
            assert_eq!(
                reads_of_a_step(&amp(level, HalfDType::F16), clip, true, false),
                1
            );
        }
    }
}

#[test]
fn a_skipped_step_reads_once_more_to_say_why() {
    assert_eq!(
        reads_of_a_step(&amp(OptLevel::O1, HalfDType::F16), None, true, true),
        2
    );
}

#[test]
fn bf16_without_checks_and_plain_f32_read_nothing() {
    let bf16 = amp(OptLevel::O1, HalfDType::Bf16);
    assert_eq!(bf16.config().loss_scale(), LossScaling::Static(1.0));
    assert_eq!(reads_of_a_step(&bf16, None, false, false), 0);
    let o0 = AmpConfig::new(OptLevel::O0).build().unwrap();
    assert_eq!(reads_of_a_step(&o0, None, false, false), 0);
}

#[test]
fn a_dynamic_scale_cannot_do_without_the_check() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let optim = AmpOptimizer::<_, Mixed>::new(AdamConfig::new().init::<Mixed, Net<Mixed>>(), &amp);
    let error = optim.with_finite_check(false).unwrap_err();
    assert!(error.to_string().contains("finite_check"), "{error}");
}
