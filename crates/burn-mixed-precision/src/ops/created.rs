use std::sync::Once;

use burn_backend::{DeviceOps, FloatDType, Scalar};

use crate::scalar::{Fit, saturate};
use crate::{HalfDType, Policy, scope};

/// The number that a tensor of a half dtype is created from.
///
/// The dtype was asked for, so there is no way out into f32: a number beyond the range becomes the
/// last finite one, and one that becomes zero is said once.
pub(super) fn created<D: DeviceOps>(value: Scalar, device: &D, dtype: FloatDType) -> Scalar {
    let Some(half) = HalfDType::of(dtype.into()) else {
        return value;
    };
    let guarded = scope::policy(
        || device.clone(),
        |policy| policy.is_some_and(Policy::guards_scalars),
    );
    match guarded {
        true => {
            warn_of_zero(value, half);
            saturate(value, half)
        }
        false => value,
    }
}

fn warn_of_zero(value: Scalar, half: HalfDType) {
    static WARNING: Once = Once::new();
    let value: f64 = value.elem();
    if Fit::of(value, half) == Fit::TooSmall {
        WARNING.call_once(|| {
            log::warn!("a tensor of {value:e} was created in {half}, where that is 0: take f32");
        });
    }
}
