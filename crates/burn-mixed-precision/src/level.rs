use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::AmpError;

/// NVIDIA Apex's optimization levels.
///
/// # Example
///
/// ```
/// use burn_mixed_precision::OptLevel;
///
/// assert_eq!("O1".parse::<OptLevel>()?, OptLevel::O1);
/// let error = "01".parse::<OptLevel>().unwrap_err();
/// assert!(error.to_string().contains("letter O"));
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
///
/// Source: apex/amp/frontend.py, before its removal from Apex on 2025-05-08.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub enum OptLevel {
    /// Plain f32: the policy is off and every result is bit-identical to the bare backend.
    O0,
    /// f32 weights; each operation in the dtype that the table gives it; dynamic loss scale with
    /// f16. The level to start with.
    #[default]
    O1,
    /// Half weights with f32 masters in the optimizer, norm layers in f32; dynamic loss scale
    /// with f16. Less memory than O1.
    O2,
    /// Everything in half, no masters, loss scale 1: the speed limit, not a way to train.
    O3,
}

impl OptLevel {
    /// Every level, in order.
    pub const ALL: [OptLevel; 4] = [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3];
}

impl fmt::Display for OptLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OptLevel::O0 => "O0",
            OptLevel::O1 => "O1",
            OptLevel::O2 => "O2",
            OptLevel::O3 => "O3",
        })
    }
}

impl FromStr for OptLevel {
    type Err = AmpError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "O0" | "o0" => Ok(OptLevel::O0),
            "O1" | "o1" => Ok(OptLevel::O1),
            "O2" | "o2" => Ok(OptLevel::O2),
            "O3" | "o3" => Ok(OptLevel::O3),
            _ => Err(AmpError::UnknownOptLevel {
                value: text.to_string(),
            }),
        }
    }
}
