use burn::module::{AutodiffModule, Module, ParamId};
use burn::optim::{
    AdamConfig, GradientsAccumulator, GradientsParams, MultiGradientsParams, Optimizer,
};
use burn::prelude::DeviceOps;
use burn::tensor::TensorData;
use burn::tensor::backend::DeviceId;
use burn::train::{MultiDeviceOptim, TrainStep};
use burn_amp::{Amp, AmpOptimizer, OptLevel};

use crate::data::{BATCH, Batch, Item, batches, in_order, overflow};
use crate::launch::{Directory, Optim, Plan, Recording, Several};
use crate::model::{Beginning, Net, bits};
use crate::support::Mixed;
use crate::{Device, LEVELS, constant, device_to_myself, devices, two_devices};

const LR: f64 = 1e-2;
const EPOCHS: usize = 2;
const STEPS: usize = 4;

/// The gradients of one batch, computed in another thread as the Learner's workers do.
///
/// The settings are those of a scope here: that workers see the device's is what is to be shown.
fn worker(amp: &Amp, model: &Net<Mixed>, batch: &Batch<Mixed>, device: &Device) -> GradientsParams {
    std::thread::scope(|threads| {
        let work = threads.spawn(|| {
            let model = model.clone().fork(device);
            amp.scope(|| TrainStep::step(&model, batch.clone()).grads)
        });
        work.join().unwrap()
    })
}

/// Data-parallel steps by hand, on so many devices in each epoch, without those to leave out.
pub fn by_hand(
    beginning: &Beginning,
    level: OptLevel,
    items: &[Item],
    epochs: &[usize],
    left_out: impl Fn(usize, usize) -> bool,
) -> Net<Mixed> {
    let amp = constant(level);
    let mut optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    let mut model = beginning.model(&amp);
    for (epoch, &count) in epochs.iter().enumerate() {
        let devices = devices(count);
        let parts: Vec<_> = items
            .chunks(items.len() / count)
            .zip(&devices)
            .map(|(items, device)| (in_order(items, device), device))
            .collect();
        for step in 0..parts[0].0.len() {
            if left_out(epoch, step) {
                continue;
            }
            let mut accumulator = GradientsAccumulator::new();
            for (batches, device) in &parts {
                let grads = worker(&amp, &model, &batches[step], device);
                accumulator.accumulate(&model, grads.to_device(&devices[0], &model));
            }
            model = optim.step(LR, model, accumulator.grads());
        }
    }
    assert_eq!(optim.monitor().skipped(), 0);
    model
}

#[test]
fn the_learner_trains_on_several_devices() {
    let _device = device_to_myself();
    for level in LEVELS {
        // The overflow is on the second device only: no device applies that step.
        for overflow_at in [None, Some(0), Some(2)] {
            let items = batches(2 * STEPS);
            let items = match overflow_at {
                Some(step) => overflow(items, STEPS + step),
                None => items,
            };
            let beginning = Beginning::random();
            let left_out = |_, step| Some(step) == overflow_at;
            let expected = by_hand(&beginning, level, &items, &[2; EPOCHS], left_out);
            let expected = bits(&expected.valid());
            for strategy in [
                MultiDeviceOptim::OptimMainDevice,
                MultiDeviceOptim::OptimSharded,
            ] {
                let case = format!("{level}, {strategy:?}, overflow at {overflow_at:?}");
                let amp = constant(level);
                let directory = Directory::new("several");
                let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
                let monitor = optim.monitor();
                let mut plan = Plan::new(&directory, items.clone());
                plan.epochs = EPOCHS;
                plan.devices = Some(Several::Multi(2, strategy));
                let learned = plan.launch(beginning.model(&amp), optim, LR);
                assert_eq!(bits(&learned), expected, "{case}");
                let skips = if overflow_at.is_some() { EPOCHS } else { 0 };
                assert_eq!(monitor.skipped(), skips as u64, "{case}");
                assert_eq!(monitor.applied(), (EPOCHS * STEPS - skips) as u64, "{case}");
            }
        }
    }
}

