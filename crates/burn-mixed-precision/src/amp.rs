use std::sync::{Arc, Once};

use burn::module::Module;
use burn_backend::{Backend, DeviceOps, FloatDType};

use crate::{AmpConfig, LossScales, LossScaling, Policy, Trace, Tracer, model, registry, scope};

/// Validated settings, ready for devices: what [`AmpConfig::init`] returns.
///
/// Cheap to clone; clones share the loss scales.
#[derive(Debug, Clone)]
pub struct Amp {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    config: AmpConfig,
    policy: Policy,
    loss_scales: LossScales,
    tracer: Tracer,
    unscaled: Once,
}

impl Amp {
    /// `config` is valid: only `AmpConfig` calls this.
    pub(crate) fn new(config: AmpConfig) -> Self {
        Amp {
            state: Arc::new(State {
                policy: config.policy(),
                loss_scales: LossScales::new(config.num_losses),
                tracer: Tracer::new(
                    config.trace(),
                    Trace::DEFAULT_CAPACITY,
                    config.min_loss_scale().unwrap_or(1.0),
                ),
                unscaled: Once::new(),
                config,
            }),
        }
    }

    /// The configuration these settings were made from.
    pub fn config(&self) -> &AmpConfig {
        &self.state.config
    }

    /// The casting rules.
    pub fn policy(&self) -> &Policy {
        &self.state.policy
    }

    /// The factors that `backward` multiplies losses by, on every device with these settings.
    pub fn loss_scales(&self) -> &LossScales {
        &self.state.loss_scales
    }

    /// The overflow tracer of the devices with these settings.
    pub fn tracer(&self) -> &Tracer {
        &self.state.tracer
    }

    /// Says once that a backward pass runs without the loss scale that these settings ask for.
    pub(crate) fn warn_if_unscaled(&self) {
        let scaling = self.config().loss_scale();
        if scaling != LossScaling::Static(1.0) {
            self.state.unscaled.call_once(|| {
                log::warn!(
                    "backward without a loss scaler, although {} in {} asks for loss scale {scaling}: \
                     gradients too small for {} are lost. Wrap the optimizer in AmpOptimizer, scale \
                     by hand with GradScaler, or set the loss scale to 1",
                    self.config().opt_level(),
                    self.config().half(),
                    self.config().half(),
                );
            });
        }
    }

    /// Puts these settings in force on one more device, for every thread of the process.
    pub fn install<D: DeviceOps>(&self, device: &D) {
        registry::set(device, Some(self.clone()));
    }

    /// Runs a block as if every device had these settings, on this thread only.
    ///
    /// For tests and for several models at different levels on one device.
    pub fn scope<R>(&self, block: impl FnOnce() -> R) -> R {
        scope::with_amp(self.clone(), block)
    }

    /// Gives a model's parameters the dtypes of the opt level: half at O2 and O3, except norm
    /// layers at O2; unchanged at O0 and O1.
    ///
    /// Call it once on a model that was just built. Records that are loaded into it later are cast
    /// as they come in. Gradient tracking and parameter ids are kept.
    ///
    /// # Numerics
    ///
    /// One rounding to half per element. Keep the f32 values with an optimizer that has master
    /// weights.
    pub fn cast_model<B: Backend, M: Module<B>>(&self, model: M) -> M {
        model::cast(model, self.config())
    }

    /// The dtype that [`cast_model`](Amp::cast_model) gives a parameter; `None` leaves it as it is.
    ///
    /// `containers` are the structs around the parameter, outermost first, as Burn's
    /// `ModuleMapper::enter_module` names them (`Struct:BatchNorm`).
    pub fn parameter_dtype(&self, containers: &[String]) -> Option<FloatDType> {
        model::dtype_at(containers, self.config())
    }
}

/// Takes the settings of a device away: it runs in plain f32 again.
pub fn uninstall<D: DeviceOps>(device: &D) {
    registry::set(device, None);
}
