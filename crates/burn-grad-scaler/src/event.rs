use std::fmt;

use crate::{AtFloorPolicy, LossScaleError};

/// What an update did to the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScaleEvent {
    /// A clean step that was not yet due for growth, or any step under a static scale.
    Unchanged,
    /// The clean steps reached the growth interval and the scale went up.
    Grew,
    /// Growth was due, but the scale is at its cap, its next value would be infinite, or the growth
    /// factor is 1.
    AtCap,
    /// The gradients overflowed and hysteresis absorbed it.
    HeldByHysteresis,
    /// The gradients overflowed and the scale went down.
    BackedOff,
    /// The gradients overflowed and the scale could not go down: it is at its floor, at 0 (without
    /// a floor) or infinite (without the finite guard).
    AtFloor,
}

/// The outcome of one [`LossScale::update`](crate::LossScale::update).
///
/// Its [`Display`](fmt::Display) form is one line for a log.
///
/// # Example
///
/// ```
/// use burn_grad_scaler::LossScaleConfig;
///
/// let update = LossScaleConfig::default().init()?.update(true);
/// assert_eq!((update.before, update.after), (65536.0, 32768.0));
/// assert_eq!(update.to_string(), "gradients overflowed, loss scale lowered from 65536 to 32768");
/// # Ok::<(), burn_grad_scaler::LossScaleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ScaleUpdate {
    /// What happened.
    pub event: ScaleEvent,
    /// Whether the step's gradients contained an infinity or a NaN, as told to the update.
    pub found_inf: bool,
    /// The scale, a factor, that this step's loss was multiplied by.
    pub before: f32,
    /// The scale, a factor, for the next step.
    pub after: f32,
    /// Overflowing updates since the last clean one, this one included: 0 after a clean step.
    pub consecutive_skips: u64,
    pub(crate) policy: AtFloorPolicy,
}

impl ScaleUpdate {
    /// Returns what the configuration wants done about a scale stuck at its floor, or `None` if
    /// this update is not [`ScaleEvent::AtFloor`].
    pub fn at_floor(&self) -> Option<AtFloorPolicy> {
        (self.event == ScaleEvent::AtFloor).then_some(self.policy)
    }

    /// Turns an update that should stop training into an error.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::AtFloor`] if the event is [`ScaleEvent::AtFloor`] and the policy is
    /// [`AtFloorPolicy::Error`].
    ///
    /// # Example
    ///
    /// ```
    /// use burn_grad_scaler::{AtFloorPolicy, LossScaleConfig};
    ///
    /// let config = LossScaleConfig::default().with_init(2.0).with_at_floor(AtFloorPolicy::Error);
    /// let mut scale = config.init()?;
    /// assert!(scale.update(true).check().is_ok()); // 2 -> 1, the floor
    /// assert!(scale.update(true).check().is_err());
    /// # Ok::<(), burn_grad_scaler::LossScaleError>(())
    /// ```
    pub fn check(self) -> Result<Self, LossScaleError> {
        match self.at_floor() {
            Some(AtFloorPolicy::Error) => Err(LossScaleError::AtFloor {
                scale: self.after,
                consecutive_skips: self.consecutive_skips,
            }),
            _ => Ok(self),
        }
    }
}

impl fmt::Display for ScaleUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after, .. } = self;
        match self.event {
            ScaleEvent::Unchanged if self.found_inf => {
                write!(f, "gradients overflowed, static loss scale {after}")
            }
            ScaleEvent::Unchanged => write!(f, "loss scale {after}"),
            ScaleEvent::Grew => write!(f, "loss scale raised from {before} to {after}"),
            ScaleEvent::AtCap => write!(f, "loss scale {after} cannot be raised further"),
            ScaleEvent::HeldByHysteresis => {
                write!(
                    f,
                    "gradients overflowed, loss scale held at {after} by hysteresis"
                )
            }
            ScaleEvent::BackedOff => {
                write!(
                    f,
                    "gradients overflowed, loss scale lowered from {before} to {after}"
                )
            }
            ScaleEvent::AtFloor => write!(
                f,
                "gradients overflowed {} step(s) in a row, loss scale {after} cannot be lowered \
                 further",
                self.consecutive_skips
            ),
        }
    }
}
