use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;

use burn_backend::Backend;
use serde::{Deserialize, Serialize};

use crate::loss_scale::{SCALES, is_scale};
use crate::{
    Amp, AmpError, CastRule, ConvBackward, HalfDType, LossScaling, Op, OptLevel, Policy, TraceMode,
};

/// Burn's norm layers: the modules that stay in f32 when the rest of a model becomes half.
///
/// The names are those of the structs that hold the parameters, as Burn's `ModuleMapper` reports
/// them.
pub const NORM_LAYERS: [&str; 5] = [
    "BatchNorm",
    "LayerNorm",
    "GroupNorm",
    "InstanceNorm",
    "RmsNorm",
];

/// A dtype that is either f32 or the configured half dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelType {
    /// f32.
    F32,
    /// The half dtype of the configuration.
    Half,
}

impl fmt::Display for ModelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ModelType::F32 => "f32",
            ModelType::Half => "half",
        })
    }
}

impl FromStr for ModelType {
    type Err = AmpError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "f32" => Ok(ModelType::F32),
            "half" => Ok(ModelType::Half),
            _ => Err(AmpError::InvalidOption {
                option: "model type",
                value: text.to_string(),
                allowed: "f32 or half".to_string(),
            }),
        }
    }
}

/// What to do on a device that cannot compute in the half dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// [`AmpConfig::init`] returns [`AmpError::UnsupportedHalf`].
    #[default]
    Strict,
    /// The device runs in plain f32 (O0), and one warning says so.
    Fallback,
}

/// Every setting of mixed precision: an opt level, and what to change of it.
///
/// `None` means the level's own value; the accessors of the same name without `with_` resolve it.
/// Contradictions are refused by [`build`](AmpConfig::build), not ignored. Defaults and
/// contradictions follow apex/amp/frontend.py.
///
/// | property | O0 | O1 | O2 | O3 |
/// |---|---|---|---|---|
/// | `cast_model_type` | f32 | none | half | half |
/// | `patch_functions` | no | yes | no | no |
/// | `keep_batchnorm_fp32` | | | yes | no |
/// | `master_weights` | no | | yes | no |
/// | `loss_scale` (f16) | 1 | dynamic | dynamic | 1 |
/// | `loss_scale` (bf16) | 1 | 1 | 1 | 1 |
/// | `cast_model_outputs` | none | none | f32 | f32 |
///
/// # Example
///
/// ```
/// use burn_mixed_precision::{AmpConfig, CastRule, HalfDType, LossScaling, Op, OptLevel};
///
/// let amp = AmpConfig::new(OptLevel::O2)
///     .with_half(HalfDType::F16)
///     .with_loss_scale(LossScaling::Static(128.0))
///     .with_rule(Op::FloatExp, CastRule::AsIs)
///     .build()?;
/// assert_eq!(amp.config().loss_scale(), LossScaling::Static(128.0));
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmpConfig {
    pub(crate) opt_level: OptLevel,
    pub(crate) half: HalfDType,
    pub(crate) cast_model_type: Option<ModelType>,
    pub(crate) patch_functions: Option<bool>,
    pub(crate) keep_batchnorm_fp32: Option<bool>,
    pub(crate) master_weights: Option<bool>,
    pub(crate) loss_scale: Option<LossScaling>,
    pub(crate) min_loss_scale: Option<f32>,
    pub(crate) max_loss_scale: f32,
    pub(crate) num_losses: usize,
    pub(crate) cast_model_outputs: Option<ModelType>,
    pub(crate) capability: Capability,
    pub(crate) rules: BTreeMap<Op, CastRule>,
    pub(crate) channel_vectors: bool,
    pub(crate) flat_linear: bool,
    pub(crate) scalar_guard: bool,
    pub(crate) stochastic_rounding: bool,
    pub(crate) conv_backward: ConvBackward,
    pub(crate) lean_backward: bool,
    pub(crate) keep_f32_modules: Vec<String>,
    pub(crate) trace: TraceMode,
}

impl Default for AmpConfig {
    fn default() -> Self {
        AmpConfig::new(OptLevel::default())
    }
}

