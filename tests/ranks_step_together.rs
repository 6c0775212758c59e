//! Ranks of a data-parallel training, one thread each, skip the same steps, have the same scale and
//! keep the same parameters, also when only one of them saw the overflow.

mod support;

use std::thread;
use std::time::Duration;

use burn::module::Module;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Record, Recorder};
use burn::tensor::TensorData;
use burn_amp::{
    Amp, AmpConfig, AmpOptimizer, HalfDType, LocalRanks, LossScale, LossScaleConfig,
    LossScaleError, OptLevel, Ranks, RanksError, StepMonitor,
};
use support::gradients::{poison, values};
use support::net::{Net, batch};
use support::{Mixed, amp, unless_it_panics};

type Optim = AmpOptimizer<OptimizerAdaptor<Adam, Net<Mixed>, Mixed>, Mixed>;

const LEVELS: [OptLevel; 2] = [OptLevel::O1, OptLevel::O2];
const STEPS: usize = 200;

/// A scale that moves often, both ways.
fn rule() -> LossScaleConfig {
    LossScaleConfig::default()
        .with_init(2f32.powi(12))
        .with_growth_interval(3)
        .with_hysteresis(2)
}

fn optim(amp: &Amp) -> Optim {
    let optim = AmpOptimizer::new(AdamConfig::new().init(), amp);
    optim.with_loss_scale(rule()).unwrap()
}

/// Whether a rank overflows at a step: about every fifth step, and then rarely on all ranks.
fn overflows(step: usize, rank: usize) -> bool {
    let mut bits = (step as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 32;
    bits.is_multiple_of(5) && (bits >> 8 >> rank) & 1 == 1
}

/// What must be the same on all ranks after a step.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    values: Vec<TensorData>,
    skipped: bool,
    scale: f32,
}

/// Trains one rank. Every rank has the same batch, and so the same gradients until they are spoiled:
/// nothing but what the ranks tell one another can make them skip together.
fn train(
    mut model: Net<Mixed>,
    optim: &mut Optim,
    steps: core::ops::Range<usize>,
    overflows: impl Fn(usize) -> bool,
) -> (Net<Mixed>, Vec<Step>) {
    let mut trace = Vec::new();
    for step in steps {
        let loss = model.loss(batch::<Mixed>(step));
        let mut grads = GradientsParams::from_grads(loss.backward(), &model);
        if overflows(step) {
            let value = [f32::INFINITY, f32::NAN][step % 2];
            poison::<Mixed, _>(&model, &mut grads, step % 3, value);
        }
        model = optim.step(0.01, model, grads);
        let outcome = optim.last_step().unwrap();
        trace.push(Step {
            values: values(&model),
            skipped: outcome.was_skipped(),
            scale: outcome.scale_after(0).unwrap(),
        });
    }
    (model, trace)
}

/// How the optimizers of several ranks come to be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Origin {
    /// Clones of one optimizer, as Burn's `Learner` makes them: they share scale and monitor.
    Clones,
    /// Each with settings of its own, as those of several processes.
    Apart,
}

/// The saved form of a record.
fn save<R: Record<Mixed>>(record: R) -> Vec<u8> {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    Recorder::<Mixed>::record(&recorder, record, ()).unwrap()
}

fn load<R: Record<Mixed>>(bytes: &[u8]) -> R {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    Recorder::<Mixed>::load(&recorder, bytes.to_vec(), &Default::default()).unwrap()
}

/// What a run begins with, as saved.
struct Checkpoint {
    model: Vec<u8>,
    /// `None` for a fresh optimizer.
    optim: Option<Vec<u8>>,
}

impl Checkpoint {
    fn fresh() -> Self {
        Checkpoint {
            model: save(Net::<Mixed>::new(&Default::default()).into_record()),
            optim: None,
        }
    }

    fn of(model: Net<Mixed>, optim: &Optim) -> Self {
        Checkpoint {
            model: save(model.into_record()),
            optim: Some(save(Optimizer::<Net<Mixed>, Mixed>::to_record(optim))),
        }
    }

    /// A model of this rank's own: a clone would share its running statistics.
    fn model(&self, amp: &Amp) -> Net<Mixed> {
        amp.cast_model(Net::new(&Default::default()))
            .load_record(load(&self.model))
    }

    fn optim(&self, optim: Optim) -> Optim {
        match &self.optim {
            Some(saved) => Optimizer::<Net<Mixed>, Mixed>::load_record(optim, load(saved)),
            None => optim,
        }
    }
}

/// What a rank has after its last step.
struct End {
    trace: Vec<Step>,
    scale: LossScale,
    monitor: StepMonitor,
    checkpoint: Checkpoint,
}

