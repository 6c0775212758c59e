//! Several models, losses and optimizers: who skips, whose scale moves, and nothing stale is left.
//!
//! The topologies, toy model and injections are those of Apex's amp tests for multiple models,
//! losses and optimizers; its scaler is driven per backward pass, ours once per iteration.

mod support;

use burn::module::{Module, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsAccumulator, GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor, TensorData, f16};
use burn_amp::{Amp, AmpConfig, AmpOptimizer, MixedPrecision, OptLevel, Scaler, scope};
use support::gradients::{gradients, poison, values};
use support::{Bare, Mixed};

/// An f32 weight; in a module of its own, so that O2 can keep it f32.
#[derive(Module, Debug)]
struct Kept<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

/// w0 (f32) = unique + [0, 1], w1 (f16) = 1 + unique + [0, 1]; the loss is the sum of x * w0 * w1.
#[derive(Module, Debug)]
struct Toy<B: Backend> {
    w0: Kept<B>,
    w1: Param<Tensor<B, 1>>,
}

const W0: usize = 0;
const W1: usize = 1;

impl Toy<Mixed> {
    fn new(unique: f32) -> Self {
        let device = Default::default();
        let weight = |first: f32| Tensor::from_floats([first, first + 1.0], &device);
        let half = scope::disabled(|| weight(1.0 + unique).cast(FloatDType::F16));
        Toy {
            w0: Kept {
                weight: Param::from_tensor(weight(unique)),
            },
            w1: Param::from_tensor(half),
        }
    }

    fn loss(&self) -> Tensor<Mixed, 1> {
        let x = Tensor::ones([2], &Default::default());
        (x * self.w0.weight.val() * self.w1.val()).sum()
    }
}

type Group = Vec<Toy<Mixed>>;
type Optim = AmpOptimizer<OptimizerAdaptor<Sgd<MixedPrecision<Bare>>, Group, Mixed>, Mixed>;

/// Which models each optimizer steps, and which models each loss is the sum of.
#[derive(Debug, Clone, Copy)]
struct Topology {
    optimizers: &'static [&'static [usize]],
    losses: &'static [&'static [usize]],
}

const TWO_TWO_ONE: Topology = Topology {
    optimizers: &[&[0, 1]],
    losses: &[&[0], &[1]],
};
const THREE_TWO_ONE: Topology = Topology {
    optimizers: &[&[0, 1, 2]],
    losses: &[&[0, 2], &[1, 2]],
};
const TWO_TWO_TWO: Topology = Topology {
    optimizers: &[&[0], &[1]],
    losses: &[&[0], &[1]],
};
/// Loss 1 passes through both optimizers, loss 0 through the first only.
const THREE_TWO_TWO: Topology = Topology {
    optimizers: &[&[0, 1], &[2]],
    losses: &[&[0, 1], &[2, 1]],
};
const TOPOLOGIES: [Topology; 4] = [TWO_TWO_ONE, THREE_TWO_ONE, TWO_TWO_TWO, THREE_TWO_TWO];

impl Topology {
    fn reaches(&self, loss: usize, optimizer: usize) -> bool {
        let models = self.optimizers[optimizer];
        self.losses[loss].iter().any(|m| models.contains(m))
    }
}

/// One scale for each loss, starting at 4 and 16, or one for both, starting at 4.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scales {
    PerLoss,
    Shared,
}

impl Scales {
    fn loss_id(self, loss: usize) -> usize {
        match self {
            Scales::PerLoss => loss,
            Scales::Shared => 0,
        }
    }

    /// The losses whose overflow an optimizer skips for.
    fn ids(self, topology: Topology, optimizer: usize) -> Vec<usize> {
        (0..topology.losses.len())
            .filter(|loss| topology.reaches(*loss, optimizer))
            .map(|loss| self.loss_id(loss))
            .collect()
    }
}

fn settings(level: OptLevel, scales: Scales) -> Amp {
    let config = AmpConfig::new(level).with_num_losses(match scales {
        Scales::PerLoss => 2,
        Scales::Shared => 1,
    });
    config.with_keep_f32_modules(["Kept"]).build().unwrap()
}

/// An infinity in one gradient of one backward pass.
#[derive(Debug, Clone, Copy)]
struct Injection {
    iteration: usize,
    loss: usize,
    parameter: usize,
}

