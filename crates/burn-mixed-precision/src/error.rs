use thiserror::Error;

use crate::HalfDType;

/// A configuration or a device that cannot do what was asked of it.
///
/// Every message names the option, the value it had and what is allowed. Shape and dtype misuse
/// inside an operation is not reported here: it panics, as it does in Burn.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AmpError {
    /// An optimization level that does not exist.
    #[error(
        "unknown opt level \"{value}\": allowed are O0, O1, O2 and O3{}",
        if value.starts_with('0') { " (the letter O, not the digit zero)" } else { "" }
    )]
    UnknownOptLevel {
        /// The text that was given.
        value: String,
    },
    /// An option whose value is out of its range or not one of its names.
    #[error("invalid {option} \"{value}\": allowed is {allowed}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What would have been accepted.
        allowed: String,
    },
    /// Two options that exclude each other.
    #[error("{option} = {value} contradicts {with}: {reason}")]
    Contradiction {
        /// The option that was set.
        option: &'static str,
        /// The value it was set to.
        value: String,
        /// The option it contradicts, with its value.
        with: String,
        /// Why, and what to do instead.
        reason: &'static str,
    },
    /// An operation that the policy table does not know.
    #[error(
        "unknown operation \"{name}\": allowed are the method names of Burn's backend traits, such \
         as \"float_matmul\" or \"softmax\" (docs/op-table.md lists all)"
    )]
    UnknownOp {
        /// The name that was given.
        name: String,
    },
    /// The device cannot compute in the half dtype.
    #[error(
        "device {device} cannot compute in {half}: choose another half dtype, opt level O0, or \
         Capability::Fallback to train in f32 there"
    )]
    UnsupportedHalf {
        /// The device, as it prints itself.
        device: String,
        /// The half dtype that was asked for.
        half: HalfDType,
    },
}
