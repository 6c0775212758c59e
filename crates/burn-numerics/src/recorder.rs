use core::mem;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use burn_backend::DType;
use burn_mixed_precision::HalfDType;
use burn_mixed_precision::observe::{self, Call, Observer, Phase, Place, Role, Sight, Source};

use crate::{Entry, Histogram, NumericsReport, Rounding};

/// Records the numbers of some steps for a [`NumericsReport`].
///
/// Put the forward and the backward pass of a step into [`watch`](NumericsRecorder::watch), the
/// optimizer's step outside. Gradients are seen with `AmpBackend`, which stands inside autodiff too.
///
/// # Cost
///
/// Every tensor that is looked at is read to the host, at most
/// [`DEFAULT_SAMPLE`](NumericsRecorder::DEFAULT_SAMPLE) evenly spaced elements of it. For a few steps
/// now and then, not for every step of a training.
///
/// # Example: in a training loop, every thousandth step
///
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::tensor::Tensor;
/// use burn_mixed_precision::{AmpConfig, FastBackward, MixedPrecision, OptLevel};
/// use burn_numerics::NumericsRecorder;
///
/// type B = MixedPrecision<Autodiff<FastBackward<Flex>>>;
///
/// let amp = AmpConfig::new(OptLevel::O1).build()?;
/// let mut recorder = NumericsRecorder::new();
/// amp.scope(|| {
///     let w = Tensor::<B, 2>::ones([2, 2], &Default::default()).require_grad();
///     for step in 0..2000 {
///         let pass = || w.clone().matmul(w.clone()).exp().sum().backward();
///         let _gradients = match step % 1000 {
///             0 => recorder.watch(pass),
///             _ => pass(),
///         };
///         # if step == 2 { break }
///     }
/// });
/// let report = recorder.finish();
/// assert_eq!(report.steps, 1);
/// assert!(report.recommendations.is_empty());
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Debug)]
pub struct NumericsRecorder {
    sample: usize,
    steps: u64,
    entries: HashMap<Key, Entry>,
    scales: Vec<Option<f32>>,
    /// What the calls of this step were given.
    inputs: HashMap<(u64, Role), Given>,
    /// The gradients of this backward pass: of several sights of one tensor the last is its gradient.
    gradients: HashMap<(u64, Role), Seen>,
    /// The call that is being seen, and whether all that it was given is finite.
    current: Option<(u64, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    place: Place,
    op: &'static str,
    phase: Phase,
    role: Role,
    dtype: DType,
    inside: DType,
    cast_to: DType,
}

/// A forward input, for the sake of its gradient.
#[derive(Debug, Clone)]
struct Given {
    dtype: DType,
    parameter: Option<Arc<str>>,
}

#[derive(Debug)]
struct Seen {
    key: Key,
    parameter: Option<Arc<str>>,
    elements: u64,
    before: Histogram,
    after: Histogram,
    unscaled: Histogram,
    cast: Option<Rounding>,
}

impl NumericsRecorder {
    /// The elements of a tensor that are looked at, if it has as many.
    pub const DEFAULT_SAMPLE: usize = 65_536;

    /// Nothing recorded.
    pub fn new() -> Self {
        NumericsRecorder {
            sample: NumericsRecorder::DEFAULT_SAMPLE,
            steps: 0,
            entries: HashMap::new(),
            scales: Vec::new(),
            inputs: HashMap::new(),
            gradients: HashMap::new(),
            current: None,
        }
    }

    /// Looks at up to so many evenly spaced elements of each tensor, at least one.
    #[must_use]
    pub fn with_sample(mut self, most: usize) -> Self {
        self.sample = most.max(1);
        self
    }

    /// Runs one step on this thread and records it.
    ///
    /// [`observe::name_parameters`] inside the block gives operations the names of a model's modules.
    /// A panic in the block loses what was recorded.
    pub fn watch<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let (result, recorder) = observe::run(mem::take(self), step);
        *self = recorder;
        self.file_gradients();
        self.inputs.clear();
        self.current = None;
        self.steps += 1;
        result
    }

    /// The report of all that was recorded.
    pub fn finish(self) -> NumericsReport {
        NumericsReport::new(
            self.steps,
            self.sample,
            self.scales,
            self.entries.into_values().collect(),
        )
    }

    fn file_gradients(&mut self) {
        let gradients = mem::take(&mut self.gradients);
        let given_infinities: HashSet<u64> = gradients
            .iter()
            .filter(|((_, role), seen)| *role == Role::Output && !is_finite(&seen.before))
            .map(|((call, _), _)| *call)
            .collect();
        for ((call, role), seen) in gradients {
            let made = role != Role::Output
                && !given_infinities.contains(&call)
                && !is_finite(&seen.before);
            self.file(seen, made);
        }
    }

