use crate::RanksError;

/// What can be wrong with a loss scale.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LossScaleError {
    /// An option, a manual scale or a saved scale has a value that is not allowed.
    #[error("loss scale option `{option}` is {value}, allowed is {allowed}")]
    InvalidOption {
        /// The option's name, as written in a configuration file.
        option: &'static str,
        /// The rejected value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },

    /// An overflow could not lower the scale, and the configuration asks to stop training then.
    ///
    /// Gradients that overflow at the smallest allowed scale usually are not finite at any scale:
    /// the forward pass, the loss or the data produced the infinity or NaN.
    #[error(
        "gradients overflowed {consecutive_skips} step(s) in a row and the loss scale cannot go \
         below {scale}: look for an infinity or NaN in the loss, lower `floor`, or set `at_floor` \
         to \"warn\" or \"continue\""
    )]
    AtFloor {
        /// The scale, a factor, that was in use and stays.
        scale: f32,
        /// Overflowing updates since the last clean one, this one included.
        consecutive_skips: u64,
    },

    /// An update of the scale with nothing to learn from.
    #[error(
        "no gradients were stepped or unscaled since the last update of the loss scale: call \
         `step` before `update`, and `update` once per iteration"
    )]
    NothingRecorded,

    /// The ranks of a data-parallel training did not step together.
    #[error(transparent)]
    Ranks(#[from] RanksError),
}
