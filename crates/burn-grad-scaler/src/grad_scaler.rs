use burn::module::AutodiffModule;
use burn::optim::{LearningRate, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{FloatDType, Tensor};
use burn_mixed_precision::{HalfDType, scope};

use crate::scaled::{ScaledGradients, ScaledLoss};
use crate::unscaled::{Seen, StepGradients, UnscaledGradients};
use crate::{
    LossScale, LossScaleConfig, LossScaleError, ScaleEvent, ScaleUpdate, StepMonitor, StepOutcome,
    StepStatus,
};

/// Loss scaling by hand, on any autodiff backend: torch's `GradScaler` with its method names.
///
/// | torch | here |
/// |---|---|
/// | `scaler.scale(loss).backward()` | `scaler.scale(loss).backward(&model)` |
/// | `scaler.unscale_(optimizer)` | `scaler.unscale(&model, grads)` |
/// | `clip_grad_norm_(parameters, 1.0)` | `grads.clip_norm(&model, 1.0)` |
/// | `scaler.step(optimizer)` | `scaler.step(&mut optim, lr, model, grads)` |
/// | `scaler.update()` | `scaler.update()?` |
/// | `scaler.update(new_scale)` | `scaler.set_scale(new_scale)?` |
/// | `scaler.state_dict()`, `load_state_dict` | [`state`](GradScaler::state), [`load_state`](GradScaler::load_state) |
/// | `GradScaler(enabled=False)` | [`GradScaler::disabled`] |
///
/// The order is kept by types where torch raises: a set of gradients is unscaled at most once and
/// stepped at most once, in this order.
///
/// ```compile_fail
/// # use burn::{backend::{Autodiff, Flex}, nn::Linear};
/// # use burn_grad_scaler::{GradScaler, ScaledGradients};
/// # type B = Autodiff<Flex>;
/// # fn f(mut scaler: GradScaler, model: Linear<B>, grads: ScaledGradients<B>) {
/// let unscaled = scaler.unscale(&model, grads);
/// let twice = scaler.unscale(&model, unscaled); // not ScaledGradients
/// # }
/// ```
///
/// ```compile_fail
/// # use burn::{backend::{Autodiff, Flex}, nn::Linear, optim::{Optimizer, SgdConfig}};
/// # use burn_grad_scaler::{GradScaler, ScaledGradients};
/// # type B = Autodiff<Flex>;
/// # fn f(mut scaler: GradScaler, model: Linear<B>, grads: ScaledGradients<B>) {
/// # let mut optim = SgdConfig::new().init::<B, Linear<B>>();
/// let model = scaler.step(&mut optim, 1e-3, model, grads);
/// let model = scaler.step(&mut optim, 1e-3, model, grads); // moved by the first step
/// # }
/// ```
///
/// # With `MixedPrecision`
///
/// A decorated backend scales by itself once an [`AmpOptimizer`](crate::AmpOptimizer) is attached,
/// and then this type is not needed. Used all the same, it replaces that scale for its own losses:
/// nothing is scaled twice. Its gradients may be stepped with an `AmpOptimizer`, which adds masters
/// for half parameters.
///
/// # Differences from torch
///
/// - Gradients remember their own scale, so an update or [`set_scale`](GradScaler::set_scale) in the
///   middle of an accumulation window does no harm.
/// - Half gradients are accepted, unscaled in f32; torch refuses them.
/// - A step without gradients is no error and teaches nothing.
/// - An optimizer has no identity here: two steps between two updates are those of two optimizers.
///   torch raises if they are the same; here they need gradients of their own, so nothing is
///   applied twice.
/// - Growth has a cap and backoff a floor unless the rule is [`LossScaleConfig::torch`].
///
/// As in torch, BatchNorm's running statistics keep what the forward pass of a skipped step did to
/// them; `AmpOptimizer` undoes it.
///
/// Source: pytorch `torch/amp/grad_scaler.py` (0202916).
///
/// # Example
///
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::SgdConfig;
/// use burn::tensor::Tensor;
/// use burn_grad_scaler::{GradScaler, LossScaleConfig};
///
/// type B = Autodiff<Flex>;
///
/// let device = Default::default();
/// let mut model: Linear<B> = LinearConfig::new(4, 1).init(&device);
/// let mut optim = SgdConfig::new().init::<B, Linear<B>>();
/// let mut scaler = GradScaler::new(LossScaleConfig::torch())?;
///
/// for _ in 0..3 {
///     let loss = model.forward(Tensor::<B, 2>::ones([2, 4], &device)).mean();
///     let grads = scaler.scale(loss).backward(&model);
///     let mut grads = scaler.unscale(&model, grads); // only to clip or to log
///     grads.clip_norm(&model, 1.0);
///     model = scaler.step(&mut optim, 1e-3, model, grads);
///     let update = scaler.update()?;
///     assert!(!update.found_inf);
/// }
/// # Ok::<(), burn_grad_scaler::LossScaleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct GradScaler {
    scale: LossScale,
    enabled: bool,
    /// What was seen of each set of gradients since the last update.
    window: Vec<Seen>,
    monitor: StepMonitor,
}