/// The weights as they were, and what counts steps goes on: from two devices to one and to four.
///
/// To one bit by bit; four gradients are added up in the order in which the workers finish.
#[test]
fn a_checkpoint_continues_on_another_number_of_devices() {
    let _device = device_to_myself();
    for level in LEVELS {
        for strategy in [
            MultiDeviceOptim::OptimMainDevice,
            MultiDeviceOptim::OptimSharded,
        ] {
            let case = format!("{level}, {strategy:?}");
            let beginning = Beginning::random();
            let items = overflow(batches(2 * STEPS), STEPS + 1);
            let directory = Directory::new("renumbered");
            let run = |to: Option<usize>, epochs: usize, lr: f64| {
                let amp = constant(level);
                let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
                let monitor = optim.monitor();
                let mut plan = Plan::new(&directory, items.clone());
                plan.epochs = epochs;
                plan.recording = Some(Recording::Full);
                plan.resume = to.map(|_| 1);
                plan.devices = match to {
                    Some(1) => None,
                    to => Some(Several::Multi(to.unwrap_or(2), strategy)),
                };
                let learned = plan.launch(beginning.model(&amp), optim, lr);
                (bits(&learned), monitor.applied(), monitor.skipped())
            };
            let (saved, applied, skipped) = run(None, 1, LR);
            assert_eq!((applied, skipped), (STEPS as u64 - 1, 1), "{case}");

            // 8 batches, of which one overflows: the sixth, the second of the second half.
            let (on_one, applied, skipped) = run(Some(1), 2, LR);
            let left_out = |epoch, step| step == [1, 5][epoch];
            let expected = by_hand(&beginning, level, &items, &[2, 1], left_out);
            assert_eq!(on_one, bits(&expected.valid()), "{case}");
            assert_eq!((applied, skipped), (3 + 7, 2), "{case}");

            // Steps that lead nowhere, at a rate that is 0 in f32.
            let (on_four, applied, skipped) = run(Some(4), 2, 1e-60);
            assert_eq!((applied, skipped), (3 + 1, 2), "{case}");
            let trained = beginning.trained();
            let trained = |bits: Vec<(ParamId, TensorData)>| -> Vec<_> {
                let bits = bits.into_iter();
                bits.filter(|(id, _)| trained.contains(id)).collect()
            };
            assert_eq!(trained(on_four), trained(saved), "{case}");
        }
    }
}

/// `step_multi` on the gradients of two devices is `step` on their sum.
#[test]
fn step_multi_is_step_on_the_sum() {
    let _device = device_to_myself();
    let devices = two_devices();
    // Flex takes any id for its one device.
    let ids = match devices[0] == devices[1] {
        true => [0, 1].map(|index| DeviceId::new(devices[0].to_id().type_id, index)),
        false => [devices[0].to_id(), devices[1].to_id()],
    };
    for level in LEVELS {
        for clip in [None, Some(0.1)] {
            let beginning = Beginning::random();
            let items = overflow(batches(8), 5);
            let run = |multi: bool| {
                let amp = constant(level);
                let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
                let mut optim = match clip {
                    Some(norm) => optim.with_clip_norm(norm).unwrap(),
                    None => optim,
                };
                let mut model = beginning.model(&amp);
                let mut outcomes = Vec::new();
                for pair in items.chunks(2 * BATCH) {
                    let grads: Vec<GradientsParams> = pair
                        .chunks(BATCH)
                        .zip(&devices)
                        .map(|(items, device)| {
                            worker(&amp, &model, &in_order(items, device)[0], device)
                        })
                        .collect();
                    model = if multi {
                        let grads = grads.into_iter().zip(ids).collect();
                        optim.step_multi(LR, model, MultiGradientsParams { grads })
                    } else {
                        let mut accumulator = GradientsAccumulator::new();
                        for grads in grads {
                            let grads = grads.to_device(&devices[0], &model);
                            accumulator.accumulate(&model, grads);
                        }
                        optim.step(LR, model, accumulator.grads())
                    };
                    outcomes.push(optim.last_step().unwrap());
                }
                let skipped: Vec<bool> = outcomes.iter().map(|o| o.was_skipped()).collect();
                let full = optim.full_model(model.clone());
                (bits(&model), bits(&full), skipped, format!("{outcomes:?}"))
            };
            let (multi, single) = (run(true), run(false));
            assert_eq!(multi, single, "{level}, clipped to {clip:?}");
            assert_eq!(multi.2, [false, false, true, false]);
        }
    }
}
