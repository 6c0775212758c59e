//! `GradScaler` by hand: the order is kept, the scale never shows, nothing infinite gets out.

mod support;

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{
    AdamConfig, AdamWConfig, GradientsAccumulator, GradientsParams, Optimizer, Sgd, SgdConfig,
};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, FloatDType, Tensor, TensorData, f16};
use burn_amp::{
    AmpConfig, AmpOptimizer, AtFloorPolicy, GradScaler, HalfDType, LossScaleConfig, LossScaleError,
    OptLevel, ScaleEvent, ScaledGradients, StepStatus, UnscaledGradients, scope,
};
use support::gradients::{gradients, poison, values};
use support::net::{batch, fixed as numbered};
use support::{Bare, Mixed, Plain, amp};

/// A model whose gradient is the input: loss = sum(weight * x).
#[derive(Module, Debug)]
struct Dot<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl<B: Backend> Dot<B> {
    fn new(values: &[f32], dtype: FloatDType) -> Self {
        let weight = Tensor::<B, 1>::from_floats(values, &Default::default());
        Dot {
            weight: Param::from_tensor(scope::disabled(|| weight.cast(dtype))),
        }
    }

    fn loss(&self, x: &[f32]) -> Tensor<B, 1> {
        let weight = self.weight.val();
        let x = Tensor::<B, 1>::from_floats(x, &Default::default()).cast(weight.dtype());
        (weight * x).sum()
    }

    fn values(&self) -> Vec<f32> {
        let data = scope::disabled(|| self.weight.val().into_data());
        data.convert::<f32>().to_vec().unwrap()
    }
}

type PlainSgd = OptimizerAdaptor<Sgd<Bare>, Dot<Plain>, Plain>;

fn dot(values: &[f32]) -> (Dot<Plain>, PlainSgd) {
    (Dot::new(values, FloatDType::F32), SgdConfig::new().init())
}

fn scaler(rule: LossScaleConfig) -> GradScaler {
    GradScaler::new(rule).unwrap()
}

fn fixed(scale: f32) -> GradScaler {
    scaler(LossScaleConfig::fixed(scale))
}

/// The gradients of `loss = sum(weight * x)`, so x itself, scaled.
fn scaled(scaler: &GradScaler, model: &Dot<Plain>, x: &[f32]) -> ScaledGradients<Plain> {
    scaler.scale(model.loss(x)).backward(model)
}

fn only(model: &Dot<Plain>, grads: &GradientsParams) -> TensorData {
    gradients::<Plain, _>(model, grads)[0].clone().unwrap()
}

fn true_gradient(model: &Dot<Plain>, grads: &mut UnscaledGradients<Plain>) -> Vec<f32> {
    let data = only(model, grads.gradients().expect("finite"));
    assert_eq!(data.dtype, DType::F32);
    data.to_vec().unwrap()
}

/// Without a norm: its statistics would remember the forward pass of a skipped step.
#[derive(Module, Debug)]
struct Net<B: Backend> {
    first: Linear<B>,
    last: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new() -> Self {
        let device = Default::default();
        numbered(Net {
            first: LinearConfig::new(6, 8).init(&device),
            last: LinearConfig::new(8, 3).init(&device),
        })
    }

    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let x = Relu::new().forward(self.first.forward(x));
        self.last.forward(x).powi_scalar(2).mean()
    }
}

fn distance<B: Backend>(left: &Net<B>, right: &Net<Plain>) -> f32 {
    let flat = |data: Vec<TensorData>| -> Vec<f32> {
        data.into_iter()
            .flat_map(|d| d.to_vec::<f32>().unwrap())
            .collect()
    };
    let (left, right) = (flat(values::<B, _>(left)), flat(values::<Plain, _>(right)));
    let distances = left.iter().zip(&right).map(|(l, r)| (l - r).abs());
    distances.fold(0.0, f32::max)
}

#[test]
fn unscaling_divides_by_the_scale() {
    for dtype in [FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
        let model = Dot::<Plain>::new(&[1.0, 1.0], dtype);
        let mut scaler = fixed(4.0);
        let scaled = scaler.scale(model.loss(&[1.0, 2.0])).backward(&model);
        assert_eq!(scaled.scale(), 4.0);
        let mut grads = scaler.unscale(&model, scaled);
        assert_eq!(true_gradient(&model, &mut grads), [1.0, 2.0], "{dtype:?}");
    }
}