impl GradScaler {
    /// Starts at the rule's first scale.
    ///
    /// # Errors
    ///
    /// What [`LossScaleConfig::validate`] rejects.
    pub fn new(rule: LossScaleConfig) -> Result<Self, LossScaleError> {
        Ok(Self::continuing(rule.init()?, true))
    }

    /// A scaler that does nothing, so that a loop can be written once: losses, gradients and steps
    /// are the plain ones, bit by bit, the scale is 1 and nothing is checked.
    pub fn disabled() -> Self {
        let scale = LossScaleConfig::none().init();
        Self::continuing(scale.expect("the static scale 1 is valid"), false)
    }

    fn continuing(scale: LossScale, enabled: bool) -> Self {
        GradScaler {
            scale,
            enabled,
            window: Vec::new(),
            monitor: StepMonitor::default(),
        }
    }

    /// Whether this scaler does anything.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The factor for the next loss; 1 if disabled. torch's `get_scale`, without a device read.
    pub fn get_scale(&self) -> f32 {
        self.scale.scale()
    }

    /// Multiplies a loss by the scale.
    ///
    /// # Numerics
    ///
    /// A half loss is widened to f32 first: 65536, the usual scale, is infinite in f16. Backward
    /// still passes through the half loss, whose gradient is the scale itself, so compute losses in
    /// f32.
    pub fn scale<B: AutodiffBackend>(&self, loss: Tensor<B, 1>) -> ScaledLoss<B> {
        if !self.enabled {
            return ScaledLoss { loss, scale: None };
        }
        let scale = self.scale.scale();
        let loss = scope::bare(|| {
            let loss = match HalfDType::of(loss.dtype()) {
                Some(_) => loss.cast(FloatDType::F32),
                None => loss,
            };
            loss.mul_scalar(scale)
        });
        ScaledLoss {
            loss,
            scale: Some(scale),
        }
    }

    /// Divides gradients by the scale they were computed with, in f32.
    ///
    /// Optional, as [`step`](GradScaler::step) does it too: for clipping and logging. Does not read
    /// from the device.
    pub fn unscale<B: AutodiffBackend, M: AutodiffModule<B>>(
        &mut self,
        model: &M,
        grads: ScaledGradients<B>,
    ) -> UnscaledGradients<B> {
        let grads = UnscaledGradients::new(grads, model);
        self.window.push(grads.seen().clone());
        grads
    }

