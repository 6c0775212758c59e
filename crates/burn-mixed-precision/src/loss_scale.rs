use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::AmpError;

/// What [`is_scale`] accepts, for messages.
pub(crate) const SCALES: &str = "a finite number above 0, at least 2^-126";

/// Whether a factor can scale a loss: below 2^-126 its inverse comes near the end of f32.
pub(crate) fn is_scale(factor: f32) -> bool {
    factor.is_finite() && factor >= f32::MIN_POSITIVE
}

/// How the loss scale is chosen: Apex's `loss_scale` property.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossScaling {
    /// Grows while gradients are finite and backs off when they are not.
    Dynamic,
    /// A constant factor: finite and at least 2^-126.
    Static(f32),
}

impl fmt::Display for LossScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossScaling::Dynamic => f.pad("dynamic"),
            LossScaling::Static(scale) => scale.fmt(f),
        }
    }
}

impl FromStr for LossScaling {
    type Err = AmpError;

    /// Accepts `dynamic`, as Apex's command line does, or a finite number of at least 2^-126.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "dynamic" {
            return Ok(LossScaling::Dynamic);
        }
        match text.parse::<f32>() {
            Ok(scale) if is_scale(scale) => Ok(LossScaling::Static(scale)),
            _ => Err(AmpError::InvalidOption {
                option: "loss scale",
                value: text.to_string(),
                allowed: format!("\"dynamic\" or {SCALES}"),
            }),
        }
    }
}

/// The factors by which `backward` multiplies losses, one per loss id.
///
/// `backward` reads them and a scaler writes them: that is all they share. Until a scaler
/// [attaches](LossScales::attach), nothing is scaled. The values may be read and written from any
/// thread; a backward pass that is under way keeps the scale with which it began.
#[derive(Debug)]
pub struct LossScales {
    attached: AtomicBool,
    bits: Box<[AtomicU32]>,
}

impl LossScales {
    /// One factor per loss, all 1.
    pub(crate) fn new(num_losses: usize) -> Self {
        LossScales {
            attached: AtomicBool::new(false),
            bits: (0..num_losses)
                .map(|_| AtomicU32::new(1f32.to_bits()))
                .collect(),
        }
    }

    /// From now on `backward` scales, and gradients come out unscaled and in f32.
    pub fn attach(&self) {
        self.attached.store(true, Ordering::Release);
    }

    /// From now on `backward` leaves losses alone.
    pub fn detach(&self) {
        self.attached.store(false, Ordering::Release);
    }

    /// Whether a scaler is attached.
    pub fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    /// The number of losses that have a scale of their own: Apex's `num_losses`.
    pub fn num_losses(&self) -> usize {
        self.bits.len()
    }

    /// The factor of one loss.
    ///
    /// # Panics
    ///
    /// If `loss_id` is not below [`num_losses`](LossScales::num_losses).
    pub fn get(&self, loss_id: usize) -> f32 {
        f32::from_bits(self.slot(loss_id).load(Ordering::Acquire))
    }

    /// Sets the factor of one loss: finite and above zero, a power of two to scale without rounding.
    ///
    /// # Panics
    ///
    /// If `loss_id` is not below [`num_losses`](LossScales::num_losses).
    pub fn set(&self, loss_id: usize, scale: f32) {
        self.slot(loss_id).store(scale.to_bits(), Ordering::Release);
    }

    /// Makes sure that a loss id is one of these.
    ///
    /// # Panics
    ///
    /// If `loss_id` is not below [`num_losses`](LossScales::num_losses), with a message that says how
    /// to raise it.
    pub fn check(&self, loss_id: usize) {
        self.slot(loss_id);
    }

    fn slot(&self, loss_id: usize) -> &AtomicU32 {
        self.bits.get(loss_id).unwrap_or_else(|| {
            panic!(
                "loss id {loss_id} is out of range: allowed is 0 to {}, set by \
                 AmpConfig::with_num_losses",
                self.bits.len() - 1
            )
        })
    }
}