#[test]
fn a_non_finite_element_anywhere_is_found_once_and_for_all() {
    for (position, bad) in (0..9).flat_map(|p| [f32::INFINITY, f32::NAN].map(|b| (p, b))) {
        let (model, mut optim) = dot(&[1.0; 9]);
        let mut scaler = scaler(LossScaleConfig::torch());
        let mut x = [1.0; 9];
        x[position] = bad;
        let before = model.values();
        // Two clean optimizers around: the flag is of all of them together.
        for x in [[1.0; 9], x, [1.0; 9]] {
            let (other, mut its_optim) = dot(&[1.0; 9]);
            let grads = scaled(&scaler, &other, &x);
            let _ = scaler.step(&mut its_optim, 0.1, other, grads);
        }
        let update = scaler.update().unwrap();
        assert!(update.found_inf);
        assert_eq!(update.after, 32768.0);
        let grads = scaled(&scaler, &model, &x);
        let model = scaler.step(&mut optim, 0.1, model, grads);
        assert_eq!(model.values(), before);
        let outcome = scaler.last_step().unwrap();
        let found = outcome.non_finite.unwrap();
        assert_eq!(
            (found.inf + found.nan, found.parameters),
            (1, vec!["weight".to_string()])
        );
    }
}

fn train_plainly(
    model: Net<Plain>,
    optim: &mut impl Optimizer<Net<Plain>, Plain>,
    x: Tensor<Plain, 2>,
) -> Net<Plain> {
    let grads = GradientsParams::from_grads(model.loss(x).backward(), &model);
    optim.step(0.1, model, grads)
}

fn train<B: burn::tensor::backend::AutodiffBackend>(
    scaler: &mut GradScaler,
    model: Net<B>,
    optim: &mut impl Optimizer<Net<B>, B>,
    x: Tensor<B, 2>,
) -> Net<B> {
    let grads = scaler.scale(model.loss(x)).backward(&model);
    let model = scaler.step(optim, 0.1, model, grads);
    scaler.update().unwrap();
    model
}

#[test]
fn training_with_an_overflow_is_the_control_without_that_step() {
    // torch's own test: scale 128, growth interval 1, an infinity at iteration 2 of 4.
    let rule = LossScaleConfig::torch()
        .with_init(128.0)
        .with_growth_interval(1);
    let mut control = Net::<Plain>::new();
    let mut optim = SgdConfig::new().init();
    for i in [0, 1, 3] {
        control = train_plainly(control, &mut optim, batch(i));
    }
    let input = |i: usize| match i {
        2 => f32::INFINITY,
        _ => 1.0,
    };
    for saved in [false, true] {
        let mut exact_scaler = scaler(rule);
        let mut exact = Net::<Plain>::new();
        let mut optim = SgdConfig::new().init();
        for i in 0..4 {
            let x = batch(i).mul_scalar(input(i));
            exact = train(&mut exact_scaler, exact, &mut optim, x);
            if saved {
                let state = *exact_scaler.state();
                exact_scaler = scaler(LossScaleConfig::default());
                exact_scaler.load_state(state);
            }
        }
        assert_eq!(exact_scaler.get_scale(), 128.0 * 8.0 * 0.5);
        assert_eq!(values::<Plain, _>(&exact), values::<Plain, _>(&control));
    }
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let mut half_scaler = scaler(rule);
        let mut half = Net::<Mixed>::new();
        let mut optim = SgdConfig::new().init();
        for i in 0..4 {
            let x = batch(i).mul_scalar(input(i));
            half = train(&mut half_scaler, half, &mut optim, x);
        }
        assert_eq!(half_scaler.get_scale(), 128.0 * 8.0 * 0.5);
        let distance = distance(&half, &control);
        assert!(distance > 0.0 && distance < 1e-3, "{distance}");
    });
}

