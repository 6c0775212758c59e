//! Regions of a program that run under another policy, on this thread only.
//!
//! Regions nest, the innermost wins, and leaving one restores what was before it, also when it is
//! left by a panic. Without a region the device's own policy holds, on every thread. Work that a
//! region hands to another thread runs there under the device's policy; backward needs none, since
//! it runs in the dtypes that forward used.

use core::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use burn_backend::DeviceOps;

use crate::{Amp, Policy, observe, registry};

#[derive(Clone, Default)]
struct Region {
    policy: Option<Arc<Policy>>,
    amp: Option<Amp>,
    loss_id: usize,
    without_loss_scale: bool,
    scaled_by_hand: Option<f32>,
    module: Option<Arc<str>>,
}

thread_local! {
    static REGION: RefCell<Rc<Region>> = RefCell::new(Rc::new(Region::default()));
}

/// Restores the outer region on drop, so on unwind too.
struct Restore(Rc<Region>);

impl Drop for Restore {
    fn drop(&mut self) {
        REGION.with_borrow_mut(|region| core::mem::swap(region, &mut self.0));
    }
}

fn run<R>(change: impl FnOnce(&mut Region), block: impl FnOnce() -> R) -> R {
    let _restore = REGION.with_borrow_mut(|region| {
        let outer = region.clone();
        change(Rc::make_mut(region));
        Restore(outer)
    });
    block()
}

/// Runs a block under a policy of its own.
///
/// # Example: keep one block's exponentials in half
///
/// ```
/// use burn_mixed_precision::{CastRule, HalfDType, Op, OptLevel, Policy, scope};
///
/// let policy = Policy::new(OptLevel::O1, HalfDType::F16).with_rule(Op::FloatExp, CastRule::AsIs);
/// let result = scope::with_policy(policy, || 1 + 1);
/// assert_eq!(result, 2);
/// ```
pub fn with_policy<R>(policy: Policy, block: impl FnOnce() -> R) -> R {
    let policy = Arc::new(policy);
    run(|region| region.policy = Some(policy), block)
}

/// Runs a block without any cast: Apex's `disable_casts`.
///
/// Half tensors stay half and mixed dtypes meet the backend as they are, which mostly panics; for
/// a block that must run in f32 take [`full`]. The loss scale still applies.
pub fn disabled<R>(block: impl FnOnce() -> R) -> R {
    with_policy(Policy::off(), block)
}

/// Runs an optimizer's or a scaler's own work: [without casts](disabled), and unseen by
/// [observers](crate::observe).
pub fn bare<R>(block: impl FnOnce() -> R) -> R {
    observe::paused(|| disabled(block))
}

/// Runs a block in f32, whatever the dtypes of its inputs.
///
/// For what half precision breaks although each piece looks harmless: linear algebra written in
/// matmuls (`linalg::lu`, `det`, `qr`), small differences of large numbers, physics.
pub fn full<R>(block: impl FnOnce() -> R) -> R {
    with_policy(Policy::full(), block)
}

/// Runs a block as if every device had these settings: policy and loss scales.
pub(crate) fn with_amp<R>(amp: Amp, block: impl FnOnce() -> R) -> R {
    run(
        |region| {
            region.policy = None;
            region.amp = Some(amp);
        },
        block,
    )
}

/// Runs a block in which `backward` uses the scale of one loss: Apex's `loss_id`.
///
/// Outside of any such block the loss id is 0.
///
/// # Panics
///
/// `backward` panics in the block if `loss_id` is not below
/// [`num_losses`](crate::AmpConfig::with_num_losses).
pub fn with_loss_id<R>(loss_id: usize, block: impl FnOnce() -> R) -> R {
    run(|region| region.loss_id = loss_id, block)
}

/// Runs a block in which `backward` leaves losses alone, whatever scaler is attached.
///
/// For a loss that was scaled by hand, and for gradients that are needed in the dtypes of backward.
pub fn without_loss_scale<R>(block: impl FnOnce() -> R) -> R {
    run(|region| region.without_loss_scale = true, block)
}

