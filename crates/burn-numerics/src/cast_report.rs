use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use burn_backend::{DType, Shape};
use burn_mixed_precision::observe::{
    self, Call, Casting, Observer, Phase, Place, Role, Sight, Source,
};
use burn_mixed_precision::{CastRule, HalfDType};
use serde::Serialize;

use crate::Bounce;
use crate::entry::name;
use crate::table::Table;

/// Which casts the policy made in a block, by whose rule, and which tensors went from half to f32 and
/// back.
///
/// The count of casts is that of [`measure`](burn_mixed_precision::measure), taken apart. Casts inside
/// backward belong to the autodiff graph and are not counted. To ask why an operation runs in a dtype
/// without running it, there is [`Policy::explain`](burn_mixed_precision::Policy::explain).
///
/// # Example: an exponential between two products
///
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};
/// use burn_numerics::CastReport;
///
/// type B = MixedPrecision<Flex>;
///
/// let amp = AmpConfig::new(OptLevel::O1).build()?;
/// let x = Tensor::<B, 2>::ones([4, 4], &Default::default());
/// let (_, report) = amp.scope(|| {
///     CastReport::of(|| x.clone().matmul(x.clone()).exp().matmul(x))
/// });
/// let bounce = &report.bounces[0];
/// assert_eq!((bounce.widened_by, bounce.rounded_by), ("float_exp", "float_matmul"));
/// # Ok::<(), burn_mixed_precision::AmpError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CastReport {
    /// The calls of operations that were seen.
    pub calls: u64,
    /// The casts, those that write most first.
    pub casts: Vec<CastEntry>,
    /// Tensors that went from half to f32 and back, those that cost most first.
    pub bounces: Vec<Bounce>,
}

/// The casts of one operation in one module, from one dtype to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CastEntry {
    /// The operation, by Burn's method name.
    pub op: &'static str,
    /// Where in the model.
    pub place: Place,
    /// The rule that decided.
    pub rule: CastRule,
    /// The dtype before.
    #[serde(serialize_with = "name")]
    pub from: DType,
    /// The dtype after.
    #[serde(serialize_with = "name")]
    pub to: DType,
    /// Whether it is the output that was rounded.
    pub of_output: bool,
    /// The casts that were computed.
    pub made: u64,
    /// The casts that were answered from a tensor's cache.
    pub saved: u64,
    /// The bytes that the computed casts wrote.
    pub bytes: u64,
}

impl CastReport {
    /// Runs a block on this thread and reports its casts.
    ///
    /// [`observe::name_parameters`] inside the block gives operations the names of a model's modules.
    pub fn of<R>(block: impl FnOnce() -> R) -> (R, Self) {
        let (result, casts) = observe::run(Casts::default(), block);
        (result, casts.finish())
    }

    /// The casts that were computed.
    pub fn made(&self) -> u64 {
        self.casts.iter().map(|entry| entry.made).sum()
    }

    /// The casts that were answered from a cache.
    pub fn saved(&self) -> u64 {
        self.casts.iter().map(|entry| entry.saved).sum()
    }

    /// The bytes that the computed casts wrote.
    pub fn bytes(&self) -> u64 {
        self.casts.iter().map(|entry| entry.bytes).sum()
    }

    /// The whole report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("no map and no fallible serializer in it")
    }
}

/// The observer that fills a report.
#[derive(Debug, Default)]
struct Casts {
    report: CastReport,
    /// Where in `report.casts` an entry stands.
    positions: HashMap<Key, usize>,
    /// By the id of a call whose output is f32: the cast to f32 that its values come from.
    widened: HashMap<u64, Widened>,
}