#[test]
fn a_disabled_scaler_is_plain_training_bit_by_bit() {
    let mut scaler = GradScaler::disabled();
    let mut plain = Net::<Plain>::new();
    let mut plain_optim = AdamWConfig::new().init();
    let mut model = plain.clone();
    let mut optim = AdamWConfig::new().init();
    for i in 0..10 {
        plain = train_plainly(plain, &mut plain_optim, batch(i));
        let grads = scaler.scale(model.loss(batch(i))).backward(&model);
        assert_eq!(grads.scale(), 1.0);
        let grads = scaler.unscale(&model, grads);
        model = scaler.step(&mut optim, 0.1, model, grads);
        assert_eq!(scaler.update().unwrap().event, ScaleEvent::Unchanged);
        assert_eq!(
            values::<Plain, _>(&model),
            values::<Plain, _>(&plain),
            "step {i}"
        );
    }
    assert_eq!(scaler.get_scale(), 1.0);
    scaler.set_scale(8.0).unwrap();
    scaler.load_state(LossScaleConfig::torch().init().unwrap());
    assert_eq!(scaler.get_scale(), 1.0);
    // An infinity passes, as without a scaler.
    let model = train(&mut scaler, model, &mut optim, batch(0).mul_scalar(1e30));
    assert!(scaler.last_step().unwrap().was_applied());
    assert!(model.loss(batch(0)).into_scalar().is_nan());
}

#[test]
fn an_enabled_scaler_of_powers_of_two_is_plain_training_bit_by_bit() {
    let mut scaler = scaler(LossScaleConfig::torch().with_growth_interval(3));
    let mut plain = Net::<Plain>::new();
    let mut plain_optim = AdamWConfig::new().init();
    let mut model = plain.clone();
    let mut optim = AdamWConfig::new().init();
    for i in 0..10 {
        plain = train_plainly(plain, &mut plain_optim, batch(i));
        model = train(&mut scaler, model, &mut optim, batch(i));
        assert_eq!(
            values::<Plain, _>(&model),
            values::<Plain, _>(&plain),
            "step {i}"
        );
    }
    assert_eq!(scaler.get_scale(), 65536.0 * 8.0);
}

