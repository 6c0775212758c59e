use core::fmt;

use burn_mixed_precision::HalfDType;
use burn_mixed_precision::observe::Phase;
use serde::Serialize;

use crate::recommendation::{Scales, percent};
use crate::table::Table;
use crate::{Entry, NumericsRecorder, Recommendation, ScaleRange};

/// What half precision did to the numbers of some steps: per tensor and per parameter, and what to do
/// about it.
///
/// As a value, as a table (`Display`), as [JSON](NumericsReport::to_json) and as a
/// [page](NumericsReport::page).
///
/// # Limits
///
/// - Of a tensor with more elements than the sample, evenly spaced ones are looked at.
/// - Gradients are seen with `AmpBackend`. What half arithmetic flushed inside an operation's backward is
///   zero when it is seen; the casts back to half, where vanishing gradients mostly vanish, show
///   what they lose.
/// - A zero that was zero before a cast is no loss: ReLUs and masks make many.
///
/// # Example
///
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::tensor::Tensor;
/// use burn_mixed_precision::{AmpConfig, FastBackward, MixedPrecision, OptLevel};
/// use burn_numerics::{Fault, NumericsReport};
///
/// type B = MixedPrecision<Autodiff<FastBackward<Flex>>>;
///
/// let amp = AmpConfig::new(OptLevel::O1).build()?;
/// let (_, report) = amp.scope(|| {
///     NumericsReport::of(3, |_step| {
///         let x = Tensor::<B, 2>::full([2, 2], 1e5, &Default::default());
///         x.clone().matmul(x).mean().backward()
///     })
/// });
/// let worst = &report.recommendations[0];
/// assert_eq!((worst.fault, worst.op), (Fault::CastOverflows, "float_matmul"));
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NumericsReport {
    /// The steps that were watched.
    pub steps: u64,
    /// The elements of a tensor that were looked at, at most.
    pub sample: usize,
    /// The loss scale of each backward pass, in order; `None` where nothing scaled the loss.
    pub loss_scales: Vec<Option<f32>>,
    /// The loss scales at which all gradients would fit half, with 1% of each tensor becoming zero at
    /// most; `None` if no scale fits all.
    pub gradient_scales: Option<ScaleRange>,
    /// What to do, the worst first; nothing after a healthy run.
    pub recommendations: Vec<Recommendation>,
    /// Every tensor that was seen, in the order of the model's paths.
    pub entries: Vec<Entry>,
}

impl NumericsReport {
    /// The most lines of the terminal table; JSON has all.
    pub const ROWS: usize = 40;

    /// Runs so many steps on this thread, records them all, and gives their results.
    ///
    /// The block gets the number of the step, from 0. It is to hold forward and backward;
    /// [`observe::name_parameters`](burn_mixed_precision::observe::name_parameters) in it gives operations
    /// the names of a model's modules. For a training loop take a [`NumericsRecorder`].
    pub fn of<R>(steps: u64, mut step: impl FnMut(u64) -> R) -> (Vec<R>, Self) {
        let mut recorder = NumericsRecorder::new();
        let results = (0..steps)
            .map(|number| recorder.watch(|| step(number)))
            .collect();
        (results, recorder.finish())
    }

    pub(crate) fn new(
        steps: u64,
        sample: usize,
        loss_scales: Vec<Option<f32>>,
        mut entries: Vec<Entry>,
    ) -> Self {
        entries.sort_by(|a, b| {
            let key = |entry: &Entry| (entry.place.clone(), entry.phase, entry.op, entry.role);
            key(a).cmp(&key(b))
        });
        let gradients = || {
            entries
                .iter()
                .filter(|entry| entry.phase == Phase::Backward && entry.half().is_some())
        };
        let gradient_scales = gradients()
            .map(Entry::clean_scales)
            .try_fold(ScaleRange::ALL, |all, range| all.intersect(range?));
        // Where no scale fits a tensor, its own large gradients still say where it overflows.
        let highest = gradients()
            .filter_map(|entry| entry.unscaled.clean_scales(entry.half()?, 1.0))
            .map(|range| range.high)
            .min();
        let scales = Scales {
            current: loss_scales.last().copied().flatten(),
            highest: highest.unwrap_or(ScaleRange::ALL.high),
        };
        let mut recommendations: Vec<Recommendation> = Vec::new();
        let mut found: Vec<Recommendation> = entries
            .iter()
            .filter_map(|entry| Recommendation::of(entry, scales))
            .collect();
        found.sort_by(|a, b| a.fault.cmp(&b.fault).then(b.share.total_cmp(&a.share)));
        for recommendation in found {
            if !recommendations.iter().any(|r| r.is_like(&recommendation)) {
                recommendations.push(recommendation);
            }
        }
        NumericsReport {
            steps,
            sample,
            loss_scales,
            gradient_scales,
            recommendations,
            entries,
        }
    }

