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

pub use burn_grad_scaler::*;
pub use burn_mixed_precision::*;

/// Compiles and runs the programs of the Markdown files.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/design.md")]
    mod design {}
    #[doc = include_str!("../CONTRIBUTING.md")]
    mod contributing {}
}
