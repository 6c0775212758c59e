//! Random training runs of several losses and optimizers: after every step scales,
//! counters, weights and verdicts are those of a model that is a page of plain numbers.
//!
//! The model knows torch's rule and nothing of this library: weights that move by the learning rate at
//! each step that no infinity of its losses forbids, and one scale per loss.

mod support;

use burn::module::{Module, Param};
use burn::optim::{GradientsAccumulator, GradientsParams, SgdConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_amp::{AmpConfig, AmpOptimizer, LossScaleConfig, OptLevel, Scaler, scope};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use support::Mixed;

#[derive(Module, Debug)]
struct Weight<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl Weight<Mixed> {
    /// The loss whose gradient is `gradient`, in f32.
    fn loss(&self, gradient: f32) -> Tensor<Mixed, 1> {
        self.weight.val() * gradient
    }

    fn value(&self) -> f32 {
        self.weight.val().into_scalar()
    }
}

const LR: f32 = 0.5;
const LOSSES: usize = 2;
const OPTIMIZERS: usize = 2;

/// What happens in one iteration: for each loss and optimizer a gradient, or none.
#[derive(Debug, Clone)]
struct Iteration {
    gradients: [[Option<f32>; OPTIMIZERS]; LOSSES],
    /// A scale that is set by hand before the iteration.
    set: Option<(usize, f32)>,
}

#[derive(Debug, Clone)]
struct Rule {
    init: f32,
    growth: f64,
    backoff: f64,
    interval: u32,
    floor: f32,
    cap: f32,
}

fn iteration() -> impl Strategy<Value = Iteration> {
    // Exact in f32 and so are sums and steps: the weights must agree to the last bit.
    let finite = (-8i8..=8).prop_map(|n| f32::from(n) / 8.0);
    let gradient = prop_oneof![
        6 => finite.prop_map(Some),
        1 => select(vec![f32::INFINITY, f32::NEG_INFINITY, f32::NAN]).prop_map(Some),
        1 => Just(None),
    ];
    let gradients = prop::array::uniform2(prop::array::uniform2(gradient));
    let set = prop::option::weighted(0.1, (0..LOSSES, select(vec![1f32, 16.0, 1024.0])));
    (gradients, set).prop_map(|(gradients, set)| Iteration { gradients, set })
}

fn rule() -> impl Strategy<Value = Rule> {
    let floor = select(vec![0.25f32, 1.0]);
    let cap = select(vec![1024f32, 65536.0]);
    let init = select(vec![1f32, 64.0, 1024.0]);
    let growth = select(vec![1.0, 2.0, 4.0]);
    let backoff = select(vec![0.5, 0.25]);
    (init, growth, backoff, 1..4u32, floor, cap).prop_map(
        |(init, growth, backoff, interval, floor, cap)| Rule {
            init,
            growth,
            backoff,
            interval,
            floor,
            cap,
        },
    )
}

/// One loss's scale, as torch has it, with a floor and a cap.
#[derive(Debug, Clone, Copy)]
struct Scale {
    scale: f64,
    clean: u32,
    steps: u64,
    skipped: u64,
}

impl Scale {
    fn update(&mut self, rule: &Rule, found_inf: bool) {
        self.steps += 1;
        if found_inf {
            self.skipped += 1;
            self.clean = 0;
            self.scale = (self.scale * rule.backoff).max(rule.floor.into());
            return;
        }
        self.clean += 1;
        if self.clean == rule.interval {
            self.clean = 0;
            self.scale = (self.scale * rule.growth).min(rule.cap.into());
        }
    }
}

fn check(rule: &Rule, run: &[Iteration]) -> Result<(), TestCaseError> {
    let amp = AmpConfig::new(OptLevel::O1)
        .with_num_losses(LOSSES)
        .build()
        .unwrap();
    amp.scope(|| {
        let config = LossScaleConfig::torch()
            .with_init(rule.init)
            .with_growth_factor(rule.growth)
            .with_backoff_factor(rule.backoff)
            .with_growth_interval(rule.interval)
            .with_floor(rule.floor)
            .with_cap(rule.cap);
        let scaler = Scaler::with_rule(&amp, config).unwrap();
        let mut weights = [0.0f32; OPTIMIZERS];
        let mut models = weights.map(|w| Weight::<Mixed> {
            weight: Param::from_tensor(Tensor::from_floats([w], &Default::default())),
        });
        let optim = || AmpOptimizer::<_, Mixed>::with_scaler(SgdConfig::new().init(), &scaler);
        let mut optims = [optim(), optim()];
        let start = Scale {
            scale: rule.init.into(),
            clean: 0,
            steps: 0,
            skipped: 0,
        };
        let mut scales = [start; LOSSES];
        for (n, iteration) in run.iter().enumerate() {
            if let Some((loss, scale)) = iteration.set {
                let allowed = (rule.floor..=rule.cap).contains(&scale);
                prop_assert_eq!(scaler.set_loss_scale(loss, scale).is_ok(), allowed);
                if allowed {
                    scales[loss].scale = scale.into();
                }
            }
            let mut sums = [(); OPTIMIZERS].map(|()| GradientsAccumulator::new());
            let mut inspection = scaler.inspect::<Mixed>();
            for (loss, gradients) in iteration.gradients.iter().enumerate() {
                for (o, gradient) in gradients.iter().enumerate() {
                    let Some(gradient) = gradient else { continue };
                    let grads = scope::with_loss_id(loss, || models[o].loss(*gradient).backward());
                    prop_assert_eq!(f64::from(grads.loss_scale()), scales[loss].scale, "{}", n);
                    let grads = GradientsParams::from_grads(grads, &models[o]);
                    inspection = inspection.gradients(loss, &models[o], &grads);
                    sums[o].accumulate::<Mixed>(&models[o], grads);
                }
            }
            let verdict = inspection.judge();

            let bad = |gradient: &Option<f32>| gradient.is_some_and(|g| !g.is_finite());
            let found = iteration.gradients.map(|of_loss| of_loss.iter().any(bad));
            for (loss, scale) in scales.iter_mut().enumerate() {
                if iteration.gradients[loss].iter().any(Option::is_some) {
                    scale.update(rule, found[loss]);
                }
                prop_assert_eq!(verdict.overflowed(loss), found[loss]);
                let state = *scaler.loss_scale(loss).state();
                let got = (
                    f64::from(state.scale),
                    state.growth_tracker,
                    state.steps,
                    state.skipped,
                );
                let expected = (scale.scale, scale.clean, scale.steps, scale.skipped);
                prop_assert_eq!(got, expected, "loss {} after iteration {}", loss, n);
                prop_assert_eq!(f64::from(amp.loss_scales().get(loss)), scale.scale);
            }
            for (o, sum) in sums.into_iter().enumerate() {
                let mut sum = sum;
                let of: Vec<Option<f32>> = iteration.gradients.iter().map(|l| l[o]).collect();
                let ids: Vec<usize> = (0..LOSSES).filter(|loss| of[*loss].is_some()).collect();
                if ids.is_empty() {
                    continue;
                }
                let skips = ids.iter().any(|loss| found[*loss]);
                if !skips {
                    weights[o] -= LR * of.iter().flatten().sum::<f32>();
                }
                let model = models[o].clone();
                models[o] = optims[o].step_with(&verdict, &ids, LR.into(), model, sum.grads());
                let outcome = optims[o].last_step().unwrap();
                prop_assert_eq!(outcome.was_skipped(), skips, "optimizer {} in {}", o, n);
                prop_assert_eq!(models[o].value(), weights[o], "optimizer {} in {}", o, n);
            }
        }
        Ok(())
    })
}

#[test]
fn every_run_is_the_models() {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let run = prop::collection::vec(iteration(), 1..20);
    TestRunner::new(config)
        .run(&(rule(), run), |(rule, run)| check(&rule, &run))
        .unwrap();
}