    /// Steps the optimizer, unless a true gradient is infinite or NaN.
    ///
    /// Then the model is returned as it is and [`update`](GradScaler::update) will lower the scale.
    /// Several optimizers may step before one update; each skips for its own gradients only.
    ///
    /// # Panics
    ///
    /// Burn panics if a half parameter meets its f32 gradient in an optimizer without masters: take
    /// an [`AmpOptimizer`](crate::AmpOptimizer), or round first with
    /// [`to_parameter_dtypes`](UnscaledGradients::to_parameter_dtypes).
    ///
    /// # Cost
    ///
    /// One device-to-host read, unless [`UnscaledGradients`] had it already.
    pub fn step<B, M, O>(
        &mut self,
        optim: &mut O,
        lr: LearningRate,
        model: M,
        grads: impl StepGradients<B>,
    ) -> M
    where
        B: AutodiffBackend,
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        let grads = grads.unscaled(self, &model);
        // Once more if they were unscaled apart: an update may have come between.
        self.window.push(grads.seen().clone());
        let (outcome, grads) = grads.into_step();
        let model = match (outcome.status, self.enabled) {
            // The optimizer's arithmetic is no business of a backend's policy.
            (StepStatus::Applied, true) => scope::bare(|| optim.step(lr, model, grads)),
            (StepStatus::Applied, false) => optim.step(lr, model, grads),
            _ => model,
        };
        self.monitor.record(outcome);
        model
    }

    /// Moves to the next scale: lower if any gradient since the last update was not finite.
    ///
    /// Call it once per iteration, after every optimizer's step. Gradients that were unscaled and
    /// dropped count if somebody looked at them, and steps without gradients do not: if nothing else
    /// happened, neither the scale nor a counter changes.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::NothingRecorded`] if no gradients were stepped or unscaled since the last
    /// update. [`LossScaleError::AtFloor`] if the scale cannot go down and the rule says
    /// [`AtFloorPolicy::Error`](crate::AtFloorPolicy::Error); the update has then been made.
    pub fn update(&mut self) -> Result<ScaleUpdate, LossScaleError> {
        if !self.enabled {
            return Ok(self.unchanged());
        }
        if self.window.is_empty() {
            return Err(LossScaleError::NothingRecorded);
        }
        let window = core::mem::take(&mut self.window);
        let saw = |status| window.iter().any(|seen| seen.get() == Some(&status));
        match (saw(StepStatus::Skipped), saw(StepStatus::Applied)) {
            (false, false) => Ok(self.unchanged()),
            (found_inf, _) => self.scale.update(found_inf).check(),
        }
    }

    fn unchanged(&self) -> ScaleUpdate {
        ScaleUpdate {
            event: ScaleEvent::Unchanged,
            found_inf: false,
            before: self.scale.scale(),
            after: self.scale.scale(),
            consecutive_skips: self.scale.state().consecutive_skips,
            policy: self.scale.config().at_floor,
        }
    }

    /// Chooses the next scale by hand, in the place of an [`update`](GradScaler::update): counters
    /// stay, and what was recorded for the next update is forgotten. No effect if disabled.
    ///
    /// # Errors
    ///
    /// What [`LossScale::set`] rejects.
    pub fn set_scale(&mut self, scale: f32) -> Result<(), LossScaleError> {
        if self.enabled {
            self.scale.set(scale)?;
            self.window.clear();
        }
        Ok(())
    }

    /// Rule, scale and counters, to be saved between two iterations.
    ///
    /// # Example
    ///
    /// ```
    /// use burn_grad_scaler::{GradScaler, LossScaleConfig};
    ///
    /// let mut scaler = GradScaler::new(LossScaleConfig::torch())?;
    /// scaler.set_scale(512.0)?;
    /// let saved = serde_json::to_string(scaler.state()).unwrap();
    ///
    /// let mut resumed = GradScaler::new(LossScaleConfig::torch())?;
    /// resumed.load_state(serde_json::from_str(&saved).unwrap());
    /// assert_eq!(resumed.get_scale(), 512.0);
    /// # Ok::<(), burn_grad_scaler::LossScaleError>(())
    /// ```
    pub fn state(&self) -> &LossScale {
        &self.scale
    }

    /// Continues a saved scale under the rule it was saved with. No effect if disabled.
    pub fn load_state(&mut self, state: LossScale) {
        if self.enabled {
            self.scale = state;
            self.window.clear();
        }
    }

    /// What became of the last step; its `scales` are empty, as [`update`](GradScaler::update) comes
    /// later.
    pub fn last_step(&self) -> Option<StepOutcome> {
        self.monitor.last()
    }

    /// Follows the steps from elsewhere: for schedulers and metrics.
    pub fn monitor(&self) -> StepMonitor {
        self.monitor.clone()
    }
}