impl AmpConfig {
    /// The settings of an opt level, in f16.
    pub fn new(opt_level: OptLevel) -> Self {
        AmpConfig {
            opt_level,
            half: HalfDType::F16,
            cast_model_type: None,
            patch_functions: None,
            keep_batchnorm_fp32: None,
            master_weights: None,
            loss_scale: None,
            min_loss_scale: None,
            // Apex's max_loss_scale.
            max_loss_scale: 16_777_216.0,
            num_losses: 1,
            cast_model_outputs: None,
            capability: Capability::Strict,
            rules: BTreeMap::new(),
            channel_vectors: true,
            flat_linear: true,
            scalar_guard: true,
            stochastic_rounding: false,
            conv_backward: ConvBackward::Fastest,
            lean_backward: true,
            keep_f32_modules: NORM_LAYERS.map(str::to_string).to_vec(),
            trace: TraceMode::Off,
        }
    }

    /// Sets the half dtype.
    #[must_use]
    pub fn with_half(mut self, half: HalfDType) -> Self {
        self.half = half;
        self
    }

    /// Sets the dtype that the model's parameters are cast to.
    #[must_use]
    pub fn with_cast_model_type(mut self, model_type: ModelType) -> Self {
        self.cast_model_type = Some(model_type);
        self
    }

    /// Sets whether O1's table of per-operation casts is in force: Apex's
    /// `patch_torch_functions`. `false` is what the other levels have anyway: it changes nothing
    /// there.
    #[must_use]
    pub fn with_patch_functions(mut self, patch: bool) -> Self {
        self.patch_functions = Some(patch);
        self
    }

    /// Sets whether the [norm layers](NORM_LAYERS) of a half model stay in f32.
    ///
    /// Apex's name, although it covers every kind of norm: see
    /// [`with_keep_f32_modules`](AmpConfig::with_keep_f32_modules).
    #[must_use]
    pub fn with_keep_batchnorm_fp32(mut self, keep: bool) -> Self {
        self.keep_batchnorm_fp32 = Some(keep);
        self
    }

    /// Sets whether the optimizer keeps an f32 master of each half parameter.
    #[must_use]
    pub fn with_master_weights(mut self, masters: bool) -> Self {
        self.master_weights = Some(masters);
        self
    }

    /// Sets a static or the dynamic loss scale.
    #[must_use]
    pub fn with_loss_scale(mut self, loss_scale: LossScaling) -> Self {
        self.loss_scale = Some(loss_scale);
        self
    }

    /// Sets the floor of the dynamic loss scale: finite and at least 2^-126, below 1 allowed.
    #[must_use]
    pub fn with_min_loss_scale(mut self, floor: f32) -> Self {
        self.min_loss_scale = Some(floor);
        self
    }

    /// Sets the cap of the dynamic loss scale: finite and at least 2^-126 (2^24 unless set).
    #[must_use]
    pub fn with_max_loss_scale(mut self, cap: f32) -> Self {
        self.max_loss_scale = cap;
        self
    }

    /// Sets the number of losses that have a scale of their own: at least 1.
    ///
    /// The plain `step` of burn-grad-scaler's optimizer moves the scale of loss 0 only: gradients of
    /// the others need its `step_with`, or their scale stays where it starts.
    #[must_use]
    pub fn with_num_losses(mut self, num_losses: usize) -> Self {
        self.num_losses = num_losses;
        self
    }

    /// Sets the dtype that [`Amp::forward`](crate::Amp::forward) casts a model's outputs to.
    #[must_use]
    pub fn with_cast_model_outputs(mut self, outputs: ModelType) -> Self {
        self.cast_model_outputs = Some(outputs);
        self
    }

    /// Sets what happens on a device without the half dtype.
    #[must_use]
    pub fn with_capability(mut self, capability: Capability) -> Self {
        self.capability = capability;
        self
    }

    /// Overrides the rule of one operation: Apex's `register_half_function`,
    /// `register_float_function` and `register_promote_function`.
    #[must_use]
    pub fn with_rule(mut self, op: Op, rule: CastRule) -> Self {
        self.rules.insert(op, rule);
        self
    }

    /// Switches the [channel-vector exception](Policy::keeps_channel_vectors) (on unless set).
    #[must_use]
    pub fn with_channel_vectors(mut self, keep: bool) -> Self {
        self.channel_vectors = keep;
        self
    }

    /// Switches whether `linear` [flattens](Policy::flattens_linear) its batch dimensions (on unless
    /// set).
    #[must_use]
    pub fn with_flat_linear(mut self, flat: bool) -> Self {
        self.flat_linear = flat;
        self
    }

