//! Whole training steps: torch's tests of `GradScaler` in training, Apex's `add_param_group` and LARC,
//! Keras's and DeepSpeed's skipped steps.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdamConfig, AdamWConfig, GradientsAccumulator, GradientsParams, Optimizer, SgdConfig,
    SimpleOptimizer,
};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{FloatDType, Tensor, TensorData};
use burn_amp::{
    AmpConfig, AmpOptimizer, GradScaler, HalfDType, LossScaleConfig, LossScaleError, LossScaling,
    OptLevel, ScaleEvent, Scaler, StepStatus,
};

use crate::support::gradients::{gradients, poison, values};
use crate::support::net::{batch, fixed};
use crate::support::{Mixed, Plain, amp};
use crate::{Dot, o1};

/// Two layers without a norm, so that a skipped step's forward pass leaves nothing behind by itself.
#[derive(Module, Debug)]
struct Layers<B: Backend> {
    first: Linear<B>,
    last: Linear<B>,
}

impl<B: Backend> Layers<B> {
    fn new() -> Self {
        let device = Default::default();
        fixed(Layers {
            first: LinearConfig::new(6, 8).init(&device),
            last: LinearConfig::new(8, 3).init(&device),
        })
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.last.forward(self.first.forward(x).tanh())
    }

    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        self.forward(x).powi_scalar(2).mean()
    }
}

fn numbers<B: Backend, M: Module<B>>(model: &M) -> Vec<f32> {
    let data = values::<B, _>(model);
    data.iter().flat_map(|data| data.iter::<f32>()).collect()
}

fn close(got: &[f32], control: &[f32], tolerance: f32) {
    assert_eq!(got.len(), control.len());
    for (got, control) in got.iter().zip(control) {
        assert!((got - control).abs() <= tolerance, "{got} {control}");
    }
}

const STEPS: usize = 4;
const POISONED: usize = 2;

/// torch's rule in its tests: 128, moving at every update.
fn moving() -> LossScaleConfig {
    LossScaleConfig::torch()
        .with_init(128.0)
        .with_growth_interval(1)
}

/// What a user does to the gradients between backward and step.
type Between<B> =
    fn(&mut GradScaler, &Layers<B>, burn_amp::ScaledGradients<B>) -> burn_amp::UnscaledGradients<B>;

fn unscaled<B: AutodiffBackend>(
    scaler: &mut GradScaler,
    model: &Layers<B>,
    grads: burn_amp::ScaledGradients<B>,
) -> burn_amp::UnscaledGradients<B> {
    scaler.unscale(model, grads)
}

/// Four steps under a scaler, the third with an infinity in a gradient.
fn scaled_run<B: AutodiffBackend>(
    mut scaler: GradScaler,
    between: Between<B>,
    saved: bool,
) -> (Vec<f32>, GradScaler) {
    let mut model = Layers::<B>::new();
    let mut optim = SgdConfig::new().init();
    for step in 0..STEPS {
        let mut loss = model.loss(batch(step));
        if step == POISONED && scaler.is_enabled() {
            loss = loss.mul_scalar(f32::INFINITY);
        } else if step == POISONED {
            continue;
        }
        let scaled = scaler.scale(loss).backward(&model);
        let grads = between(&mut scaler, &model, scaled);
        model = scaler.step(&mut optim, 0.1, model, grads);
        scaler.update().unwrap();
        if saved {
            let text = serde_json::to_string(scaler.state()).unwrap();
            scaler = GradScaler::new(LossScaleConfig::torch()).unwrap();
            scaler.load_state(serde_json::from_str(&text).unwrap());
        }
    }
    (numbers(&model), scaler)
}

/// The same in f32 without any scaler, the third step left out.
fn control(clip: Option<f32>) -> Vec<f32> {
    let mut model = Layers::<Plain>::new();
    let mut optim = SgdConfig::new().init();
    for step in (0..STEPS).filter(|step| *step != POISONED) {
        let mut grads = GradientsParams::from_grads(model.loss(batch(step)).backward(), &model);
        if let Some(max_norm) = clip {
            grads = clipped(&model, grads, max_norm);
        }
        model = optim.step(0.1, model, grads);
    }
    numbers(&model)
}