#[test]
fn unscaling_apart_or_in_the_step_is_the_same() {
    let run = |apart: bool| {
        let mut scaler = scaler(LossScaleConfig::torch());
        let mut model = Net::<Plain>::new();
        let mut optim = AdamConfig::new().init();
        for i in 0..10 {
            let grads = scaler.scale(model.loss(batch(i))).backward(&model);
            model = match apart {
                true => {
                    let grads = scaler.unscale(&model, grads);
                    scaler.step(&mut optim, 0.01, model, grads)
                }
                false => scaler.step(&mut optim, 0.01, model, grads),
            };
            scaler.update().unwrap();
        }
        (values::<Plain, _>(&model), *scaler.state())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn clipping_sees_true_gradients() {
    let (model, mut optim) = dot(&[0.0, 0.0]);
    let mut scaler = fixed(65536.0);
    let grads = scaled(&scaler, &model, &[3.0, 4.0]);
    let mut grads = scaler.unscale(&model, grads);
    assert_eq!(grads.norm(), 5.0);
    assert_eq!(grads.clip_norm(&model, 1.0), Some(5.0));
    let clipped = true_gradient(&model, &mut grads);
    for (got, expected) in clipped.iter().zip([0.6, 0.8]) {
        assert!((got - expected).abs() < 1e-6, "{clipped:?}");
    }
    // Clipped again, wider: nothing happens. The norm that is logged is that of no clipping.
    let before = grads.clip_norm(&model, 2.0).unwrap();
    assert!((before - 1.0).abs() < 1e-6, "{before}");
    assert_eq!(true_gradient(&model, &mut grads), clipped);
    assert_eq!(grads.norm(), 5.0);

    let model = scaler.step(&mut optim, 1.0, model, grads);
    assert_eq!(
        model.values(),
        clipped.iter().map(|g| -g).collect::<Vec<_>>()
    );
    let outcome = scaler.last_step().unwrap();
    assert_eq!(outcome.grad_norm, Some(5.0));
    assert!((outcome.clip_factor - 0.2).abs() < 1e-6);
}

#[test]
fn a_clip_that_does_not_bind_changes_nothing() {
    let (model, _) = dot(&[0.0, 0.0]);
    let mut scaler = fixed(1024.0);
    let grads = scaled(&scaler, &model, &[0.3, 0.4]);
    let mut grads = scaler.unscale(&model, grads);
    grads.clip_norm(&model, 1.0);
    assert_eq!(true_gradient(&model, &mut grads), [0.3, 0.4]);
}

#[test]
#[should_panic(expected = "invalid max_norm NaN: allowed is a finite number above 0")]
fn a_clip_norm_of_nan_is_refused() {
    let (model, _) = dot(&[0.0]);
    let mut scaler = fixed(1.0);
    let grads = scaled(&scaler, &model, &[1.0]);
    scaler.unscale(&model, grads).clip_norm(&model, f64::NAN);
}

#[test]
fn a_gradient_that_overflows_by_unscaling_is_found() {
    // Four times 2e38 at scale 1/8 are 1e38 while scaled, and beyond f32 unscaled.
    let (model, mut optim) = dot(&[1.0]);
    let mut scaler = scaler(LossScaleConfig::torch().with_init(0.125));
    let mut grads = scaled(&scaler, &model, &[2e38]);
    for _ in 0..3 {
        grads.accumulate(&model, scaled(&scaler, &model, &[2e38]));
    }
    let model = scaler.step(&mut optim, 0.1, model, grads);
    assert_eq!(model.values(), [1.0]);
    assert_eq!(scaler.last_step().unwrap().non_finite.unwrap().inf, 1);
    assert_eq!(scaler.update().unwrap().event, ScaleEvent::BackedOff);
}

#[test]
fn a_half_loss_is_scaled_in_f32() {
    let loss = Tensor::<Plain, 1>::from_floats([1.0], &Default::default()).cast(FloatDType::F16);
    let scaled = scaler(LossScaleConfig::torch()).scale(loss);
    assert_eq!(scaled.to_data(), TensorData::from([65536.0f32]));
}

#[test]
fn half_gradients_are_unscaled_in_f32() {
    // 2 * S in f16 with S = 4 is 2 in f32.
    let model = Dot::<Plain>::new(&[1.0, 1.0], FloatDType::F16);
    let mut scaler = fixed(4.0);
    let grads = scaler.scale(model.loss(&[2.0, 0.25])).backward(&model);
    let mut grads = scaler.unscale(&model, grads);
    assert_eq!(true_gradient(&model, &mut grads), [2.0, 0.25]);

    // Scaled it is a normal f16, unscaled in f16 it would be rounded.
    let mut scaler = fixed(16384.0);
    let tiny = scaler
        .scale(model.loss(&[3.0 * 2f32.powi(-24), 1.0]))
        .backward(&model);
    let mut tiny = scaler.unscale(&model, tiny);
    assert_eq!(
        true_gradient(&model, &mut tiny),
        [3.0 * 2f32.powi(-24), 1.0]
    );
}

#[test]
fn half_parameters_step_without_masters_if_asked() {
    let model = Dot::<Plain>::new(&[1.0, 1.0], FloatDType::F16);
    let mut optim = SgdConfig::new().init();
    let mut scaler = fixed(4.0);
    let grads = scaler.scale(model.loss(&[2.0, 4.0])).backward(&model);
    let grads = scaler.unscale(&model, grads).to_parameter_dtypes(&model);
    let model = scaler.step(&mut optim, 0.125, model, grads);
    assert_eq!(model.weight.val().dtype(), DType::F16);
    assert_eq!(model.values(), [0.75, 0.5]);
}

#[test]
fn half_parameters_step_through_the_masters_of_an_amp_optimizer() {
    let amp = AmpConfig::new(OptLevel::O2).build().unwrap();
    amp.scope(|| {
        let mut model = Dot::<Mixed>::new(&[1.0], FloatDType::F16);
        // Attached, so backward would scale by itself as well.
        let mut optim = AmpOptimizer::new(SgdConfig::new().init(), &amp);
        assert!(amp.loss_scales().is_attached());
        let mut scaler = fixed(4.0);
        for _ in 0..2 {
            let grads = scaler.scale(model.loss(&[2.0])).backward(&model);
            let mut grads = scaler.unscale(&model, grads);
            let seen = gradients::<Mixed, _>(&model, grads.gradients().unwrap());
            assert_eq!(
                seen[0],
                Some(TensorData::from([2.0f32])),
                "scaled once, unscaled once"
            );
            model = scaler.step(&mut optim, 2f64.powi(-13), model, grads);
        }
        // 1 - 2 * 2^-12: each step alone is lost in f16 (spacing 2^-11 below 1), both are not.
        let master = optim.full_model(model.clone()).weight.val().into_data();
        assert_eq!(master, TensorData::from([1.0f32 - 2f32.powi(-11)]));
        assert_eq!(model.values(), [1.0 - 2f32.powi(-11)]);
    });
}

#[test]
fn a_scale_attached_to_the_device_is_not_applied_twice() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let optim: AmpOptimizer<OptimizerAdaptor<Sgd<_>, Net<Mixed>, Mixed>, Mixed> =
            AmpOptimizer::new(SgdConfig::new().init(), &amp);
        assert_eq!(optim.loss_scale().scale(), 65536.0);
        let model = Net::<Mixed>::new();
        let by_device = GradientsParams::from_grads(model.loss(batch(0)).backward(), &model);
        let mut scaler = fixed(65536.0);
        let by_hand = scaler.scale(model.loss(batch(0))).backward(&model);
        let mut by_hand = scaler.unscale(&model, by_hand);
        assert_eq!(
            gradients::<Mixed, _>(&model, by_hand.gradients().unwrap()),
            gradients::<Mixed, _>(&model, &by_device),
        );
        // Disabled, the device's own scale is back.
        let mut off = GradScaler::disabled();
        let plain = off.scale(model.loss(batch(0))).backward(&model);
        let mut plain = off.unscale(&model, plain);
        assert_eq!(
            gradients::<Mixed, _>(&model, plain.gradients().unwrap()),
            gradients::<Mixed, _>(&model, &by_device),
        );
    });
}

