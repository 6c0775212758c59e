use std::fmt::{self, Debug};

use crate::{LossScaleConfig, LossScaleError};

pub(crate) fn validate(config: &LossScaleConfig) -> Result<(), LossScaleError> {
    if config.dynamic {
        validate_dynamic(config)
    } else {
        validate_static(config)
    }
}

fn validate_dynamic(config: &LossScaleConfig) -> Result<(), LossScaleError> {
    let growth = config.growth_factor;
    let allowed = "a finite number of at least 1";
    require(
        growth >= 1.0 && growth.is_finite(),
        "growth_factor",
        growth,
        allowed,
    )?;

    let backoff = config.backoff_factor;
    let allowed = "a number above 0 and below 1";
    require(
        backoff > 0.0 && backoff < 1.0,
        "backoff_factor",
        backoff,
        allowed,
    )?;

    let interval = config.growth_interval;
    require(interval > 0, "growth_interval", interval, "at least 1")?;
    let hysteresis = config.hysteresis;
    require(hysteresis > 0, "hysteresis", hysteresis, "at least 1")?;

    // By bits: a floor of -0 could turn a scale that underflows into -0.
    let no_floor = config.floor.to_bits() == 0;
    let allowed = format!("0 for none, or {}", ScaleRange::NORMAL);
    let floor = config.floor;
    require(
        no_floor || ScaleRange::NORMAL.contains(floor),
        "floor",
        floor,
        allowed,
    )?;

    if let Some(cap) = config.cap {
        ScaleRange::NORMAL.with_min(floor).check("cap", cap)?;
    }
    ScaleRange::chosen(config).check("init", config.init)
}

fn validate_static(config: &LossScaleConfig) -> Result<(), LossScaleError> {
    fn check<T: PartialEq + Debug>(
        option: &'static str,
        value: T,
        default: T,
    ) -> Result<(), LossScaleError> {
        let allowed = format!("its default, {default:?}, because the scale is static");
        require(value == default, option, value, allowed)
    }
    let default = LossScaleConfig::default();

    check("growth_factor", config.growth_factor, default.growth_factor)?;
    check(
        "backoff_factor",
        config.backoff_factor,
        default.backoff_factor,
    )?;
    check(
        "growth_interval",
        config.growth_interval,
        default.growth_interval,
    )?;
    check("growth_delay", config.growth_delay, default.growth_delay)?;
    check("hysteresis", config.hysteresis, default.hysteresis)?;
    check(
        "hysteresis_refill",
        config.hysteresis_refill,
        default.hysteresis_refill,
    )?;
    check("floor", config.floor, default.floor)?;
    check("cap", config.cap, default.cap)?;
    check("finite_guard", config.finite_guard, default.finite_guard)?;
    check("at_floor", config.at_floor, default.at_floor)?;
    ScaleRange::chosen(config).check("init", config.init)
}

fn require(
    holds: bool,
    option: &'static str,
    value: impl Debug,
    allowed: impl Into<String>,
) -> Result<(), LossScaleError> {
    if holds {
        return Ok(());
    }
    let (value, allowed) = (format!("{value:?}"), allowed.into());
    Err(LossScaleError::InvalidOption {
        option,
        value,
        allowed,
    })
}

/// The scales from `min` to `max`, both included.
#[derive(Clone, Copy)]
pub(crate) struct ScaleRange {
    min: f32,
    max: f32,
}

impl ScaleRange {
    /// Every scale whose inverse is finite and that a device which flushes subnormals keeps.
    const NORMAL: Self = Self {
        min: f32::MIN_POSITIVE,
        max: f32::MAX,
    };

    /// The scales a user may choose under this configuration.
    pub(crate) fn chosen(config: &LossScaleConfig) -> Self {
        if !config.dynamic {
            return Self::NORMAL;
        }
        let max = config.cap.unwrap_or(f32::MAX);
        Self {
            max,
            ..Self::NORMAL.with_min(config.floor)
        }
    }

    /// The scales that updates can lead to under this configuration.
    pub(crate) fn reachable(config: &LossScaleConfig) -> Self {
        if !config.dynamic {
            return Self::NORMAL;
        }
        let uncapped = if config.finite_guard {
            f32::MAX
        } else {
            f32::INFINITY
        };
        Self {
            min: config.floor,
            max: config.cap.unwrap_or(uncapped),
        }
    }

    pub(crate) fn check(self, option: &'static str, scale: f32) -> Result<(), LossScaleError> {
        require(self.contains(scale), option, scale, self.to_string())
    }

    fn with_min(self, min: f32) -> Self {
        Self {
            min: self.min.max(min),
            ..self
        }
    }

    fn contains(self, scale: f32) -> bool {
        (self.min..=self.max).contains(&scale) && scale.is_sign_positive()
    }
}

impl fmt::Display for ScaleRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {:?} to {:?}", self.min, self.max)
    }
}
