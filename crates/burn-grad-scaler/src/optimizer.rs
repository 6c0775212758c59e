use core::fmt;
use core::marker::PhantomData;
use std::collections::HashSet;

use burn::module::{AutodiffModule, Module};
use burn::optim::LearningRate;
use burn::optim::{GradientsParams, MultiGradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn_mixed_precision::{Amp, scope};

use crate::announcer::Announcer;
use crate::merge::merge;
use crate::record::{AmpRecord, AmpState};
use crate::recorder::Recorder;
use crate::unscaled::clip_factor;
use crate::weights::{Adopt, Fit, Lift, Lower, Restore, Weights};
use crate::{
    LossScale, LossScaleConfig, LossScaleError, Ranks, RecordError, Scaler, StepMonitor,
    StepOutcome, StepStatus, Verdict, statistics,
};

/// Wraps any Burn optimizer for mixed precision: finite check, skipped steps, loss scale, master
/// weights, clipping, exact records.
///
/// Gradients arrive here true, not scaled: `backward` of
/// [`MixedPrecision`](burn_mixed_precision::MixedPrecision) has scaled the loss and unscaled them.
/// Each step looks at all gradients once. If one is infinite or NaN, the step is skipped: parameters,
/// masters, the inner optimizer's state and BatchNorm's running statistics are what they were
/// before, bit by bit, and the loss scale backs off. Otherwise the inner optimizer steps, in full
/// precision and without casts.
///
/// At O0 nothing is checked or changed: every step is the inner optimizer's own.
///
/// # Numerics
///
/// The finite check and the norm are taken in f32 on the device, as at most 4096 partial sums per
/// 67 million elements, whose total is taken in f64.
/// A parameter with a master is updated in f32 and rounded to half once. Elements of a half parameter
/// that were changed between two steps, by clamping or by a record, go on from their new value; all
/// others from their master.
///
/// # Cost
///
/// One device-to-host read per step: finiteness and norm of all gradients together. A step that is
/// skipped reads once more, to count infinities and NaNs and to name the parameters. With
/// [`with_finite_check(false)`](AmpOptimizer::with_finite_check) and no clipping there is no read.
///
/// # Closures
///
/// Optimizers that evaluate the loss themselves, as `LBFGS` does, cannot be wrapped: they would need
/// a decision in the middle of their line search. torch's `GradScaler` refuses them too. It is a
/// compile error here, since they do not implement Burn's `Optimizer`.
///
/// ```compile_fail
/// # use burn_grad_scaler::AmpOptimizer;
/// # use burn::optim::{LBFGSConfig, Optimizer, GradientsParams};
/// # use burn::nn::Linear;
/// # use burn::backend::{Autodiff, Flex};
/// # type B = burn_mixed_precision::MixedPrecision<Autodiff<Flex>>;
/// # fn step(amp: &burn_mixed_precision::Amp, model: Linear<B>, grads: GradientsParams) {
/// let mut optim = AmpOptimizer::new(LBFGSConfig::new().init::<B>(), amp);
/// let model: Linear<B> = optim.step(1e-3, model, grads);
/// # }
/// ```
///
/// # Example
///
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{AdamConfig, GradientsParams, Optimizer};
/// use burn::tensor::Tensor;
/// use burn_grad_scaler::AmpOptimizer;
/// use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};
///
/// type B = MixedPrecision<Autodiff<Flex>>;
///
/// let device = Default::default();
/// let amp = AmpConfig::new(OptLevel::O1).init::<B>(&device)?;
/// let mut model: Linear<B> = amp.cast_model(LinearConfig::new(4, 2).init(&device));
/// let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
///
/// let loss = model.forward(Tensor::<B, 2>::ones([1, 4], &device)).mean();
/// let grads = GradientsParams::from_grads(loss.backward(), &model);
/// model = optim.step(1e-3, model, grads);
/// assert!(optim.last_step().is_some_and(|step| step.was_applied()));
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Clone)]
pub struct AmpOptimizer<O, B: AutodiffBackend> {
    inner: O,
    scaler: Scaler,
    clip_norm: Option<f64>,
    finite_check: bool,
    weights: Weights<B::InnerBackend>,
    recorder: Recorder,
    announcer: Announcer,
    backend: PhantomData<B>,
}

impl<O, B: AutodiffBackend> AmpOptimizer<O, B> {
    /// Wraps an optimizer, with the loss scale that the settings ask for.
    ///
    /// From now on `backward` scales losses on the devices with these settings.
    pub fn new(inner: O, amp: &Amp) -> Self {
        Self::with_scaler(inner, &Scaler::new(amp))
    }

