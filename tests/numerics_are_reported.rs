//! The numerics report counts what casts lose, names the module whose gradients vanish, and has nothing
//! to recommend after a healthy run.

#[path = "support/models.rs"]
mod models;
mod support;

use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{DType, Tensor};
use burn_amp::observe::{self, Phase, Role};
use burn_amp::{
    Amp, AmpBackend, AmpConfig, AmpOptimizer, Entry, Fault, HalfDType, LossScaling, NumericsReport,
    OptLevel,
};

use models::{Cnn, Mlp, Reader, Trainable, Transformer};
use support::{Bare, amp};

type B = AmpBackend<Bare>;

/// A training whose loss is multiplied by `factor`, every step of it watched.
fn report<M: Trainable<B> + burn::module::AutodiffModule<B> + 'static>(
    amp: &Amp,
    steps: usize,
    factor: f32,
) -> NumericsReport {
    amp.scope(|| {
        let mut recorder = burn_amp::NumericsRecorder::new();
        let mut model = support::net::fixed(amp.cast_model(M::new()));
        let mut optimizer = AmpOptimizer::<_, B>::new(SgdConfig::new().init(), amp);
        for step in 0..steps {
            let grads = recorder.watch(|| {
                observe::name_parameters(&model);
                let loss = model.loss(step) * factor;
                GradientsParams::from_grads(loss.backward(), &model)
            });
            model = optimizer.step(0.05, model, grads);
        }
        recorder.finish()
    })
}

fn entry<'a>(report: &'a NumericsReport, op: &str, role: Role) -> &'a Entry {
    let is = |entry: &&Entry| (entry.op, entry.role, entry.phase) == (op, role, Phase::Forward);
    report.entries.iter().find(is).expect("it ran")
}

#[test]
fn a_cast_to_f16_of_1e_8_and_1_and_1e5_flushes_one_and_overflows_one() {
    let x = Tensor::<B, 2>::from_floats([[1e-8, 1.0, 1e5]], &Default::default());
    let one = Tensor::<B, 2>::ones([3, 1], &Default::default());
    let (_, report) = amp(OptLevel::O1, HalfDType::F16)
        .scope(|| NumericsReport::of(1, |_| x.clone().matmul(one.clone())));
    let seen = entry(&report, "float_matmul", Role::Input(0));
    let cast = seen.cast.expect("matmul runs in f16");
    assert_eq!((cast.elements, cast.flushed, cast.overflowed), (3, 1, 1));
    assert_eq!(
        (seen.dtype, seen.cast_to, seen.elements),
        (DType::F32, DType::F16, 3)
    );
    assert_eq!((seen.before.zeros(), seen.after.zeros()), (0, 1));
    assert_eq!((seen.before.infinities(), seen.after.infinities()), (0, 1));
    let worst = &report.recommendations[0];
    assert_eq!(
        (worst.fault, worst.op),
        (Fault::CastOverflows, "float_matmul")
    );
    // In bf16 all three stay.
    let (_, report) = amp(OptLevel::O1, HalfDType::Bf16)
        .scope(|| NumericsReport::of(1, |_| x.clone().matmul(one.clone())));
    let cast = entry(&report, "float_matmul", Role::Input(0)).cast;
    assert_eq!(
        cast.map(|cast| (cast.flushed, cast.overflowed)),
        Some((0, 0))
    );
    assert!(report.recommendations.is_empty(), "{report}");
}

#[test]
fn zeros_of_a_relu_are_no_loss() {
    let x = Tensor::<B, 2>::from_floats([[-1.0, -2.0, 3.0]], &Default::default());
    let one = Tensor::<B, 2>::ones([3, 1], &Default::default());
    let (_, report) = amp(OptLevel::O1, HalfDType::F16).scope(|| {
        NumericsReport::of(1, |_| {
            burn::tensor::activation::relu(x.clone()).matmul(one.clone())
        })
    });
    let seen = entry(&report, "float_matmul", Role::Input(0));
    assert_eq!(seen.before.zeros(), 2);
    assert_eq!(seen.cast.map(|cast| cast.flushed), Some(0));
    assert!(report.recommendations.is_empty(), "{report}");
}

