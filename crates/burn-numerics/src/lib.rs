//! What half precision does to a model's numbers.
//!
//! - [`NumericsReport`] watches some steps and says per tensor and per parameter what the casts lose,
//!   which loss scales the gradients fit, and what to do about it.
//!
//! It stands on [`burn_mixed_precision::observe`], and looks at tensors without changing them.
#![deny(missing_docs)]

mod entry;
mod histogram;
mod recommendation;
mod recorder;
mod report;
mod rounding;
mod scale_range;
mod shares;
mod table;

pub use entry::Entry;
pub use histogram::Histogram;
pub use recommendation::{Fault, Recommendation};
pub use recorder::NumericsRecorder;
pub use report::NumericsReport;
pub use rounding::Rounding;
pub use scale_range::ScaleRange;
pub use shares::Shares;
