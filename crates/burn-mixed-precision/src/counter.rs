//! How many casts the policy made and the cache saved, and how often the host waited for a device.

use core::cell::Cell;
use core::ops::Sub;

/// Numbers of casts on one thread since it began.
///
/// Subtract an earlier count from a later one, or use [`measure`]. Casts inside backward belong to
/// the autodiff graph and are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CastCount {
    /// Casts that were computed.
    pub made: u64,
    /// Casts that were answered from a tensor's cache.
    pub saved: u64,
}

impl Sub for CastCount {
    type Output = CastCount;

    fn sub(self, earlier: CastCount) -> CastCount {
        CastCount {
            made: self.made - earlier.made,
            saved: self.saved - earlier.saved,
        }
    }
}

thread_local! {
    static COUNT: Cell<CastCount> = const { Cell::new(CastCount { made: 0, saved: 0 }) };
}

impl CastCount {
    /// The casts of this thread so far.
    pub fn now() -> CastCount {
        COUNT.get()
    }
}

/// Runs a block and counts the casts it makes on this thread.
///
/// # Example: a tensor that needs no cast makes none
///
/// ```
/// let (sum, count) = burn_mixed_precision::measure(|| 1 + 1);
/// assert_eq!((sum, count.made), (2, 0));
/// ```
pub fn measure<R>(block: impl FnOnce() -> R) -> (R, CastCount) {
    let before = CastCount::now();
    let result = block();
    (result, CastCount::now() - before)
}

pub(crate) fn made() {
    COUNT.set(CastCount {
        made: COUNT.get().made + 1,
        ..COUNT.get()
    });
}

pub(crate) fn saved() {
    COUNT.set(CastCount {
        saved: COUNT.get().saved + 1,
        ..COUNT.get()
    });
}

thread_local! {
    static HOST_READS: Cell<u64> = const { Cell::new(0) };
}

/// The number of device-to-host reads that this thread has begun on decorated backends.
///
/// Each one makes the host wait for the device. A transaction of several tensors counts once.
pub fn host_reads() -> u64 {
    HOST_READS.get()
}

pub(crate) fn host_read() {
    HOST_READS.set(HOST_READS.get() + 1);
}
