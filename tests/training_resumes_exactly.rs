//! Five steps, a save, a load and five steps are ten steps, bit by bit.

mod support;

use burn::module::{AutodiffModule, Module, ParamId};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::record::{
    BinBytesRecorder, FullPrecisionSettings, HalfPrecisionSettings, NamedMpkBytesRecorder,
    PrecisionSettings, Recorder,
};
use burn::tensor::TensorData;
use burn_amp::{
    Amp, AmpConfig, AmpOptimizer, AmpRecord, HalfDType, LossScaleConfig, LossScaling, OptLevel,
};
use support::net::{Net, batch, bits};
use support::{HALVES, Mixed, Plain, amp};

type Optim = AmpOptimizer<OptimizerAdaptor<Adam, Net<Mixed>, Mixed>, Mixed>;
type Record =
    AmpRecord<<OptimizerAdaptor<Adam, Net<Mixed>, Mixed> as Optimizer<Net<Mixed>, Mixed>>::Record>;

/// A rule whose scale moves often and whose every field is not the default.
fn rule() -> LossScaleConfig {
    LossScaleConfig::default()
        .with_init(2f32.powi(14))
        .with_growth_factor(4.0)
        .with_backoff_factor(0.25)
        .with_growth_interval(3)
        .with_hysteresis(2)
        .with_floor(0.5)
        .with_cap(2f32.powi(20))
}

fn start(amp: &Amp) -> (Net<Mixed>, Optim) {
    let model = amp.cast_model(Net::new(&Default::default()));
    let optim = AmpOptimizer::new(AdamConfig::new().init(), amp);
    let optim = match amp.config().loss_scale() {
        LossScaling::Dynamic => optim.with_loss_scale(rule()).unwrap(),
        LossScaling::Static(_) => optim,
    };
    (model, optim)
}

fn train(mut model: Net<Mixed>, optim: &mut Optim, steps: core::ops::Range<usize>) -> Net<Mixed> {
    for i in steps {
        // Steps 3 and 8 overflow in forward at any level that is not f32.
        let x = batch::<Mixed>(i);
        let x = if i % 5 == 3 { x.mul_scalar(1e30) } else { x };
        let grads = GradientsParams::from_grads(model.loss(x).backward(), &model);
        model = optim.step(0.01, model, grads);
    }
    model
}

fn save_and_load<S: PrecisionSettings>(
    amp: &Amp,
    model: Net<Mixed>,
    optim: &Optim,
) -> (Net<Mixed>, Optim) {
    let recorder = BinBytesRecorder::<S>::new();
    let model_bytes = Recorder::<Mixed>::record(&recorder, model.into_record(), ()).unwrap();
    let optim_bytes = Recorder::<Mixed>::record(
        &recorder,
        Optimizer::<Net<Mixed>, Mixed>::to_record(optim),
        (),
    )
    .unwrap();
    let device = Default::default();
    let (model, optim) = start(amp);
    let model = model.load_record(recorder.load(model_bytes, &device).unwrap());
    let record: Record = Recorder::<Mixed>::load(&recorder, optim_bytes, &device).unwrap();
    (
        model,
        Optimizer::<Net<Mixed>, Mixed>::load_record(optim, record),
    )
}

fn check<S: PrecisionSettings>(level: OptLevel, half: HalfDType, restore: bool) {
    let (straight, scale, steps) = {
        let amp = amp(level, half);
        amp.scope(|| {
            let (model, mut optim) = start(&amp);
            let model = train(model, &mut optim, 0..10);
            (bits(&model), optim.loss_scale(), optim.monitor().applied())
        })
    };
    let amp = amp(level, half);
    amp.scope(|| {
        let (model, mut optim) = start(&amp);
        let model = train(model, &mut optim, 0..5);
        let (model, mut optim) = save_and_load::<S>(&amp, model, &optim);
        let model = if restore {
            optim.restore_model(model)
        } else {
            model
        };
        let model = train(model, &mut optim, 5..10);
        assert_eq!(optim.loss_scale(), scale, "{level} {half}");
        assert_eq!(optim.monitor().applied(), steps);
        for ((_, resumed), (_, straight)) in bits(&model).iter().zip(&straight) {
            assert_eq!(resumed, straight, "{level} {half}");
        }
    });
}

#[test]
fn with_a_full_precision_recorder_nothing_else_is_needed() {
    for level in OptLevel::ALL {
        for half in HALVES {
            check::<FullPrecisionSettings>(level, half, false);
        }
    }
}

#[test]
fn with_a_half_precision_recorder_the_optimizer_restores_the_model() {
    for level in OptLevel::ALL {
        for half in HALVES {
            check::<HalfPrecisionSettings>(level, half, true);
        }
    }
}

/// A saved model and optimizer, after three steps at a level; and the f32 values.
type Saved = (Vec<u8>, Vec<u8>, Vec<(ParamId, TensorData)>);

