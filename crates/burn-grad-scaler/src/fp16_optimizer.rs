use core::fmt;

use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, LearningRate, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn_mixed_precision::Amp;

use crate::look::Look;
use crate::unscaled::clip_factor;
use crate::{
    AmpOptimizer, AmpRecord, LossScaleConfig, LossScaleError, RecordError, ScaleEvent, StepOutcome,
    rescale,
};

/// Apex's `FP16_Optimizer`: an [`AmpOptimizer`] that also owns backward and the gradients.
///
/// | Apex | here |
/// |---|---|
/// | `FP16_Optimizer(optim, static_loss_scale=128.0)` | [`with_static_loss_scale`](Self::with_static_loss_scale) |
/// | `dynamic_loss_scale=True` | [`with_dynamic_loss_scale`](Self::with_dynamic_loss_scale) of [`LossScaleConfig::apex_fp16_utils`] |
/// | `dynamic_loss_args`: `init_scale`, `scale_window` | `init`, `growth_interval` of the rule |
/// | `dynamic_loss_args`: `scale_factor` | `growth_factor`, and `backoff_factor` as its inverse |
/// | `optimizer.backward(loss)` | [`backward`](Self::backward); several calls add up |
/// | `backward(loss, update_master_grads=False)` | the same: gradients are f32 at once and looked at when needed |
/// | `update_master_grads()` | [`update_master_grads`](Self::update_master_grads), to look now |
/// | `clip_master_grads(max_norm)`, -1 on overflow | [`clip_master_grads`](Self::clip_master_grads), `None` on overflow |
/// | `inspect_master_grad_data()` (not implemented there) | [`inspect_master_grad_data`](Self::inspect_master_grad_data) |
/// | `step()` | [`step`](Self::step) |
/// | `step(closure)` | [`replay`](Self::replay): again at a lower scale, under a dynamic scale too |
/// | `zero_grad()` | [`zero_grad`](Self::zero_grad), only to abandon gradients: a step uses them up |
/// | `overflow`, `loss_scale` | methods of these names and [`set_loss_scale`](Self::set_loss_scale) |
/// | `state_dict()`, `load_state_dict` | [`to_record`](Self::to_record), [`try_load_record`](Self::try_load_record) |
///
/// The model's dtypes are those of its settings: for Apex's half model with f32 norms and masters,
/// opt level O2 and [`Amp::cast_model`].
///
/// # Differences from Apex
///
/// - A static scale is checked for overflow too; Apex steps with the infinity.
/// - A step consumes the gradients; in Apex they stay until `zero_grad`, and the next backward adds
///   to them.
/// - The look is lazy: one device-to-host read per step, however many backward passes.
/// - Closures may be repeated under a dynamic scale, which Apex refuses; optimizers that call the
///   closure themselves, such as LBFGS, cannot be wrapped.
///
/// Source: apex `apex/fp16_utils/fp16_optimizer.py` (0a092aa; the file in e13873d, the last commit
/// with `fp16_utils`, has the same surface).
///
/// # Example
///
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::SgdConfig;
/// use burn::tensor::Tensor;
/// use burn_grad_scaler::Fp16Optimizer;
/// use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};
///
/// type B = MixedPrecision<Autodiff<Flex>>;
///
/// let device = Default::default();
/// let amp = AmpConfig::new(OptLevel::O2).init::<B>(&device).unwrap();
/// let mut model: Linear<B> = amp.cast_model(LinearConfig::new(4, 1).init(&device));
/// let mut optim = Fp16Optimizer::with_static_loss_scale(SgdConfig::new().init(), &amp, 128.0)?;
///
/// let loss = model.forward(Tensor::<B, 2>::ones([2, 4], &device)).mean();
/// optim.backward(loss, &model);
/// optim.clip_master_grads(1.0);
/// model = optim.step(1e-3, model);
/// assert!(!optim.overflow());
/// # Ok::<(), burn_grad_scaler::LossScaleError>(())
/// ```
pub struct Fp16Optimizer<O, B: AutodiffBackend> {
    optim: AmpOptimizer<O, B>,
    /// The true gradients of all backward passes since the last step.
    grads: GradientsParams,
    /// `None` before the first backward pass of a step.
    look: Option<Look<B>>,
    clip_factor: f64,
}

