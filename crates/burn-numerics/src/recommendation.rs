use core::fmt;
use std::sync::Arc;

use burn_mixed_precision::HalfDType;
use burn_mixed_precision::observe::{Phase, Place, Role};
use serde::Serialize;

use crate::Entry;
use crate::entry::path;

/// What is wrong with a tensor's numbers, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// An operation made infinities or NaN of finite numbers, in half.
    Overflows,
    /// Values are beyond the range of the half dtype they are cast to.
    CastOverflows,
    /// Values are so small that casting them to half takes their digits.
    CastLosesDigits,
    /// Gradients are so small that half takes their digits or makes them zero.
    GradientVanishes,
    /// Gradients, times the loss scale, are beyond the range of half in most backward passes.
    GradientOverflows,
}

/// What to do about a tensor, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Recommendation {
    /// What is wrong.
    pub fault: Fault,
    /// The operation.
    pub op: &'static str,
    /// Where in the model.
    pub place: Place,
    /// The parameter, if it is one or its gradient.
    #[serde(serialize_with = "path")]
    pub parameter: Option<Arc<str>>,
    /// How much of the tensor is lost, from 0 to 1.
    pub share: f64,
    /// What was seen.
    pub finding: String,
    /// What helps.
    pub remedy: String,
}

/// Loss scales, as a recommendation about gradients needs them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scales {
    /// The last one; `None` without a scaler.
    pub(crate) current: Option<f32>,
    /// The exponent of the largest at which no gradient overflows.
    pub(crate) highest: i32,
}

/// The cap of a dynamic loss scale, unless it is set.
const CAP: i32 = 24;

/// Powers of two by which a scale is raised above the lowest that is good for the gradients that were
/// seen: those of later steps are smaller, and some were flushed before they were seen.
const HEADROOM: i32 = 3;

impl Recommendation {
    /// What an entry calls for, if anything.
    pub(crate) fn of(entry: &Entry, scales: Scales) -> Option<Self> {
        let half = entry.half()?;
        let gradient = entry.phase == Phase::Backward;
        let overflow_share = match entry.cast {
            Some(cast) if cast.overflowed > 0 => cast.overflowed as f64 / cast.elements as f64,
            _ => entry.overflowed as f64 / entry.tensors as f64,
        };
        let (fault, share) = if gradient && 2 * entry.overflowed >= entry.tensors {
            (Fault::GradientOverflows, overflow_share)
        } else if gradient && entry.loses_digits() {
            (Fault::GradientVanishes, entry.relative_error())
        } else if gradient {
            return None;
        } else if entry.overflowed > 0 && entry.role == Role::Output {
            (Fault::Overflows, overflow_share)
        } else if entry.overflowed > 0 {
            (Fault::CastOverflows, overflow_share)
        } else if entry.loses_digits() {
            (Fault::CastLosesDigits, entry.relative_error())
        } else {
            return None;
        };
        Some(Recommendation {
            fault,
            op: entry.op,
            place: entry.place.clone(),
            parameter: entry.parameter.clone(),
            share,
            finding: finding(entry, fault, half, share),
            remedy: match fault {
                Fault::GradientVanishes => raise(entry, half, scales),
                Fault::GradientOverflows => lower(entry, half, scales),
                Fault::CastLosesDigits if entry.dtype == half.dtype() => {
                    "O1 keeps weights in f32; O2 has f32 masters, of which forward sees only half"
                        .to_string()
                }
                _ => elsewhere(entry, half),
            },
        })
    }

    /// Whether another one says the same of the same tensor's neighbours.
    pub(crate) fn is_like(&self, other: &Recommendation) -> bool {
        (self.fault, self.op, &self.place) == (other.fault, other.op, &other.place)
            && self.parameter == other.parameter
    }
}

fn finding(entry: &Entry, fault: Fault, half: HalfDType, share: f64) -> String {
    let share = percent(share);
    let op = &entry.op;
    let of = module(&entry.place);
    let what = match (&entry.parameter, entry.phase, entry.role) {
        (Some(path), Phase::Forward, _) => format!("weights {path}"),
        (Some(path), Phase::Backward, _) => format!("the gradient of {path}"),
        (None, Phase::Forward, role) => format!("{role} of {op}{of}"),
        (None, Phase::Backward, Role::Output) => format!("the gradient that {op}{of} is given"),
        (None, Phase::Backward, _) => format!("the gradient that {op}{of} hands back"),
    };
    match fault {
        Fault::Overflows => format!(
            "{op}{of} makes finite numbers infinite in {half}, in {} of {} calls",
            entry.overflowed, entry.tensors
        ),
        Fault::CastOverflows => {
            format!("{share} of {what} is infinite once cast to {half}")
        }
        Fault::CastLosesDigits => format!("{what} loses {share} of its size in {half}"),
        Fault::GradientVanishes => format!("{what} loses {share} of its size in {half}"),
        Fault::GradientOverflows => format!(
            "{what} is infinite in {half}, in {} of {} backward passes",
            entry.overflowed, entry.tensors
        ),
    }
}

/// Away from this half dtype.
fn elsewhere(entry: &Entry, half: HalfDType) -> String {
    let f32 = format!("move {}{} to f32", entry.op, module(&entry.place));
    match half {
        HalfDType::F16 => format!("{f32}, or take bf16"),
        HalfDType::Bf16 => f32,
    }
}

fn raise(entry: &Entry, half: HalfDType, scales: Scales) -> String {
    let Some(needed) = entry.lowest_good_scale() else {
        return elsewhere(entry, half);
    };
    if needed > scales.highest {
        return format!(
            "no loss scale fits all gradients, this one needs 2^{needed} and others overflow above \
             2^{}: {}",
            scales.highest,
            elsewhere(entry, half)
        );
    }
    let needed = (needed + HEADROOM).min(scales.highest);
    if needed > CAP {
        return format!(
            "it needs a loss scale of 2^{needed}, beyond the usual cap 2^{CAP}: multiply the loss by a \
             factor of its own, or {}",
            elsewhere(entry, half)
        );
    }
    match scales.current {
        None => {
            format!("nothing scales the loss: attach an AmpOptimizer; it takes 2^{needed} or more")
        }
        Some(current) => format!(
            "raise the loss scale from {current} to 2^{needed} or more: a higher static scale, init or \
             floor"
        ),
    }
}

fn lower(entry: &Entry, half: HalfDType, scales: Scales) -> String {
    let fits = scales.highest >= 0;
    match scales.current {
        Some(current) if fits && f64::from(current) > 2f64.powi(scales.highest) => format!(
            "lower the loss scale from {current} to 2^{} or less",
            scales.highest
        ),
        Some(current) if current > 1.0 => format!(
            "a dynamic loss scale goes down by itself; if it does not, {}",
            elsewhere(entry, half)
        ),
        _ => elsewhere(entry, half),
    }
}

/// As ` of fc1`, or nothing where the module is not known.
pub(crate) fn module(place: &Place) -> String {
    match place {
        Place::Unknown => String::new(),
        Place::After(path) => format!(" after {path}"),
        Place::Module(path) | Place::Within(path) => format!(" of {path}"),
    }
}

pub(crate) fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0".to_string(),
        percent if percent < 0.01 => "<0.01%".to_string(),
        percent if percent < 10.0 => format!("{percent:.2}%"),
        percent => format!("{percent:.1}%"),
    }
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.finding, self.remedy)
    }
}