    /// Switches whether numbers that half cannot hold are [guarded](Policy::guards_scalars) (on unless
    /// set).
    #[must_use]
    pub fn with_scalar_guard(mut self, guard: bool) -> Self {
        self.scalar_guard = guard;
        self
    }

    /// Sets whether half weights without masters are rounded at random after each step (no unless
    /// set): up or down, the nearer the likelier, so that small updates count on the average.
    ///
    /// For O3 in bf16, or O2 with `master_weights = false`: the memory of half weights alone. A run
    /// then depends on the backend's random generator, and so does its resume.
    #[must_use]
    pub fn with_stochastic_rounding(mut self, stochastic: bool) -> Self {
        self.stochastic_rounding = stochastic;
        self
    }

    /// Sets how the weight gradients of convolutions are computed with
    /// [`FastBackward`](crate::FastBackward) inside autodiff ([`ConvBackward::Fastest`] unless set).
    #[must_use]
    pub fn with_conv_backward(mut self, backward: ConvBackward) -> Self {
        self.conv_backward = backward;
        self
    }

    /// Sets whether softmax, log_softmax and layer_norm keep one half tensor for backward, with
    /// [`LeanAutodiff`](crate::LeanAutodiff) in place of Burn's autodiff (yes unless set).
    ///
    /// Less memory, for gradients that are computed from numbers rounded to half.
    #[must_use]
    pub fn with_lean_backward(mut self, lean: bool) -> Self {
        self.lean_backward = lean;
        self
    }

    /// Replaces the set of modules that stay in f32 in a half model, by struct name.
    #[must_use]
    pub fn with_keep_f32_modules<S: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        self.keep_f32_modules = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets when the [overflow tracer](crate::Tracer) records (never by itself unless set).
    #[must_use]
    pub fn with_trace(mut self, trace: TraceMode) -> Self {
        self.trace = trace;
        self
    }

    /// The opt level.
    pub fn opt_level(&self) -> OptLevel {
        self.opt_level
    }

    /// When the overflow tracer records.
    pub fn trace(&self) -> TraceMode {
        self.trace
    }

    /// The half dtype.
    pub fn half(&self) -> HalfDType {
        self.half
    }

    /// The dtype that parameters are cast to; `None` leaves them as they are.
    pub fn cast_model_type(&self) -> Option<ModelType> {
        self.cast_model_type.or(match self.opt_level {
            OptLevel::O0 => Some(ModelType::F32),
            OptLevel::O1 => None,
            OptLevel::O2 | OptLevel::O3 => Some(ModelType::Half),
        })
    }

    /// The struct names of the modules that stay in f32 in a half model.
    pub fn keep_f32_modules(&self) -> &[String] {
        let keep = self
            .keep_batchnorm_fp32
            .unwrap_or(self.opt_level != OptLevel::O3);
        if keep { &self.keep_f32_modules } else { &[] }
    }

    /// Whether the optimizer keeps f32 masters of half parameters.
    pub fn master_weights(&self) -> bool {
        self.master_weights
            .unwrap_or(self.opt_level == OptLevel::O2)
    }

    /// Whether half weights without masters are rounded at random.
    pub fn stochastic_rounding(&self) -> bool {
        self.stochastic_rounding
    }

    /// The loss scale: dynamic at O1 and O2 in f16, otherwise 1.
    pub fn loss_scale(&self) -> LossScaling {
        self.loss_scale
            .unwrap_or(match (self.opt_level, self.half) {
                (OptLevel::O1 | OptLevel::O2, HalfDType::F16) => LossScaling::Dynamic,
                _ => LossScaling::Static(1.0),
            })
    }

    /// The floor of the dynamic loss scale, if one was set.
    pub fn min_loss_scale(&self) -> Option<f32> {
        self.min_loss_scale
    }

    /// The cap of the dynamic loss scale.
    pub fn max_loss_scale(&self) -> f32 {
        self.max_loss_scale
    }

    /// The number of losses with a scale of their own.
    pub fn num_losses(&self) -> usize {
        self.num_losses
    }

    /// The dtype of a model's outputs; `None` leaves them as they are.
    pub fn cast_model_outputs(&self) -> Option<ModelType> {
        self.cast_model_outputs.or(match self.opt_level {
            OptLevel::O0 | OptLevel::O1 => None,
            OptLevel::O2 | OptLevel::O3 => Some(ModelType::F32),
        })
    }

