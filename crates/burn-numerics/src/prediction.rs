use core::fmt;
use std::collections::HashMap;

use burn_backend::{DType, Shape};
use burn_mixed_precision::observe::{Role, Source};
use burn_mixed_precision::{
    Amp, Explanation, HalfDType, LossScaling, Op, OptLevel, Policy, ScalarRole,
};
use serde::{Serialize, Serializer};

use crate::full_run::{FullCall, FullRun};
use crate::parameter_places::ParameterPlaces;
use crate::rounding::tolerance;
use crate::{Entry, Fault, Histogram, Risk, ScaleRange};

/// What would happen to a model's numbers under some settings: an answer of a
/// [`DryRun`](crate::DryRun).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// The level.
    pub level: OptLevel,
    /// The half dtype.
    pub half: HalfDType,
    /// How the loss scale is chosen.
    #[serde(serialize_with = "text")]
    pub loss_scaling: LossScaling,
    /// The loss scales at which all gradients would fit half, with 1% of each tensor becoming zero at
    /// most; `None` if no scale fits all.
    pub gradient_scales: Option<ScaleRange>,
    /// What would be lost, the worst first and in the order of the calls; nothing of a model that fits.
    pub risks: Vec<Risk>,
}

impl Prediction {
    pub(crate) fn new(run: &FullRun, places: &ParameterPlaces, amp: &Amp) -> Self {
        let config = amp.config();
        let calls = dtypes(run, places, amp);
        let gradients: Vec<Gradient<'_>> = calls.iter().flat_map(Predicted::gradients).collect();
        let gradient_scales = gradients
            .iter()
            .map(|g| g.values.clean_scales(g.half, Entry::TOLERATED))
            .try_fold(ScaleRange::ALL, |all, range| all.intersect(range?));
        let highest = gradients
            .iter()
            .filter_map(|g| g.values.clean_scales(g.half, 1.0))
            .map(|range| range.high)
            .min();
        // A dynamic scale grows until a gradient overflows, or to its cap.
        let scale = match config.loss_scale() {
            LossScaling::Static(scale) => exponent(scale),
            LossScaling::Dynamic => {
                exponent(config.max_loss_scale()).min(highest.unwrap_or(ScaleRange::ALL.high))
            }
        };
        let forward = calls.iter().flat_map(Predicted::forward);
        let backward = gradients.iter().filter_map(|g| g.risk(scale));
        let mut risks: Vec<Risk> = Vec::new();
        for risk in forward.chain(backward) {
            match risks.iter_mut().find(|other| other.is_like(&risk)) {
                Some(other) if other.share < risk.share => *other = risk,
                Some(_) => {}
                None => risks.push(risk),
            }
        }
        risks.sort_by_key(|risk| risk.fault);
        Prediction {
            level: config.opt_level(),
            half: config.half(),
            loss_scaling: config.loss_scale(),
            gradient_scales,
            risks,
        }
    }
}

/// floor(log2) of a scale.
fn exponent(scale: f32) -> i32 {
    f64::from(scale).log2().floor() as i32
}

/// A call with the dtypes that it would have.
pub(crate) struct Predicted<'a> {
    pub(crate) seen: &'a FullCall,
    pub(crate) inputs: Vec<DType>,
    pub(crate) inside: DType,
    pub(crate) output: DType,
}

/// The dtypes of every call, following tensors from call to call as the policy would cast them.
pub(crate) fn dtypes<'a>(
    run: &'a FullRun,
    places: &ParameterPlaces,
    amp: &Amp,
) -> Vec<Predicted<'a>> {
    let mut outputs: HashMap<u64, DType> = HashMap::new();
    let of = |seen: &'a FullCall| {
        let inputs: Vec<(DType, Shape)> = seen
            .inputs
            .iter()
            .map(|input| {
                let dtype = match &input.source {
                    Source::Call(id) => outputs.get(id).copied().unwrap_or(DType::F32),
                    Source::Parameter(path) => places.dtype(path, amp),
                    Source::Outside => DType::F32,
                };
                (dtype, input.shape.clone())
            })
            .collect();
        let Explanation { inside, output, .. } = explanation(seen, amp.policy(), &inputs);
        outputs.insert(seen.call.id, output);
        Predicted {
            seen,
            inputs: inputs.into_iter().map(|(dtype, _)| dtype).collect(),
            inside,
            output,
        }
    };
    run.calls.iter().map(of).collect()
}