/// torch's `clip_grad_norm_` over all gradients.
fn clipped(model: &Layers<Plain>, grads: GradientsParams, max_norm: f32) -> GradientsParams {
    struct Clip {
        grads: GradientsParams,
        factor: f32,
        out: GradientsParams,
    }
    impl burn::module::ModuleVisitor<Plain> for Clip {
        fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<Plain, D>>) {
            type Inner = <Plain as AutodiffBackend>::InnerBackend;
            let grad = self.grads.remove::<Inner, D>(param.id).unwrap();
            let grad = grad.mul_scalar(self.factor);
            self.out.register::<Inner, D>(param.id, grad);
        }
    }
    let all = gradients::<Plain, _>(model, &grads);
    let square: f32 = all
        .iter()
        .flatten()
        .flat_map(|g| g.iter::<f32>())
        .map(|g| g * g)
        .sum();
    let mut clip = Clip {
        grads,
        factor: (max_norm / (square.sqrt() + 1e-6)).min(1.0),
        out: GradientsParams::new(),
    };
    model.visit(&mut clip);
    clip.out
}

/// Momentum 0.125, as Apex's tests have it.
fn sgd() -> SgdConfig {
    let momentum = MomentumConfig::new()
        .with_momentum(0.125)
        .with_dampening(0.0);
    SgdConfig::new().with_momentum(Some(momentum))
}

#[test]
fn a16_a_group_added_later_trains_as_its_reference() {
    // Burn has no parameter groups: a group with its own learning rate is a module with its own
    // optimizer, under one scaler.
    fn run<B: AutodiffBackend>(
        micro_batches: usize,
        mut step: impl FnMut(usize, f64, Dot<B>, GradientsParams) -> Dot<B>,
        mut models: [Dot<B>; 2],
    ) -> [Vec<f32>; 2] {
        for i in 0..6 {
            for (group, lr) in [(0, 0.25), (1, 0.5)] {
                // The second group comes in after two iterations.
                if group == 1 && i < 2 {
                    continue;
                }
                let mut sum = GradientsAccumulator::new();
                for m in 0..micro_batches {
                    let x = [0.5, 0.25 * (i + m) as f32 / 4.0];
                    let loss = models[group].loss(&x);
                    let grads = GradientsParams::from_grads(loss.backward(), &models[group]);
                    sum.accumulate::<B>(&models[group], grads);
                }
                let model = models[group].clone();
                models[group] = step(group, lr, model, sum.grads());
            }
        }
        models.map(|model| model.values())
    }
    let initial = [[1.0, 2.0], [3.0, 4.0]];
    for micro_batches in [1, 2] {
        let mut optims = [sgd().init(), sgd().init()];
        let reference = run::<Plain>(
            micro_batches,
            |group, lr, model, grads| optims[group].step(lr, model, grads),
            initial.map(|w| Dot::new(&w, FloatDType::F32)),
        );
        for level in OptLevel::ALL {
            let amp = AmpConfig::new(level)
                .with_loss_scale(LossScaling::Static(4.0))
                .build()
                .unwrap();
            amp.scope(|| {
                let scaler = Scaler::new(&amp);
                let mut optims = [(); 2].map(|()| AmpOptimizer::with_scaler(sgd().init(), &scaler));
                let got = run::<Mixed>(
                    micro_batches,
                    |group, lr, model, grads| optims[group].step(lr, model, grads),
                    initial.map(|w| amp.cast_model(Dot::new(&w, FloatDType::F32))),
                );
                // The inputs are exact in f16, and so are the gradients. What is rounded is the
                // weight: to f16 at each of six steps at O3, once, for the model, at O2.
                let u = 2f32.powi(-11);
                let tolerance = match level {
                    OptLevel::O0 | OptLevel::O1 => 0.0,
                    OptLevel::O2 => 8.0 * u,
                    OptLevel::O3 => 6.0 * 8.0 * u,
                };
                for (got, reference) in got.iter().zip(&reference) {
                    close(got, reference, tolerance);
                }
            });
        }
    }
}

#[test]
fn a25_the_one_sgd_there_is_keeps_masters_and_model_together() {
    // Apex repeats its topologies with a fused SGD, whose kernel writes masters and model in one go.
    // Here every optimizer steps the masters, and the model is their rounded copy.
    let amp = amp(OptLevel::O2, HalfDType::F16);
    amp.scope(|| {
        let mut model: Dot<Mixed> = amp.cast_model(Dot::new(&[1.0, 2.0], FloatDType::F32));
        // The loss is half before it is summed: its gradient is the scale itself, which must fit.
        let mut optim = AmpOptimizer::new(sgd().init(), &amp)
            .with_loss_scale(LossScaleConfig::default().with_init(128.0))
            .unwrap();
        for step in 0..4 {
            let loss = model.loss(&[0.0625, 0.3]);
            let mut grads = GradientsParams::from_grads(loss.backward(), &model);
            if step == 1 {
                poison::<Mixed, _>(&model, &mut grads, 0, f32::INFINITY);
            }
            let before = model.values();
            model = optim.step(0.01, model, grads);
            assert_eq!(model.values() == before, step == 1, "step {step}");
            let master = optim.full_model(model.clone()).values();
            let rounded = TensorData::from(&master[..]).convert::<burn::tensor::f16>();
            assert_eq!(model.values(), rounded.iter::<f32>().collect::<Vec<_>>());
            assert!(step == 0 || master != model.values());
        }
    });
}

