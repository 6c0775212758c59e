use core::fmt;
use std::sync::Arc;

use burn_backend::{DType, Shape};
use serde::{Serialize, Serializer};

use super::Values;
use crate::{CastRule, Op};

/// One call of an operation: what was called, where, and under which rule.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// Counts up over all calls of the process that were observed.
    pub id: u64,
    /// The operation; `None` for one of [`custom`](crate::custom).
    pub op: Option<Op>,
    /// The rule that the policy in force has for it.
    pub rule: CastRule,
    /// Where in the model it was called.
    pub place: Place,
    /// Whether one of the numbers it was given, a fill or a bound, is infinite.
    pub takes_infinity: bool,
}

impl Call {
    /// The operation's name, Burn's method name; `custom` for one that Burn does not know.
    pub fn name(&self) -> &'static str {
        self.op.map_or("custom", Op::name)
    }
}

/// Where in a model a call was made, as far as that can be known.
///
/// Burn's modules do not announce themselves. A call that takes a parameter of a
/// [named](super::name_parameters) model is placed at the parameter's module; any other inherits the
/// place of its inputs; [`scope::module`](crate::scope::module) names a block by hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Place {
    /// The module of one of its parameters.
    Module(Arc<str>),
    /// In a block that was named, or in the innermost module that all of its inputs come from.
    Within(Arc<str>),
    /// Behind this module, from whose output it takes its input.
    After(Arc<str>),
    /// Nothing is known: no parameter was named and no input came from one.
    #[default]
    Unknown,
}

impl Place {
    /// The path of the module, such as `blocks.0.attention`; empty if it is not known.
    pub fn path(&self) -> &str {
        match self {
            Place::Module(path) | Place::Within(path) | Place::After(path) => path,
            Place::Unknown => "",
        }
    }

    /// The place of a call whose inputs come from these places, the latest last.
    pub(super) fn behind(origins: &[Place]) -> Place {
        let known: Vec<&Place> = origins.iter().filter(|p| !p.path().is_empty()).collect();
        let [first, rest @ ..] = &known[..] else {
            return Place::Unknown;
        };
        if rest.iter().all(|other| other.path() == first.path()) {
            return match first {
                Place::Module(path) => Place::After(path.clone()),
                _ => (*first).clone(),
            };
        }
        let shared = known[1..].iter().fold(first.path(), |shared, other| {
            common_ancestor(shared, other.path())
        });
        match (shared, known.last()) {
            ("", Some(Place::Module(path))) => Place::After(path.clone()),
            ("", Some(last)) => (*last).clone(),
            (shared, _) => Place::Within(shared.into()),
        }
    }
}

/// The longest path of whole segments that both begin with.
fn common_ancestor<'a>(left: &'a str, right: &str) -> &'a str {
    let mut end = 0;
    for (a, b) in left.split('.').zip(right.split('.')) {
        if a != b {
            break;
        }
        end += a.len() + usize::from(end > 0);
    }
    &left[..end]
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Place::Module(path) | Place::Within(path) => path.to_string(),
            Place::After(path) => format!("after {path}"),
            Place::Unknown => "(no named module)".to_string(),
        };
        f.pad(&text)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Forward or backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The values that an operation takes and gives.
    Forward,
    /// The gradients of these values.
    Backward,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
        })
    }
}

/// Which tensor of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Its float inputs, counted from 0.
    Input(usize),
    /// Its float output.
    Output,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Input(index) => f.pad(&format!("input {index}")),
            Role::Output => f.pad("output"),
        }
    }
}

/// Where an input comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A batch or a constant: no observed call made it.
    Outside,
    /// A parameter of a [named](super::name_parameters) model, by its path.
    Parameter(Arc<str>),
    /// The call with this [id](Call::id).
    Call(u64),
}

/// What the policy did to bring a tensor to the dtype of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Casting {
    /// Nothing: it had the dtype.
    None,
    /// A cast was computed.
    Made,
    /// The cached half copy was taken.
    Saved,
}

/// One tensor of one call, as an [`Observer`](super::Observer) gets it.
#[non_exhaustive]
pub struct Sight<'a> {
    /// Forward values or backward gradients.
    pub phase: Phase,
    /// Which tensor of the call.
    pub role: Role,
    /// Its shape.
    pub shape: Shape,
    /// The dtype of [`values`](Sight::values): that of an input before its cast, of an output when
    /// the caller gets it, of a gradient as backward computes it.
    pub dtype: DType,
    /// The dtype that the operation itself runs in: that of an input after its cast.
    pub inside: DType,
    /// Where a forward input comes from; [`Source::Outside`] for outputs and gradients, which say
    /// nothing by it.
    pub source: Source,
    /// What was done to bring a forward input from `dtype` to `inside`.
    pub casting: Casting,
    /// The numbers.
    pub values: &'a dyn Values,
}

impl fmt::Debug for Sight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sight")
            .field("phase", &self.phase)
            .field("role", &self.role)
            .field("shape", &self.shape)
            .field("dtype", &self.dtype)
            .field("inside", &self.inside)
            .field("source", &self.source)
            .field("casting", &self.casting)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Place {
        Place::Module(path.into())
    }

    #[test]
    fn a_call_without_parameters_is_placed_by_its_inputs() {
        let scores = Place::behind(&[module("blocks.0.mha.query"), module("blocks.0.mha.key")]);
        assert_eq!(scores, Place::Within("blocks.0.mha".into()));
        assert_eq!(Place::behind(std::slice::from_ref(&scores)), scores);
        let relu = Place::behind(&[module("fc1")]);
        assert_eq!(relu, Place::After("fc1".into()));
        assert_eq!(Place::behind(std::slice::from_ref(&relu)), relu);
        let residual = Place::behind(&[module("embedding"), module("blocks.0.mha.output")]);
        assert_eq!(residual, Place::After("blocks.0.mha.output".into()));
        assert_eq!(Place::behind(&[Place::Unknown]), Place::Unknown);
        assert_eq!(
            Place::behind(&[Place::Unknown, module("a")]),
            Place::After("a".into())
        );
    }

    #[test]
    fn ancestors_are_whole_segments() {
        assert_eq!(common_ancestor("conv1.a", "conv12.a"), "");
        assert_eq!(common_ancestor("a.b.c", "a.b"), "a.b");
    }
}
