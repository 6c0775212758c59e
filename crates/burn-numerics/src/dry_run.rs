use core::fmt;

use burn::module::Module;
use burn::tensor::Tensor;
use burn_backend::Backend;
use burn_backend::backend::AutodiffBackend;
use burn_mixed_precision::{Amp, AmpConfig, HalfDType, OptLevel, Policy, observe, scope};

use crate::full_run::FullRun;
use crate::parameter_places::ParameterPlaces;
use crate::{Histogram, Prediction};

/// One run of a model in f32, from which follows what each level would do to its numbers.
///
/// Before a training is continued in half, or begun: an f32 checkpoint whose activations are beyond
/// 65504 overflows at O1 in f16 and not in bf16, and this says in which operation of which module.
/// Nothing is updated.
///
/// # Numerics
///
/// The dtypes are those that the policy would give, followed from call to call
/// ([`Policy::explain_shapes`]). The numbers are those of f32, so what an infinity does further on is
/// not seen, nor is what 16-bit sums of many terms lose. Numbers beside tensors are taken to be ones
/// that half can hold, but for fills, which saturate. A dynamic loss scale is taken to be as high as the
/// gradients and its cap let it grow. Of each tensor at most
/// [`DEFAULT_SAMPLE`](crate::NumericsRecorder::DEFAULT_SAMPLE) elements are looked at.
///
/// # Example: which level does this model fit?
///
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Tensor;
/// use burn_mixed_precision::{FastBackward, HalfDType, MixedPrecision, OptLevel};
/// use burn_numerics::{DryRun, Fault};
///
/// type B = MixedPrecision<Autodiff<FastBackward<Flex>>>;
///
/// let device = Default::default();
/// let model: Linear<B> = LinearConfig::new(2, 2).init(&device);
/// let batch = Tensor::<B, 2>::full([4, 2], 1e6, &device);
/// let run = DryRun::of(&model, |model| model.forward(batch.clone()).mean());
/// let risks = &run.at(OptLevel::O1, HalfDType::F16).risks;
/// assert!(risks.iter().any(|risk| (risk.fault, risk.op) == (Fault::CastOverflows, "linear")));
/// assert!(run.at(OptLevel::O1, HalfDType::Bf16).risks.is_empty());
/// ```
#[derive(Debug)]
pub struct DryRun {
    run: FullRun,
    places: ParameterPlaces,
}

impl DryRun {
    /// Runs forward and backward once in f32, without a loss scale.
    ///
    /// Gradients are seen with `AmpBackend`, which stands inside autodiff too; with other backends the
    /// answers are about forward alone.
    pub fn of<B: AutodiffBackend, M: Module<B>>(
        model: &M,
        loss: impl FnOnce(&M) -> Tensor<B, 1>,
    ) -> Self {
        DryRun::watch(model, || {
            scope::without_loss_scale(|| loss(model).backward());
        })
    }

    /// Runs forward once in f32.
    pub fn forward<B: Backend, M: Module<B>, R>(model: &M, forward: impl FnOnce(&M) -> R) -> Self {
        DryRun::watch(model, || {
            forward(model);
        })
    }

    fn watch<B: Backend, M: Module<B>>(model: &M, pass: impl FnOnce()) -> Self {
        let ((), run) = observe::run(FullRun::default(), || {
            observe::name_parameters(model);
            scope::with_policy(Policy::full(), pass);
        });
        DryRun {
            run,
            places: ParameterPlaces::of(model),
        }
    }

    /// What a level would do with its defaults.
    pub fn at(&self, level: OptLevel, half: HalfDType) -> Prediction {
        let config = AmpConfig::new(level).with_half(half);
        self.under(&config.build().expect("a level's defaults are valid"))
    }

    /// What these settings would do, overrides of operations included.
    pub fn under(&self, amp: &Amp) -> Prediction {
        Prediction::new(&self.run, &self.places, amp)
    }

    /// What every level would do with its defaults: O0, then O1 to O3 in f16 and in bf16.
    pub fn levels(&self) -> Vec<Prediction> {
        let halves = [HalfDType::F16, HalfDType::Bf16];
        OptLevel::ALL
            .into_iter()
            .flat_map(|level| halves.map(|half| (level, half)))
            .filter(|pair| *pair != (OptLevel::O0, HalfDType::Bf16))
            .map(|(level, half)| self.at(level, half))
            .collect()
    }