/// LARC: a learning rate per layer, `eta |w| / |g|`, at most the given one.
#[derive(Debug, Clone)]
struct Larc;

impl<B: Backend> SimpleOptimizer<B> for Larc {
    type State<const D: usize> = Tensor<B, D>;

    fn step<const D: usize>(
        &self,
        lr: f64,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        _state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let norm = |x: &Tensor<B, D>| x.clone().powi_scalar(2).sum().sqrt();
        let rate = (norm(&tensor) * 0.02 / (norm(&grad) + 1e-8)).clamp_max(lr);
        let rate = rate.reshape([1; D]);
        (tensor - grad * rate, None)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &B::Device) -> Self::State<D> {
        state.to_device(device)
    }
}

#[test]
fn a26_a_layer_wise_rate_runs_at_every_level() {
    for level in OptLevel::ALL {
        let amp = amp(level, HalfDType::F16);
        amp.scope(|| {
            let mut model: Layers<Mixed> = amp.cast_model(Layers::new());
            let mut optim = AmpOptimizer::new(OptimizerAdaptor::from(Larc), &amp);
            let loss =
                |model: &Layers<Mixed>| model.loss(batch(0)).into_data().iter::<f32>().next();
            let before = loss(&model).unwrap();
            for _ in 0..10 {
                let grads = GradientsParams::from_grads(model.loss(batch(0)).backward(), &model);
                model = optim.step(0.5, model, grads);
            }
            let after = loss(&model).unwrap();
            assert!(
                after.is_finite() && after < before,
                "{level}: {before} to {after}"
            );
        });
    }
}

#[test]
fn g07_training_with_an_overflow_is_the_f32_control_without_that_step() {
    let control = control(None);
    let (got, scaler) = o1(|| {
        let scaler = GradScaler::new(moving()).unwrap();
        scaled_run::<Mixed>(scaler, unscaled, false)
    });
    assert_eq!(scaler.get_scale(), 128.0 * 8.0 * 0.5);
    assert_ne!(got, control, "it ran in half");
    close(&got, &control, 1e-3);
    let (exact, _) = scaled_run::<Plain>(GradScaler::new(moving()).unwrap(), unscaled, false);
    assert_eq!(
        exact, control,
        "in f32 a scale that is a power of two leaves no trace"
    );
}

#[test]
fn g08_a_scaler_saved_after_every_step_goes_on_as_if_it_were_not() {
    o1(|| {
        let run = |saved| scaled_run::<Mixed>(GradScaler::new(moving()).unwrap(), unscaled, saved);
        let ((straight, scaler), (resumed, loaded)) = (run(false), run(true));
        assert_eq!(resumed, straight);
        assert_eq!(loaded.state(), scaler.state());
    });
}

#[test]
fn g09_a_disabled_scaler_is_none() {
    let (got, scaler) = scaled_run::<Plain>(GradScaler::disabled(), unscaled, false);
    assert_eq!(scaler.get_scale(), 1.0);
    assert_eq!(got, control(None));
}

#[test]
fn g10_clipping_after_unscaling_is_clipping_the_true_gradients() {
    const MAX_NORM: f64 = 0.05;
    let clip: Between<Plain> = |scaler, model, grads| {
        let mut grads = scaler.unscale(model, grads);
        grads.clip_norm(model, MAX_NORM);
        grads
    };
    let (got, _) = scaled_run::<Plain>(GradScaler::new(moving()).unwrap(), clip, false);
    let control = control(Some(MAX_NORM as f32));
    // The norm is summed in another order: n u over some 80 elements, three steps of 0.1 * 0.05.
    close(&got, &control, 3.0 * 0.1 * 0.05 * 80.0 * 2f32.powi(-24));
    assert_ne!(got, self::control(None), "it binds");
}