#[test]
fn gradients_that_are_not_finite_are_not_shown() {
    let (model, mut optim) = dot(&[1.0, 1.0]);
    let mut scaler = scaler(LossScaleConfig::torch());
    let grads = scaled(&scaler, &model, &[1.0, f32::NAN]);
    let mut grads = scaler.unscale(&model, grads);
    assert!(grads.gradients().is_none());
    assert!(grads.gradients_mut().is_none());
    assert_eq!(grads.clip_norm(&model, 1.0), None);
    assert!(grads.norm().is_nan());
    assert_eq!(grads.non_finite().unwrap().nan, 1);
    let model = scaler.step(&mut optim, 0.1, model, grads);
    assert_eq!(model.values(), [1.0, 1.0]);
    assert!(scaler.update().unwrap().found_inf);
}

#[test]
fn gradients_that_are_changed_after_the_look_are_not_looked_at_again() {
    // torch's limit, too: a NaN that the user writes reaches the parameters.
    let (model, mut optim) = dot(&[1.0]);
    let mut scaler = fixed(2.0);
    let grads = scaled(&scaler, &model, &[1.0]);
    let mut grads = scaler.unscale(&model, grads);
    poison::<Plain, _>(&model, grads.gradients_mut().unwrap(), 0, f32::NAN);
    let model = scaler.step(&mut optim, 0.1, model, grads);
    assert!(model.values()[0].is_nan());
}

#[test]
fn an_update_needs_something_to_learn_from() {
    let mut scaler = scaler(LossScaleConfig::torch());
    assert_eq!(scaler.update(), Err(LossScaleError::NothingRecorded));
    let (model, mut optim) = dot(&[1.0]);
    let grads = scaled(&scaler, &model, &[1.0]);
    let model = scaler.step(&mut optim, 0.1, model, grads);
    assert!(scaler.update().is_ok());
    assert_eq!(
        scaler.update(),
        Err(LossScaleError::NothingRecorded),
        "once per window"
    );
    assert_eq!(scaler.state().state().steps, 1);
    drop(model);
}

#[test]
fn a_step_without_gradients_teaches_nothing() {
    let mut scaler = scaler(LossScaleConfig::torch().with_growth_interval(1));
    let (model, mut optim) = dot(&[1.0]);
    let (unused, mut unused_optim) = dot(&[1.0]);
    let before = *scaler.state();
    let mut pass = scaler.scale(model.loss(&[1.0])).backward_shared();
    let none = pass.of(&unused);
    assert!(none.is_empty());
    let unused = scaler.step(&mut unused_optim, 0.1, unused, none);
    assert_eq!(scaler.last_step().unwrap().status, StepStatus::NoGradients);
    assert_eq!(scaler.update().unwrap().event, ScaleEvent::Unchanged);
    assert_eq!(*scaler.state(), before);
    // Beside an optimizer that has gradients, that one's count.
    let none = scaler.scale(model.loss(&[1.0])).backward(&unused);
    let unused = scaler.step(&mut unused_optim, 0.1, unused, none);
    let grads = pass.of(&model);
    let model = scaler.step(&mut optim, 0.1, model, grads);
    assert_eq!(scaler.update().unwrap().event, ScaleEvent::Grew);
    assert_eq!(unused.values(), [1.0]);
    assert_eq!(model.values(), [0.9]);
}