    /// The casting rules these settings stand for.
    pub fn policy(&self) -> Policy {
        // O2 and O3 have a table of their own, which keeps a half model beside f32 norms running.
        let unpatched = self.opt_level == OptLevel::O1 && self.patch_functions == Some(false);
        if self.opt_level == OptLevel::O0 || unpatched {
            return Policy::off();
        }
        let table = Policy::new(self.opt_level, self.half)
            .with_channel_vectors(self.channel_vectors)
            .with_flat_linear(self.flat_linear)
            .with_scalar_guard(self.scalar_guard)
            .with_conv_backward(self.conv_backward)
            .with_lean_backward(self.lean_backward);
        self.rules
            .iter()
            .fold(table, |policy, (op, rule)| policy.with_rule(*op, *rule))
    }

    /// Checks the settings and makes them usable in [scopes](Amp::scope), without a device.
    ///
    /// # Errors
    ///
    /// [`AmpError::Contradiction`] for options that exclude each other, as Apex does: at O1
    /// `cast_model_type` other than f32, `keep_batchnorm_fp32` or `master_weights`; away from O1
    /// `patch_functions = true`; per-op rules where no table is in force; master weights without
    /// half weights; stochastic rounding where no half weight is without a master. [`AmpError::InvalidOption`] for a loss scale, floor or cap that is not finite
    /// and at least 2^-126 (NaN included), a floor above the cap, and `num_losses = 0`.
    pub fn build(self) -> Result<Amp, AmpError> {
        self.check_contradictions()?;
        self.check_ranges()?;
        Ok(Amp::new(self))
    }

    /// Checks the settings against a device and puts them in force there, for every thread.
    ///
    /// # Errors
    ///
    /// Those of [`build`](AmpConfig::build), and [`AmpError::UnsupportedHalf`] on a device that
    /// cannot compute in the half dtype under [`Capability::Strict`].
    pub fn init<B: Backend>(self, device: &B::Device) -> Result<Amp, AmpError> {
        let amp = self.build()?.fit::<B>(device)?;
        amp.install(device);
        Ok(amp)
    }

    /// As [`init`](AmpConfig::init), on several devices that share their loss scales.
    ///
    /// # Errors
    ///
    /// Those of [`init`](AmpConfig::init). If one device falls back to f32, all do: they train one
    /// model.
    pub fn init_all<B: Backend>(self, devices: &[B::Device]) -> Result<Amp, AmpError> {
        let mut amp = self.build()?;
        for device in devices {
            amp = amp.fit::<B>(device)?;
        }
        for device in devices {
            amp.install(device);
        }
        Ok(amp)
    }

    fn check_contradictions(&self) -> Result<(), AmpError> {
        let level = format!("opt_level = {}", self.opt_level);
        let refuse = |option, value: &dyn fmt::Display, with: &str, reason| {
            Err(AmpError::Contradiction {
                option,
                value: value.to_string(),
                with: with.to_string(),
                reason,
            })
        };
        if self.opt_level == OptLevel::O1 {
            if let Some(model_type @ ModelType::Half) = self.cast_model_type {
                return refuse(
                    "cast_model_type",
                    &model_type,
                    &level,
                    "O1 keeps f32 weights and casts them per operation; take O2 for half weights",
                );
            }
            if let Some(keep) = self.keep_batchnorm_fp32 {
                return refuse(
                    "keep_batchnorm_fp32",
                    &keep,
                    &level,
                    "at O1 every weight is f32 already; leave it unset",
                );
            }
            if let Some(masters) = self.master_weights {
                return refuse(
                    "master_weights",
                    &masters,
                    &level,
                    "at O1 the weights are their own masters; leave it unset",
                );
            }
        } else if self.patch_functions == Some(true) {
            return refuse(
                "patch_functions",
                &true,
                &level,
                "the table of casts around f32 weights is O1 itself; take O1",
            );
        }
        if self.master_weights == Some(true) && self.cast_model_type() != Some(ModelType::Half) {
            return refuse(
                "master_weights",
                &true,
                "cast_model_type = f32",
                "f32 weights are their own masters; take O2, or set cast_model_type to half",
            );
        }
        let has_bare_halves =
            self.cast_model_type() == Some(ModelType::Half) && !self.master_weights();
        if self.stochastic_rounding && !has_bare_halves {
            return refuse(
                "stochastic_rounding",
                &true,
                &level,
                "only half weights without masters are rounded after a step; take O3, or O2 with \
                 master_weights = false",
            );
        }
        if let Some((op, rule)) = self.rules.iter().next()
            && !self.policy().is_enabled()
        {
            return refuse(
                "rule",
                &format_args!("{op} -> {rule}"),
                if self.patch_functions == Some(false) {
                    "patch_functions = false"
                } else {
                    &level
                },
                "no table is in force that it could change; take O1, O2 or O3",
            );
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), AmpError> {
        let scale = |option, value: f32| {
            if is_scale(value) {
                return Ok(());
            }
            Err(AmpError::InvalidOption {
                option,
                value: value.to_string(),
                allowed: SCALES.to_string(),
            })
        };
        if let Some(LossScaling::Static(factor)) = self.loss_scale {
            scale("loss scale", factor)?;
        }
        scale("max_loss_scale", self.max_loss_scale)?;
        if let Some(floor) = self.min_loss_scale {
            scale("min_loss_scale", floor)?;
            if floor > self.max_loss_scale {
                return Err(AmpError::InvalidOption {
                    option: "min_loss_scale",
                    value: floor.to_string(),
                    allowed: format!("at most max_loss_scale, which is {}", self.max_loss_scale),
                });
            }
        }
        if self.num_losses == 0 {
            return Err(AmpError::InvalidOption {
                option: "num_losses",
                value: "0".to_string(),
                allowed: "1 or more".to_string(),
            });
        }
        Ok(())
    }
}

impl Amp {
    /// These settings if the device can compute in their half dtype, else what `Capability` says.
    fn fit<B: Backend>(self, device: &B::Device) -> Result<Amp, AmpError> {
        self.fit_where(device, |half| B::supports_dtype(device, half.dtype()))
    }

