use core::fmt;
use std::sync::{Arc, OnceLock};

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;

use crate::look::Look;
use crate::scaled::ScaledGradients;
use crate::{GradScaler, NonFinite, StepOutcome, StepStatus, rescale};

/// True gradients, in f32: what [`GradScaler::unscale`] returns.
///
/// For clipping and for logging between backward and [`GradScaler::step`]. The first question that
/// is asked of them costs one device-to-host read, all later ones are answered from it.
///
/// The gradients themselves are only shown if they are finite: what is infinite or NaN is an
/// artefact of the scale and should not get into code outside.
#[must_use = "gradients do nothing until they are stepped"]
pub struct UnscaledGradients<B: AutodiffBackend> {
    grads: GradientsParams,
    look: Look<B>,
    clip_factor: f64,
    enabled: bool,
    seen: Seen,
}

/// What was found when these gradients were looked at, shared with the scaler: it has to learn of
/// an overflow even if the user then drops the gradients.
pub(crate) type Seen = Arc<OnceLock<StepStatus>>;

impl<B: AutodiffBackend> UnscaledGradients<B> {
    pub(crate) fn new<M: AutodiffModule<B>>(scaled: ScaledGradients<B>, model: &M) -> Self {
        let grads = match scaled.scale {
            // As LossScale::inv_scale: the quotient in f64, rounded once.
            Some(scale) => {
                let inverse = (1.0 / f64::from(scale)) as f32;
                rescale::widen::<B, M>(scaled.grads, model, inverse.into())
            }
            None => scaled.grads,
        };
        UnscaledGradients {
            look: Look::new(model, &grads),
            grads,
            clip_factor: 1.0,
            enabled: scaled.scale.is_some(),
            seen: Seen::default(),
        }
    }

    /// Whether every gradient is finite after unscaling.
    ///
    /// A gradient that is finite while scaled can be infinite afterwards, if the scale is below 1.
    pub fn is_finite(&mut self) -> bool {
        self.status();
        self.look.non_finite().is_none()
    }

    /// What is not finite, and in which parameters.
    pub fn non_finite(&mut self) -> Option<&NonFinite> {
        self.status();
        self.look.non_finite()
    }

    /// The 2-norm over all true gradients before any clipping; infinite or NaN if one of them is.
    pub fn norm(&mut self) -> f64 {
        self.status();
        self.look.seen().norm
    }

    /// Clips the 2-norm over all gradients to `max_norm` and returns what it was before this call;
    /// `None`, and nothing changes, if it is not finite.
    ///
    /// Each gradient is multiplied by `max_norm / (norm + 1e-6)` if that is below 1: torch's
    /// `clip_grad_norm_`.
    ///
    /// # Panics
    ///
    /// If `max_norm` is not finite and above 0.
    pub fn clip_norm<M: AutodiffModule<B>>(&mut self, model: &M, max_norm: f64) -> Option<f64> {
        assert!(
            max_norm.is_finite() && max_norm > 0.0,
            "invalid max_norm {max_norm}: allowed is a finite number above 0"
        );
        if !self.is_finite() {
            return None;
        }
        let norm = self.norm() * self.clip_factor;
        let factor = clip_factor(max_norm, norm);
        let grads = core::mem::take(&mut self.grads);
        self.grads = rescale::widen::<B, M>(grads, model, factor);
        self.clip_factor *= factor;
        Some(norm)
    }

    /// The true gradients, clipped if they were; `None` if one is not finite.
    pub fn gradients(&mut self) -> Option<&GradientsParams> {
        (self.status() != StepStatus::Skipped).then_some(&self.grads)
    }

    /// The true gradients to change, for clipping by value, noise and the like; `None` if one is
    /// not finite.
    ///
    /// They are not looked at again: a NaN that is written here reaches the parameters, as in torch.
    pub fn gradients_mut(&mut self) -> Option<&mut GradientsParams> {
        (self.status() != StepStatus::Skipped).then_some(&mut self.grads)
    }

    /// Rounds each gradient to the dtype of its parameter: for half parameters under an optimizer
    /// that keeps no f32 masters.
    ///
    /// Burn's own optimizers expect it. [`AmpOptimizer`](crate::AmpOptimizer) does not: it takes the
    /// f32 gradients to its masters, so do not round them for it.
    pub fn to_parameter_dtypes<M: AutodiffModule<B>>(mut self, model: &M) -> Self {
        self.grads = rescale::fit::<B, M>(self.grads, model);
        self
    }

    /// Looks, once, and lets the scaler know.
    fn status(&mut self) -> StepStatus {
        // A disabled scaler steps whatever it gets, without a look.
        let (enabled, look) = (self.enabled, &mut self.look);
        *self.seen.get_or_init(|| match enabled {
            true => look.status(),
            false => StepStatus::Applied,
        })
    }

    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }

    pub(crate) fn into_step(mut self) -> (StepOutcome, GradientsParams) {
        let outcome = StepOutcome {
            status: self.status(),
            scales: Vec::new(),
            grad_norm: self.enabled.then(|| self.look.seen().norm),
            clip_factor: self.clip_factor,
            non_finite: match self.enabled {
                true => self.look.non_finite().cloned(),
                false => None,
            },
        };
        (outcome, self.grads)
    }
}

/// torch's `clip_grad_norm_`; its 1e-6 is against a norm of 0.
pub(crate) fn clip_factor(max_norm: f64, norm: f64) -> f64 {
    (max_norm / (norm + 1e-6)).min(1.0)
}

impl<B: AutodiffBackend> fmt::Debug for UnscaledGradients<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnscaledGradients")
            .field("len", &self.grads.len())
            .field("clip_factor", &self.clip_factor)
            .field("seen", &self.seen.get())
            .finish()
    }
}

/// Gradients that [`GradScaler::step`] takes: [`ScaledGradients`], or [`UnscaledGradients`] if they
/// were clipped or looked at. Implemented for these two only.
pub trait StepGradients<B: AutodiffBackend>: sealed::Sealed {
    /// The true gradients.
    fn unscaled<M: AutodiffModule<B>>(
        self,
        scaler: &mut GradScaler,
        model: &M,
    ) -> UnscaledGradients<B>;
}

impl<B: AutodiffBackend> StepGradients<B> for ScaledGradients<B> {
    fn unscaled<M: AutodiffModule<B>>(
        self,
        scaler: &mut GradScaler,
        model: &M,
    ) -> UnscaledGradients<B> {
        scaler.unscale(model, self)
    }
}

impl<B: AutodiffBackend> StepGradients<B> for UnscaledGradients<B> {
    fn unscaled<M: AutodiffModule<B>>(
        self,
        _scaler: &mut GradScaler,
        _model: &M,
    ) -> UnscaledGradients<B> {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl<B: super::AutodiffBackend> Sealed for super::ScaledGradients<B> {}
    impl<B: super::AutodiffBackend> Sealed for super::UnscaledGradients<B> {}
}
