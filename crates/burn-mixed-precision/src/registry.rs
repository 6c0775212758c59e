//! Which device trains with which settings, for operations that are static functions and have
//! nothing but their tensors' device to go by.

use core::any::TypeId;
use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{LazyLock, RwLock};

use burn_backend::{DeviceId, DeviceOps};

use crate::Amp;

type DeviceKey = (TypeId, DeviceId);

static DEVICES: LazyLock<RwLock<HashMap<DeviceKey, Option<Amp>>>> =
    LazyLock::new(|| RwLock::new(HashMap::new()));

/// Counts changes of `DEVICES`, so that threads know when their copy is stale.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread has read from `DEVICES`: looked up on every operation, so without a lock.
    static SEEN: RefCell<Seen> = const { RefCell::new(Seen { changes: 0, devices: Vec::new() }) };
}

struct Seen {
    /// `CHANGES` when `devices` was read.
    changes: u64,
    devices: Vec<(DeviceKey, Option<Amp>)>,
}

fn key<D: DeviceOps>(device: &D) -> DeviceKey {
    (TypeId::of::<D>(), device.id())
}

/// Gives a device its settings, or takes them away.
pub(crate) fn set<D: DeviceOps>(device: &D, amp: Option<Amp>) {
    let mut devices = DEVICES.write().unwrap_or_else(|e| e.into_inner());
    devices.insert(key(device), amp);
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Calls `read` with the settings of a device, `None` if it was never given any.
pub(crate) fn with<D: DeviceOps, R>(device: &D, read: impl FnOnce(Option<&Amp>) -> R) -> R {
    let key = key(device);
    SEEN.with_borrow_mut(|seen| {
        let changes = CHANGES.load(Ordering::Acquire);
        if seen.changes != changes {
            seen.devices.clear();
            seen.changes = changes;
        }
        let known = seen.devices.iter().position(|(k, _)| *k == key);
        let position = known.unwrap_or_else(|| {
            seen.devices.push((key, look_up(key, device)));
            seen.devices.len() - 1
        });
        read(seen.devices[position].1.as_ref())
    })
}

/// Reads the shared map, and says once per device that nobody initialised it.
fn look_up<D: DeviceOps>(key: DeviceKey, device: &D) -> Option<Amp> {
    if let Some(amp) = DEVICES.read().unwrap_or_else(|e| e.into_inner()).get(&key) {
        return amp.clone();
    }
    // Settings may have come in since. No change is counted: what other threads have read, that there
    // is nothing, is still right.
    let mut devices = DEVICES.write().unwrap_or_else(|e| e.into_inner());
    match devices.entry(key) {
        Entry::Occupied(known) => return known.get().clone(),
        Entry::Vacant(unknown) => unknown.insert(None),
    };
    drop(devices);
    log::warn!(
        "{device:?} was used with MixedPrecision before it was initialised: it runs in plain f32 \
         (O0). Call AmpConfig::init on it first."
    );
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use burn_backend::Device;

    use super::*;
    use crate::{AmpConfig, OptLevel};

    /// A device that nothing else in this process uses.
    #[derive(Debug, Clone, PartialEq, Default)]
    struct Numbered(u16);

    impl Device for Numbered {
        fn from_id(device_id: DeviceId) -> Self {
            Numbered(device_id.index_id)
        }

        fn to_id(&self) -> DeviceId {
            DeviceId {
                type_id: 0,
                index_id: self.0,
            }
        }
    }

    impl DeviceOps for Numbered {}

    #[test]
    fn settings_hold_although_another_thread_looks_at_the_same_moment() {
        let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
        for device in (0..2000).map(Numbered) {
            let barrier = Barrier::new(3);
            thread::scope(|threads| {
                for _ in 0..2 {
                    threads.spawn(|| {
                        barrier.wait();
                        with(&device, |_| ());
                    });
                }
                barrier.wait();
                set(&device, Some(amp.clone()));
            });
            assert!(with(&device, |amp| amp.is_some()), "{device:?}");
        }
    }
}
