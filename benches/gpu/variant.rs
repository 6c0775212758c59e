//! The rows of the table: which precision a model trains in, and who sees to it.

use std::str::FromStr;

use burn_amp::{AmpConfig, AmpError, HalfDType, LossScaling, OptLevel, TraceMode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The bare backend in f32.
    Full,
    /// The same, with what is cheap to compute again not kept for backward.
    FullRecomputed,
    /// The bare backend with half as its default float: everything in half, no scaling.
    ByHand(HalfDType),
    /// The decorator and `AmpOptimizer`.
    Amp {
        level: OptLevel,
        half: HalfDType,
        change: Option<Change>,
    },
}

/// What a decorated variant does differently, to see what that is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// `linear` keeps its batch dimensions.
    FlatLinear,
    /// No finite check and a static scale: no host read.
    Check,
    /// No decorator inside autodiff: Burn's own weight gradients of convolutions.
    Inner,
    /// What is cheap to compute again is not kept for backward.
    Recompute,
    /// The overflow tracer looks on.
    Trace(TraceMode),
}

impl Variant {
    /// The settings of a decorated variant.
    pub fn config(self) -> AmpConfig {
        match self {
            Variant::Amp {
                level,
                half,
                change,
            } => {
                let config = AmpConfig::new(level)
                    .with_half(half)
                    .with_flat_linear(change != Some(Change::FlatLinear));
                match change {
                    Some(Change::Check) => config.with_loss_scale(LossScaling::Static(1024.0)),
                    Some(Change::Trace(mode)) => config.with_trace(mode),
                    _ => config,
                }
            }
            Variant::Full | Variant::FullRecomputed | Variant::ByHand(_) => {
                AmpConfig::new(OptLevel::O0)
            }
        }
    }

    pub fn change(self) -> Option<Change> {
        match self {
            Variant::Amp { change, .. } => change,
            Variant::Full | Variant::FullRecomputed | Variant::ByHand(_) => None,
        }
    }
}

impl FromStr for Variant {
    type Err = AmpError;

    /// `f32`, `hand-f16`, `O0`, `O1-f16`, `O2-bf16`, and `O1-f16-batched`, `O1-f16-unchecked`,
    /// `O1-f16-plain`, `O1-f16-recompute`, `O1-f16-traced`, `O1-f16-onskip` and `f32-recompute` for
    /// what can be changed.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "f32-recompute" {
            return Ok(Variant::FullRecomputed);
        }
        let mut parts = text.split('-');
        let first = parts.next().unwrap_or_default();
        let half = parts.next().map_or(Ok(HalfDType::F16), str::parse)?;
        Ok(match first {
            "f32" => Variant::Full,
            "hand" => Variant::ByHand(half),
            level => Variant::Amp {
                level: level.parse()?,
                half,
                change: match parts.next() {
                    Some("batched") => Some(Change::FlatLinear),
                    Some("unchecked") => Some(Change::Check),
                    Some("plain") => Some(Change::Inner),
                    Some("recompute") => Some(Change::Recompute),
                    Some("traced") => Some(Change::Trace(TraceMode::Always)),
                    Some("onskip") => Some(Change::Trace(TraceMode::OnSkip)),
                    _ => None,
                },
            },
        })
    }
}
