use serde::{Deserialize, Serialize};

use crate::validate::ScaleRange;
use crate::{HysteresisRefill, LossScaleConfig, LossScaleError, ScaleEvent, ScaleUpdate};

/// The numbers of a loss scale that change during training.
///
/// Counters saturate at their largest value instead of wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScaleState {
    /// The scale, a factor: at least the floor, at most the cap; any positive f32, not only powers
    /// of two. Without a floor it can underflow to 0, without the finite guard it can be infinite.
    pub scale: f32,
    /// Clean steps that count towards the next growth. Overflows reset it to 0.
    pub growth_tracker: u32,
    /// Overflows until the scale backs off, the one that lowers it included: 1 means the next one.
    pub hysteresis_tracker: u32,
    /// Updates so far, clean and overflowing ones.
    pub steps: u64,
    /// Updates so far that found an overflow.
    pub skipped: u64,
    /// Updates that found an overflow since the last clean one.
    pub consecutive_skips: u64,
}

/// A loss scale: a factor for the loss, and the rule that picks the next one.
///
/// A state machine without side effects. The next state depends on the configuration, the state and
/// whether the step's gradients overflowed, on nothing else, so workers that agree on `found_inf`
/// agree on the scale.
///
/// It serialises whole, configuration included, and a loaded one continues exactly.
///
/// # Numerics
///
/// The scale is an f32. Growth and backoff multiply it by an f64 factor and round once, as torch
/// does; with factors that are powers of two nothing is rounded.
///
/// # Example
///
/// ```
/// use burn_grad_scaler::{LossScale, LossScaleConfig};
///
/// let mut scale = LossScale::new(LossScaleConfig::default())?;
/// let scaled_loss = 0.5 * scale.scale();
/// let gradient = scaled_loss * scale.inv_scale();
/// assert_eq!(gradient, 0.5);
///
/// let update = scale.update(!gradient.is_finite());
/// assert_eq!(update.after, 65536.0);
/// # Ok::<(), burn_grad_scaler::LossScaleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct LossScale {
    config: LossScaleConfig,
    state: LossScaleState,
}

impl LossScale {
    /// Starts at the configuration's initial scale, with every counter at its start.
    ///
    /// # Errors
    ///
    /// The first option that [`LossScaleConfig::validate`] rejects.
    pub fn new(config: LossScaleConfig) -> Result<Self, LossScaleError> {
        config.validate()?;
        let state = LossScaleState {
            scale: config.init,
            growth_tracker: 0,
            hysteresis_tracker: config.hysteresis,
            steps: 0,
            skipped: 0,
            consecutive_skips: 0,
        };
        Ok(Self { config, state })
    }

    /// Continues from a saved state, under the configuration it was saved with or another one.
    ///
    /// # Errors
    ///
    /// The first option that [`LossScaleConfig::validate`] rejects, or option `scale` if the saved
    /// scale is negative, NaN or outside the configuration's floor and cap. A scale that underflowed
    /// to 0 or became infinite is accepted exactly where the configuration lets it happen.
    ///
    /// # Example: a longer growth interval from here on
    ///
    /// ```
    /// use burn_grad_scaler::{LossScale, LossScaleConfig};
    ///
    /// let mut scale = LossScale::new(LossScaleConfig::default())?;
    /// scale.update(true);
    ///
    /// let slower = scale.config().with_growth_interval(4000);
    /// let scale = LossScale::resume(slower, *scale.state())?;
    /// assert_eq!(scale.scale(), 32768.0);
    /// # Ok::<(), burn_grad_scaler::LossScaleError>(())
    /// ```
    pub fn resume(config: LossScaleConfig, state: LossScaleState) -> Result<Self, LossScaleError> {
        config.validate()?;
        ScaleRange::reachable(&config).check("scale", state.scale)?;
        Ok(Self { config, state })
    }

    /// The factor to multiply the loss by.
    ///
    /// Multiply in f32: 65536, the usual start, is beyond the largest f16.
    pub fn scale(&self) -> f32 {
        self.state.scale
    }

    /// The factor to multiply the gradients by, 1 / scale.
    ///
    /// # Numerics
    ///
    /// Taken in f64 and rounded to f32, as torch and Megatron do. Infinite for a scale of 2^-128 or
    /// less, which only a configuration without a floor can reach.
    pub fn inv_scale(&self) -> f32 {
        (1.0 / f64::from(self.state.scale)) as f32
    }

