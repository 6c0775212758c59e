use serde::Serialize;

/// What a half dtype makes of the finite numbers other than zero, each as a share from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Shares {
    /// They become zero.
    pub flushed: f64,
    /// They keep fewer digits than the dtype has, below its smallest normal number.
    pub subnormal: f64,
    /// They stay finite, within a factor 2^3 of the end of the range.
    pub near_overflow: f64,
    /// They become infinite.
    pub overflowed: f64,
}
