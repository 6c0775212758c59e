//! Automatic mixed precision for Burn: change one type, wrap the optimizer, and train with
//! half-precision compute and full-precision weights.
//!
//! This crate re-exports two:
//!
//! - [`burn_mixed_precision`]: [`MixedPrecision`], the backend decorator, with [`AmpConfig`] and
//!   [`scope`] to steer it;
//! - [`burn_grad_scaler`]: [`AmpOptimizer`], loss scales, master weights and records.
//!
//! ```
//! use burn::backend::{Autodiff, Flex};
//! use burn_amp::{AmpConfig, MixedPrecision, OptLevel};
//!
//! type B = MixedPrecision<Autodiff<Flex>>;
//!
//! let amp = AmpConfig::new(OptLevel::O1).init::<B>(&Default::default())?;
//! assert_eq!(amp.config().opt_level(), OptLevel::O1);
//! # Ok::<(), burn_amp::AmpError>(())
//! ```
#![deny(missing_docs)]

use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;

pub use burn_grad_scaler::*;
pub use burn_mixed_precision::*;
pub use burn_numerics::*;

/// A backend with mixed precision outside autodiff, [`LeanAutodiff`] as autodiff and [`FastBackward`]
/// inside.
///
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use burn_amp::{AmpBackend, AmpConfig, OptLevel};
///
/// type B = AmpBackend<Flex>;
///
/// let device = Default::default();
/// AmpConfig::new(OptLevel::O1).init::<B>(&device)?;
/// let x = Tensor::<B, 2>::ones([2, 2], &device).require_grad();
/// assert!(x.grad(&x.clone().matmul(x.clone()).sum().backward()).is_some());
/// # Ok::<(), burn_amp::AmpError>(())
/// ```
pub type AmpBackend<B, C = NoCheckpointing> = MixedPrecision<LeanAutodiff<FastBackward<B>, C>>;

/// Compiles and runs the programs of the Markdown files.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/design.md")]
    mod design {}
    #[doc = include_str!("../docs/debugging.md")]
    mod debugging {}
    #[doc = include_str!("../docs/scaling.md")]
    mod scaling {}
    #[doc = include_str!("../CONTRIBUTING.md")]
    mod contributing {}
}
