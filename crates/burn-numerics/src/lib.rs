//! What half precision does to a model's numbers.
//!
//! - [`NumericsReport`] watches some steps and says per tensor and per parameter what the casts lose,
//!   which loss scales the gradients fit, and what to do about it.
//! - [`DryRun`] runs a model once in f32 and says what each level would do to its numbers.
//! - [`CastReport`] says which casts a block makes, by whose rule, and which tensors go from half to f32 and
//!   back.
//! - [`NumericsMonitor`] watches every so many steps of a training, for logs and for Burn's dashboard.
//!
//! It stands on [`burn_mixed_precision::observe`], and looks at tensors without changing them.
#![deny(missing_docs)]

mod bounce;
mod cast_report;
mod dry_run;
mod entry;
mod full_run;
mod histogram;
#[cfg(feature = "train")]
mod metric;
mod monitor;
mod page;
mod parameter_places;
mod prediction;
mod recommendation;
mod recorder;
mod report;
mod risk;
mod rounding;
mod scale_range;
mod shares;
mod table;

pub use bounce::Bounce;
pub use cast_report::{CastEntry, CastReport};
pub use dry_run::DryRun;
pub use entry::Entry;
pub use histogram::Histogram;
#[cfg(feature = "train")]
pub use metric::NumericsMetric;
pub use monitor::NumericsMonitor;
pub use prediction::Prediction;
pub use recommendation::{Fault, Recommendation};
pub use recorder::NumericsRecorder;
pub use report::NumericsReport;
pub use risk::Risk;
pub use rounding::Rounding;
pub use scale_range::ScaleRange;
pub use shares::Shares;