    /// Wraps an optimizer that shares its loss scales with others.
    ///
    /// Stepped one by one, each skips for its own gradients only and each moves the scale, as in
    /// torch; to move it once for all, and to let them skip together, see [`Scaler::inspect`].
    pub fn with_scaler(inner: O, scaler: &Scaler) -> Self {
        AmpOptimizer {
            inner,
            finite_check: scaler.is_enabled(),
            scaler: scaler.clone(),
            clip_norm: None,
            weights: Weights::default(),
            recorder: Recorder::default(),
            announcer: Announcer::default(),
            backend: PhantomData,
        }
    }

    /// Replaces the rule of the loss scale.
    ///
    /// # Errors
    ///
    /// What [`LossScaleConfig::validate`] rejects.
    pub fn with_loss_scale(mut self, rule: LossScaleConfig) -> Result<Self, LossScaleError> {
        let ranks = self.scaler.ranks().cloned();
        self.scaler = Scaler::with_rule(self.scaler.amp(), rule)?.among(ranks);
        self.finite_check = self.scaler.is_enabled();
        Ok(self)
    }

    /// Clips the 2-norm over all gradients to `max_norm`, a finite number above 0.
    ///
    /// Acts on the true gradients, whatever the loss scale: each is multiplied by
    /// `max_norm / (norm + 1e-6)` if that is below 1, torch's `clip_grad_norm_`.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::InvalidOption`] for a norm that is not finite and above 0.
    pub fn with_clip_norm(mut self, max_norm: f64) -> Result<Self, LossScaleError> {
        if !(max_norm.is_finite() && max_norm > 0.0) {
            return Err(LossScaleError::InvalidOption {
                option: "clip_norm",
                value: max_norm.to_string(),
                allowed: "a finite number above 0".to_string(),
            });
        }
        self.clip_norm = Some(max_norm);
        Ok(self)
    }

    /// Switches the finite check, which is on unless the settings are those of plain f32.
    ///
    /// Without it every step is applied. bf16, which needs no loss scale, then trains without any
    /// device-to-host read.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::InvalidOption`] when it is switched off under a dynamic loss scale, which
    /// lives from it.
    pub fn with_finite_check(mut self, check: bool) -> Result<Self, LossScaleError> {
        if !check && self.scaler.scales().iter().any(|s| s.config().dynamic) {
            return Err(LossScaleError::InvalidOption {
                option: "finite_check",
                value: "false".to_string(),
                allowed: "true with a dynamic loss scale; take a static one to switch it off"
                    .to_string(),
            });
        }
        self.finite_check = check;
        Ok(self)
    }

    /// Steps together with other ranks, each with its own part of the data: all of them skip when
    /// one of them overflows, and all have the same scale.
    ///
    /// Once per step the ranks agree whether any of them found an infinity or a NaN, and on the
    /// largest gradient norm, so that all clip by the same factor. Whether the ranks' gradients are
    /// averaged, in backward by Burn's data-parallel training or by hand, does not matter to them.
    /// A scale that differs between ranks is an error, found before anything is applied.
    ///
    /// Each rank has an optimizer of its own, or a clone of one: Burn's `Learner` clones it for each
    /// device. Clones share scale and monitor, in which each step counts once. Ranks that begin with
    /// the same model, settings and record keep the same parameters, bit by bit, as far as their
    /// gradients are the same.
    ///
    /// Nothing is asked where nobody looks at the gradients: at O0, and without a finite check and
    /// clipping.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::InvalidOption`] with stochastic rounding, which draws other numbers on every
    /// rank.
    ///
    /// # Example
    ///
    /// ```
    /// # use burn::backend::{Autodiff, Flex};
    /// # use burn::nn::Linear;
    /// # use burn::optim::AdamConfig;
    /// # use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};
    /// use burn_grad_scaler::{AmpOptimizer, LocalRanks};
    ///
    /// type B = MixedPrecision<Autodiff<Flex>>;
    ///
    /// let amp = AmpConfig::new(OptLevel::O1).build()?;
    /// let optim = AdamConfig::new().init::<B, Linear<B>>();
    /// let optim = AmpOptimizer::<_, B>::new(optim, &amp).with_ranks(LocalRanks::new(2))?;
    /// let of_each_rank = [optim.clone(), optim];
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_ranks(mut self, ranks: impl Ranks + 'static) -> Result<Self, LossScaleError> {
        if self.scaler.amp().config().stochastic_rounding() {
            return Err(LossScaleError::InvalidOption {
                option: "stochastic_rounding",
                value: "true".to_string(),
                allowed: "false with several ranks, whose parameters would drift apart".to_string(),
            });
        }
        self.scaler = self.scaler.with_ranks(ranks);
        Ok(self)
    }

