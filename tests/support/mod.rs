//! The backend under test, and what several test files share.

#![allow(dead_code, reason = "no test file uses all of it")]

pub mod gradients;
pub mod net;

use burn::backend::Autodiff;
use burn_amp::{Amp, AmpConfig, HalfDType, MixedPrecision, OptLevel};

#[cfg(feature = "cuda")]
pub type Bare = burn::backend::Cuda;
#[cfg(all(feature = "wgpu", not(feature = "cuda")))]
pub type Bare = burn::backend::Vulkan;
#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
pub type Bare = burn::backend::Flex;

/// The backend without mixed precision.
pub type Plain = Autodiff<Bare>;
/// The order to use.
pub type Mixed = MixedPrecision<Autodiff<Bare>>;
/// The other order.
pub type Inside = Autodiff<MixedPrecision<Bare>>;

pub const HALVES: [HalfDType; 2] = [HalfDType::F16, HalfDType::Bf16];

pub fn amp(level: OptLevel, half: HalfDType) -> Amp {
    AmpConfig::new(level).with_half(half).build().unwrap()
}

/// Half a unit in the last place at 1: the largest relative error of one rounding.
pub fn unit_roundoff(half: HalfDType) -> f64 {
    match half {
        HalfDType::F16 => 2f64.powi(-11),
        HalfDType::Bf16 => 2f64.powi(-8),
    }
}
