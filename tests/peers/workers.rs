//! Several workers: Apex's distributed tests and torch's sharded scaler. Burn's workers are threads of
//! one process, and the reduction is a sum of gradients.

use burn::optim::{
    GradientsAccumulator, GradientsParams, MultiGradientsParams, Optimizer, SgdConfig,
};
use burn::prelude::DeviceOps;
use burn::tensor::FloatDType;
use burn::tensor::backend::DeviceId;
use burn_amp::{AmpOptimizer, HalfDType, LossScaleConfig, OptLevel};

use crate::Dot;
use crate::support::gradients::poison;
use crate::support::{Mixed, amp};

/// The gradients of one worker's share, of a thread of its own.
fn share(model: &Dot<Mixed>, amp: &burn_amp::Amp, rank: usize, step: usize) -> GradientsParams {
    std::thread::scope(|threads| {
        let work = threads.spawn(|| {
            amp.scope(|| {
                let x = [0.25 + rank as f32 / 8.0, 0.5 - step as f32 / 16.0];
                GradientsParams::from_grads(model.loss(&x).backward(), model)
            })
        });
        work.join().unwrap()
    })
}

#[test]
fn a34_workers_that_reduce_their_gradients_keep_equal_masters_and_models() {
    // Two replicas, each with settings, scaler and optimizer of its own, as two processes have.
    let replicas = [(); 2].map(|()| amp(OptLevel::O2, HalfDType::F16));
    let broadcast = Dot::<Mixed>::new(&[1.0, 2.0], FloatDType::F32);
    let mut models = replicas
        .each_ref()
        .map(|amp| amp.cast_model(broadcast.clone()));
    // The loss is half before it is summed: its gradient is the scale itself, which must fit.
    let rule = LossScaleConfig::default().with_init(128.0);
    let mut optims = replicas.each_ref().map(|amp| {
        let optim = AmpOptimizer::new(SgdConfig::new().init(), amp);
        optim.with_loss_scale(rule).unwrap()
    });
    for step in 0..6 {
        let grads = [0, 1].map(|rank| share(&models[rank], &replicas[rank], rank, step));
        let [first, second] = grads;
        for rank in [0, 1] {
            let mut sum = GradientsAccumulator::new();
            // Each replica adds the shares up in the same order: an all-reduce.
            for mut part in [&first, &second].map(|grads| copy(&broadcast, grads)) {
                if step == 3 {
                    poison::<Mixed, _>(&models[rank], &mut part, 0, f32::INFINITY);
                }
                sum.accumulate::<Mixed>(&models[rank], part);
            }
            let model = models[rank].clone();
            models[rank] = replicas[rank].scope(|| optims[rank].step(0.1, model, sum.grads()));
            assert_eq!(optims[rank].last_step().unwrap().was_skipped(), step == 3);
        }
    }
    let masters = [0, 1].map(|rank| optims[rank].full_model(models[rank].clone()).values());
    assert_eq!(masters[0], masters[1]);
    assert_eq!(models[0].values(), models[1].values());
    assert_eq!(optims[0].loss_scale(), optims[1].loss_scale());
    for (model, master) in models[0].values().iter().zip(&masters[0]) {
        assert_eq!(*model, burn::tensor::f16::from_f32(*master).to_f32());
    }
}

/// Gradients, for every rank to have its own.
fn copy(model: &Dot<Mixed>, grads: &GradientsParams) -> GradientsParams {
    type Inner = burn_amp::MixedPrecision<crate::support::Bare>;
    let id = model.weight.id;
    let mut copy = GradientsParams::new();
    let grad = grads.get::<Inner, 1>(id).expect("has a gradient");
    copy.register::<Inner, 1>(id, grad);
    copy
}

#[test]
fn g14_an_overflow_on_one_of_two_devices_skips_the_step() {
    for bad in [None, Some(0), Some(1)] {
        let amp = amp(OptLevel::O1, HalfDType::F16);
        let model = Dot::<Mixed>::new(&[1.0, 2.0], FloatDType::F32);
        let mut optim = AmpOptimizer::new(SgdConfig::new().init(), &amp);
        // The CPU backend takes any id for its one device.
        let family = burn::tensor::Device::<Mixed>::default().to_id().type_id;
        let grads = [0, 1].map(|rank| {
            let mut grads = share(&model, &amp, rank, 0);
            if bad == Some(rank) {
                poison::<Mixed, _>(&model, &mut grads, 0, f32::NAN);
            }
            (grads, DeviceId::new(family, rank as u16))
        });
        let before = model.values();
        let scale = optim.loss_scale().scale();
        let grads = MultiGradientsParams {
            grads: grads.into(),
        };
        let model = amp.scope(|| optim.step_multi(0.5, model, grads));
        assert_eq!(model.values() == before, bad.is_some());
        let expected = if bad.is_some() { scale * 0.5 } else { scale };
        assert_eq!(optim.loss_scale().scale(), expected);
    }
}

#[test]
fn g24_workers_that_share_what_they_found_agree_on_the_scale() {
    // found_inf is one bit, reduced by "or"; the next scale depends on it and on nothing else.
    let mut ranks = [(); 2].map(|()| {
        LossScaleConfig::torch()
            .with_growth_interval(2)
            .init()
            .unwrap()
    });
    let found = [
        [false, false],
        [true, false],
        [false, false],
        [false, true],
        [false; 2],
    ];
    for step in found.into_iter().cycle().take(40) {
        let any = step.into_iter().any(|found| found);
        let after = ranks.each_mut().map(|scale| scale.update(any).after);
        assert_eq!(after[0], after[1]);
    }
    assert_eq!(ranks[0], ranks[1]);
    assert_eq!(ranks[0].state().skipped, 16);
}