    /// What became of the last step; `None` before the first one.
    pub fn last_step(&self) -> Option<StepOutcome> {
        self.recorder.monitor.last()
    }

    /// Follows the steps from elsewhere: for schedulers and metrics.
    pub fn monitor(&self) -> StepMonitor {
        self.recorder.monitor.clone()
    }

    /// The loss scales, to share or to change.
    pub fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    /// The scale of loss 0 with its counters.
    pub fn loss_scale(&self) -> LossScale {
        self.scaler.loss_scale(0)
    }

    /// The wrapped optimizer.
    pub fn inner(&self) -> &O {
        &self.inner
    }

    /// The model in full precision: masters in the place of their half copies. For export.
    ///
    /// Parameters that were never stepped are widened, which is exact.
    pub fn full_model<M: Module<B>>(&self, model: M) -> M {
        self.restore(model, true)
    }

    /// The model as it was after the last step, exactly: for a resume whose model record was saved
    /// in half precision.
    ///
    /// Call it between loading both records and the next forward. A record in full precision needs
    /// no such call.
    pub fn restore_model<M: Module<B>>(&self, model: M) -> M {
        self.restore(model, false)
    }

    fn restore<M: Module<B>>(&self, model: M, full: bool) -> M {
        scope::bare(|| {
            model.map(&mut Restore::<B> {
                amp: self.scaler.amp(),
                weights: &self.weights,
                full,
                path: Vec::new(),
            })
        })
    }

    /// Takes the values of a model, in f32 before it is cast, as the masters.
    ///
    /// For weights that were loaded in f32 and shall train from there, not from their half copies.
    /// Masters belong to parameter ids, so the model must have those of the one that is trained: its
    /// record was loaded from this one, or this one from its record.
    pub fn set_masters<M: Module<B>>(&mut self, model: &M) {
        let weights = &mut self.weights;
        scope::bare(|| model.visit(&mut Adopt::<B> { weights }));
    }