    fn fit_where(
        self,
        device: &impl fmt::Debug,
        supports: impl FnOnce(HalfDType) -> bool,
    ) -> Result<Amp, AmpError> {
        let config = self.config();
        let half = config.half;
        // O0 without a half model never meets the half dtype.
        let needs_half =
            self.policy().is_enabled() || config.cast_model_type() == Some(ModelType::Half);
        if !needs_half || supports(half) {
            return Ok(self);
        }
        match config.capability {
            Capability::Strict => Err(AmpError::UnsupportedHalf {
                device: format!("{device:?}"),
                half,
            }),
            Capability::Fallback => {
                log::warn!("{device:?} cannot compute in {half}: it trains in f32 (O0)");
                AmpConfig::new(OptLevel::O0)
                    .with_num_losses(config.num_losses)
                    .build()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings on a device that computes in bf16 but not in f16.
    fn fit(config: AmpConfig) -> Result<Amp, AmpError> {
        let amp = config.build().unwrap();
        amp.fit_where(&"OldGpu(0)", |half| half == HalfDType::Bf16)
    }

    #[test]
    fn a_strict_configuration_is_refused_without_its_half_dtype() {
        for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
            let error = fit(AmpConfig::new(level)).unwrap_err();
            let message = error.to_string();
            assert!(
                message.contains("OldGpu(0)") && message.contains("f16"),
                "{message}"
            );
            assert!(matches!(
                error,
                AmpError::UnsupportedHalf {
                    half: HalfDType::F16,
                    ..
                }
            ));
        }
    }

    #[test]
    fn a_fallback_configuration_trains_in_f32_and_keeps_its_number_of_losses() {
        let config = AmpConfig::new(OptLevel::O2)
            .with_capability(Capability::Fallback)
            .with_num_losses(3);
        let amp = fit(config).unwrap();
        assert_eq!(amp.config().opt_level(), OptLevel::O0);
        assert_eq!(*amp.policy(), Policy::off());
        assert_eq!(amp.loss_scales().num_losses(), 3);
    }

    #[test]
    fn what_never_meets_the_half_dtype_needs_none() {
        assert!(fit(AmpConfig::new(OptLevel::O0)).is_ok());
        assert!(fit(AmpConfig::new(OptLevel::O1).with_patch_functions(false)).is_ok());
        let half_model = AmpConfig::new(OptLevel::O0).with_cast_model_type(ModelType::Half);
        assert!(
            fit(half_model).is_err(),
            "half weights without a table are half all the same"
        );
        assert!(fit(AmpConfig::new(OptLevel::O1).with_half(HalfDType::Bf16)).is_ok());
    }
}
