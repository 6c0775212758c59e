//! The flags of mixed precision, Apex's names first: `--fp16 --fp16-opt-level O1`.

use core::fmt;

use burn_amp::{AmpConfig, HalfDType, LossScaling, OptLevel};

use super::flags::{Flag, FlagError};

/// In which dtypes to train, and how to scale the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    pub level: OptLevel,
    pub half: HalfDType,
    /// `None` for the level's own.
    pub loss_scale: Option<LossScaling>,
}

impl Precision {
    /// A level with its own loss scale.
    pub fn new(level: OptLevel, half: HalfDType) -> Self {
        Precision {
            level,
            half,
            loss_scale: None,
        }
    }

    /// Plain f32.
    pub fn full() -> Self {
        Precision::new(OptLevel::O0, HalfDType::F16)
    }

    pub fn config(&self) -> AmpConfig {
        let config = AmpConfig::new(self.level).with_half(self.half);
        match self.loss_scale {
            Some(loss_scale) => config.with_loss_scale(loss_scale),
            None => config,
        }
    }

    /// The half dtype, `none` at O0.
    pub fn half_dtype(&self) -> String {
        match self.level {
            OptLevel::O0 => "none".to_string(),
            _ => self.half.to_string(),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, half dtype {}", self.level, self.half_dtype())
    }
}

/// The lines of `--help`; a macro, so that programs can put them into a text of their own.
macro_rules! precision_help {
    () => {
        "\
Precision
  --fp16                   train in mixed precision; without it, plain f32 (O0)
  --fp16-opt-level LEVEL   O0: f32. O1: f32 weights, each operation in its best dtype.
                           O2: half weights, norm layers in f32. O3: all half.
                           Needs --fp16; also spelled --fp16_opt_level. [default: O1]
  --half DTYPE             the half dtype, f16 or bf16. Needs --fp16. [default: f16]
  --loss-scale SCALE       dynamic, or a number above 0. Needs --fp16.
                           [default: dynamic for O1 and O2 in f16, otherwise 1]
"
    };
}
pub(crate) use precision_help;

const LEVEL: &str = "--fp16-opt-level";
const HALF: &str = "--half";
const LOSS_SCALE: &str = "--loss-scale";

/// The flags as they were given.
#[derive(Debug, Default)]
pub struct PrecisionFlags {
    fp16: bool,
    level: Option<OptLevel>,
    half: Option<HalfDType>,
    loss_scale: Option<LossScaling>,
}

impl PrecisionFlags {
    /// Whether the flag was one of these.
    pub fn take(&mut self, flag: &mut Flag) -> Result<bool, FlagError> {
        match flag.name() {
            "fp16" => self.fp16 = true,
            "fp16-opt-level" | "fp16_opt_level" => self.level = Some(flag.option()?),
            "half" => self.half = Some(flag.option()?),
            "loss-scale" => self.loss_scale = Some(flag.option()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What they come to together.
    pub fn finish(self) -> Result<Precision, FlagError> {
        let given = [
            (LEVEL, self.level.is_some()),
            (HALF, self.half.is_some()),
            (LOSS_SCALE, self.loss_scale.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given && !self.fp16) {
            Some((flag, _)) => Err(FlagError::NeedsFp16 { flag }),
            None if self.fp16 => Ok(Precision {
                level: self.level.unwrap_or_default(),
                half: self.half.unwrap_or_default(),
                loss_scale: self.loss_scale,
            }),
            None => Ok(Precision::full()),
        }
    }
}