fn explanation(seen: &FullCall, policy: &Policy, inputs: &[(DType, Shape)]) -> Explanation {
    match seen.call.op {
        Some(op) => policy.explain_shapes(op, inputs),
        // A custom operation brings its rule: any plain operation under that rule does the same.
        None => policy
            .clone()
            .with_rule(Op::FloatExp, seen.call.rule)
            .explain_shapes(Op::FloatExp, inputs),
    }
}

impl Predicted<'_> {
    fn forward(&self) -> Vec<Risk> {
        let mut risks = Vec::new();
        for (index, (input, dtype)) in self.seen.inputs.iter().zip(&self.inputs).enumerate() {
            let is_parameter = matches!(input.source, Source::Parameter(_));
            // What a call gave in half was judged there.
            let rounds = HalfDType::of(self.inside)
                .filter(|_| *dtype != self.inside)
                .or(HalfDType::of(*dtype).filter(|_| is_parameter));
            if let Some(half) = rounds {
                risks.extend(self.judge(Role::Input(index), half, &input.values));
            }
        }
        let half = HalfDType::of(self.output).or(HalfDType::of(self.inside));
        if let (Some(half), Some(values)) = (half, &self.seen.output) {
            risks.extend(self.judge(Role::Output, half, values));
        }
        risks
    }

    fn judge(&self, role: Role, half: HalfDType, values: &Histogram) -> Option<Risk> {
        let overflowed = values.shares(half, 0).overflowed;
        let error = values.relative_error(half, 0);
        // A fill ends at the last finite number: that is how masks are written.
        let op = self.seen.call.op;
        let saturates = op.is_some_and(|op| op.scalar_role() == Some(ScalarRole::Fill));
        let (fault, share) = match role {
            Role::Output if overflowed > 0.0 && saturates => return None,
            Role::Output if overflowed > 0.0 => (Fault::Overflows, overflowed),
            Role::Input(_) if overflowed > 0.0 => (Fault::CastOverflows, overflowed),
            _ if error > tolerance(half) => (Fault::CastLosesDigits, error),
            _ => return None,
        };
        Some(self.risk(fault, role, half, share, values))
    }

    fn risk(
        &self,
        fault: Fault,
        role: Role,
        half: HalfDType,
        share: f64,
        values: &Histogram,
    ) -> Risk {
        let source = match role {
            Role::Input(index) => self.seen.inputs.get(index).map(|input| &input.source),
            Role::Output => None,
        };
        let span = values.span().unwrap_or(0..=0);
        Risk {
            fault,
            op: self.seen.call.name(),
            place: self.seen.call.place.clone(),
            role,
            parameter: match source {
                Some(Source::Parameter(path)) => Some(path.clone()),
                _ => None,
            },
            half,
            share,
            span: (*span.start(), *span.end()),
        }
    }

    /// The gradients that would be half on their way.
    fn gradients(&self) -> Vec<Gradient<'_>> {
        let mut gradients: Vec<Gradient<'_>> = self
            .seen
            .gradients
            .iter()
            .filter_map(|(role, values)| {
                let outside = match role {
                    Role::Output => self.output,
                    Role::Input(index) => *self.inputs.get(*index)?,
                };
                Some(Gradient {
                    of: self,
                    role: *role,
                    half: HalfDType::of(outside).or(HalfDType::of(self.inside))?,
                    values,
                })
            })
            .collect();
        gradients.sort_by_key(|gradient| gradient.role);
        gradients
    }
}

struct Gradient<'a> {
    of: &'a Predicted<'a>,
    role: Role,
    half: HalfDType,
    values: &'a Histogram,
}

impl Gradient<'_> {
    fn risk(&self, scale: i32) -> Option<Risk> {
        let overflowed = self.values.shares(self.half, scale).overflowed;
        let error = self.values.relative_error(self.half, scale);
        let (fault, share) = match () {
            _ if overflowed > 0.0 => (Fault::GradientOverflows, overflowed),
            _ if error > tolerance(self.half) => (Fault::GradientVanishes, error),
            _ => return None,
        };
        Some(
            self.of
                .risk(fault, self.role, self.half, share, self.values),
        )
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        if self.level != OptLevel::O0 {
            write!(f, " in {}", self.half)?;
            match self.loss_scaling {
                LossScaling::Static(1.0) => {}
                scaling => write!(f, ", loss scale {scaling}")?,
            }
        }
        match self.risks.len() {
            0 => return writeln!(f, ": fits"),
            1 => writeln!(f, ": 1 risk")?,
            count => writeln!(f, ": {count} risks")?,
        }
        for risk in &self.risks {
            writeln!(f, "- {risk}")?;
        }
        Ok(())
    }
}

fn text<S: Serializer>(scaling: &LossScaling, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(scaling)
}