#[test]
fn g12_micro_batches_are_one_step() {
    let mut scaler = GradScaler::new(moving()).unwrap();
    let mut model = Layers::<Plain>::new();
    let mut optim = SgdConfig::new().init();
    let (mut plain, mut plain_optim) = (model.clone(), SgdConfig::new().init());
    let mut applied = 0;
    for step in 0..STEPS {
        let losses =
            |model: &Layers<Plain>| [2 * step, 2 * step + 1].map(|i| model.loss(batch(i)) / 2);
        let bad = if step == POISONED { f32::INFINITY } else { 1.0 };
        let [first, second] = losses(&model);
        let mut grads = scaler.scale(first).backward(&model);
        grads.accumulate(&model, scaler.scale(second * bad).backward(&model));
        model = scaler.step(&mut optim, 0.1, model, grads);
        scaler.update().unwrap();
        applied += u32::from(scaler.last_step().unwrap().was_applied());
        if step != POISONED {
            let mut sum = GradientsAccumulator::new();
            for loss in losses(&plain) {
                sum.accumulate::<Plain>(
                    &plain,
                    GradientsParams::from_grads(loss.backward(), &plain),
                );
            }
            plain = plain_optim.step(0.1, plain, sum.grads());
        }
    }
    assert_eq!(applied, 3);
    assert_eq!(numbers(&model), numbers(&plain));
    assert_eq!(scaler.get_scale(), 128.0 * 8.0 * 0.5);
}

#[test]
fn g13_an_overflow_in_one_model_skips_its_optimizer_only() {
    let mut scaler = GradScaler::new(moving()).unwrap();
    let mut models = [Layers::<Plain>::new(), Layers::<Plain>::new()];
    let mut optims = [SgdConfig::new().init(), SgdConfig::new().init()];
    let mut controls = models.clone();
    let mut control_optims = optims.clone();
    for step in 0..STEPS {
        let losses = |models: &[Layers<Plain>; 2]| {
            let outputs = models.each_ref().map(|model| model.forward(batch(step)));
            let [a, b] = &outputs;
            // Both losses go through both models.
            [
                (a.clone() * 0.3 - b.clone() * 0.5).powi_scalar(2).mean(),
                (a.clone() * 0.7 + b.clone() * 0.2).powi_scalar(2).mean(),
            ]
        };
        let [l0, l1] = losses(&models);
        let mut backward = scaler.scale(l0 + l1).backward_shared();
        for n in [0, 1] {
            let mut grads = backward.of(&models[n]);
            if step == POISONED && n == 1 {
                let bad = scaler.scale(models[n].loss(batch(0)) * f32::INFINITY);
                grads.accumulate(&models[n], bad.backward(&models[n]));
            }
            let model = models[n].clone();
            models[n] = scaler.step(&mut optims[n], 0.1, model, grads);
            let skipped = scaler.last_step().unwrap().was_skipped();
            assert_eq!(skipped, step == POISONED && n == 1);
        }
        scaler.update().unwrap();
        let [l0, l1] = losses(&controls);
        let mut grads = (l0 + l1).backward();
        for n in [0, 1] {
            let of_model = GradientsParams::from_module::<Plain, _>(&mut grads, &controls[n]);
            if !(step == POISONED && n == 1) {
                let model = controls[n].clone();
                controls[n] = control_optims[n].step(0.1, model, of_model);
            }
        }
    }
    assert_eq!(scaler.get_scale(), 128.0 * 8.0 * 0.5);
    for (model, control) in models.iter().zip(&controls) {
        assert_eq!(numbers(model), numbers(control));
    }
}

#[test]
fn g17_gradients_that_are_tampered_with_after_unscaling_are_not_looked_at_again() {
    let model = Dot::<Plain>::new(&[1.0, 2.0], FloatDType::F32);
    let mut optim = SgdConfig::new().init();
    let mut scaler = GradScaler::new(moving()).unwrap();
    let scaled = scaler.scale(model.loss(&[1.0, 1.0])).backward(&model);
    let mut grads = scaler.unscale(&model, scaled);
    assert!(grads.is_finite());
    poison::<Plain, _>(&model, grads.gradients_mut().unwrap(), 0, f32::NAN);
    let model = scaler.step(&mut optim, 0.1, model, grads);
    assert!(
        model.values().iter().all(|w| w.is_nan()),
        "as torch documents it"
    );
    assert!(!scaler.update().unwrap().found_inf);
}

