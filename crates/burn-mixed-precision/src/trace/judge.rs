//! Which call made an infinity or a NaN, decided from what calls were given and gave.

use std::collections::{HashMap, HashSet};

use super::{Cause, Finding, TensorRecord, Trace, TraceRecord};
use crate::Op;
use crate::observe::{Call, Phase, Role, Source};

/// Sees all calls in their order and keeps what a verdict on later ones needs.
#[derive(Default)]
pub(super) struct Judge {
    /// The scale that cannot go lower.
    pub(super) floor: f32,
    pub(super) loss_scale: Option<f32>,
    pub(super) findings: Vec<Finding>,
    /// Which call made an input of a call.
    makers: HashMap<(u64, usize), u64>,
    /// What the consumers of a call's output handed back as its gradient.
    handed_back: HashMap<u64, HandedBack>,
    /// Calls that were given a 0 where their derivative is infinite.
    singular: HashSet<u64>,
}

#[derive(Clone, Copy)]
struct HandedBack {
    finite: bool,
    largest: f64,
}

impl Judge {
    pub(super) fn new(floor: f32) -> Self {
        Judge {
            floor,
            ..Judge::default()
        }
    }

    pub(super) fn hear(&mut self, call: &Call, record: &TraceRecord, sources: &[(Role, Source)]) {
        let found = match record.phase {
            Phase::Forward => self.forward(call, record, sources),
            Phase::Backward => self.backward(call, record),
        };
        if let Some((cause, tensor, largest_given)) = found
            && self.findings.len() < Trace::MAX_FINDINGS
        {
            self.findings.push(Finding {
                cause,
                phase: record.phase,
                call: call.id,
                op: record.op.clone(),
                place: record.place.clone(),
                dtype: tensor.inside,
                loss_scale: match record.phase {
                    Phase::Forward => None,
                    Phase::Backward => self.loss_scale,
                },
                tensor: tensor.clone(),
                largest_given,
            });
        }
    }

    fn forward<'a>(
        &mut self,
        call: &Call,
        record: &'a TraceRecord,
        sources: &[(Role, Source)],
    ) -> Option<(Cause, &'a TensorRecord, f64)> {
        let inputs = || record.tensors.iter().filter(|t| t.role != Role::Output);
        let largest = inputs().map(|t| t.extremes.largest).fold(0.0, f64::max);
        for (role, source) in sources {
            if let (Role::Input(index), Source::Call(maker)) = (role, source) {
                self.makers.insert((call.id, *index), *maker);
            }
        }
        if call.op.is_some_and(has_singular_derivative)
            && inputs().any(|tensor| tensor.extremes.zeros > 0)
        {
            self.singular.insert(call.id);
        }
        for input in inputs() {
            let source = sources.iter().find(|(role, _)| *role == input.role);
            let cause = match source.map(|(_, source)| source) {
                Some(Source::Parameter(path)) if !input.extremes.is_finite() => {
                    Cause::GivenInParameter(path.to_string())
                }
                Some(Source::Outside)
                    if input.extremes.nans > 0 || input.extremes.positive_infinities > 0 =>
                {
                    Cause::GivenFromOutside
                }
                _ => continue,
            };
            return Some((cause, input, largest));
        }
        let output = record.tensors.iter().find(|t| t.role == Role::Output)?;
        let given_nan = inputs().any(|tensor| tensor.extremes.nans > 0);
        let given_infinity = inputs().any(|tensor| tensor.extremes.infinities() > 0);
        if given_nan || output.extremes.is_finite() {
            return None;
        }
        let beyond_range = inputs().find(|tensor| {
            !tensor.dtype.eq(&tensor.inside)
                && tensor.extremes.largest >= rounds_to_infinity(tensor)
        });
        match (beyond_range, given_infinity, output.extremes.nans) {
            (Some(input), false, _) => Some((Cause::CastOverflow, input, largest)),
            (_, true, 0) => None,
            (_, true, _) => Some((Cause::InfinitiesMet, output, largest)),
            (_, false, 0) if call.takes_infinity => None,
            (_, false, 0) => Some((Cause::Overflow, output, largest)),
            (_, false, _) => Some((Cause::Undefined, output, largest)),
        }
    }

    fn backward<'a>(
        &mut self,
        call: &Call,
        record: &'a TraceRecord,
    ) -> Option<(Cause, &'a TensorRecord, f64)> {
        let arrived = record.tensors.iter().find(|t| t.role == Role::Output);
        for tensor in &record.tensors {
            if let Role::Input(index) = tensor.role
                && let Some(maker) = self.makers.get(&(call.id, index))
            {
                let this = HandedBack {
                    finite: tensor.extremes.is_finite(),
                    largest: tensor.extremes.largest,
                };
                self.handed_back
                    .entry(*maker)
                    .and_modify(|all| {
                        all.finite &= this.finite;
                        all.largest = all.largest.max(this.largest);
                    })
                    .or_insert(this);
            }
        }
        // Between two calls: gradients of several uses add up, and return to the dtype of the value.
        if let Some(arrived) = arrived
            && !arrived.extremes.is_finite()
        {
            let handed_back = self.handed_back.get(&call.id)?;
            return handed_back
                .finite
                .then(|| (self.of_gradients(arrived), arrived, handed_back.largest));
        }
        let largest = arrived?.extremes.largest;
        let handed_on = record
            .tensors
            .iter()
            .find(|t| t.role != Role::Output && !t.extremes.is_finite())?;
        let cause = match self.singular.contains(&call.id) {
            true => Cause::SingularDerivative,
            false => self.of_gradients(handed_on),
        };
        Some((cause, handed_on, largest))
    }

    /// Backward is linear in the loss scale, so infinite gradients may be finite at a lower one. A NaN
    /// is none at any.
    fn of_gradients(&self, tensor: &TensorRecord) -> Cause {
        match (self.loss_scale, tensor.extremes.nans) {
            (Some(scale), 0) if scale > self.floor => Cause::LossScale,
            (_, 0) => Cause::Overflow,
            _ => Cause::Undefined,
        }
    }
}

/// The least magnitude that a cast of this input turns into an infinity: halfway between the largest
/// finite number and the power of two behind it.
fn rounds_to_infinity(input: &TensorRecord) -> f64 {
    use burn_backend::DType;
    match input.inside {
        DType::F16 => 65520.0,
        DType::BF16 => 3.3961775292304957e38,
        _ => f64::INFINITY,
    }
}

/// Operations whose derivative is infinite at 0.
fn has_singular_derivative(op: Op) -> bool {
    matches!(
        op,
        Op::FloatSqrt
            | Op::FloatLog
            | Op::FloatRecip
            | Op::FloatDiv
            | Op::FloatPowf
            | Op::FloatPowfScalar
            | Op::FloatPowfScalarImpl
            | Op::FloatAtan2
    )
}