impl<O, B: AutodiffBackend> Fp16Optimizer<O, B> {
    /// Wraps an optimizer with a static loss scale: a factor of at least 2^-126, 1 in Apex unless
    /// given.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::InvalidOption`] for a scale that is not finite and at least 2^-126.
    pub fn with_static_loss_scale(
        optim: O,
        amp: &Amp,
        static_loss_scale: f32,
    ) -> Result<Self, LossScaleError> {
        Self::with_dynamic_loss_scale(optim, amp, LossScaleConfig::fixed(static_loss_scale))
    }

    /// Wraps an optimizer with a rule for the loss scale; Apex's is
    /// [`LossScaleConfig::apex_fp16_utils`].
    ///
    /// # Errors
    ///
    /// What [`LossScaleConfig::validate`] rejects.
    pub fn with_dynamic_loss_scale(
        optim: O,
        amp: &Amp,
        rule: LossScaleConfig,
    ) -> Result<Self, LossScaleError> {
        Ok(Fp16Optimizer {
            optim: AmpOptimizer::new(optim, amp).with_loss_scale(rule)?,
            grads: GradientsParams::new(),
            look: None,
            clip_factor: 1.0,
        })
    }

    /// Runs backward on the scaled loss and adds the true gradients, in f32, to those of earlier
    /// calls since the last step.
    ///
    /// Gradients that were clipped before stay clipped; the sum has to be clipped anew.
    pub fn backward<M: AutodiffModule<B>>(&mut self, loss: Tensor<B, 1>, model: &M) {
        let new = GradientsParams::from_grads(loss.backward(), model);
        let old = core::mem::take(&mut self.grads);
        self.grads = match old.is_empty() {
            true => new,
            false => {
                let old = rescale::widen::<B, M>(old, model, self.clip_factor);
                rescale::sum::<B, M>(old, new, model)
            }
        };
        self.clip_factor = 1.0;
        self.look = Some(Look::new(model, &self.grads));
    }

    /// Looks at the gradients now, rather than when they are first needed; returns whether they are
    /// finite.
    pub fn update_master_grads(&mut self) -> bool {
        !self.overflow()
    }

    /// Whether the gradients since the last step overflowed; with no new ones, whether the last step
    /// was skipped.
    pub fn overflow(&mut self) -> bool {
        match &mut self.look {
            Some(look) => look.non_finite().is_some(),
            None => self.optim.last_step().is_some_and(|s| s.was_skipped()),
        }
    }

    /// Clips the 2-norm over all true gradients to `max_norm`; returns what it was before this call,
    /// or `None` on overflow, where Apex returns -1.
    ///
    /// The step multiplies each gradient by `max_norm / (norm + 1e-6)` if that is below 1.
    ///
    /// # Panics
    ///
    /// If `max_norm` is not finite and above 0.
    pub fn clip_master_grads(&mut self, max_norm: f64) -> Option<f64> {
        assert!(
            max_norm.is_finite() && max_norm > 0.0,
            "invalid max_norm {max_norm}: allowed is a finite number above 0"
        );
        if self.overflow() {
            return None;
        }
        let norm = self.look.as_mut().map_or(0.0, |look| look.seen().norm) * self.clip_factor;
        self.clip_factor *= clip_factor(max_norm, norm);
        Some(norm)
    }

    /// The true f32 gradients since the last step, without the clipping that the step will do;
    /// `None` on overflow.
    pub fn inspect_master_grad_data(&mut self) -> Option<&GradientsParams> {
        match self.overflow() {
            true => None,
            false => Some(&self.grads),
        }
    }

    /// Drops the gradients since the last step. The scale does not move for them.
    pub fn zero_grad(&mut self) {
        self.grads = GradientsParams::new();
        self.look = None;
        self.clip_factor = 1.0;
    }