    /// Steps, or skips, as a joint verdict says about these losses.
    ///
    /// Apex's rule of who skips: pass every loss that this optimizer's gradients are made of. To let
    /// several optimizers skip together, pass them all the same losses.
    ///
    /// # Panics
    ///
    /// If none of these losses was inspected: nobody could say whether to skip. And as Burn's `step`:
    /// if the scale cannot go down and the rule says
    /// [`AtFloorPolicy::Error`](crate::AtFloorPolicy::Error).
    pub fn step_with<M>(
        &mut self,
        verdict: &Verdict,
        loss_ids: &[usize],
        lr: LearningRate,
        module: M,
        grads: GradientsParams,
    ) -> M
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        assert!(
            loss_ids.iter().any(|id| verdict.looked_at(*id)),
            "none of the losses {loss_ids:?} was inspected: call Inspection::gradients for the losses \
             of a step"
        );
        let module = self.step_clipped(verdict, loss_ids, 1.0, lr, module, grads);
        self.stop_if_asked_to();
        module
    }

    /// As [`step_with`](AmpOptimizer::step_with), with a factor for the gradients that the caller
    /// has chosen; an own clip norm replaces it.
    pub(crate) fn step_clipped<M>(
        &mut self,
        verdict: &Verdict,
        loss_ids: &[usize],
        clip_factor: f64,
        lr: LearningRate,
        module: M,
        grads: GradientsParams,
    ) -> M
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        let judged = |id: &usize| loss_ids.contains(id);
        let mut outcome = outcome(
            verdict,
            loss_ids.iter().any(|id| verdict.overflowed(*id)),
            judged,
        );
        outcome.clip_factor = clip_factor;
        if outcome.was_applied() && self.clip_norm.is_some() {
            // The verdict's norm is over several losses or models: this one is of these gradients.
            let mut check = crate::check::GradCheck::<B>::new();
            check.add(0, &module, &grads);
            let norm = self.scaler.largest_norm(check.read().norm);
            outcome.grad_norm = Some(norm.unwrap_or_else(|error| panic!("{error}")));
        }
        self.finish(outcome, module, |inner, weights, amp, factor, module| {
            step_full(
                inner,
                weights,
                amp,
                factor,
                module,
                grads,
                |inner, module, grads| inner.step(lr, module, grads),
            )
        })
    }

    /// As Burn's `step`, with the outcome, and with an error in the place of a panic.
    ///
    /// # Errors
    ///
    /// [`LossScaleError::AtFloor`] if the step was skipped, the scale cannot go down, and the rule
    /// says [`AtFloorPolicy::Error`](crate::AtFloorPolicy::Error). [`LossScaleError::Ranks`] if
    /// [other ranks](AmpOptimizer::with_ranks) did not step along. The module is returned unchanged
    /// all the same.
    pub fn try_step<M>(
        &mut self,
        lr: LearningRate,
        module: M,
        grads: GradientsParams,
    ) -> (M, Result<StepOutcome, LossScaleError>)
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        self.checked(module, grads, |inner, module, grads| {
            inner.step(lr, module, grads)
        })
    }

    /// The step that was just made, or what its loss scale wants training to stop for.
    fn last_outcome(&self) -> Result<StepOutcome, LossScaleError> {
        let outcome = self.last_step().expect("a step was just recorded");
        let failed = outcome
            .scales
            .iter()
            .find_map(|(_, update)| update.check().err());
        failed.map_or(Ok(outcome), Err)
    }

    /// Panics if the rule of a loss scale says so about the step that was just made.
    pub(crate) fn stop_if_asked_to(&self) {
        if let Err(error) = self.last_outcome() {
            panic!("{error}");
        }
    }

    /// Looks at the gradients and steps or skips.
    fn checked<M: AutodiffModule<B>>(
        &mut self,
        module: M,
        grads: GradientsParams,
        step: impl FnOnce(&mut O, M, GradientsParams) -> M,
    ) -> (M, Result<StepOutcome, LossScaleError>) {
        let outcome = if self.finite_check || self.clip_norm.is_some() {
            let inspection = self.scaler.inspect::<B>();
            match inspection.gradients(0, &module, &grads).try_judge() {
                Ok(verdict) => outcome(&verdict, verdict.overflowed(0), |_| true),
                Err(error) => return (module, Err(error.into())),
            }
        } else {
            unchecked()
        };
        let module = self.finish(outcome, module, |inner, weights, amp, factor, module| {
            step_full(inner, weights, amp, factor, module, grads, step)
        });
        (module, self.last_outcome())
    }

    /// Applies what was decided, and tells whoever follows.
    fn finish<M: AutodiffModule<B>>(
        &mut self,
        mut outcome: StepOutcome,
        module: M,
        apply: impl FnOnce(&mut O, &mut Weights<B::InnerBackend>, &Amp, f64, M) -> M,
    ) -> M {
        let amp = self.scaler.amp().clone();
        let module = match outcome.status {
            StepStatus::Applied => {
                if let (Some(max_norm), Some(norm)) = (self.clip_norm, outcome.grad_norm) {
                    outcome.clip_factor = clip_factor(max_norm, norm);
                }
                let factor = outcome.clip_factor;
                let module = apply(&mut self.inner, &mut self.weights, &amp, factor, module);
                scope::bare(|| statistics::keep::<B, M>(&module, &mut self.weights));
                module
            }
            StepStatus::Skipped => {
                scope::bare(|| statistics::roll_back::<B, M>(module, &mut self.weights))
            }
            StepStatus::NoGradients => module,
        };
        if outcome.status != StepStatus::NoGradients {
            let skipped = outcome.status == StepStatus::Skipped;
            amp.tracer().end_step(skipped, &module);
        }
        let first = match self.scaler.ranks() {
            Some(_) => self.recorder.record_once(outcome.clone()),
            None => self.recorder.record(outcome.clone()),
        };
        let half = amp.config().half();
        self.announcer.announce(&outcome, half, amp.tracer(), first);
        module
    }
}

/// Without the inner optimizer and the weights: Burn's optimizers do not implement `Debug`.
impl<O, B: AutodiffBackend> fmt::Debug for AmpOptimizer<O, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmpOptimizer")
            .field("scaler", &self.scaler)
            .field("clip_norm", &self.clip_norm)
            .field("finite_check", &self.finite_check)
            .field("last_step", &self.last_step())
            .finish_non_exhaustive()
    }
}

/// Runs the inner optimizer on full precision and brings the result back to the model's dtypes.
fn step_full<O, B: AutodiffBackend, M: AutodiffModule<B>>(
    inner: &mut O,
    weights: &mut Weights<B::InnerBackend>,
    amp: &Amp,
    factor: f64,
    module: M,
    mut grads: GradientsParams,
    step: impl FnOnce(&mut O, M, GradientsParams) -> M,
) -> M {
    // The inner optimizer's tensors are on the decorated backend too: its arithmetic is no business
    // of the policy (Muon's matmuls would run in half).
    scope::bare(|| {
        let mut lift = Lift::<B>::new(amp, &grads, weights);
        let module = module.map(&mut lift);
        let lowers_to = lift.lowers_to;
        module.visit(&mut Fit::<B> {
            grads: &mut grads,
            factor,
            fitted: HashSet::new(),
            backend: PhantomData,
        });
        let module = step(inner, module, grads);
        module.map(&mut Lower::<B> {
            weights,
            lowers_to: &lowers_to,
            masters: amp.config().master_weights(),
            stochastic: amp.config().stochastic_rounding(),
        })
    })
}