    /// Whether every number of the run itself was finite: if not, look there first.
    pub fn is_finite(&self) -> bool {
        let finite = |values: &Histogram| values.infinities() == 0 && values.nans() == 0;
        self.run.calls.iter().all(|call| {
            let output = call.output.as_ref().is_none_or(finite);
            output && call.gradients.values().all(finite)
        })
    }

    /// Whether it saw gradients.
    pub fn saw_gradients(&self) -> bool {
        let mut calls = self.run.calls.iter();
        calls.any(|call| !call.gradients.is_empty())
    }

    /// What every level would do, as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.levels())
            .expect("no map and no fallible serializer in it")
    }
}

/// A block per level: what would be lost, or that it fits.
impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.saw_gradients() {
            true => "forward and backward",
            false => "forward",
        };
        writeln!(f, "{} calls in f32, {what}", self.run.calls.len())?;
        if !self.is_finite() {
            writeln!(f, "not every number is finite in f32 itself")?;
        }
        for prediction in self.levels() {
            write!(f, "{prediction}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use burn::backend::{Autodiff, Flex};
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::{BatchNorm, BatchNormConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
    use burn::tensor::activation::{gelu, softmax};
    use burn_backend::DType;
    use burn_mixed_precision::observe::{Call, Observer, Phase, Role, Sight};
    use burn_mixed_precision::{FastBackward, MixedPrecision};

    use super::*;
    use crate::prediction::dtypes;

    type B = MixedPrecision<Autodiff<FastBackward<Flex>>>;

    /// Convolution, both norms, a softmax and a channel vector.
    #[derive(Module, Debug)]
    struct Net<B: Backend> {
        conv: Conv2d<B>,
        norm: BatchNorm<B>,
        hidden: Linear<B>,
        layer_norm: LayerNorm<B>,
        head: Linear<B>,
    }

    impl Net<B> {
        fn new() -> Self {
            let device = Default::default();
            Net {
                conv: Conv2dConfig::new([3, 4], [3, 3]).init(&device),
                norm: BatchNormConfig::new(4).init(&device),
                hidden: LinearConfig::new(4, 8).init(&device),
                layer_norm: LayerNormConfig::new(8).init(&device),
                head: LinearConfig::new(8, 3).init(&device),
            }
        }

        fn loss(&self) -> Tensor<B, 1> {
            let x = Tensor::<B, 4>::ones([2, 3, 6, 6], &Default::default());
            let x = gelu(self.norm.forward(self.conv.forward(x)));
            let x: Tensor<B, 2> = x.mean_dim(3).mean_dim(2).reshape([2, 4]);
            let x = self.layer_norm.forward(self.hidden.forward(x));
            let x = softmax(self.head.forward(x), 1);
            (x.clone() * x + 0.5).log().mean()
        }
    }

    type Dtypes = Vec<(&'static str, Vec<DType>, Option<DType>)>;

    #[derive(Default)]
    struct Real(Dtypes);

    impl Observer for Real {
        fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>) {
            match (sight.phase, sight.role) {
                (Phase::Backward, _) => {}
                (_, Role::Input(0)) => self.0.push((call.name(), vec![sight.dtype], None)),
                (_, Role::Input(_)) => self.0.last_mut().unwrap().1.push(sight.dtype),
                (_, Role::Output) => self.0.last_mut().unwrap().2 = Some(sight.dtype),
            }
        }
    }

    #[test]
    fn the_dtypes_are_those_of_a_real_run_at_every_level() {
        let dry = DryRun::of(&Net::new(), Net::loss);
        for level in OptLevel::ALL {
            for half in [HalfDType::F16, HalfDType::Bf16] {
                let amp = AmpConfig::new(level).with_half(half).build().unwrap();
                let predicted: Dtypes = dtypes(&dry.run, &dry.places, &amp)
                    .into_iter()
                    .map(|call| {
                        let output = call.seen.output.as_ref().map(|_| call.output);
                        (call.seen.call.name(), call.inputs, output)
                    })
                    .collect();
                let real = amp.scope(|| {
                    // A new one: from its second forward on, a batch norm averages its statistics.
                    let net = amp.cast_model(Net::new());
                    observe::run(Real::default(), || {
                        observe::name_parameters(&net);
                        net.loss()
                    })
                });
                assert_eq!(predicted, real.1.0, "{level} in {half}");
            }
        }
    }
}
