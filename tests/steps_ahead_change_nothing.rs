//! A step that is computed before its verdict is there gives the bits of one that waited.

mod support;

use burn::module::ParamId;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::TensorData;
use burn_amp::{AmpOptimizer, OptLevel, StepStatus};
use support::net::{Net, batch, bits};
use support::{HALVES, Mixed, amp};

/// Trains for a few steps, the third of which has an infinite loss.
fn train(level: OptLevel, half: burn_amp::HalfDType, ahead: bool) -> Vec<TensorData> {
    let amp = amp(level, half);
    amp.scope(|| {
        let mut model: Net<Mixed> = amp.cast_model(Net::new(&Default::default()));
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp).with_step_ahead(ahead);
        for step in 0..5 {
            let loss = model.loss(batch(step));
            let loss = match step {
                2 => loss.mul_scalar(f32::INFINITY),
                _ => loss,
            };
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optim.step(0.01, model, grads);
            let skipped = optim
                .last_step()
                .is_some_and(|s| s.status == StepStatus::Skipped);
            assert_eq!(skipped, step == 2, "step {step}");
        }
        let bits: Vec<(ParamId, TensorData)> = bits(&model);
        bits.into_iter().map(|(_, data)| data).collect()
    })
}

#[test]
fn ahead_and_waiting_train_the_same_bits() {
    for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        for half in HALVES {
            assert_eq!(
                train(level, half, true),
                train(level, half, false),
                "{level} {half}"
            );
        }
    }
}