    fn file(&mut self, seen: Seen, made: bool) {
        let overflowed = made || seen.cast.is_some_and(|cast| cast.overflowed > 0);
        let Key {
            ref place,
            op,
            phase,
            role,
            dtype,
            inside,
            cast_to,
        } = seen.key;
        let place = place.clone();
        let entry = self.entries.entry(seen.key).or_insert_with(|| Entry {
            op,
            place,
            phase,
            role,
            parameter: None,
            dtype,
            inside,
            cast_to,
            tensors: 0,
            elements: 0,
            before: Histogram::default(),
            after: Histogram::default(),
            unscaled: Histogram::default(),
            cast: None,
            overflowed: 0,
        });
        entry.parameter = entry.parameter.take().or(seen.parameter);
        entry.tensors += 1;
        entry.elements += seen.elements;
        entry.before.merge(&seen.before);
        entry.after.merge(&seen.after);
        entry.unscaled.merge(&seen.unscaled);
        entry.overflowed += u64::from(overflowed);
        match (&mut entry.cast, seen.cast) {
            (Some(cast), Some(new)) => cast.merge(&new),
            (cast, new) => *cast = cast.take().or(new),
        }
    }

    fn look(&self, call: &Call, sight: &Sight<'_>, cast_to: DType, scale: f64) -> Seen {
        let numbers = sight.values.sample(self.sample);
        let half = HalfDType::of(cast_to).filter(|_| cast_to != sight.dtype);
        let before = Histogram::of(&numbers);
        let after = match half {
            Some(half) => Histogram::of(&map(&numbers, |number| half.round(number))),
            None => before.clone(),
        };
        let unscaled = match scale {
            1.0 => before.clone(),
            scale => Histogram::of(&map(&numbers, |number| number / scale)),
        };
        Seen {
            key: Key {
                place: call.place.clone(),
                op: call.name(),
                phase: sight.phase,
                role: sight.role,
                dtype: sight.dtype,
                inside: sight.inside,
                cast_to,
            },
            parameter: None,
            elements: sight.shape.num_elements() as u64,
            before,
            after,
            unscaled,
            cast: half.map(|half| Rounding::of(&numbers, half)),
        }
    }

    fn forward(&mut self, call: &Call, sight: &Sight<'_>) {
        let finite = match self.current {
            Some((id, finite)) if id == call.id => finite,
            _ => true,
        };
        let parameter = match &sight.source {
            Source::Parameter(path) => Some(path.clone()),
            _ => None,
        };
        let cast_to = match sight.role {
            Role::Output => sight.dtype,
            Role::Input(_) => sight.inside,
        };
        let seen = Seen {
            parameter: parameter.clone(),
            ..self.look(call, sight, cast_to, 1.0)
        };
        // What the cast made infinite is the cast's doing, not the operation's.
        let is_finite = is_finite(&seen.after);
        let made = sight.role == Role::Output && finite && !is_finite && !call.takes_infinity;
        self.current = Some((call.id, finite && is_finite));
        let given = Given {
            dtype: sight.dtype,
            parameter,
        };
        self.inputs.insert((call.id, sight.role), given);
        self.file(seen, made);
    }

    fn backward(&mut self, call: &Call, sight: &Sight<'_>) {
        let given = self.inputs.get(&(call.id, sight.role)).cloned();
        // Autodiff casts the gradient of a cast input back to the dtype that the input had.
        let cast_to = match (sight.role, &given) {
            (Role::Input(_), Some(given)) => given.dtype,
            _ => sight.dtype,
        };
        let scale = self.scales.last().copied().flatten().map_or(1.0, f64::from);
        let seen = Seen {
            parameter: given.and_then(|given| given.parameter),
            ..self.look(call, sight, cast_to, scale)
        };
        self.gradients.insert((call.id, sight.role), seen);
    }
}

impl Default for NumericsRecorder {
    fn default() -> Self {
        NumericsRecorder::new()
    }
}

impl Observer for NumericsRecorder {
    fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>) {
        match sight.phase {
            Phase::Forward => self.forward(call, sight),
            Phase::Backward => self.backward(call, sight),
        }
    }

    fn backward_begins(&mut self, loss_scale: Option<f32>) {
        self.file_gradients();
        self.scales.push(loss_scale);
    }
}

fn is_finite(histogram: &Histogram) -> bool {
    histogram.infinities() == 0 && histogram.nans() == 0
}

fn map(numbers: &[f64], change: impl Fn(f64) -> f64) -> Vec<f64> {
    numbers.iter().map(|number| change(*number)).collect()
}