#[test]
fn gradients_that_are_dropped_leave_no_trace() {
    let mut scaler = scaler(LossScaleConfig::torch());
    let (model, mut optim) = dot(&[1.0]);
    // Never looked at: nothing is known of them, and an update is no error.
    let grads = scaled(&scaler, &model, &[f32::INFINITY]);
    drop(scaler.unscale(&model, grads));
    assert_eq!(scaler.update().unwrap().event, ScaleEvent::Unchanged);
    // Looked at, found infinite, dropped by the user: the scale still has to come down.
    let grads = scaled(&scaler, &model, &[f32::INFINITY]);
    assert!(!scaler.unscale(&model, grads).is_finite());
    assert_eq!(scaler.update().unwrap().event, ScaleEvent::BackedOff);
    // And the next window is clean.
    let grads = scaled(&scaler, &model, &[1.0]);
    let grads = scaler.unscale(&model, grads);
    let model = scaler.step(&mut optim, 0.5, model, grads);
    assert_eq!(model.values(), [0.5]);
    assert!(!scaler.update().unwrap().found_inf);
}

#[test]
fn accumulated_micro_batches_are_one_step() {
    let mut scaler = scaler(LossScaleConfig::torch().with_growth_interval(2));
    let mut model = Net::<Plain>::new();
    let mut optim = AdamConfig::new().init();
    let mut control = model.clone();
    let mut control_optim = AdamConfig::new().init();
    for window in 0..4 {
        let mut sum = GradientsAccumulator::new();
        let mut grads: Option<ScaledGradients<Plain>> = None;
        for i in [2 * window, 2 * window + 1] {
            let new = GradientsParams::from_grads(control.loss(batch(i)).backward(), &control);
            sum.accumulate(&control, new);
            let new = scaler.scale(model.loss(batch(i))).backward(&model);
            match &mut grads {
                Some(grads) => grads.accumulate(&model, new),
                None => grads = Some(new),
            }
        }
        control = control_optim.step(0.1, control, sum.grads());
        model = scaler.step(&mut optim, 0.1, model, grads.unwrap());
        scaler.update().unwrap();
        assert_eq!(
            values::<Plain, _>(&model),
            values::<Plain, _>(&control),
            "window {window}"
        );
    }
    assert_eq!(scaler.monitor().applied(), 4);
    assert_eq!(scaler.get_scale(), 65536.0 * 4.0);
}

#[test]
fn gradients_of_different_scales_add_up() {
    let (model, _) = dot(&[1.0, 1.0]);
    let mut scaler = scaler(LossScaleConfig::torch());
    let mut grads = scaled(&scaler, &model, &[1.0, 2.0]);
    scaler.set_scale(512.0).unwrap();
    grads.accumulate(&model, scaled(&scaler, &model, &[0.5, 0.25]));
    let mut grads = scaler.unscale(&model, grads);
    assert_eq!(true_gradient(&model, &mut grads), [1.5, 2.25]);
}

#[test]
fn half_gradients_add_up_beyond_half() {
    // 3 * 2 * 16384 is infinite in f16, while the true gradient is 6.
    let model = Dot::<Plain>::new(&[1.0], FloatDType::F16);
    let mut scaler = fixed(16384.0);
    let pass = || scaler.scale(model.loss(&[2.0])).backward(&model);
    let mut grads = pass();
    grads.accumulate(&model, pass());
    grads.accumulate(&model, pass());
    let mut grads = scaler.unscale(&model, grads);
    assert_eq!(true_gradient(&model, &mut grads), [6.0]);
    assert!(f16::from_f32(6.0 * 16384.0).is_infinite());
}