#[derive(Debug, PartialEq)]
struct Run {
    models: Vec<Vec<TensorData>>,
    masters: Vec<Vec<TensorData>>,
    /// Per iteration, which optimizers skipped.
    skipped: Vec<Vec<bool>>,
}

struct Training {
    topology: Topology,
    scales: Scales,
    scaler: Scaler,
    groups: Vec<Group>,
    optims: Vec<Optim>,
    /// Every optimizer skips for every loss.
    linked: bool,
}

impl Training {
    fn new(topology: Topology, scales: Scales, amp: &Amp) -> Self {
        let scaler = Scaler::new(amp);
        scaler.set_loss_scale(0, 4.0).unwrap();
        if scales == Scales::PerLoss {
            scaler.set_loss_scale(1, 16.0).unwrap();
        }
        let momentum = MomentumConfig::new()
            .with_momentum(0.125)
            .with_dampening(0.0);
        let optim = SgdConfig::new().with_momentum(Some(momentum));
        let group = |models: &&[usize]| -> Group {
            let model = |m: &usize| Toy::new(1.0 + *m as f32);
            models.iter().map(model).collect()
        };
        Training {
            groups: topology.optimizers.iter().map(group).collect(),
            optims: (0..topology.optimizers.len())
                .map(|_| AmpOptimizer::with_scaler(optim.init(), &scaler))
                .collect(),
            topology,
            scales,
            scaler,
            linked: false,
        }
    }

    fn loss(&self, loss: usize) -> Tensor<Mixed, 1> {
        let model = |m: &usize| {
            let mut places = self.topology.optimizers.iter().enumerate();
            let place = places.find_map(|(o, ms)| Some((o, ms.iter().position(|x| x == m)?)));
            let (optimizer, position) = place.expect("every model is stepped");
            self.groups[optimizer][position].loss()
        };
        let losses = self.topology.losses[loss].iter().map(model);
        losses.reduce(|a, b| a + b).expect("a loss has models")
    }

    /// One backward pass: the gradients for each optimizer that the loss reaches.
    fn backward(&self, loss: usize) -> Vec<Option<GradientsParams>> {
        let loss_id = self.scales.loss_id(loss);
        let mut grads = scope::with_loss_id(loss_id, || self.loss(loss).backward());
        (0..self.groups.len())
            .map(|o| {
                let reached = self.topology.reaches(loss, o);
                reached.then(|| {
                    GradientsParams::from_module::<Mixed, Group>(&mut grads, &self.groups[o])
                })
            })
            .collect()
    }

    /// Steps every optimizer but the omitted ones; returns which of them skipped.
    fn iterate(&mut self, poisoned: Option<(usize, usize)>, omitted: &[usize]) -> Vec<bool> {
        let mut grads: Vec<Vec<Option<GradientsParams>>> = (0..self.topology.losses.len())
            .map(|loss| self.backward(loss))
            .collect();
        if let Some((loss, parameter)) = poisoned {
            // The loss's first model: the gradient of an earlier optimizer if it reaches two.
            let model = self.topology.losses[loss][0];
            let (o, position) = self
                .topology
                .optimizers
                .iter()
                .enumerate()
                .find_map(|(o, ms)| Some((o, ms.iter().position(|m| *m == model)?)))
                .unwrap();
            let grads = grads[loss][o].as_mut().unwrap();
            poison::<Mixed, _>(
                &self.groups[o],
                grads,
                2 * position + parameter,
                f32::INFINITY,
            );
        }
        let mut inspection = self.scaler.inspect::<Mixed>();
        for (loss, of_loss) in grads.iter().enumerate() {
            let of_groups = self.groups.iter().zip(of_loss);
            for (group, grads) in of_groups.filter_map(|(g, grads)| Some((g, grads.as_ref()?))) {
                inspection = inspection.gradients(self.scales.loss_id(loss), group, grads);
            }
        }
        let verdict = inspection.judge();
        let mut skipped = Vec::new();
        for o in 0..self.groups.len() {
            if omitted.contains(&o) {
                skipped.push(true);
                continue;
            }
            let mut sum = GradientsAccumulator::<Group>::new();
            for of_loss in &mut grads {
                if let Some(grads) = of_loss[o].take() {
                    sum.accumulate::<Mixed>(&self.groups[o], grads);
                }
            }
            let ids = match self.linked {
                true => (0..self.topology.losses.len())
                    .map(|loss| self.scales.loss_id(loss))
                    .collect(),
                false => self.scales.ids(self.topology, o),
            };
            let group = core::mem::take(&mut self.groups[o]);
            self.groups[o] = self.optims[o].step_with(&verdict, &ids, 0.25, group, sum.grads());
            skipped.push(self.optims[o].last_step().unwrap().was_skipped());
        }
        skipped
    }