    /// The entries of parameters and their gradients.
    pub fn parameters(&self) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(|entry| entry.parameter.is_some())
    }

    /// The entries that a half dtype could hurt, the one that loses most first.
    pub fn by_severity(&self) -> Vec<&Entry> {
        let mut entries: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.half().is_some())
            .collect();
        let severity = |entry: &Entry| {
            let overflowed = entry.overflowed as f64 / entry.tensors.max(1) as f64;
            (overflowed, entry.relative_error())
        };
        entries.sort_by(|a, b| {
            let (a, b) = (severity(a), severity(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        entries
    }

    /// The share of numbers that casts to half make zero, from 0 to 1: of all the finite numbers other
    /// than zero that were to be cast, values and gradients at the scale they had.
    pub fn flushed(&self) -> f64 {
        let cast = |entry: &Entry| HalfDType::of(entry.cast_to).filter(|_| entry.cast.is_some());
        self.mean_share(cast, |entry, half| entry.before.shares(half, 0).flushed)
    }

    /// The share of numbers in half within a factor of 2^3 of its largest, from 0 to 1: of all the
    /// finite numbers other than zero that are half or are cast to it. Those that a cast makes infinite
    /// are beyond it and not among them.
    pub fn near_overflow(&self) -> f64 {
        self.mean_share(Entry::half, |entry, half| {
            entry.before.shares(half, 0).near_overflow
        })
    }

    /// The mean over tensors of a share of their nonzero numbers, weighted by how many those are.
    fn mean_share(
        &self,
        half: impl Fn(&Entry) -> Option<HalfDType>,
        share: impl Fn(&Entry, HalfDType) -> f64,
    ) -> f64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for entry in &self.entries {
            if let Some(half) = half(entry) {
                let seen = &entry.before;
                let nonzero = seen.nonzero() as f64 / seen.total().max(1) as f64;
                let weight = entry.elements as f64 * nonzero;
                sum += weight * share(entry, half);
                weights += weight;
            }
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }

    /// The whole report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("no map and no fallible serializer in it")
    }

    /// What was watched, in a line.
    pub(crate) fn subject(&self) -> String {
        let mut text = match self.steps {
            1 => "1 step".to_string(),
            steps => format!("{steps} steps"),
        };
        let scales: Vec<f32> = self.loss_scales.iter().copied().flatten().collect();
        let least = scales.iter().copied().fold(f32::INFINITY, f32::min);
        let most = scales.iter().copied().fold(0.0, f32::max);
        text += &match (self.loss_scales.is_empty(), scales.is_empty()) {
            (true, _) => ", forward only".to_string(),
            (_, true) => ", no loss scale".to_string(),
            _ if least == most => format!(", loss scale {most}"),
            _ => format!(", loss scales from {least} to {most}"),
        };
        if self.loss_scales.is_empty() {
            return text;
        }
        if !self
            .entries
            .iter()
            .any(|entry| entry.phase == Phase::Backward)
        {
            return text + ", no gradients seen (AmpBackend shows them)";
        }
        text += &match self.gradient_scales {
            Some(range) => format!(", gradients fit at {range}"),
            None => ", no loss scale fits all gradients".to_string(),
        };
        text
    }
}

impl Entry {
    /// The titles of [`cells`](Entry::cells).
    pub(crate) const TITLES: [&'static str; 11] = [
        "module",
        "operation",
        "tensor",
        "dtype",
        "elements",
        "zero",
        "to zero",
        "subnormal",
        "near inf",
        "inf",
        "fits at",
    ];

    /// A line of the table: shares of the elements that were looked at.
    pub(crate) fn cells(&self) -> [String; 11] {
        let phase = match self.phase {
            Phase::Forward => "",
            Phase::Backward => "gradient of ",
        };
        let tensor = match &self.parameter {
            Some(path) => format!("{phase}{path}"),
            None => format!("{phase}{}", self.role),
        };
        let dtype = match self.dtype == self.cast_to {
            true => self.dtype.name().to_string(),
            false => format!("{} to {}", self.dtype.name(), self.cast_to.name()),
        };
        let half = self.half().unwrap_or_default();
        let shares = self.before.shares(half, 0);
        let after = self.after.shares(half, 0);
        let looked_at = self.before.total().max(1) as f64;
        [
            self.place.to_string(),
            self.op.to_string(),
            tensor,
            dtype,
            self.elements.to_string(),
            percent(self.before.zeros() as f64 / looked_at),
            percent(shares.flushed),
            percent(after.subnormal),
            percent(after.near_overflow),
            percent((self.after.infinities() + self.after.nans()) as f64 / looked_at),
            match self.phase {
                Phase::Forward => String::new(),
                Phase::Backward => self
                    .clean_scales()
                    .map_or("no scale".to_string(), |range| range.to_string()),
            },
        ]
    }
}

/// What to do, then a line per tensor that is or becomes half, the one that loses most first, up to
/// [`ROWS`](NumericsReport::ROWS).
impl fmt::Display for NumericsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject())?;
        if self.recommendations.is_empty() {
            writeln!(f, "nothing to recommend")?;
        }
        for recommendation in &self.recommendations {
            writeln!(f, "- {recommendation}")?;
        }
        let entries = self.by_severity();
        let shown = entries.len().min(NumericsReport::ROWS);
        let rows = entries[..shown].iter().map(|entry| entry.cells());
        write!(f, "\n{}", Table::new(Entry::TITLES, 4, rows))?;
        match entries.len() - shown {
            0 => Ok(()),
            more => writeln!(
                f,
                "and {more} tensors more, which lose no more than the last"
            ),
        }
    }
}
