use std::sync::{Arc, Mutex, MutexGuard, Once};

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn_mixed_precision::{Amp, LossScaling};

use crate::agreement::{agree, largest};
use crate::check::{Checked, GradCheck};
use crate::{LossScale, LossScaleConfig, LossScaleError, Ranks, RanksError, ScaleUpdate};

/// The loss scales of one [`Amp`], one per loss, shared by every optimizer that trains with it.
///
/// `backward` reads the scale from the `Amp`, the scaler decides the next one and writes it there.
#[derive(Debug, Clone)]
pub struct Scaler {
    amp: Amp,
    scales: Arc<Mutex<Vec<LossScale>>>,
    /// Done when another scaler of the same `Amp` was noticed.
    not_alone: Arc<Once>,
    /// Who has to agree with this one before a scale moves.
    ranks: Option<Arc<dyn Ranks>>,
}

/// The rule that a configuration of mixed precision asks for.
///
/// Dynamic starts at 2^16, or at the bound it would leave, as Apex clips its start to
/// `max_loss_scale`. Apex has no floor unless one is set; here it is 1 or the cap if that is lower.
fn rule(amp: &Amp) -> LossScaleConfig {
    let config = amp.config();
    match config.loss_scale() {
        LossScaling::Static(scale) => LossScaleConfig::fixed(scale),
        LossScaling::Dynamic => {
            let cap = config.max_loss_scale();
            let rule = LossScaleConfig::default();
            let floor = config.min_loss_scale().unwrap_or(rule.floor.min(cap));
            rule.with_init(rule.init.clamp(floor, cap))
                .with_floor(floor)
                .with_cap(cap)
        }
    }
}

impl Scaler {
    /// The scales that the settings ask for, from their start; `backward` scales from now on.
    ///
    /// Several optimizers that train on one device share one scaler:
    /// [`AmpOptimizer::with_scaler`](crate::AmpOptimizer::with_scaler). With a scaler each, the last
    /// one to step sets the scale for all, and a warning says so.
    pub fn new(amp: &Amp) -> Self {
        Scaler::with_rule(amp, rule(amp)).expect("AmpConfig has checked its bounds")
    }

    /// The same rule for every loss, whatever the settings say.
    ///
    /// # Errors
    ///
    /// What [`LossScaleConfig::validate`] rejects.
    pub fn with_rule(amp: &Amp, rule: LossScaleConfig) -> Result<Self, LossScaleError> {
        let scale = rule.init()?;
        let scaler = Scaler {
            amp: amp.clone(),
            scales: Arc::new(Mutex::new(vec![scale; amp.loss_scales().num_losses()])),
            not_alone: Arc::new(Once::new()),
            ranks: None,
        };
        for loss_id in 0..amp.loss_scales().num_losses() {
            amp.loss_scales().set(loss_id, scale.scale());
        }
        if scaler.is_enabled() {
            amp.loss_scales().attach();
        }
        Ok(scaler)
    }

    /// Moves the scales together with those of other ranks: see
    /// [`AmpOptimizer::with_ranks`](crate::AmpOptimizer::with_ranks).
    ///
    /// Clones that were made before go on alone.
    #[must_use]
    pub fn with_ranks(self, ranks: impl Ranks + 'static) -> Self {
        self.among(Some(Arc::new(ranks)))
    }

    pub(crate) fn among(mut self, ranks: Option<Arc<dyn Ranks>>) -> Self {
        self.ranks = ranks;
        self
    }

    /// Who has to agree before a scale moves; `None` for a scaler that is alone.
    pub(crate) fn ranks(&self) -> Option<&Arc<dyn Ranks>> {
        self.ranks.as_ref()
    }

    /// The settings whose losses are scaled.
    pub fn amp(&self) -> &Amp {
        &self.amp
    }

    /// Whether there is anything to scale or to check: false at O0 with its loss scale of 1.
    pub fn is_enabled(&self) -> bool {
        self.amp.policy().is_enabled()
            || self.amp.config().cast_model_type() == Some(burn_mixed_precision::ModelType::Half)
            || self
                .lock()
                .iter()
                .any(|s| s.config().dynamic || s.scale() != 1.0)
    }

