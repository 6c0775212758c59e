//! Automatic mixed precision for Burn.
#![deny(missing_docs)]

pub use burn_grad_scaler::*;
pub use burn_mixed_precision::*;