    fn finish(self, skipped: Vec<Vec<bool>>) -> Run {
        let masters = self.groups.iter().zip(&self.optims);
        Run {
            models: self.groups.iter().map(values::<Mixed, _>).collect(),
            masters: masters
                .map(|(group, optim)| values::<Mixed, _>(&optim.full_model(group.clone())))
                .collect(),
            skipped,
        }
    }
}

const ITERATIONS: usize = 4;

fn run(
    level: OptLevel,
    topology: Topology,
    scales: Scales,
    injection: Option<Injection>,
    omit: impl Fn(usize) -> Vec<usize>,
) -> Run {
    let amp = settings(level, scales);
    amp.scope(|| {
        let mut training = Training::new(topology, scales, &amp);
        let skipped = (0..ITERATIONS)
            .map(|i| {
                let poisoned = injection.filter(|inj| inj.iteration == i);
                training.iterate(poisoned.map(|inj| (inj.loss, inj.parameter)), &omit(i))
            })
            .collect();
        training.finish(skipped)
    })
}

const LEVELS: [OptLevel; 2] = [OptLevel::O1, OptLevel::O2];
const SCALES: [Scales; 2] = [Scales::PerLoss, Scales::Shared];

/// Who skips for an overflow of a loss: the optimizers it reaches; with one scale for all, also
/// those of the losses that share it.
fn skips(topology: Topology, scales: Scales, loss: usize) -> Vec<usize> {
    (0..topology.optimizers.len())
        .filter(|o| scales.ids(topology, *o).contains(&scales.loss_id(loss)))
        .collect()
}

