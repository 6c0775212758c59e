//! The backend under test, and what several test files share.

#![allow(dead_code, reason = "no test file uses all of it")]

pub mod gradients;
pub mod net;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use burn::backend::Autodiff;
use burn::tensor::DType;
use burn::tensor::backend::Backend;
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

/// What Burn's CPU backend cannot do: it panics with and without the decorator.
pub const REFUSED: [&str; 4] = [
    "float_argtopk",
    "int_argtopk",
    "q_argtopk",
    "ctc_loss_backward",
];

pub const HALVES: [HalfDType; 2] = [HalfDType::F16, HalfDType::Bf16];

const ON_GPU: bool = cfg!(any(feature = "cuda", feature = "wgpu"));

/// Whether Burn has a kernel for this operation in this dtype. To be asked before a call: on a GPU the
/// panic would be that of a fused stream, where every later result is lost.
pub fn has_kernel(name: &str, dtype: DType) -> bool {
    let half = matches!(dtype, DType::F16 | DType::BF16);
    !(ON_GPU && half && matches!(name, "rfft" | "irfft"))
}

/// As [`has_kernel`], for its gradient: GPUs have none of bilinear interpolation.
pub fn has_gradient_kernel(name: &str) -> bool {
    !(ON_GPU && name == "interpolate")
}

/// Whether the backend under test computes in a dtype: Vulkan has no arithmetic in bf16, and Burn's
/// fusion none in f64, whatever the device says.
pub fn computes_in(dtype: DType) -> bool {
    Bare::supports_dtype(&Default::default(), dtype) && !(ON_GPU && dtype == DType::F64)
}

pub fn amp(level: OptLevel, half: HalfDType) -> Amp {
    AmpConfig::new(level).with_half(half).build().unwrap()
}

/// Half a unit in the last place at 1 of f32 operands as products take them: Burn's matrix products
/// on CUDA round them to TF32, of 11 bits.
#[cfg(feature = "cuda")]
pub const F32_PRODUCT: f64 = 1.0 / (1u64 << 11) as f64;
#[cfg(not(feature = "cuda"))]
pub const F32_PRODUCT: f64 = 1.0 / (1u64 << 24) as f64;

/// Half a unit in the last place at 1: the largest relative error of one rounding.
pub fn unit_roundoff(half: HalfDType) -> f64 {
    match half {
        HalfDType::F16 => 2f64.powi(-11),
        HalfDType::Bf16 => 2f64.powi(-8),
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The block's value, or `None` if it panicked; its panic message is not printed.
pub fn unless_it_panics<R>(block: impl FnOnce() -> R) -> Option<R> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                print(panic);
            }
        }));
    });
    let outer = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(block)).ok();
    QUIET.set(outer);
    result
}
