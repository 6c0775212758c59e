//! Loss scaling for mixed-precision training.
//!
//! Half-precision gradients underflow: f16 has no value below 6e-8. Multiplying the loss by a
//! scale lifts every gradient by the same factor, dividing afterwards restores it. The best scale
//! is the largest one under which no gradient overflows, and it drifts during training, so a
//! [`LossScale`] searches for it: it grows after a run of clean steps and backs off when a step
//! found an infinity or a NaN.
//!
//! This part of the crate is arithmetic only. It knows no tensor and no backend: whoever holds the
//! gradients says whether one of them overflowed and asks for the next scale.
//!
//! ```
//! use burn_grad_scaler::{LossScaleConfig, ScaleEvent};
//!
//! let mut scale = LossScaleConfig::default().with_growth_interval(2).init()?;
//! assert_eq!(scale.scale(), 65536.0);
//!
//! // An overflow halves the scale, two clean steps double it.
//! assert_eq!(scale.update(true).event, ScaleEvent::BackedOff);
//! assert_eq!(scale.update(false).event, ScaleEvent::Unchanged);
//! assert_eq!(scale.update(false).event, ScaleEvent::Grew);
//! assert_eq!(scale.scale(), 65536.0);
//! # Ok::<(), burn_grad_scaler::LossScaleError>(())
//! ```
#![deny(missing_docs)]

mod agreement;
mod announcer;
mod check;
mod config;
mod error;
mod event;
mod fp16_optimizer;
mod grad_scaler;
mod local_ranks;
mod look;
mod merge;
#[cfg(feature = "train")]
mod metrics;
mod optimizer;
mod outcome;
mod ranks;
mod record;
mod recorder;
mod rescale;
mod rules;
mod scale;
mod scaled;
mod scaler;
mod scheduler;
mod statistics;
mod stochastic;
mod unscaled;
mod validate;
mod weights;

pub use check::NonFinite;
pub use config::{AtFloorPolicy, HysteresisRefill, LossScaleConfig};
pub use error::LossScaleError;
pub use event::{ScaleEvent, ScaleUpdate};
pub use fp16_optimizer::Fp16Optimizer;
pub use grad_scaler::GradScaler;
pub use local_ranks::LocalRanks;
#[cfg(feature = "train")]
pub use metrics::{FaultMetric, GradNormMetric, LossScaleMetric, SkippedStepsMetric};
pub use optimizer::AmpOptimizer;
pub use outcome::{StepMonitor, StepOutcome, StepStatus};
pub use ranks::{Ranks, RanksError};
pub use record::{AmpRecord, AmpRecordItem, AmpRecordItemV1, RecordError};
pub use scale::{LossScale, LossScaleState};
pub use scaled::{ScaledBackward, ScaledGradients, ScaledLoss};
pub use scaler::{Inspection, Scaler, Verdict};
pub use scheduler::AmpScheduler;
pub use unscaled::{StepGradients, UnscaledGradients};