#[test]
fn g19_a_skipped_step_leaves_parameters_moments_and_step_counters() {
    fn check<O: Optimizer<Layers<Plain>, Plain>>(init: impl Fn() -> O) {
        let run = |poisoned: bool| {
            let mut scaler = GradScaler::new(LossScaleConfig::torch()).unwrap();
            let (mut model, mut optim) = (Layers::<Plain>::new(), init());
            for step in 0..STEPS {
                let mut loss = model.loss(batch(step));
                if step == POISONED && !poisoned {
                    continue;
                } else if step == POISONED {
                    loss = loss * f32::NAN;
                }
                let grads = scaler.scale(loss).backward(&model);
                model = match poisoned {
                    true => scaler.step(&mut optim, 0.1, model, grads),
                    // With and without a separate unscale.
                    false => {
                        let grads = scaler.unscale(&model, grads);
                        scaler.step(&mut optim, 0.1, model, grads)
                    }
                };
                scaler.update().unwrap();
            }
            numbers(&model)
        };
        // A step counter or a moment that had moved would show in the step after it.
        assert_eq!(run(true), run(false));
    }
    check(|| AdamConfig::new().init());
    check(|| AdamWConfig::new().init());
    check(|| sgd().init());
}

#[test]
fn g22_misuse_is_an_error_or_does_not_compile() {
    // Unscaling twice, unscaling after a step and stepping twice take gradients that are gone: see the
    // `compile_fail` examples of `GradScaler`. What is left to run time:
    let mut scaler = GradScaler::new(moving()).unwrap();
    assert!(matches!(
        scaler.update(),
        Err(LossScaleError::NothingRecorded)
    ));
    let model = Dot::<Plain>::new(&[1.0], FloatDType::F32);
    let mut optim = SgdConfig::new().init();
    let grads = scaler.scale(model.loss(&[1.0])).backward(&model);
    let _ = scaler.step(&mut optim, 0.1, model, grads);
    assert_eq!(scaler.update().unwrap().event, ScaleEvent::Grew);
    assert!(matches!(
        scaler.update(),
        Err(LossScaleError::NothingRecorded)
    ));
}

#[test]
fn b06_an_overflow_leaves_everything_but_the_scale() {
    let rule = LossScaleConfig::keras()
        .with_init(8.0)
        .with_growth_interval(2);
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let mut model = Dot::<Mixed>::new(&[1.0, 2.0], FloatDType::F32);
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp)
            .with_loss_scale(rule)
            .unwrap();
        let mut scales = Vec::new();
        for bad in [false, true, false, false] {
            let mut grads = GradientsParams::from_grads(model.loss(&[1.0, 1.0]).backward(), &model);
            if bad {
                poison::<Mixed, _>(&model, &mut grads, 0, f32::INFINITY);
            }
            let before = model.values();
            model = optim.step(0.5, model, grads);
            assert_eq!(model.values() == before, bad);
            scales.push(optim.loss_scale().scale());
        }
        assert_eq!(scales, [8.0, 4.0, 4.0, 8.0]);
        // Adam with constant gradients moves by the learning rate at each applied step, if its step
        // count is the number of applied ones.
        close(&model.values(), &[1.0 - 1.5, 2.0 - 1.5], 3.0 * 1e-5);
    });
    let text = serde_json::to_string(&rule).unwrap();
    assert_eq!(
        serde_json::from_str::<LossScaleConfig>(&text).unwrap(),
        rule
    );
    assert!(rule.with_growth_factor(0.5).validate().is_err());
    assert!(rule.with_init(-1.0).validate().is_err());
}

#[test]
fn b10_bf16_without_a_scale_skips_only_if_it_looks() {
    for check in [true, false] {
        let amp = amp(OptLevel::O2, HalfDType::Bf16);
        amp.scope(|| {
            let model: Dot<Mixed> = amp.cast_model(Dot::new(&[1.0, 2.0], FloatDType::F32));
            let mut optim = AmpOptimizer::new(SgdConfig::new().init(), &amp)
                .with_finite_check(check)
                .unwrap();
            let monitor = optim.monitor();
            let mut grads = GradientsParams::from_grads(model.loss(&[1.0, 1.0]).backward(), &model);
            poison::<Mixed, _>(&model, &mut grads, 0, f32::INFINITY);
            let model = optim.step(0.1, model, grads);
            assert_eq!(monitor.skipped(), u64::from(check));
            assert_eq!(model.values().iter().all(|w| w.is_finite()), check);
            let status = optim.last_step().unwrap().status;
            assert_eq!(status == StepStatus::Skipped, check);
        });
    }
}
