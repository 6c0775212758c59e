//! A user reads in the log what to do about skipped steps, and is left alone by the harmless ones.

mod support;

use std::sync::Mutex;

use burn::optim::{AdamConfig, GradientsParams, MultiGradientsParams, Optimizer};
use burn::prelude::DeviceOps;
use burn_amp::{AmpConfig, AmpOptimizer, AtFloorPolicy, HalfDType, LossScaleConfig, OptLevel};
use support::Mixed;
use support::net::{Net, batch};

/// Collects the warnings of this process. Tests of this file take turns.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));
static TURN: Mutex<()> = Mutex::new(());

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Trains with an overflow in forward at the given steps; returns the warnings.
fn warnings(
    half: HalfDType,
    rule: LossScaleConfig,
    steps: usize,
    overflows: impl Fn(usize) -> bool,
) -> Vec<String> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let _ = log::set_logger(&WARNINGS);
    log::set_max_level(log::LevelFilter::Warn);
    WARNINGS.0.lock().unwrap().clear();
    let amp = AmpConfig::new(OptLevel::O1)
        .with_half(half)
        .build()
        .unwrap();
    amp.scope(|| {
        let mut model = Net::<Mixed>::new(&Default::default());
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp)
            .with_loss_scale(rule)
            .unwrap();
        for i in 0..steps {
            let x = batch::<Mixed>(i).mul_scalar(if overflows(i) { f32::NAN } else { 1.0 });
            let grads = GradientsParams::from_grads(model.loss(x).backward(), &model);
            model = optim.step(0.01, model, grads);
        }
    });
    std::mem::take(&mut *WARNINGS.0.lock().unwrap())
}

#[test]
fn a_few_skips_while_the_scale_settles_are_no_warning() {
    let rule = LossScaleConfig::default();
    assert_eq!(
        warnings(HalfDType::F16, rule, 10, |i| i < 3),
        Vec::<String>::new()
    );
}

#[test]
fn ten_skips_in_a_row_are_one_warning() {
    let rule = LossScaleConfig::default();
    let warnings = warnings(HalfDType::F16, rule, 12, |_| true);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(
        warnings[0].contains("10 steps skipped in a row"),
        "{warnings:#?}"
    );
}

#[test]
fn at_the_floor_the_warning_names_parameters_and_a_remedy() {
    let rule = LossScaleConfig::default().with_init(1.0);
    let warnings = warnings(HalfDType::F16, rule, 5, |_| true);
    assert_eq!(warnings.len(), 1, "the first of five: {warnings:#?}");
    for part in ["first.weight", "cannot be lowered", "bf16", "scope::full"] {
        assert!(warnings[0].contains(part), "{part} in {warnings:#?}");
    }
}

#[test]
fn with_bf16_the_loss_scale_is_not_blamed() {
    let rule = LossScaleConfig::none();
    let warnings = warnings(HalfDType::Bf16, rule, 10, |_| true);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(
        warnings[0].contains("no matter of precision"),
        "{warnings:#?}"
    );
}

#[test]
fn at_the_floor_training_goes_on_silently_if_asked_to() {
    let rule = LossScaleConfig::default()
        .with_init(1.0)
        .with_at_floor(AtFloorPolicy::Continue);
    assert_eq!(
        warnings(HalfDType::F16, rule, 5, |_| true),
        Vec::<String>::new()
    );
}

#[test]
fn at_the_floor_training_stops_with_an_error_if_asked_to() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let rule = LossScaleConfig::default()
        .with_init(1.0)
        .with_at_floor(AtFloorPolicy::Error);
    let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
    amp.scope(|| {
        let model = Net::<Mixed>::new(&Default::default());
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp)
            .with_loss_scale(rule)
            .unwrap();
        let loss = model.loss(batch::<Mixed>(0).mul_scalar(f32::NAN));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let (_, outcome) = optim.try_step(0.01, model, grads);
        assert!(outcome.unwrap_err().to_string().contains("loss scale"));
    });
}

#[test]
#[should_panic(expected = "the loss scale cannot go below 1")]
fn at_the_floor_training_on_several_devices_stops_if_asked_to() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let rule = LossScaleConfig::default()
        .with_init(1.0)
        .with_at_floor(AtFloorPolicy::Error);
    let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
    amp.scope(|| {
        let device = burn::tensor::Device::<Mixed>::default();
        let model = Net::<Mixed>::new(&device);
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp)
            .with_loss_scale(rule)
            .unwrap();
        let loss = model.loss(batch::<Mixed>(0).mul_scalar(f32::NAN));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let grads = MultiGradientsParams {
            grads: vec![(grads, device.to_id())],
        };
        optim.step_multi(0.01, model, grads);
    });
}
