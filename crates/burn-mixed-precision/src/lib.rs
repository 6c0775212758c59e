//! Automatic mixed precision for Burn, as a backend decorator.
//!
//! [`MixedPrecision<Autodiff<B>>`](MixedPrecision) runs every operation in the dtype that a
//! [`Policy`] gives it: matmuls and convolutions in f16 or bf16, sums, exponentials, norms and losses
//! in f32. A model written for Burn needs no change.
//!
//! - **Set up**: [`AmpConfig`] with an [`OptLevel`], put in force on a device by
//!   [`AmpConfig::init`]; [`Amp::cast_model`] gives a model the dtypes of O2 and O3.
//! - **Steer**: a rule per operation ([`AmpConfig::with_rule`]), regions under another policy
//!   ([`scope`]), custom operations ([`custom`]).
//! - **Look**: [`scope::current_policy`], [`measure`] for casts, [`host_reads`].
//!
//! # What it costs
//!
//! An operation that needs no cast pays one look at the policy, well under 100 ns. A weight is cast
//! once per update; the half copy lives as long as the weight.
//!
//! # Limits
//!
//! - The loss scale is applied in `backward` and undone in `grad`, but decided elsewhere: by the
//!   optimizer of `burn-grad-scaler`. Without one, f16 gradients below 6e-8 are lost.
//! - Linear algebra written in tensors (`linalg::lu`, `det`, `qr`) is made of matmuls, and the
//!   decorator cannot see its boundary: run it in [`scope::full`].
//! - Gradients of several uses of one weight add up in half before they are widened, as with
//!   torch.amp's weight cache.
//!
//! # Example
//!
//! ```
//! use burn::backend::{Autodiff, Flex};
//! use burn::tensor::{DType, Tensor};
//! use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};
//!
//! type B = MixedPrecision<Autodiff<Flex>>;
//!
//! let device = Default::default();
//! AmpConfig::new(OptLevel::O1).init::<B>(&device)?;
//! let x = Tensor::<B, 2>::ones([2, 2], &device).require_grad();
//! let y = x.clone().matmul(x.clone());
//! assert_eq!(y.dtype(), DType::F16);
//! let loss = y.sum();
//! assert_eq!(loss.dtype(), DType::F32);
//! assert_eq!(x.grad(&loss.backward()).unwrap().dtype(), DType::F32);
//! # Ok::<(), burn_mixed_precision::AmpError>(())
//! ```
#![deny(missing_docs)]

mod amp;
mod autodiff;
mod backend;
mod cast;
mod config;
mod counter;
pub mod custom;
mod delegate;
#[cfg(feature = "distributed")]
mod distributed;
mod error;
mod fast_backward;
mod forward;
mod half;
#[cfg(feature = "ir")]
mod ir;
mod lean_autodiff;
mod level;
mod loss_scale;
mod model;
pub mod observe;
mod ops;
mod policy;
mod preset;
mod registry;
mod scalar;
pub mod scope;
mod tensor;
mod trace;

pub use amp::{Amp, uninstall};
pub use autodiff::MixedGradients;
pub use backend::MixedPrecision;
pub use config::{AmpConfig, Capability, ModelType, NORM_LAYERS};
pub use counter::{CastCount, host_reads, measure};
pub use error::AmpError;
pub use fast_backward::{ConvBackward, FastBackward, Im2col};
pub use forward::CastFloats;
pub use half::HalfDType;
pub use lean_autodiff::LeanAutodiff;
pub use level::OptLevel;
pub use loss_scale::{LossScales, LossScaling};
pub use model::RUNNING_STATISTICS;
pub use policy::{CastRule, DecidedBy, Explanation, Op, Policy, Reason, ScalarRole};
pub use tensor::MixedTensor;
pub use trace::{Cause, Finding, TensorRecord, Trace, TraceMode, TraceRecord, Tracer};