/// Trains on so many ranks and returns the end of each.
fn run(
    level: OptLevel,
    ranks: usize,
    origin: Origin,
    start: &Checkpoint,
    steps: core::ops::Range<usize>,
) -> Vec<End> {
    let group = LocalRanks::new(ranks).with_timeout(Duration::from_secs(60));
    let new = || {
        let amp = amp(level, HalfDType::F16);
        let optim = optim(&amp).with_ranks(group.clone()).unwrap();
        (start.optim(optim), amp)
    };
    let (optim, amp) = new();
    let members: Vec<(Optim, Amp)> = match origin {
        Origin::Clones => vec![(optim, amp); ranks],
        Origin::Apart => (0..ranks).map(|_| new()).collect(),
    };
    thread::scope(|threads| {
        let work: Vec<_> = members
            .into_iter()
            .enumerate()
            .map(|(rank, (mut optim, amp))| {
                let steps = steps.clone();
                threads.spawn(move || {
                    amp.scope(|| {
                        let model = start.model(&amp);
                        let bad = |step| overflows(step, rank);
                        let (model, trace) = train(model, &mut optim, steps, bad);
                        End {
                            trace,
                            scale: optim.loss_scale(),
                            monitor: optim.monitor(),
                            checkpoint: Checkpoint::of(model, &optim),
                        }
                    })
                })
            })
            .collect();
        work.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// One optimizer that sees the overflows of all ranks: what they must come to together.
fn alone(level: OptLevel, ranks: usize, start: &Checkpoint, steps: core::ops::Range<usize>) -> End {
    let amp = amp(level, HalfDType::F16);
    amp.scope(|| {
        let mut optim = start.optim(optim(&amp));
        let bad = |step| (0..ranks).any(|rank| overflows(step, rank));
        let (model, trace) = train(start.model(&amp), &mut optim, steps, bad);
        End {
            trace,
            scale: optim.loss_scale(),
            monitor: optim.monitor(),
            checkpoint: Checkpoint::of(model, &optim),
        }
    })
}

#[track_caller]
fn same(got: &End, expected: &End, case: &str) {
    for (step, (got, expected)) in got.trace.iter().zip(&expected.trace).enumerate() {
        assert_eq!(got, expected, "{case}, step {step}");
    }
    assert_eq!(got.trace.len(), expected.trace.len(), "{case}");
    assert_eq!(got.scale, expected.scale, "{case}");
    let steps = |end: &End| (end.monitor.applied(), end.monitor.skipped());
    assert_eq!(steps(got), steps(expected), "{case}: each step counts once");
}

#[test]
fn all_ranks_skip_when_one_overflows() {
    for ranks in [2, 4] {
        let one_rank_only = (0..STEPS)
            .filter(|step| (0..ranks).filter(|rank| overflows(*step, *rank)).count() == 1)
            .count();
        assert!(one_rank_only >= 5, "{ranks}: {one_rank_only}");
        for level in LEVELS {
            let start = Checkpoint::fresh();
            let expected = alone(level, ranks, &start, 0..STEPS);
            let scales: Vec<f32> = expected.trace.iter().map(|step| step.scale).collect();
            assert!(scales.windows(2).any(|pair| pair[0] < pair[1]));
            assert!(scales.windows(2).any(|pair| pair[0] > pair[1]));
            for origin in [Origin::Clones, Origin::Apart] {
                let ends = run(level, ranks, origin, &start, 0..STEPS);
                for (rank, end) in ends.iter().enumerate() {
                    let case = format!("{level}, {origin:?}, rank {rank} of {ranks}");
                    same(end, &expected, &case);
                }
            }
        }
    }
}

/// Which ranks found the overflow does not matter to a run that continues: only that any did.
#[test]
fn a_checkpoint_of_two_ranks_continues_on_one_and_on_four() {
    const HALF: usize = 20;
    for level in LEVELS {
        for origin in [Origin::Clones, Origin::Apart] {
            let start = Checkpoint::fresh();
            let first = run(level, 2, origin, &start, 0..HALF);
            let again = &first[0].checkpoint;
            for ranks in [1, 2, 4] {
                let expected = alone(level, ranks, again, HALF..2 * HALF);
                for end in run(level, ranks, origin, again, HALF..2 * HALF) {
                    same(&end, &expected, &format!("{level}, {origin:?}, to {ranks}"));
                }
            }
        }
    }
}

#[test]
fn all_ranks_clip_by_the_largest_norm() {
    let group = LocalRanks::new(2);
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let outcomes = thread::scope(|threads| {
        [1.0, 3.0]
            .map(|size| {
                let (group, amp) = (group.clone(), &amp);
                threads.spawn(move || {
                    amp.scope(|| {
                        let optim = optim(amp).with_ranks(group).unwrap();
                        let mut optim = optim.with_clip_norm(0.01).unwrap();
                        let model = Net::<Mixed>::new(&Default::default());
                        let loss = model.loss(batch::<Mixed>(0)).mul_scalar(size);
                        let grads = GradientsParams::from_grads(loss.backward(), &model);
                        optim.step(0.01, model, grads);
                        optim.last_step().unwrap()
                    })
                })
            })
            .map(|rank| rank.join().unwrap())
    });
    let [small, large] = outcomes;
    assert_eq!(small, large);
    let norm = large.grad_norm.unwrap();
    assert_eq!(large.clip_factor, 0.01 / (norm + 1e-6));
}

/// One step of a rank that is given no other chance.
fn step(ranks: impl Ranks + 'static) -> (Result<(), LossScaleError>, LossScale) {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let mut optim = optim(&amp).with_ranks(ranks).unwrap();
        let before = optim.loss_scale();
        let model = Net::<Mixed>::new(&Default::default());
        let weights = values(&model);
        let grads = model.loss(batch::<Mixed>(0)).backward();
        let grads = GradientsParams::from_grads(grads, &model);
        let (model, outcome) = optim.try_step(0.01, model, grads);
        let outcome = outcome.map(|_| ());
        if outcome.is_err() {
            assert_eq!(values(&model), weights, "nothing is applied");
            assert_eq!(optim.loss_scale(), before, "and no scale moves");
            assert_eq!(optim.monitor().applied(), 0);

            let grads = model.loss(batch::<Mixed>(0)).backward();
            let grads = GradientsParams::from_grads(grads, &model);
            assert!(unless_it_panics(|| optim.step(0.01, model, grads)).is_none());
        }
        (outcome, optim.loss_scale())
    })
}

/// Answers as a group with a second rank whose scale is another would.
#[derive(Debug)]
struct OtherScale(f64);

impl Ranks for OtherScale {
    fn max(&self, numbers: &mut [f64]) -> Result<(), RanksError> {
        let own = f64::from(rule().init);
        for number in numbers {
            if number.abs() == own {
                *number = number.max(number.signum() * self.0);
            }
        }
        Ok(())
    }
}

#[test]
fn a_rank_with_another_scale_is_noticed_before_anything_is_applied() {
    let own = f64::from(rule().init);
    assert_eq!(step(OtherScale(own)).0, Ok(()), "no quarrel");
    for other in [own / 2.0, own * 2.0] {
        let (outcome, _) = step(OtherScale(other));
        let Err(LossScaleError::Ranks(RanksError::Disagree { what, least, most })) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(what, "the value of the scale of loss 0");
        assert_eq!((least, most), (own.min(other), own.max(other)));
    }
}

/// Two ranks, of which one has made a step alone before.
#[test]
fn a_rank_that_is_a_step_ahead_is_noticed() {
    let group = LocalRanks::new(2);
    let errors = thread::scope(|threads| {
        [0, 1]
            .map(|ahead| {
                let group = group.clone();
                threads.spawn(move || {
                    let amp = amp(OptLevel::O1, HalfDType::F16);
                    amp.scope(|| {
                        let mut optim = optim(&amp);
                        let model = Net::<Mixed>::new(&Default::default());
                        let (model, _) = train(model, &mut optim, 0..ahead, |_| false);
                        let mut optim = optim.with_ranks(group).unwrap();
                        let grads = model.loss(batch::<Mixed>(0)).backward();
                        let grads = GradientsParams::from_grads(grads, &model);
                        optim.try_step(0.01, model, grads).1.unwrap_err()
                    })
                })
            })
            .map(|rank| rank.join().unwrap())
    });
    for error in errors {
        let text = error.to_string();
        assert!(
            text.contains("the number of updates of the scale of loss 0: from 0 to 1"),
            "{text}"
        );
    }
}

#[test]
fn a_missing_rank_is_an_error_in_the_place_of_a_dead_lock() {
    let (outcome, _) = step(LocalRanks::new(2).with_timeout(Duration::from_millis(50)));
    let Err(LossScaleError::Ranks(error)) = outcome else {
        panic!("{outcome:?}");
    };
    let text = error.to_string();
    assert!(
        text.starts_with("1 of 2 ranks came to the step within 50ms"),
        "{text}"
    );
}

#[test]
fn a_group_of_one_is_alone() {
    for level in LEVELS {
        let start = Checkpoint::fresh();
        let expected = alone(level, 1, &start, 0..20);
        for end in run(level, 1, Origin::Apart, &start, 0..20) {
            same(&end, &expected, &level.to_string());
        }
    }
}

#[test]
fn random_rounding_is_refused() {
    let amp = AmpConfig::new(OptLevel::O3)
        .with_stochastic_rounding(true)
        .build()
        .unwrap();
    let error = AmpOptimizer::<_, Mixed>::new(AdamConfig::new().init::<Mixed, Net<Mixed>>(), &amp)
        .with_ranks(LocalRanks::new(2))
        .unwrap_err();
    assert!(error.to_string().contains("stochastic_rounding"), "{error}");
}