type Key = (&'static str, Place, CastRule, DType, DType, bool);

#[derive(Debug, Clone)]
struct Widened {
    half: DType,
    by: &'static str,
    at: Place,
    bytes: u64,
}

impl Casts {
    fn count(&mut self, call: &Call, from: DType, to: DType, of_output: bool) -> &mut CastEntry {
        let casts = &mut self.report.casts;
        let key = (
            call.name(),
            call.place.clone(),
            call.rule,
            from,
            to,
            of_output,
        );
        let position = *self.positions.entry(key).or_insert_with(|| {
            casts.push(CastEntry {
                op: call.name(),
                place: call.place.clone(),
                rule: call.rule,
                from,
                to,
                of_output,
                made: 0,
                saved: 0,
                bytes: 0,
            });
            casts.len() - 1
        });
        &mut casts[position]
    }

    fn bounced(&mut self, widened: &Widened, call: &Call, bytes: u64) {
        let bounces = &mut self.report.bounces;
        let same = |bounce: &&mut Bounce| {
            (bounce.half, bounce.widened_by, bounce.rounded_by)
                == (widened.half, widened.by, call.name())
                && (&bounce.widened_at, &bounce.rounded_at) == (&widened.at, &call.place)
        };
        let bytes = widened.bytes + bytes;
        match bounces.iter_mut().find(same) {
            Some(bounce) => {
                bounce.times += 1;
                bounce.bytes += bytes;
            }
            None => bounces.push(Bounce {
                half: widened.half,
                widened_by: widened.by,
                widened_at: widened.at.clone(),
                rounded_by: call.name(),
                rounded_at: call.place.clone(),
                times: 1,
                bytes,
            }),
        }
    }

    fn input(&mut self, call: &Call, sight: &Sight<'_>) {
        let bytes = bytes(&sight.shape, sight.inside);
        if sight.casting != Casting::None {
            let entry = self.count(call, sight.dtype, sight.inside, false);
            match sight.casting {
                Casting::Made => {
                    entry.made += 1;
                    entry.bytes += bytes;
                }
                _ => entry.saved += 1,
            }
        }
        let before = match &sight.source {
            Source::Call(id) => self.widened.get(id).cloned(),
            _ => None,
        };
        let widens = HalfDType::of(sight.dtype).is_some() && sight.inside == DType::F32;
        let inherited = before.filter(|_| sight.dtype == DType::F32);
        match inherited {
            Some(widened) if sight.inside == widened.half => {
                let bytes = match sight.casting {
                    Casting::Made => bytes,
                    _ => 0,
                };
                self.bounced(&widened, call, bytes);
            }
            Some(widened) => {
                self.widened.entry(call.id).or_insert(widened);
            }
            None if widens => {
                let widened = Widened {
                    half: sight.dtype,
                    by: call.name(),
                    at: call.place.clone(),
                    bytes,
                };
                self.widened.entry(call.id).or_insert(widened);
            }
            None => {}
        }
    }

    fn output(&mut self, call: &Call, sight: &Sight<'_>) {
        if sight.dtype != sight.inside {
            let entry = self.count(call, sight.inside, sight.dtype, true);
            entry.made += 1;
            entry.bytes += bytes(&sight.shape, sight.dtype);
        }
        if sight.dtype != DType::F32 {
            self.widened.remove(&call.id);
        }
    }

    fn finish(self) -> CastReport {
        let mut report = self.report;
        report
            .casts
            .sort_by_key(|entry| core::cmp::Reverse(entry.bytes));
        report
            .bounces
            .sort_by_key(|bounce| core::cmp::Reverse(bounce.bytes));
        report
    }
}

impl Observer for Casts {
    fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>) {
        match (sight.phase, sight.role) {
            (Phase::Backward, _) => {}
            (Phase::Forward, Role::Input(index)) => {
                self.report.calls += u64::from(index == 0);
                self.input(call, sight);
            }
            (Phase::Forward, Role::Output) => self.output(call, sight),
        }
    }
}

fn bytes(shape: &Shape, dtype: DType) -> u64 {
    (shape.num_elements() * dtype.size()) as u64
}

/// Totals, bounces, and a line per operation, module and pair of dtypes.
impl fmt::Display for CastReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} calls, {} casts made that wrote {} bytes, {} saved by a cache",
            self.calls,
            self.made(),
            self.bytes(),
            self.saved()
        )?;
        for bounce in &self.bounces {
            writeln!(f, "- {bounce}")?;
        }
        let rows = self.casts.iter().map(|entry| {
            let of = if entry.of_output { "output" } else { "input" };
            [
                entry.place.to_string(),
                entry.op.to_string(),
                entry.rule.to_string(),
                format!("{of} {} to {}", entry.from.name(), entry.to.name()),
                entry.made.to_string(),
                entry.saved.to_string(),
                entry.bytes.to_string(),
            ]
        });
        let titles = [
            "module",
            "operation",
            "rule",
            "cast",
            "made",
            "saved",
            "bytes",
        ];
        write!(f, "\n{}", Table::new(titles, 4, rows))
    }
}