#[test]
fn the_scale_holds_still_inside_a_window() {
    let (model, mut optim) = dot(&[1.0]);
    let mut scaler = scaler(LossScaleConfig::torch().with_growth_interval(1));
    let mut grads = scaled(&scaler, &model, &[1.0]);
    for _ in 0..3 {
        let more = scaled(&scaler, &model, &[1.0]);
        assert_eq!(more.scale(), 65536.0);
        grads.accumulate(&model, more);
    }
    let model = scaler.step(&mut optim, 0.125, model, grads);
    assert_eq!(scaler.get_scale(), 65536.0, "a step is not an update");
    assert_eq!(model.values(), [0.5]);
    assert_eq!(scaler.update().unwrap().after, 131072.0);
}

#[test]
fn each_of_two_optimizers_skips_for_its_own_gradients() {
    // Two losses that share both models, as in torch's test of several optimizers.
    let mut scaler = scaler(
        LossScaleConfig::torch()
            .with_init(128.0)
            .with_growth_interval(1),
    );
    let mut models = [dot(&[1.0, 2.0]), dot(&[3.0, 4.0])];
    for i in 0..4 {
        let [x0, x1] = [[2.0, 2.0], [3.0, 3.0]];
        let [(first, _), (second, _)] = &models;
        let loss0 = first.loss(&x0) + second.loss(&x1);
        let loss1 = first.loss(&[0.6, 0.6]) - second.loss(&[1.0, 1.0]);
        let mut pass0 = scaler.scale(loss0).backward_shared();
        let mut pass1 = scaler.scale(loss1).backward_shared();
        let mut grads = [first, second].map(|model| {
            let mut grads = pass0.of(model);
            grads.accumulate(model, pass1.of(model));
            grads
        });
        if i == 2 {
            grads[1].accumulate(second, scaled(&scaler, second, &[f32::INFINITY, 0.0]));
        }
        let before: Vec<_> = models.iter().map(|(model, _)| model.values()).collect();
        let [(first, mut first_optim), (second, mut second_optim)] = models;
        let [of_first, of_second] = grads;
        let first = scaler.step(&mut first_optim, 0.1, first, of_first);
        let second = scaler.step(&mut second_optim, 0.1, second, of_second);
        let skipped = [first.values() == before[0], second.values() == before[1]];
        assert_eq!(skipped, [false, i == 2], "iteration {i}");
        assert_eq!(scaler.update().unwrap().found_inf, i == 2);
        models = [(first, first_optim), (second, second_optim)];
    }
    assert_eq!(scaler.get_scale(), 128.0 * 8.0 * 0.5);
}

#[test]
fn the_scale_can_be_chosen_by_hand() {
    let (model, mut optim) = dot(&[1.0]);
    let mut scaler = scaler(LossScaleConfig::torch());
    let grads = scaled(&scaler, &model, &[f32::INFINITY]);
    let model = scaler.step(&mut optim, 0.1, model, grads);
    scaler.set_scale(1024.0).unwrap();
    assert_eq!(scaler.get_scale(), 1024.0);
    assert_eq!(
        scaler.update(),
        Err(LossScaleError::NothingRecorded),
        "it was the update"
    );
    assert!(scaler.set_scale(f32::NAN).is_err());
    assert_eq!(scaled(&scaler, &model, &[1.0]).scale(), 1024.0);
}

#[test]
fn an_update_at_the_floor_can_stop_training() {
    let rule = LossScaleConfig::default().with_init(1.0);
    let mut scaler = scaler(rule.with_at_floor(AtFloorPolicy::Error));
    let (model, mut optim) = dot(&[1.0]);
    let grads = scaled(&scaler, &model, &[f32::INFINITY]);
    let _ = scaler.step(&mut optim, 0.1, model, grads);
    assert!(matches!(
        scaler.update(),
        Err(LossScaleError::AtFloor { .. })
    ));
    assert_eq!(scaler.state().state().skipped, 1);
}

#[test]
fn gradients_outlive_the_update_of_their_window() {
    let (model, mut optim) = dot(&[1.0]);
    let mut scaler = scaler(LossScaleConfig::torch());
    let late = scaled(&scaler, &model, &[1.0]);
    let late = scaler.unscale(&model, late);
    scaler.update().unwrap();
    scaler.set_scale(2.0).unwrap();
    let model = scaler.step(&mut optim, 0.5, model, late);
    assert_eq!(model.values(), [0.5], "unscaled by the scale they had");
    assert!(!scaler.update().unwrap().found_inf, "and counted once");
    assert_eq!(scaler.state().state().steps, 1);
}