/// Runs a block under the name of a module, for whoever [observes](crate::observe) it.
///
/// Names nest with dots. A call that takes a parameter of a
/// [named model](crate::observe::name_parameters) keeps that parameter's module.
///
/// # Example
///
/// ```
/// use burn_mixed_precision::scope;
///
/// let scores = scope::module("encoder", || scope::module("scores", || 1 + 1));
/// assert_eq!(scores, 2);
/// ```
pub fn module<R>(name: &str, block: impl FnOnce() -> R) -> R {
    run(
        |region| {
            region.module = Some(match &region.module {
                Some(outer) => format!("{outer}.{name}").into(),
                None => name.into(),
            });
        },
        block,
    )
}

/// The name of the block that this thread is in.
pub(crate) fn module_path() -> Option<Arc<str>> {
    REGION.with_borrow(|region| region.module.clone())
}

/// Calls `read` with the settings that hold on this thread for tensors of the device.
pub(crate) fn amp<D: DeviceOps, R>(device: &D, read: impl FnOnce(Option<&Amp>) -> R) -> R {
    let region = REGION.with_borrow(Rc::clone);
    match &region.amp {
        Some(amp) => read(Some(amp)),
        None => registry::with(device, read),
    }
}

/// Runs a block in which `backward` leaves losses alone, since they carry this factor already.
///
/// What [observers](crate::observe) are told is the factor.
pub fn scaled_by_hand<R>(loss_scale: f32, block: impl FnOnce() -> R) -> R {
    run(
        |region| {
            region.without_loss_scale = true;
            region.scaled_by_hand = Some(loss_scale);
        },
        block,
    )
}

/// The factor that losses carry already in this block.
pub(crate) fn hand_scale() -> Option<f32> {
    REGION.with_borrow(|region| region.scaled_by_hand)
}

/// Calls `read` with the policy that holds on this thread for tensors of the device.
pub(crate) fn policy<D: DeviceOps, R>(
    device: impl FnOnce() -> D,
    read: impl FnOnce(Option<&Policy>) -> R,
) -> R {
    let region = REGION.with_borrow(|region| match (&region.policy, &region.amp) {
        (None, None) => None,
        _ => Some(region.clone()),
    });
    match region.as_deref() {
        Some(Region {
            policy: Some(policy),
            ..
        }) => read(Some(policy)),
        Some(Region { amp: Some(amp), .. }) => read(Some(amp.policy())),
        _ => registry::with(&device(), |amp| read(amp.map(Amp::policy))),
    }
}

/// The loss scale that `backward` applies on this thread to a loss on the device; `None` when no
/// scaler is attached, or in a block [without loss scale](without_loss_scale).
pub(crate) fn loss_scale<D: DeviceOps>(device: &D) -> Option<f32> {
    let region = REGION.with_borrow(Rc::clone);
    if region.without_loss_scale {
        return None;
    }
    let read = |amp: &Amp| {
        let scales = amp.loss_scales();
        if scales.is_attached() {
            return Some(scales.get(region.loss_id));
        }
        amp.warn_if_unscaled();
        None
    };
    match &region.amp {
        Some(amp) => read(amp),
        None => registry::with(device, |amp| amp.and_then(read)),
    }
}

/// The policy that holds on this thread for tensors of a device.
///
/// # Example: ask for the rule in force
///
/// ```
/// use burn_mixed_precision::{CastRule, HalfDType, Op, OptLevel, Policy, scope};
/// # use burn::backend::flex::FlexDevice;
///
/// let o1 = Policy::new(OptLevel::O1, HalfDType::F16);
/// scope::with_policy(o1, || {
///     let rule = scope::current_policy(&FlexDevice).rule(Op::FloatMatmul);
///     assert_eq!(rule, CastRule::Lower);
/// });
/// ```
pub fn current_policy<D: DeviceOps>(device: &D) -> Policy {
    policy(
        || device.clone(),
        |policy| policy.cloned().unwrap_or_else(Policy::off),
    )
}
