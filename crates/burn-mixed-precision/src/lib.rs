//! Automatic mixed precision for Burn, as a backend decorator.
#![deny(missing_docs)]

mod amp;
mod autodiff;
mod backend;
mod cast;
mod config;
mod counter;
pub mod custom;
mod error;
mod forward;
mod half;
mod level;
mod loss_scale;
mod model;
mod ops;
mod policy;
mod registry;
pub mod scope;
mod tensor;

pub use amp::{Amp, uninstall};
pub use autodiff::MixedGradients;
pub use backend::MixedPrecision;
pub use config::{AmpConfig, Capability, ModelType, NORM_LAYERS};
pub use counter::{CastCount, host_reads, measure};
pub use error::AmpError;
pub use forward::CastFloats;
pub use half::HalfDType;
pub use level::OptLevel;
pub use loss_scale::{LossScales, LossScaling};
pub use model::RUNNING_STATISTICS;
pub use policy::{CastRule, Op, Policy};
pub use tensor::MixedTensor;
