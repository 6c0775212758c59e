use core::fmt;
use core::ops::RangeInclusive;

use serde::Serialize;

/// The powers of two from `2^low` to `2^high`, as factors of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScaleRange {
    /// The exponent of the smallest factor.
    pub low: i32,
    /// The exponent of the largest factor.
    pub high: i32,
}

impl ScaleRange {
    /// The powers of two that are normal numbers in f32.
    pub const ALL: ScaleRange = ScaleRange {
        low: -126,
        high: 127,
    };

    /// The exponents, in order.
    pub fn exponents(self) -> RangeInclusive<i32> {
        self.low..=self.high
    }

    /// Whether a factor lies in the range.
    pub fn contains(self, factor: f64) -> bool {
        (2f64.powi(self.low)..=2f64.powi(self.high)).contains(&factor)
    }

    /// The factors that both ranges have; `None` if there is none.
    pub fn intersect(self, other: ScaleRange) -> Option<ScaleRange> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then_some(ScaleRange { low, high })
    }
}

impl fmt::Display for ScaleRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self == ScaleRange::ALL, self.low, self.high) {
            (true, ..) => f.pad("any"),
            (_, low, 127) => f.pad(&format!("2^{low} and more")),
            (_, -126, high) => f.pad(&format!("up to 2^{high}")),
            (_, low, high) => f.pad(&format!("2^{low} to 2^{high}")),
        }
    }
}
