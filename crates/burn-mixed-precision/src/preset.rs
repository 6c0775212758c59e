//! One option for all of it: level and half dtype as a word or two.

use core::str::FromStr;

use crate::{AmpConfig, AmpError, HalfDType, OptLevel};

const ALLOWED: &str = "an opt level (O0 to O3), a dtype (f32 or fp32, f16 or fp16, bf16), both \
                       (\"O2 bf16\"), true (O1 in f16) or false (O0)";

/// # Example: what the option of a command line means
///
/// ```
/// use burn_mixed_precision::{AmpConfig, HalfDType, LossScaling, OptLevel};
///
/// let fp16: AmpConfig = "FP16".parse()?;
/// assert_eq!((fp16.opt_level(), fp16.loss_scale()), (OptLevel::O1, LossScaling::Dynamic));
/// let bf16: AmpConfig = "bf16".parse()?;
/// assert_eq!((bf16.opt_level(), bf16.loss_scale()), (OptLevel::O1, LossScaling::Static(1.0)));
/// let o2: AmpConfig = "O2 bf16".parse()?;
/// assert_eq!((o2.opt_level(), o2.half()), (OptLevel::O2, HalfDType::Bf16));
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
impl FromStr for AmpConfig {
    type Err = AmpError;

    /// Accepts a level (`O1`), a dtype (`fp16`, `bf16`, `fp32`: O1 or O0), both (`O2 bf16`, with a
    /// space or a comma), `true` (O1 in f16) and `false` (O0); dtypes and truth in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || AmpError::InvalidOption {
            option: "precision",
            value: text.to_string(),
            allowed: ALLOWED.to_string(),
        };
        let (mut level, mut half) = (None, None);
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let again = match Word::from_str(word)? {
                Word::Level(new) => level.replace(new).is_some(),
                Word::Half(new) => half.replace(new).is_some(),
            };
            if again {
                return Err(refused());
            }
        }
        match (level, half) {
            (None, None) => Err(refused()),
            (Some(OptLevel::O0), Some(half)) => Err(AmpError::Contradiction {
                option: "precision",
                value: half.to_string(),
                with: "opt_level = O0".to_string(),
                reason: "O0 is plain f32; take O1, O2 or O3 for half precision",
            }),
            (level, half) => Ok(AmpConfig::new(level.unwrap_or(OptLevel::O1))
                .with_half(half.unwrap_or(HalfDType::F16))),
        }
    }
}

enum Word {
    Level(OptLevel),
    Half(HalfDType),
}

impl FromStr for Word {
    type Err = AmpError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word.to_ascii_lowercase().as_str() {
            "f32" | "fp32" | "float32" | "false" | "off" | "no" => Ok(Word::Level(OptLevel::O0)),
            "true" | "on" | "yes" => Ok(Word::Level(OptLevel::O1)),
            dtype => match dtype.parse() {
                Ok(half) => Ok(Word::Half(half)),
                Err(_) if dtype.starts_with(['o', '0']) => word.parse().map(Word::Level),
                Err(_) => Err(AmpError::InvalidOption {
                    option: "precision",
                    value: word.to_string(),
                    allowed: ALLOWED.to_string(),
                }),
            },
        }
    }
}
