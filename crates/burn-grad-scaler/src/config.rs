use serde::{Deserialize, Serialize};

use crate::validate::validate;
use crate::{LossScale, LossScaleError};

/// The rule a [`LossScale`] follows, as data.
///
/// The default is torch's rule with the two bounds it lacks: start at 2^16, double after 2000 clean
/// steps in a row, halve at each overflow, never leave 1 to 2^24. The rules of other frameworks are
/// constructors ([`torch`](Self::torch), [`apex`](Self::apex), [`megatron`](Self::megatron) and so
/// on); any of them can be adjusted.
///
/// Options missing from a configuration file take their default, unknown ones are an error.
///
/// # Example
///
/// ```
/// use burn_grad_scaler::{AtFloorPolicy, LossScaleConfig};
///
/// let config = LossScaleConfig::default()
///     .with_init(1024.0)
///     .with_growth_interval(500)
///     .with_floor(2f32.powi(-10))
///     .with_at_floor(AtFloorPolicy::Error);
/// let scale = config.init()?;
/// assert_eq!(scale.scale(), 1024.0);
/// # Ok::<(), burn_grad_scaler::LossScaleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LossScaleConfig {
    /// Whether updates change the scale. A static scale (`false`) leaves every option but `init` at
    /// its default, as none of them would have an effect. Default `true`.
    pub dynamic: bool,
    /// The first scale, a factor from `floor` to `cap`, at least 2^-126. Default 2^16, as in torch
    /// and apex.
    pub init: f32,
    /// What growth multiplies the scale by, at least 1; 1 never grows. Default 2, as everywhere.
    pub growth_factor: f64,
    /// What an overflow multiplies the scale by, above 0 and below 1. Default 0.5, as everywhere.
    pub backoff_factor: f64,
    /// Clean steps in a row, since the last overflow or growth, after which the scale grows; at
    /// least 1. Default 2000, as in torch and apex.
    pub growth_interval: u32,
    /// Further clean steps to wait before the first growth after the start or an overflow.
    /// Default 0; DeepSpeed's window has 1.
    pub growth_delay: u32,
    /// Overflows until the scale backs off, at least 1; 1 backs off at each. The first
    /// `hysteresis - 1` skip their step and leave the scale. Once used up, each further overflow
    /// backs off until [`hysteresis_refill`](Self::hysteresis_refill). Default 1.
    pub hysteresis: u32,
    /// When the count of overflows starts again. Default [`HysteresisRefill::EachCleanStep`].
    pub hysteresis_refill: HysteresisRefill,
    /// The smallest scale that an overflow can lead to, a factor of at least 2^-126, or 0 for no
    /// floor. Default 1, as in JMP, DeepSpeed and Megatron; some models need less than 1.
    pub floor: f32,
    /// The largest scale that growth can lead to, a finite factor of at least `floor`, or `None`
    /// for no cap. Default 2^24, as in apex.
    pub cap: Option<f32>,
    /// Whether growth to an infinite f32 is refused, which only matters without a cap. An infinite
    /// scale stays infinite and skips every step, so turn this off only to reproduce a framework
    /// that has no guard. Default `true`, as in torch and JMP.
    pub finite_guard: bool,
    /// What to do about an overflow that can no longer lower the scale. Default
    /// [`AtFloorPolicy::Warn`].
    pub at_floor: AtFloorPolicy,
}

/// When overflows stop counting towards a backoff.
///
/// This also says which overflows count together: only those in a row, or all since the scale last
/// grew. Every rule starts again when the clean steps reach the growth interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HysteresisRefill {
    /// Only when growth is due: overflows count across clean steps (Megatron, DeepSpeed).
    AtGrowth,
    /// At each clean step: only overflows in a row count, and once used up each further one in the
    /// row backs off (apex's kernel, DeepSpeed's `consecutive_hysteresis`).
    EachCleanStep,
    /// At each clean step and each backoff: one backoff for every `hysteresis` overflows in a row
    /// (Paddle).
    EachCleanStepAndBackoff,
}

/// What to do about an overflow when the scale is at its floor.
///
/// An update only reports this ([`ScaleUpdate::at_floor`](crate::ScaleUpdate::at_floor)); whoever
/// called it acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AtFloorPolicy {
    /// Skip the step and go on silently.
    Continue,
    /// Skip the step, go on, and say so.
    Warn,
    /// Stop training with an error, as DeepSpeed's ZeRO optimizers do.
    Error,
}

impl Default for LossScaleConfig {
    fn default() -> Self {
        Self {
            dynamic: true,
            init: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            growth_delay: 0,
            hysteresis: 1,
            hysteresis_refill: HysteresisRefill::EachCleanStep,
            floor: 1.0,
            cap: Some(16_777_216.0),
            finite_guard: true,
            at_floor: AtFloorPolicy::Warn,
        }
    }
}