#[test]
fn a_healthy_training_gets_no_recommendation() {
    let dynamic = |half| {
        AmpConfig::new(OptLevel::O1)
            .with_half(half)
            .with_loss_scale(LossScaling::Dynamic)
            .build()
            .unwrap()
    };
    for half in support::HALVES {
        let amp = dynamic(half);
        for report in [
            report::<Mlp<B>>(&amp, 3, 1.0),
            report::<Cnn<B>>(&amp, 3, 1.0),
            report::<Transformer<B>>(&amp, 3, 1.0),
            report::<Reader<B>>(&amp, 3, 1.0),
        ] {
            assert_eq!((report.steps, report.loss_scales.len()), (3, 3));
            assert!(report.entries.iter().any(|e| e.phase == Phase::Backward));
            assert!(report.recommendations.is_empty(), "{half}: {report}");
        }
    }
}

#[test]
fn a_vanishing_gradient_is_named_with_operation_and_module() {
    let amp = AmpConfig::new(OptLevel::O1)
        .with_loss_scale(LossScaling::Static(1.0))
        .build()
        .unwrap();
    let report = report::<Mlp<B>>(&amp, 2, 1e-6);
    let vanishing: Vec<_> = report
        .recommendations
        .iter()
        .filter(|r| r.fault == Fault::GradientVanishes)
        .collect();
    let named = |op: &str, path: &str| {
        vanishing
            .iter()
            .any(|r| r.op == op && r.place.path() == path && r.to_string().contains(path))
    };
    assert!(named("linear", "head"), "{report}");
    assert!(named("linear", "hidden"), "{report}");
    let worst = vanishing[0];
    assert!(
        worst.remedy.contains("raise the loss scale from 1 to 2^"),
        "{worst}"
    );
    // The range of the report cures it.
    let range = report
        .gradient_scales
        .expect("one scale fits this small model");
    assert!(!range.contains(1.0), "{range}");
}

#[test]
fn the_remedy_for_a_vanishing_gradient_cures_it() {
    let of = |scale| {
        let amp = AmpConfig::new(OptLevel::O1)
            .with_loss_scale(LossScaling::Static(scale))
            .build()
            .unwrap();
        report::<Mlp<B>>(&amp, 2, 1e-6)
    };
    let ill = of(1.0);
    let needed = ill
        .recommendations
        .iter()
        .map(|r| {
            let (_, after) = r.remedy.split_once("to 2^").expect("a scale helps");
            let exponent = after.split(' ').next().unwrap_or_default();
            exponent.parse::<i32>().expect("an exponent")
        })
        .max()
        .expect("something vanishes");
    let cured = of(2f32.powi(needed));
    assert!(cured.recommendations.is_empty(), "2^{needed}: {cured}");
}

#[test]
fn gradients_of_parameters_are_told_by_their_path() {
    let report = report::<Mlp<B>>(&amp(OptLevel::O1, HalfDType::F16), 1, 1.0);
    let paths: Vec<&str> = report
        .parameters()
        .filter(|entry| entry.phase == Phase::Backward)
        .filter_map(|entry| entry.parameter.as_deref())
        .collect();
    for path in ["hidden.weight", "hidden.bias", "head.weight", "head.bias"] {
        assert!(paths.contains(&path), "{path} of {paths:?}");
    }
}

#[test]
fn a_sample_looks_at_no_more_elements_than_it_says() {
    let x = Tensor::<B, 2>::ones([64, 64], &Default::default());
    let recorder = burn_amp::NumericsRecorder::new().with_sample(100);
    let report = amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let mut recorder = recorder;
        recorder.watch(|| x.clone().matmul(x));
        recorder.finish()
    });
    let seen = entry(&report, "float_matmul", Role::Input(0));
    assert_eq!(seen.elements, 4096);
    assert!(
        (50..=100).contains(&seen.before.total()),
        "{}",
        seen.before.total()
    );
}
