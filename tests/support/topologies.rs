//! Several models, losses and optimizers, as Apex's amp tests arrange them.
//!
//! The topologies, toy model and injections are those of its tests for multiple models, losses and
//! optimizers; its scaler is driven per backward pass, ours once per iteration.

#![allow(dead_code, reason = "no test file uses all of it")]

use burn::module::{Module, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsAccumulator, GradientsParams, Sgd, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor, TensorData};
use burn_amp::{Amp, AmpConfig, AmpOptimizer, MixedPrecision, OptLevel, Scaler, scope};

use crate::support::gradients::{poison, values};
use crate::support::{Bare, Mixed};

/// An f32 weight; in a module of its own, so that O2 can keep it f32.
#[derive(Module, Debug)]
pub struct Kept<B: Backend> {
    pub weight: Param<Tensor<B, 1>>,
}

/// w0 (f32) = unique + [0, 1], w1 (f16) = 1 + unique + [0, 1]; the loss is the sum of x * w0 * w1.
#[derive(Module, Debug)]
pub struct Toy<B: Backend> {
    pub w0: Kept<B>,
    pub w1: Param<Tensor<B, 1>>,
}

pub const W0: usize = 0;
pub const W1: usize = 1;

impl Toy<Mixed> {
    pub fn new(unique: f32) -> Self {
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

    pub fn loss(&self) -> Tensor<Mixed, 1> {
        let x = Tensor::ones([2], &Default::default());
        (x * self.w0.weight.val() * self.w1.val()).sum()
    }
}

pub type Group = Vec<Toy<Mixed>>;
pub type Optim = AmpOptimizer<OptimizerAdaptor<Sgd<MixedPrecision<Bare>>, Group, Mixed>, Mixed>;

/// Which models each optimizer steps, and which models each loss is the sum of.
#[derive(Debug, Clone, Copy)]
pub struct Topology {
    pub optimizers: &'static [&'static [usize]],
    pub losses: &'static [&'static [usize]],
}

pub const TWO_TWO_ONE: Topology = Topology {
    optimizers: &[&[0, 1]],
    losses: &[&[0], &[1]],
};
pub const THREE_TWO_ONE: Topology = Topology {
    optimizers: &[&[0, 1, 2]],
    losses: &[&[0, 2], &[1, 2]],
};
pub const TWO_TWO_TWO: Topology = Topology {
    optimizers: &[&[0], &[1]],
    losses: &[&[0], &[1]],
};
/// Loss 1 passes through both optimizers, loss 0 through the first only.
pub const THREE_TWO_TWO: Topology = Topology {
    optimizers: &[&[0, 1], &[2]],
    losses: &[&[0, 1], &[2, 1]],
};
pub const TOPOLOGIES: [Topology; 4] = [TWO_TWO_ONE, THREE_TWO_ONE, TWO_TWO_TWO, THREE_TWO_TWO];

impl Topology {
    pub fn reaches(&self, loss: usize, optimizer: usize) -> bool {
        let models = self.optimizers[optimizer];
        self.losses[loss].iter().any(|m| models.contains(m))
    }
}

/// One scale for each loss, starting at 4 and 16, or one for both, starting at 4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scales {
    PerLoss,
    Shared,
}

impl Scales {
    pub fn loss_id(self, loss: usize) -> usize {
        match self {
            Scales::PerLoss => loss,
            Scales::Shared => 0,
        }
    }

    /// The losses whose overflow an optimizer skips for.
    pub fn ids(self, topology: Topology, optimizer: usize) -> Vec<usize> {
        (0..topology.losses.len())
            .filter(|loss| topology.reaches(*loss, optimizer))
            .map(|loss| self.loss_id(loss))
            .collect()
    }
}

pub fn settings(level: OptLevel, scales: Scales) -> Amp {
    let config = AmpConfig::new(level).with_num_losses(match scales {
        Scales::PerLoss => 2,
        Scales::Shared => 1,
    });
    config.with_keep_f32_modules(["Kept"]).build().unwrap()
}

/// An infinity in one gradient of one backward pass.
#[derive(Debug, Clone, Copy)]
pub struct Injection {
    pub iteration: usize,
    pub loss: usize,
    pub parameter: usize,
}

#[derive(Debug, PartialEq)]
pub struct Run {
    pub models: Vec<Vec<TensorData>>,
    pub masters: Vec<Vec<TensorData>>,
    /// Per iteration, which optimizers skipped.
    pub skipped: Vec<Vec<bool>>,
}

pub struct Training {
    pub topology: Topology,
    pub scales: Scales,
    pub scaler: Scaler,
    pub groups: Vec<Group>,
    pub optims: Vec<Optim>,
    /// Every optimizer skips for every loss.
    pub linked: bool,
}

impl Training {
    pub fn new(topology: Topology, scales: Scales, amp: &Amp) -> Self {
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

    pub fn loss(&self, loss: usize) -> Tensor<Mixed, 1> {
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
    pub fn backward(&self, loss: usize) -> Vec<Option<GradientsParams>> {
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
    pub fn iterate(&mut self, poisoned: Option<(usize, usize)>, omitted: &[usize]) -> Vec<bool> {
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

    pub fn finish(self, skipped: Vec<Vec<bool>>) -> Run {
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

pub const ITERATIONS: usize = 4;

pub fn run(
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

pub const LEVELS: [OptLevel; 2] = [OptLevel::O1, OptLevel::O2];
pub const SCALES: [Scales; 2] = [Scales::PerLoss, Scales::Shared];

/// Who skips for an overflow of a loss: the optimizers it reaches; with one scale for all, also
/// those of the losses that share it.
pub fn skips(topology: Topology, scales: Scales, loss: usize) -> Vec<usize> {
    (0..topology.optimizers.len())
        .filter(|o| scales.ids(topology, *o).contains(&scales.loss_id(loss)))
        .collect()
}
