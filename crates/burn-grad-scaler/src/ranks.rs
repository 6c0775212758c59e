use core::fmt::Debug;
use core::time::Duration;

/// The ranks that train one model together, each on its own part of the data.
///
/// All ranks must skip the same steps and have the same loss scale, or their parameters drift apart
/// without a word. So [`AmpOptimizer::with_ranks`](crate::AmpOptimizer::with_ranks) asks, once per
/// step and before it decides: did any rank overflow, what is the largest gradient norm, and do all
/// have the same scale? All three are a maximum, and that is all an implementation has to provide,
/// over whatever connects the ranks: threads ([`LocalRanks`](crate::LocalRanks)), a network, MPI.
///
/// # Example: a single rank
///
/// ```
/// use burn_grad_scaler::{Ranks, RanksError};
///
/// #[derive(Debug)]
/// struct Alone;
///
/// impl Ranks for Alone {
///     fn max(&self, _numbers: &mut [f64]) -> Result<(), RanksError> {
///         Ok(())
///     }
/// }
/// ```
pub trait Ranks: Debug + Send + Sync {
    /// Replaces each number by the largest that any rank has in its place.
    ///
    /// Called equally often by all ranks, with equally many numbers, none of them NaN; infinity is
    /// one of them. Returns when all ranks have called, with the same numbers on all.
    ///
    /// # Errors
    ///
    /// [`RanksError`], if a rank is missing or something else keeps the ranks apart. An
    /// implementation that waits for ever instead turns the panic of one rank into a dead-lock.
    fn max(&self, numbers: &mut [f64]) -> Result<(), RanksError>;
}

/// What keeps ranks from stepping together.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// Some ranks did not come to the step.
    #[error(
        "{arrived} of {ranks} ranks came to the step within {waited:?}: the others have stopped, have \
         panicked or take fewer steps (is the data split into equally many batches?)"
    )]
    Missing {
        /// The ranks that came.
        arrived: usize,
        /// All ranks.
        ranks: usize,
        /// The time that they waited.
        waited: Duration,
    },

    /// Ranks differ in what must be the same.
    #[error(
        "the ranks disagree about {what}: from {least} to {most}. Give all ranks the same settings \
         and the same record to begin with, and change scales on all of them"
    )]
    Disagree {
        /// What differs.
        what: String,
        /// The least that any rank has.
        least: f64,
        /// The most that any rank has.
        most: f64,
    },

    /// What connects the ranks has failed.
    #[error("the ranks are out of touch: {0}")]
    Connection(String),
}
