//! The rows of the table: which precision a model trains in, and who sees to it.

use std::str::FromStr;

use burn_amp::{AmpConfig, AmpError, HalfDType, OptLevel};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The bare backend in f32.
    Full,
    /// The bare backend with half as its default float: everything in half, no scaling.
    ByHand(HalfDType),
    /// The decorator and `AmpOptimizer`.
    Amp {
        level: OptLevel,
        half: HalfDType,
        flat_linear: bool,
    },
}

impl Variant {
    /// The settings of a decorated variant.
    pub fn config(self) -> AmpConfig {
        match self {
            Variant::Amp {
                level,
                half,
                flat_linear,
            } => AmpConfig::new(level)
                .with_half(half)
                .with_flat_linear(flat_linear),
            Variant::Full | Variant::ByHand(_) => AmpConfig::new(OptLevel::O0),
        }
    }
}

impl FromStr for Variant {
    type Err = AmpError;

    /// `f32`, `hand-f16`, `O0`, `O1-f16`, `O2-bf16`, `O1-f16-batched` (linear layers not flattened).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('-');
        let first = parts.next().unwrap_or_default();
        let half = parts.next().map_or(Ok(HalfDType::F16), str::parse)?;
        Ok(match first {
            "f32" => Variant::Full,
            "hand" => Variant::ByHand(half),
            level => Variant::Amp {
                level: level.parse()?,
                half,
                flat_linear: parts.next() != Some("batched"),
            },
        })
    }
}