#[test]
fn an_overflow_leaves_out_exactly_the_steps_it_concerns() {
    let mut cases = 0;
    for level in LEVELS {
        for topology in TOPOLOGIES {
            for scales in SCALES {
                for case in 0..8 {
                    let injection = Injection {
                        iteration: case & 1,
                        loss: case >> 1 & 1,
                        parameter: [W0, W1][case >> 2],
                    };
                    let concerned = skips(topology, scales, injection.loss);
                    let got = run(level, topology, scales, Some(injection), |_| Vec::new());
                    let reference = run(level, topology, scales, None, |i| match i {
                        i if i == injection.iteration => concerned.clone(),
                        _ => Vec::new(),
                    });
                    assert_eq!(
                        got, reference,
                        "{level} {topology:?} {scales:?} {injection:?}"
                    );
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 128);
}

#[test]
fn who_skips_is_whom_the_loss_reaches() {
    let of = |topology, loss| skips(topology, Scales::PerLoss, loss);
    assert_eq!(of(TWO_TWO_ONE, 0), [0]);
    assert_eq!(of(TWO_TWO_ONE, 1), [0]);
    assert_eq!(of(TWO_TWO_TWO, 0), [0]);
    assert_eq!(of(TWO_TWO_TWO, 1), [1]);
    assert_eq!(of(THREE_TWO_TWO, 0), [0]);
    assert_eq!(of(THREE_TWO_TWO, 1), [0, 1]);
    // And the optimizers do as the table says.
    for level in LEVELS {
        for loss in [0, 1] {
            let injection = Injection {
                iteration: 1,
                loss,
                parameter: W1,
            };
            let run = run(
                level,
                THREE_TWO_TWO,
                Scales::PerLoss,
                Some(injection),
                |_| Vec::new(),
            );
            assert_eq!(run.skipped[1], [true, loss == 1], "{level} loss {loss}");
            assert_eq!(
                run.skipped[2],
                [false, false],
                "{level}: the next one is clean"
            );
        }
    }
}

#[test]
fn linked_optimizers_skip_together() {
    let amp = settings(OptLevel::O2, Scales::PerLoss);
    amp.scope(|| {
        let mut training = Training::new(TWO_TWO_TWO, Scales::PerLoss, &amp);
        training.linked = true;
        assert_eq!(training.iterate(Some((0, W1)), &[]), [true, true]);
        assert_eq!(training.iterate(None, &[]), [false, false]);
        // The scale of the loss that was clean has not moved for the other's overflow.
        assert_eq!(training.scaler.loss_scale(0).scale(), 2.0);
        assert_eq!(training.scaler.loss_scale(1).scale(), 16.0);
    });
}

#[test]
fn scales_fall_independently() {
    let amp = settings(OptLevel::O2, Scales::PerLoss);
    amp.scope(|| {
        let mut training = Training::new(TWO_TWO_TWO, Scales::PerLoss, &amp);
        training.iterate(None, &[]);
        for _ in 0..3 {
            training.iterate(Some((1, W0)), &[]);
        }
        let scales = [0, 1].map(|loss| *training.scaler.loss_scale(loss).state());
        assert_eq!((scales[0].scale, scales[0].growth_tracker), (4.0, 4));
        assert_eq!((scales[1].scale, scales[1].growth_tracker), (2.0, 0));
        assert_eq!((scales[0].skipped, scales[1].skipped), (0, 3));
        let record = burn::optim::Optimizer::<Group, Mixed>::to_record(&training.optims[0]);
        assert_eq!(record.loss_scales()[1].scale(), 2.0, "the record shows it");
    });
}

#[test]
fn a_shared_scale_moves_once_per_iteration() {
    let amp = settings(OptLevel::O1, Scales::Shared);
    amp.scope(|| {
        let mut training = Training::new(TWO_TWO_TWO, Scales::Shared, &amp);
        training.iterate(Some((1, W0)), &[]);
        assert_eq!(training.scaler.loss_scale(0).scale(), 2.0);
        assert_eq!(training.scaler.loss_scale(0).state().steps, 1);
    });
}

/// Plain f32 numbers: two weights per model, momentum 0.125, learning rate 0.25.
#[derive(Clone, Copy)]
struct Reference {
    w: [[f32; 2]; 2],
    velocity: Option<[[f32; 2]; 2]>,
}

impl Reference {
    fn new(unique: f32) -> Self {
        Reference {
            w: [[unique, unique + 1.0], [1.0 + unique, 2.0 + unique]],
            velocity: None,
        }
    }

    /// The gradient of `losses` losses that contain this model: each weight's is the other weight.
    /// That of the half weight is half itself, and so is the half weight that the loss sees.
    fn grads(&self, losses: usize) -> [[f32; 2]; 2] {
        let half = |x: f32| f16::from_f32(x).to_f32();
        let times = |x: f32| x * losses as f32;
        [
            self.w[W1].map(|x| times(half(x))),
            self.w[W0].map(|x| times(half(x))),
        ]
    }

    fn step(&mut self, grads: [[f32; 2]; 2]) {
        let velocity = match self.velocity {
            None => grads,
            Some(old) => {
                core::array::from_fn(|w| core::array::from_fn(|i| grads[w][i] + old[w][i] * 0.125))
            }
        };
        for (w, v) in self.w.iter_mut().flatten().zip(velocity.iter().flatten()) {
            *w -= v * 0.25;
        }
        self.velocity = Some(velocity);
    }
}

#[test]
fn without_overflow_every_gradient_and_weight_is_the_reference() {
    for topology in TOPOLOGIES {
        for scales in SCALES {
            let amp = settings(OptLevel::O2, scales);
            amp.scope(|| {
                let mut training = Training::new(topology, scales, &amp);
                let mut reference: Vec<Reference> =
                    (0..3).map(|m| Reference::new(1.0 + m as f32)).collect();
                for i in 0..ITERATIONS {
                    for (loss, models) in topology.losses.iter().enumerate() {
                        let of_loss = training.backward(loss);
                        for (o, grads) in of_loss.iter().enumerate() {
                            let Some(grads) = grads else { continue };
                            let got = gradients::<Mixed, _>(&training.groups[o], grads);
                            for (position, m) in topology.optimizers[o].iter().enumerate() {
                                for w in [W0, W1] {
                                    let got = got[2 * position + w].as_ref();
                                    let expected = models
                                        .contains(m)
                                        .then(|| TensorData::from(reference[*m].grads(1)[w]));
                                    assert_eq!(
                                        got,
                                        expected.as_ref(),
                                        "{topology:?} iteration {i} loss {loss} model {m} w{w}"
                                    );
                                }
                            }
                        }
                    }
                    training.iterate(None, &[]);
                    for (m, reference) in reference.iter_mut().enumerate() {
                        let losses = topology.losses.iter().filter(|ms| ms.contains(&m)).count();
                        if losses > 0 {
                            reference.step(reference.grads(losses));
                        }
                    }
                }
                let run = training.finish(Vec::new());
                for (o, models) in topology.optimizers.iter().enumerate() {
                    for (position, m) in models.iter().enumerate() {
                        let expected = reference[*m].w;
                        for w in [W0, W1] {
                            let master = &run.masters[o][2 * position + w];
                            assert_eq!(*master, TensorData::from(expected[w]), "master w{w}");
                        }
                        let model = &run.models[o][2 * position + W1];
                        let rounded = expected[W1].map(f16::from_f32);
                        assert_eq!(*model, TensorData::from(rounded), "model = round(master)");
                    }
                }
            });
        }
    }
}

/// A loss whose gradient is `by` in each element, in f16.
fn loss_of(weight: &Param<Tensor<Mixed, 1>>, by: f32) -> Tensor<Mixed, 1> {
    let half = weight.val().cast(FloatDType::F16);
    half.mul_scalar(by).sum()
}

#[test]
fn optimizers_with_a_scaler_each_do_not_push_the_scale_to_its_floor() {
    let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
    amp.scope(|| {
        let kept = || Kept::<Mixed> {
            weight: Param::from_tensor(Tensor::ones([2], &Default::default())),
        };
        let (mut first, mut second) = (kept(), kept());
        let mut first_optim = AmpOptimizer::<_, Mixed>::new(SgdConfig::new().init(), &amp);
        let mut second_optim = AmpOptimizer::<_, Mixed>::new(SgdConfig::new().init(), &amp);
        for _ in 0..12 {
            // Fits into f16 up to a scale of 64.
            let grads = loss_of(&first.weight, 1000.0).backward();
            let grads = GradientsParams::from_grads(grads, &first);
            first = first_optim.step(1e-6, first, grads);
            let grads = loss_of(&second.weight, 0.25).backward();
            let grads = GradientsParams::from_grads(grads, &second);
            second = second_optim.step(1e-6, second, grads);
        }
        assert!(first_optim.last_step().unwrap().was_applied());
        assert_eq!(first_optim.loss_scale().scale(), 64.0);
        assert_eq!(amp.loss_scales().get(0), 64.0);
    });
}

#[test]
fn the_norm_of_an_applied_step_is_finite_although_another_loss_overflowed() {
    let amp = settings(OptLevel::O1, Scales::PerLoss);
    amp.scope(|| {
        let model = Kept::<Mixed> {
            weight: Param::from_tensor(Tensor::ones([2], &Default::default())),
        };
        let scaler = Scaler::new(&amp);
        let mut optim = AmpOptimizer::<_, Mixed>::with_scaler(SgdConfig::new().init(), &scaler);
        scaler.set_loss_scale(0, 1024.0).unwrap();
        scaler.set_loss_scale(1, 1024.0).unwrap();
        let of = |by| GradientsParams::from_grads(loss_of(&model.weight, by).backward(), &model);
        let (clean, overflowing) = (of(0.25), of(1000.0));
        let inspection = scaler.inspect::<Mixed>();
        let inspection = inspection.gradients(0, &model, &clean);
        let verdict = inspection.gradients(1, &model, &overflowing).judge();
        optim.step_with(&verdict, &[0], 0.1, model.clone(), clean);
        let outcome = optim.last_step().unwrap();
        assert!(outcome.was_applied());
        assert_eq!(outcome.grad_norm, Some(0.125f64.sqrt()));
    });
}

#[test]
#[should_panic(expected = "none of the losses [1] was inspected")]
fn a_step_for_a_loss_that_nobody_inspected_is_refused() {
    let amp = settings(OptLevel::O1, Scales::PerLoss);
    amp.scope(|| {
        let model = Kept::<Mixed> {
            weight: Param::from_tensor(Tensor::ones([2], &Default::default())),
        };
        let scaler = Scaler::new(&amp);
        let mut optim = AmpOptimizer::<_, Mixed>::with_scaler(SgdConfig::new().init(), &scaler);
        let grads = loss_of(&model.weight, 0.25).backward();
        let grads = GradientsParams::from_grads(grads, &model);
        let verdict = scaler
            .inspect::<Mixed>()
            .gradients(0, &model, &grads)
            .judge();
        optim.step_with(&verdict, &[1], 0.1, model, grads);
    });
}