    /// Moves to the next step's scale.
    ///
    /// `found_inf` tells whether any gradient of this step, on any worker, was infinite or NaN. Call
    /// it once per optimizer step, applied or skipped, after the gradients were unscaled. A static
    /// scale counts the step and stays.
    pub fn update(&mut self, found_inf: bool) -> ScaleUpdate {
        let before = self.state.scale;
        self.state.count(found_inf);
        let event = match (self.config.dynamic, found_inf) {
            (false, _) => ScaleEvent::Unchanged,
            (true, true) => self.overflow(),
            (true, false) => self.clean_step(),
        };
        ScaleUpdate {
            event,
            found_inf,
            before,
            after: self.state.scale,
            consecutive_skips: self.state.consecutive_skips,
            policy: self.config.at_floor,
        }
    }

    /// Replaces the scale by hand, a static one too, and leaves every counter as it is.
    ///
    /// # Errors
    ///
    /// Option `scale` if the new scale is not positive, finite and normal (at least 2^-126), or, for
    /// a dynamic scale, is outside its floor and cap.
    ///
    /// # Example
    ///
    /// ```
    /// use burn_grad_scaler::LossScaleConfig;
    ///
    /// let mut scale = LossScaleConfig::default().init()?;
    /// scale.set(1024.0)?;
    /// assert_eq!(scale.scale(), 1024.0);
    /// assert!(scale.set(0.5).is_err()); // the default floor is 1
    /// # Ok::<(), burn_grad_scaler::LossScaleError>(())
    /// ```
    pub fn set(&mut self, scale: f32) -> Result<(), LossScaleError> {
        ScaleRange::chosen(&self.config).check("scale", scale)?;
        self.state.scale = scale;
        Ok(())
    }

    /// The rule this scale follows.
    pub fn config(&self) -> &LossScaleConfig {
        &self.config
    }

    /// The scale and its counters.
    pub fn state(&self) -> &LossScaleState {
        &self.state
    }

    fn overflow(&mut self) -> ScaleEvent {
        let (config, state) = (&self.config, &mut self.state);
        state.growth_tracker = 0;
        if state.hysteresis_tracker > 1 {
            state.hysteresis_tracker -= 1;
            return ScaleEvent::HeldByHysteresis;
        }
        if config.hysteresis_refill == HysteresisRefill::EachCleanStepAndBackoff {
            state.hysteresis_tracker = config.hysteresis;
        }
        let before = state.scale;
        state.scale = ((f64::from(before) * config.backoff_factor) as f32).max(config.floor);
        if state.scale < before {
            ScaleEvent::BackedOff
        } else {
            ScaleEvent::AtFloor
        }
    }

    fn clean_step(&mut self) -> ScaleEvent {
        let (config, state) = (&self.config, &mut self.state);
        if config.hysteresis_refill != HysteresisRefill::AtGrowth {
            state.hysteresis_tracker = config.hysteresis;
        }
        state.growth_tracker = state.growth_tracker.saturating_add(1);
        if state.growth_tracker < config.growth_interval.saturating_add(config.growth_delay) {
            return ScaleEvent::Unchanged;
        }
        // The delay holds once after an overflow: between two growths it counts as served.
        state.growth_tracker = config.growth_delay;
        state.hysteresis_tracker = config.hysteresis;

        let before = state.scale;
        let grown = (f64::from(before) * config.growth_factor) as f32;
        let grown = config.cap.map_or(grown, |cap| grown.min(cap));
        if config.finite_guard && grown.is_infinite() {
            return ScaleEvent::AtCap;
        }
        state.scale = grown;
        if grown > before {
            ScaleEvent::Grew
        } else {
            ScaleEvent::AtCap
        }
    }
}

impl LossScaleState {
    fn count(&mut self, found_inf: bool) {
        self.steps = self.steps.saturating_add(1);
        if found_inf {
            self.skipped = self.skipped.saturating_add(1);
            self.consecutive_skips = self.consecutive_skips.saturating_add(1);
        } else {
            self.consecutive_skips = 0;
        }
    }
}

/// A loss scale as read from disk, not yet checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    config: LossScaleConfig,
    state: LossScaleState,
}

impl TryFrom<Unchecked> for LossScale {
    type Error = LossScaleError;

    fn try_from(saved: Unchecked) -> Result<Self, Self::Error> {
        Self::resume(saved.config, saved.state)
    }
}
