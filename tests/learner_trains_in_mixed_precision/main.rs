//! Burn's `Learner` trains an unmodified `TrainStep` in mixed precision.
//!
//! The Learner's worker, dataloader and checkpoint threads see the settings of the device, not the
//! scopes of the thread that launched it. So these tests put settings in force on the device, one
//! test at a time.

#[path = "../support/mod.rs"]
mod support;

mod accumulation;
mod by_hand;
mod checkpoints;
mod data;
mod data_parallel;
mod faults;
mod launch;
mod model;
mod numerics;
mod schedule;
mod several_devices;
mod single_device;

use std::sync::{Mutex, MutexGuard};

use burn::prelude::DeviceOps;
use burn::tensor::backend::{Backend, BackendTypes, DeviceId};
use burn_amp::{Amp, AmpConfig, LossScaling, OptLevel};
use support::Mixed;

type Device = <Mixed as BackendTypes>::Device;

const LEVELS: [OptLevel; 2] = [OptLevel::O1, OptLevel::O2];

/// Keeps the other tests away from the device until it is dropped.
fn device_to_myself() -> MutexGuard<'static, ()> {
    static DEVICE: Mutex<()> = Mutex::new(());
    DEVICE.lock().unwrap_or_else(|failed| failed.into_inner())
}

/// The devices of a strategy for several: so many if there are, otherwise some more than once.
///
/// One device twice is still two workers with half the data each.
fn devices(count: usize) -> Vec<Device> {
    let family = Device::default().to_id().type_id;
    let present = Mixed::device_count(family).max(1);
    let device = |at| Device::from_id(DeviceId::new(family, (at % present) as u16));
    (0..count).map(device).collect()
}

fn two_devices() -> Vec<Device> {
    devices(2)
}

/// f16 with a dynamic scale.
fn dynamic(level: OptLevel) -> Amp {
    AmpConfig::new(level)
        .init_all::<Mixed>(&devices(4))
        .unwrap()
}

/// f16 with a constant scale, so that a run without the overflow has the same one.
fn constant(level: OptLevel) -> Amp {
    AmpConfig::new(level)
        .with_loss_scale(LossScaling::Static(128.0))
        .init_all::<Mixed>(&devices(4))
        .unwrap()
}