    /// The scale of one loss with its counters.
    ///
    /// # Panics
    ///
    /// If `loss_id` is not below `num_losses`.
    pub fn loss_scale(&self, loss_id: usize) -> LossScale {
        self.amp.loss_scales().check(loss_id);
        self.lock()[loss_id]
    }

    /// Replaces the scale of one loss by hand.
    ///
    /// # Errors
    ///
    /// What [`LossScale::set`] rejects.
    ///
    /// # Panics
    ///
    /// If `loss_id` is not below `num_losses`.
    pub fn set_loss_scale(&self, loss_id: usize, scale: f32) -> Result<(), LossScaleError> {
        self.amp.loss_scales().check(loss_id);
        self.lock()[loss_id].set(scale)?;
        self.amp.loss_scales().set(loss_id, scale);
        Ok(())
    }

    /// Starts a joint look at the gradients of several losses or models.
    ///
    /// For Apex's rule of who skips, and for optimizers that skip together; a single optimizer
    /// does this by itself.
    ///
    /// # Example: two networks that skip together
    ///
    /// ```no_run
    /// # use burn::{optim::GradientsParams, nn::Linear, tensor::backend::AutodiffBackend};
    /// # use burn_grad_scaler::{AmpOptimizer, Scaler};
    /// # fn step<B: AutodiffBackend, O>(scaler: Scaler, net: Linear<B>, disc: Linear<B>,
    /// #     net_grads: GradientsParams, disc_grads: GradientsParams,
    /// #     mut net_optim: AmpOptimizer<O, B>, mut disc_optim: AmpOptimizer<O, B>)
    /// # where O: burn::optim::Optimizer<Linear<B>, B> {
    /// let verdict = scaler
    ///     .inspect::<B>()
    ///     .gradients(0, &net, &net_grads)
    ///     .gradients(1, &disc, &disc_grads)
    ///     .judge();
    /// let net = net_optim.step_with(&verdict, &[0, 1], 1e-3, net, net_grads);
    /// let disc = disc_optim.step_with(&verdict, &[0, 1], 1e-3, disc, disc_grads);
    /// # }
    /// ```
    pub fn inspect<B: AutodiffBackend>(&self) -> Inspection<'_, B> {
        Inspection {
            scaler: self,
            check: GradCheck::new(),
        }
    }

    /// As [`try_judge`](Scaler::try_judge), for those who cannot return an error.
    pub(crate) fn judge(&self, checked: Checked) -> Verdict {
        self.try_judge(checked)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Moves each loss's scale once, for what was found in its gradients, on any rank.
    pub(crate) fn try_judge(&self, mut checked: Checked) -> Result<Verdict, RanksError> {
        let mut scales = self.caught_up();
        if let Some(ranks) = &self.ranks {
            // Ranks may share this scaler: the lock is theirs while this one waits for them. Each
            // writes the same next scale then, the one that follows from what they agreed on.
            let before = scales.clone();
            drop(scales);
            agree(&**ranks, &mut checked, &before)?;
            scales = self.lock();
            *scales = before;
        }
        let mut updates: Vec<(usize, ScaleUpdate)> = Vec::new();
        for loss in checked.losses.iter().filter(|loss| loss.counts) {
            if updates.iter().any(|(loss_id, _)| *loss_id == loss.loss_id) {
                continue;
            }
            let mut of_loss = checked.losses.iter().filter(|l| l.loss_id == loss.loss_id);
            let update = scales[loss.loss_id].update(of_loss.any(|l| l.overflowed));
            self.amp.loss_scales().set(loss.loss_id, update.after);
            updates.push((loss.loss_id, update));
        }
        drop(scales);
        Ok(Verdict { checked, updates })
    }

    /// The largest norm that any rank has.
    pub(crate) fn largest_norm(&self, norm: f64) -> Result<f64, RanksError> {
        match &self.ranks {
            Some(ranks) => largest(&**ranks, norm),
            None => Ok(norm),
        }
    }

    /// The scales, each as `backward` has used it.
    fn caught_up(&self) -> MutexGuard<'_, Vec<LossScale>> {
        let mut scales = self.lock();
        for (loss_id, scale) in scales.iter_mut().enumerate() {
            self.catch_up(loss_id, scale);
        }
        scales
    }

    /// Goes on from the scale that `backward` has used, if somebody else has set it.
    ///
    /// Two optimizers with a scaler each, on one `Amp`, overwrite each other's scale. The one that
    /// overflows would lower its own copy to the floor while `backward` goes on with the other's.
    fn catch_up(&self, loss_id: usize, scale: &mut LossScale) {
        let (own, used) = (scale.scale(), self.amp.loss_scales().get(loss_id));
        if used == own || scale.set(used).is_err() {
            return;
        }
        self.not_alone.call_once(|| {
            log::warn!(
                "the scale of loss {loss_id} was set from {own} to {used} by another scaler: \
                 optimizers that share an Amp should share a Scaler too, with \
                 AmpOptimizer::with_scaler"
            );
        });
    }

    pub(crate) fn scales(&self) -> Vec<LossScale> {
        self.lock().clone()
    }

    /// Continues saved scales under the present rules.
    ///
    /// A dynamic scale continues where it was. A static one keeps the value the settings give it
    /// now: whoever changed the number meant it. Scales of losses that are no more are dropped.
    pub(crate) fn resume(&self, saved: &[LossScale]) -> Result<(), LossScaleError> {
        let mut scales = self.lock();
        if saved.len() != scales.len() {
            log::warn!(
                "the record has the scales of {} losses, the settings have {}: the common ones \
                 continue, the others start anew",
                saved.len(),
                scales.len()
            );
        }
        for (loss_id, (scale, saved)) in scales.iter_mut().zip(saved).enumerate() {
            let rule = *scale.config();
            let mut state = *saved.state();
            if !(rule.dynamic && saved.config().dynamic) {
                state.scale = rule.init;
                state.growth_tracker = 0;
                state.hysteresis_tracker = rule.hysteresis;
            }
            *scale = LossScale::resume(rule, state)?;
            self.amp.loss_scales().set(loss_id, scale.scale());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LossScale>> {
        self.scales.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A joint look at gradients that has begun: see [`Scaler::inspect`].
pub struct Inspection<'a, B: AutodiffBackend> {
    scaler: &'a Scaler,
    check: GradCheck<B>,
}

impl<B: AutodiffBackend> Inspection<'_, B> {
    /// Adds the gradients that a model has for one loss.
    ///
    /// # Panics
    ///
    /// If `loss_id` is not below `num_losses`.
    #[must_use]
    pub fn gradients<M: AutodiffModule<B>>(
        mut self,
        loss_id: usize,
        model: &M,
        grads: &GradientsParams,
    ) -> Self {
        self.scaler.amp.loss_scales().check(loss_id);
        self.check.add(loss_id, model, grads);
        self
    }

    /// Reads the result, one device-to-host read for all, and moves each loss's scale once.
    ///
    /// # Panics
    ///
    /// If there are [ranks](crate::AmpOptimizer::with_ranks) and they do not come together.
    pub fn judge(self) -> Verdict {
        self.scaler.judge(self.check.read())
    }

    pub(crate) fn try_judge(self) -> Result<Verdict, RanksError> {
        self.scaler.try_judge(self.check.read())
    }
}

/// Which losses had gradients that were not finite, and what that did to their scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub(crate) checked: Checked,
    pub(crate) updates: Vec<(usize, ScaleUpdate)>,
}

impl Verdict {
    /// Whether a gradient of this loss, in any of the models and on any rank, was infinite or NaN.
    pub fn overflowed(&self, loss_id: usize) -> bool {
        let of_loss = |loss: &&crate::check::LossCheck| loss.loss_id == loss_id;
        let mut losses = self.checked.losses.iter().filter(of_loss);
        losses.any(|loss| loss.overflowed)
    }

    /// Whether gradients of this loss were looked at.
    pub(crate) fn looked_at(&self, loss_id: usize) -> bool {
        let mut losses = self.checked.losses.iter();
        losses.any(|loss| loss.loss_id == loss_id)
    }

    /// The 2-norm over all gradients looked at.
    pub fn grad_norm(&self) -> f64 {
        self.checked.norm
    }

    /// What happened to each loss's scale.
    pub fn scales(&self) -> &[(usize, ScaleUpdate)] {
        &self.updates
    }
}