    /// Steps the masters and rounds them into the model, or skips on overflow, and moves the scale.
    ///
    /// # Panics
    ///
    /// As [`AmpOptimizer`]'s step: if the scale cannot go down and the rule says
    /// [`AtFloorPolicy::Error`](crate::AtFloorPolicy::Error).
    pub fn step<M>(&mut self, lr: LearningRate, model: M) -> M
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        let look = self.look.take();
        let look = look.unwrap_or_else(|| Look::new(&model, &self.grads));
        let verdict = self.optim.scaler().judge(look.into_seen());
        let (grads, factor) = (core::mem::take(&mut self.grads), self.clip_factor);
        self.clip_factor = 1.0;
        let optim = &mut self.optim;
        let model = optim.step_clipped(&verdict, &[0], factor, lr, model, grads);
        optim.stop_if_asked_to();
        model
    }

    /// A whole step from a closure that computes the loss: repeated on the same batch, at most
    /// `replays` times, while it overflows and the scale goes down.
    ///
    /// A batch whose loss overflows at every scale is skipped in the end, as by
    /// [`step`](Fp16Optimizer::step). Under a static scale nothing is repeated, since nothing would
    /// change. Each repetition is one step for the scale and for [`StepMonitor`](crate::StepMonitor).
    ///
    /// # Panics
    ///
    /// As [`step`](Fp16Optimizer::step).
    ///
    /// # Example
    ///
    /// ```no_run
    /// # use burn::{nn::Linear, optim::Optimizer, tensor::{Tensor, backend::AutodiffBackend}};
    /// # use burn_grad_scaler::Fp16Optimizer;
    /// # fn step<B: AutodiffBackend, O: Optimizer<Linear<B>, B>>(
    /// #     mut optim: Fp16Optimizer<O, B>, model: Linear<B>, batch: Tensor<B, 2>,
    /// # ) -> Linear<B> {
    /// optim.replay(1e-3, model, 3, |model| model.forward(batch.clone()).mean())
    /// # }
    /// ```
    pub fn replay<M>(
        &mut self,
        lr: LearningRate,
        mut model: M,
        replays: usize,
        mut closure: impl FnMut(&M) -> Tensor<B, 1>,
    ) -> M
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        for _ in 0..=replays {
            self.zero_grad();
            let loss = closure(&model);
            self.backward(loss, &model);
            model = self.step(lr, model);
            if !self.is_worth_repeating() {
                break;
            }
        }
        model
    }

    fn is_worth_repeating(&self) -> bool {
        let last = self.optim.last_step().expect("a step was just made");
        let searching = |event| {
            // With hysteresis, one more overflow may be what the backoff still needs.
            matches!(event, ScaleEvent::BackedOff | ScaleEvent::HeldByHysteresis)
        };
        last.was_skipped() && last.scales.iter().any(|(_, s)| searching(s.event))
    }

    /// The factor for the next loss.
    pub fn loss_scale(&self) -> f32 {
        self.optim.loss_scale().scale()
    }

    /// Replaces the loss scale by hand.
    ///
    /// # Errors
    ///
    /// What [`LossScale::set`](crate::LossScale::set) rejects.
    pub fn set_loss_scale(&mut self, scale: f32) -> Result<(), LossScaleError> {
        self.optim.scaler().set_loss_scale(0, scale)
    }

    /// What became of the last step; `None` before the first one.
    pub fn last_step(&self) -> Option<StepOutcome> {
        self.optim.last_step()
    }

    /// The optimizer behind this face: masters, monitor, the full-precision model.
    pub fn amp_optimizer(&self) -> &AmpOptimizer<O, B> {
        &self.optim
    }

    /// The optimizer behind this face, to set masters.
    pub fn amp_optimizer_mut(&mut self) -> &mut AmpOptimizer<O, B> {
        &mut self.optim
    }

    /// Masters, loss scale and the wrapped optimizer's record; gradients are not saved.
    pub fn to_record<M>(&self) -> AmpRecord<O::Record>
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        Optimizer::<M, B>::to_record(&self.optim)
    }

    /// Continues from a record, exactly; gradients that wait for a step are dropped.
    ///
    /// # Errors
    ///
    /// [`RecordError::LossScale`] if a saved scale is outside the present floor and cap.
    pub fn try_load_record<M>(self, record: AmpRecord<O::Record>) -> Result<Self, RecordError>
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        Ok(Fp16Optimizer {
            optim: self.optim.try_load_record::<M>(record)?,
            grads: GradientsParams::new(),
            look: None,
            clip_factor: 1.0,
        })
    }
}

impl<O, B: AutodiffBackend> fmt::Debug for Fp16Optimizer<O, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fp16Optimizer")
            .field("optim", &self.optim)
            .field("gradients", &self.grads.len())
            .field("clip_factor", &self.clip_factor)
            .finish()
    }
}