fn saved_at(level: OptLevel) -> Saved {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let amp = amp(level, HalfDType::F16);
    amp.scope(|| {
        let (model, mut optim) = start(&amp);
        let model = train(model, &mut optim, 0..3);
        // Folds what BatchNorm has noted in, as saving the record does.
        drop(model.valid());
        let full = bits(&optim.full_model(model.clone()));
        let optim = Optimizer::<Net<Mixed>, Mixed>::to_record(&optim);
        (
            Recorder::<Mixed>::record(&recorder, model.into_record(), ()).unwrap(),
            Recorder::<Mixed>::record(&recorder, optim, ()).unwrap(),
            full,
        )
    })
}

#[test]
fn a_record_of_another_level_keeps_the_f32_values() {
    let levels = [OptLevel::O0, OptLevel::O1, OptLevel::O2];
    for (from, to) in levels
        .into_iter()
        .flat_map(|from| levels.map(|to| (from, to)))
    {
        let (model_bytes, optim_bytes, full) = saved_at(from);
        let amp = amp(to, HalfDType::F16);
        amp.scope(|| {
            let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
            let device = Default::default();
            let (model, optim) = start(&amp);
            let record: Record = Recorder::<Mixed>::load(&recorder, optim_bytes, &device).unwrap();
            let mut optim = optim.try_load_record::<Net<Mixed>>(record).unwrap();
            let mut model = model
                .load_record(Recorder::<Mixed>::load(&recorder, model_bytes, &device).unwrap());
            for ((_, loaded), (_, saved)) in
                bits(&optim.full_model(model.clone())).iter().zip(&full)
            {
                assert_eq!(loaded, saved, "{from} to {to}");
            }
            // Training goes on from there: Adam moves a parameter by the learning rate at most or so.
            model = train(model, &mut optim, 4..5);
            assert!(optim.last_step().unwrap().was_applied(), "{from} to {to}");
            let moved = bits(&optim.full_model(model));
            let weights = |values: &[(ParamId, TensorData)]| -> Vec<f32> {
                let [(_, weight), ..] = values else {
                    panic!("the model has parameters");
                };
                weight.iter::<f32>().collect()
            };
            let moves: Vec<f32> = weights(&moved)
                .iter()
                .zip(weights(&full))
                .map(|(moved, saved)| (moved - saved).abs())
                .collect();
            assert!(moves.iter().all(|m| *m < 0.02), "{from} to {to}: {moves:?}");
            assert!(moves.iter().any(|m| *m > 0.0), "{from} to {to}");
        });
    }
}

#[test]
fn a_model_record_loads_without_this_crate() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let (bytes, values) = amp.scope(|| {
        let (model, mut optim) = start(&amp);
        let model = train(model, &mut optim, 0..3);
        let values = model
            .first
            .weight
            .val()
            .into_data()
            .to_vec::<f32>()
            .unwrap();
        (
            Recorder::<Mixed>::record(&recorder, model.into_record(), ()).unwrap(),
            values,
        )
    });
    let device = Default::default();
    let plain = Net::<Plain>::new(&device).load_record(recorder.load(bytes, &device).unwrap());
    assert_eq!(
        plain
            .first
            .weight
            .val()
            .into_data()
            .to_vec::<f32>()
            .unwrap(),
        values
    );
}

#[test]
fn damaged_and_unknown_records_are_errors_of_the_recorder() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let (model, mut optim) = start(&amp);
        train(model, &mut optim, 0..1);
        let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::new();
        let record = Optimizer::<Net<Mixed>, Mixed>::to_record(&optim);
        let bytes = Recorder::<Mixed>::record(&recorder, record, ()).unwrap();
        let load = |bytes: Vec<u8>| -> Result<Record, _> {
            Recorder::<Mixed>::load(&recorder, bytes, &Default::default())
        };
        assert!(load(bytes.clone()).is_ok());
        assert!(
            load(bytes[..bytes.len() / 2].to_vec()).is_err(),
            "truncated"
        );
        let version = bytes
            .windows(2)
            .position(|w| w == b"V1")
            .expect("a version in clear text");
        let mut unknown = bytes;
        unknown[version + 1] = b'9';
        let error = load(unknown).err().expect("an unknown version").to_string();
        assert!(error.contains("V9"), "{error}");
    });
}

#[test]
fn a_saved_scale_outside_the_present_bounds_is_a_typed_error() {
    let wide = amp(OptLevel::O1, HalfDType::F16);
    let record = wide.scope(|| {
        let (model, mut optim) = start(&wide);
        train(model, &mut optim, 0..1);
        Optimizer::<Net<Mixed>, Mixed>::to_record(&optim)
    });
    let narrow = AmpConfig::new(OptLevel::O1)
        .with_max_loss_scale(8.0)
        .build()
        .unwrap();
    let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &narrow);
    let error = optim.try_load_record::<Net<Mixed>>(record).unwrap_err();
    assert!(error.to_string().contains("loss scale"), "{error}");
}