fn outcome(verdict: &Verdict, overflowed: bool, judged: impl Fn(&usize) -> bool) -> StepOutcome {
    let of_step = || {
        let losses = verdict.checked.losses.iter();
        losses.filter(|loss| judged(&loss.loss_id))
    };
    let gradients: usize = of_step().map(|loss| loss.gradients).sum();
    StepOutcome {
        status: match (overflowed, gradients) {
            (true, _) => StepStatus::Skipped,
            (false, 0) => StepStatus::NoGradients,
            (false, _) => StepStatus::Applied,
        },
        scales: verdict
            .updates
            .iter()
            .filter(|(id, _)| judged(id))
            .copied()
            .collect(),
        grad_norm: Some(of_step().map(|loss| loss.square).sum::<f64>().sqrt()),
        clip_factor: 1.0,
        non_finite: of_step().find_map(|loss| loss.non_finite.clone()),
    }
}

/// The outcome of a step at which nobody looks at the gradients.
fn unchecked() -> StepOutcome {
    StepOutcome {
        status: StepStatus::Applied,
        scales: Vec::new(),
        grad_norm: None,
        clip_factor: 1.0,
        non_finite: None,
    }
}

impl<O, B, M> Optimizer<M, B> for AmpOptimizer<O, B>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    type Record = AmpRecord<O::Record>;

    /// # Panics
    ///
    /// If the step was skipped, the scale cannot go down, and the rule says
    /// [`AtFloorPolicy::Error`](crate::AtFloorPolicy::Error), or if
    /// [other ranks](AmpOptimizer::with_ranks) did not step along; [`AmpOptimizer::try_step`] returns
    /// an error in its place.
    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        let (module, outcome) = self.try_step(lr, module, grads);
        if let Err(error) = outcome {
            panic!("{error}");
        }
        module
    }

    /// # Panics
    ///
    /// As [`step`](Optimizer::step).
    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        // Summed here, once, so that the check sees what the optimizer will.
        let (grads, devices) = merge::<B, M>(grads, &module);
        let (module, outcome) = self.checked(module, grads, |inner, module, grads| {
            let grads = devices.scatter::<B, M>(grads, &module);
            inner.step_multi(lr, module, grads)
        });
        if let Err(error) = outcome {
            panic!("{error}");
        }
        module
    }

    fn to_record(&self) -> Self::Record {
        let config = self.scaler.amp().config();
        AmpRecord {
            state: AmpState {
                opt_level: config.opt_level(),
                half: config.half(),
                scales: self.scaler.scales(),
                weights: scope::bare(|| self.weights.to_data()),
                applied: self.recorder.monitor.applied(),
                skipped: self.recorder.monitor.skipped(),
            },
            inner: self.inner.to_record(),
        }
    }

    /// # Panics
    ///
    /// If a saved loss scale is outside the present floor and cap; [`AmpOptimizer::try_load_record`]
    /// returns an error in its place.
    fn load_record(self, record: Self::Record) -> Self {
        self.try_load_record::<M>(record)
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<O, B: AutodiffBackend> AmpOptimizer<O, B> {
    /// Continues from a record, at this or at another opt level.
    ///
    /// A record holds the f32 value of every parameter, so any level can continue one of any other:
    /// O0 to O2 takes them as masters, O2 to O1 returns them to the model at the next step.
    ///
    /// Load the model's record of the same moment beside it. At its next step each parameter goes on
    /// from the value in this record, whatever the model has: to train other weights on with this
    /// record, such as an average of several, give them to
    /// [`set_masters`](AmpOptimizer::set_masters) afterwards.
    ///
    /// # Errors
    ///
    /// [`RecordError::LossScale`] if a saved scale is outside the present floor and cap.
    pub fn try_load_record<M>(mut self, record: AmpRecord<O::Record>) -> Result<Self, RecordError>
    where
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        self.scaler.resume(&record.state.scales)?;
        self.weights.load(record.state.weights);
        self.recorder
            .monitor
            .restore(record.state.applied, record.state.skipped);
        self.inner = self.inner.load_record(record.inner);
        Ok(self)
    }
}