impl LossScaleConfig {
    /// A static scale: `scale` at every step, whatever the gradients.
    ///
    /// `scale` is a factor of at least 2^-126, not bounded by the default floor and cap. Setting an
    /// option that only a dynamic scale uses is an error; apex ignores it.
    ///
    /// # Example
    ///
    /// ```
    /// use burn_grad_scaler::LossScaleConfig;
    ///
    /// let mut scale = LossScaleConfig::fixed(128.0).init()?;
    /// assert_eq!(scale.update(true).after, 128.0);
    /// assert!(LossScaleConfig::fixed(128.0).with_floor(64.0).init().is_err());
    /// # Ok::<(), burn_grad_scaler::LossScaleError>(())
    /// ```
    pub fn fixed(scale: f32) -> Self {
        Self {
            dynamic: false,
            init: scale,
            ..Self::default()
        }
    }

    /// No scaling: the static scale 1.
    pub fn none() -> Self {
        Self::fixed(1.0)
    }

    /// Sets the [first scale](Self::init).
    pub fn with_init(self, init: f32) -> Self {
        Self { init, ..self }
    }

    /// Sets the [factor of growth](Self::growth_factor).
    pub fn with_growth_factor(self, growth_factor: f64) -> Self {
        Self {
            growth_factor,
            ..self
        }
    }

    /// Sets the [factor of backoff](Self::backoff_factor).
    pub fn with_backoff_factor(self, backoff_factor: f64) -> Self {
        Self {
            backoff_factor,
            ..self
        }
    }

    /// Sets the [clean steps before growth](Self::growth_interval).
    pub fn with_growth_interval(self, growth_interval: u32) -> Self {
        Self {
            growth_interval,
            ..self
        }
    }

    /// Sets the [further clean steps before a first growth](Self::growth_delay).
    pub fn with_growth_delay(self, growth_delay: u32) -> Self {
        Self {
            growth_delay,
            ..self
        }
    }

    /// Sets the [overflows before backoff](Self::hysteresis).
    pub fn with_hysteresis(self, hysteresis: u32) -> Self {
        Self { hysteresis, ..self }
    }

    /// Sets [when overflows stop counting](Self::hysteresis_refill).
    pub fn with_hysteresis_refill(self, hysteresis_refill: HysteresisRefill) -> Self {
        Self {
            hysteresis_refill,
            ..self
        }
    }

    /// Sets the [floor](Self::floor); 0 is none.
    pub fn with_floor(self, floor: f32) -> Self {
        Self { floor, ..self }
    }

    /// Sets the [cap](Self::cap).
    pub fn with_cap(self, cap: f32) -> Self {
        Self {
            cap: Some(cap),
            ..self
        }
    }

    /// Removes the [cap](Self::cap).
    pub fn without_cap(self) -> Self {
        Self { cap: None, ..self }
    }

    /// Sets whether [growth to infinity is refused](Self::finite_guard).
    pub fn with_finite_guard(self, finite_guard: bool) -> Self {
        Self {
            finite_guard,
            ..self
        }
    }

    /// Sets [what to do at the floor](Self::at_floor).
    pub fn with_at_floor(self, at_floor: AtFloorPolicy) -> Self {
        Self { at_floor, ..self }
    }

    /// Checks the options and starts a scale.
    ///
    /// # Errors
    ///
    /// See [`validate`](Self::validate).
    pub fn init(&self) -> Result<LossScale, LossScaleError> {
        LossScale::new(*self)
    }

    /// Checks every option.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::InvalidOption`] for the first of these that it meets:
    ///
    /// - `growth_factor` NaN, infinite or below 1;
    /// - `backoff_factor` NaN, 0 or less, or 1 or more;
    /// - `growth_interval` 0, `hysteresis` 0;
    /// - `floor` NaN, infinite, negative (-0 too), or above 0 but below 2^-126, where 1 / scale
    ///   would come near the end of f32;
    /// - `cap` NaN, infinite, below 2^-126 or below `floor`;
    /// - `init` NaN, infinite, below 2^-126, below `floor` or above `cap`;
    /// - with a static scale: `init` NaN, infinite or below 2^-126, and any other option that is
    ///   not at its default.
    ///
    /// # Example
    ///
    /// ```
    /// use burn_grad_scaler::LossScaleConfig;
    ///
    /// let error = LossScaleConfig::default().with_backoff_factor(1.5).validate().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "loss scale option `backoff_factor` is 1.5, allowed is a number above 0 and below 1",
    /// );
    /// ```
    pub fn validate(&self) -> Result<(), LossScaleError> {
        validate(self)
    }
}
