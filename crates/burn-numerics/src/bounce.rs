use core::fmt;

use burn_backend::DType;
use burn_mixed_precision::observe::Place;
use serde::Serialize;

use crate::entry::name;
use crate::recommendation::module;

/// A tensor that goes from half to f32 and back: widened by one operation, rounded again by a later one.
///
/// In between the values may pass other operations in f32. What one operation does by itself, computing
/// in f32 and rounding its output, is its rule's purpose and no bounce.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bounce {
    /// The half dtype at both ends.
    #[serde(serialize_with = "name")]
    pub half: DType,
    /// The operation that widens to f32.
    pub widened_by: &'static str,
    /// Where in the model.
    pub widened_at: Place,
    /// The operation that rounds to half again.
    pub rounded_by: &'static str,
    /// Where in the model.
    pub rounded_at: Place,
    /// How often.
    pub times: u64,
    /// The bytes that both casts write.
    pub bytes: u64,
}

impl fmt::Display for Bounce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = self.half.name();
        write!(
            f,
            "{half} -> f32 in {}{} -> {half} in {}{}: {} x, {} bytes",
            self.widened_by,
            module(&self.widened_at),
            self.rounded_by,
            module(&self.rounded_at),
            self.times,
            self.bytes,
        )
    }
}
