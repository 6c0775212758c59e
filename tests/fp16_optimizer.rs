//! Apex's `FP16_Optimizer` surface does what `AmpOptimizer` does, and repeats a batch if asked.

mod support;

use burn::module::{AutodiffModule, Module, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::record::{HalfPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use burn_amp::{
    Amp, AmpConfig, AmpOptimizer, AtFloorPolicy, Fp16Optimizer, LossScaleConfig, MixedPrecision,
    OptLevel, scope,
};
use support::gradients::{gradients, values};
use support::net::{Net, batch};
use support::{Bare, Mixed};

type Inner = MixedPrecision<Bare>;

/// A model whose gradient is the input: loss = sum(weight * x).
#[derive(Module, Debug)]
struct Dot<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

type DotOptim = Fp16Optimizer<OptimizerAdaptor<Sgd<Inner>, Dot<Mixed>, Mixed>, Mixed>;

impl Dot<Mixed> {
    fn new(amp: &Amp, values: &[f32]) -> Self {
        let weight = Tensor::from_floats(values, &Default::default());
        amp.cast_model(Dot {
            weight: Param::from_tensor(weight),
        })
    }

    /// The sum is taken in f32, so that only the gradient is in half.
    fn loss(&self, x: &[f32]) -> Tensor<Mixed, 1> {
        let x = Tensor::<Mixed, 1>::from_floats(x, &Default::default());
        (x * self.weight.val()).sum()
    }

    fn values(&self) -> Vec<f32> {
        let data = scope::disabled(|| self.weight.val().into_data());
        data.convert::<f32>().to_vec().unwrap()
    }
}

fn o2() -> Amp {
    AmpConfig::new(OptLevel::O2).build().unwrap()
}

fn fixed(amp: &Amp, scale: f32) -> DotOptim {
    Fp16Optimizer::with_static_loss_scale(SgdConfig::new().init(), amp, scale).unwrap()
}

fn dynamic(amp: &Amp, rule: LossScaleConfig) -> DotOptim {
    Fp16Optimizer::with_dynamic_loss_scale(SgdConfig::new().init(), amp, rule).unwrap()
}

fn net(amp: &Amp) -> Net<Mixed> {
    amp.cast_model(Net::new(&Default::default()))
}

type NetOptim = Fp16Optimizer<OptimizerAdaptor<Adam, Net<Mixed>, Mixed>, Mixed>;

fn net_optim(amp: &Amp, rule: LossScaleConfig) -> NetOptim {
    Fp16Optimizer::with_dynamic_loss_scale(AdamConfig::new().init(), amp, rule).unwrap()
}

#[test]
fn it_is_the_amp_optimizer_with_another_face() {
    for clip in [None, Some(0.05)] {
        let rule = LossScaleConfig::apex_fp16_utils();
        let (amp, twin) = (o2(), o2());
        let got = amp.scope(|| {
            let mut model = net(&amp);
            let mut optim = net_optim(&amp, rule);
            for i in 0..40 {
                optim.backward(model.loss(batch(i)), &model);
                if let Some(max_norm) = clip {
                    let norm = optim.clip_master_grads(max_norm);
                    assert_eq!(norm.is_none(), optim.overflow());
                }
                model = optim.step(0.01, model);
            }
            (values::<Mixed, _>(&model), optim.last_step())
        });
        let expected = twin.scope(|| {
            let mut model = net(&twin);
            let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &twin)
                .with_loss_scale(rule)
                .unwrap();
            if let Some(max_norm) = clip {
                optim = optim.with_clip_norm(max_norm).unwrap();
            }
            for i in 0..40 {
                let grads = GradientsParams::from_grads(model.loss(batch(i)).backward(), &model);
                model = optim.step(0.01, model, grads);
            }
            let skipped = optim.monitor().skipped();
            assert!(
                (1..30).contains(&skipped),
                "2^32 comes down in {skipped} steps"
            );
            (values::<Mixed, _>(&model), optim.last_step())
        });
        assert_eq!(got, expected, "clip {clip:?}");
    }
}

#[test]
fn the_dynamic_scale_starts_and_falls_as_in_apex() {
    let amp = o2();
    amp.scope(|| {
        let mut optim = dynamic(&amp, LossScaleConfig::apex_fp16_utils());
        let mut model = Dot::new(&amp, &[1.0, 1.0]);
        assert_eq!(optim.loss_scale(), 2f32.powi(32));
        for expected in [31, 30, 29] {
            optim.backward(model.loss(&[1.0, 1.0]), &model);
            assert!(optim.overflow());
            assert!(!optim.update_master_grads());
            assert_eq!(optim.clip_master_grads(1.0), None, "Apex returns -1");
            assert!(optim.inspect_master_grad_data().is_none());
            model = optim.step(0.5, model);
            assert!(
                optim.overflow(),
                "of the step, until there are new gradients"
            );
            assert_eq!(optim.loss_scale(), 2f32.powi(expected));
            assert_eq!(model.values(), [1.0, 1.0]);
        }
    });
}

#[test]
fn dynamic_loss_args_are_options_of_the_rule() {
    let amp = o2();
    amp.scope(|| {
        let rule = LossScaleConfig::apex_fp16_utils()
            .with_init(8.0)
            .with_growth_factor(4.0)
            .with_backoff_factor(0.25)
            .with_growth_interval(2);
        let mut optim = dynamic(&amp, rule);
        let mut model = Dot::new(&amp, &[1.0]);
        let mut scales = Vec::new();
        for x in [1.0, 1.0, f32::INFINITY, 1.0, 1.0] {
            optim.backward(model.loss(&[x]), &model);
            model = optim.step(0.125, model);
            scales.push(optim.loss_scale());
        }
        assert_eq!(scales, [8.0, 32.0, 8.0, 8.0, 32.0]);
        assert_eq!(model.values(), [0.5], "four steps of five");
    });
}

#[test]
fn several_backward_passes_add_up() {
    for scale in [1.0, 128.0, 1024.0] {
        let amp = o2();
        amp.scope(|| {
            let mut optim = fixed(&amp, scale);
            let model = Dot::new(&amp, &[1.0, 2.0]);
            optim.backward(model.loss(&[0.25, 0.5]), &model);
            optim.backward(model.loss(&[0.5, 1.0]), &model);
            let seen = optim.inspect_master_grad_data().unwrap();
            let seen = gradients::<Mixed, _>(&model, seen);
            assert_eq!(
                seen,
                [Some(TensorData::from([0.75f32, 1.5]))],
                "f32 and unscaled"
            );
            assert_eq!(
                optim.clip_master_grads(100.0),
                Some((0.75f64 * 0.75 + 2.25).sqrt())
            );
            let model = optim.step(0.5, model);
            assert_eq!(model.values(), [0.625, 1.25]);
            // The step has used them up.
            assert!(optim.inspect_master_grad_data().unwrap().is_empty());
        });
    }
}

#[test]
fn an_overflow_in_any_backward_pass_skips_the_step() {
    for at in [0, 1] {
        let amp = o2();
        amp.scope(|| {
            let mut optim = fixed(&amp, 128.0);
            let mut model = Dot::new(&amp, &[1.0]);
            for i in 0..2 {
                let x = if i == at { f32::INFINITY } else { 1.0 };
                optim.backward(model.loss(&[x]), &model);
            }
            model = optim.step(0.5, model);
            assert_eq!(model.values(), [1.0], "a static scale is checked too");
            assert!(optim.overflow());
            assert_eq!(optim.loss_scale(), 128.0);
            // Nothing stale: the next step is clean.
            optim.backward(model.loss(&[1.0]), &model);
            assert!(!optim.overflow());
            model = optim.step(0.5, model);
            assert_eq!(model.values(), [0.5]);
        });
    }
}

#[test]
fn zero_grad_abandons_a_window() {
    let amp = o2();
    amp.scope(|| {
        let mut optim = fixed(&amp, 128.0);
        let model = Dot::new(&amp, &[1.0]);
        optim.backward(model.loss(&[f32::NAN]), &model);
        optim.zero_grad();
        optim.backward(model.loss(&[1.0]), &model);
        let model = optim.step(0.5, model);
        assert_eq!(model.values(), [0.5]);
        assert_eq!(optim.amp_optimizer().loss_scale().state().steps, 1);
    });
}

#[test]
fn a_step_without_backward_changes_nothing() {
    let amp = o2();
    amp.scope(|| {
        let mut optim = dynamic(&amp, LossScaleConfig::apex_fp16_utils());
        let model = optim.step(0.5, Dot::new(&amp, &[1.0]));
        assert_eq!(model.values(), [1.0]);
        assert!(!optim.overflow());
        assert_eq!(optim.amp_optimizer().loss_scale().state().steps, 0);
    });
}

#[test]
fn clipping_acts_on_true_gradients() {
    let amp = o2();
    amp.scope(|| {
        let mut optim = fixed(&amp, 8192.0);
        let model = Dot::new(&amp, &[0.0, 0.0]);
        optim.backward(model.loss(&[3.0, 4.0]), &model);
        assert_eq!(optim.clip_master_grads(1.0), Some(5.0));
        // A second, wider clip sees the clipped gradients.
        let again = optim.clip_master_grads(2.0).unwrap();
        assert!((again - 1.0).abs() < 1e-6);
        let model = optim.step(1.0, model);
        let outcome = optim.last_step().unwrap();
        assert_eq!(outcome.grad_norm, Some(5.0));
        assert!((outcome.clip_factor - 0.2).abs() < 1e-6);
        let master = optim.amp_optimizer().full_model(model);
        for (got, expected) in master.values().iter().zip([-0.6, -0.8]) {
            assert!((got - expected).abs() < 1e-6, "{got}");
        }
    });
}

#[test]
fn gradients_that_were_clipped_stay_clipped_when_more_come() {
    let amp = o2();
    amp.scope(|| {
        let mut optim = fixed(&amp, 128.0);
        let model = Dot::new(&amp, &[0.0, 0.0]);
        optim.backward(model.loss(&[3.0, 4.0]), &model);
        optim.clip_master_grads(1.0);
        optim.backward(model.loss(&[0.0, 1.0]), &model);
        let sum = gradients::<Mixed, _>(&model, optim.inspect_master_grad_data().unwrap());
        let sum: Vec<f32> = sum[0].clone().unwrap().to_vec().unwrap();
        for (got, expected) in sum.iter().zip([0.6, 1.8]) {
            assert!((got - expected).abs() < 1e-6, "{sum:?}");
        }
    });
}

#[test]
#[should_panic(expected = "invalid max_norm 0: allowed is a finite number above 0")]
fn a_clip_norm_of_zero_is_refused() {
    let amp = o2();
    amp.scope(|| fixed(&amp, 1.0).clip_master_grads(0.0));
}

#[test]
fn the_scale_can_be_set() {
    let amp = o2();
    amp.scope(|| {
        let mut optim = fixed(&amp, 128.0);
        let model = Dot::new(&amp, &[1.0]);
        optim.set_loss_scale(32.0).unwrap();
        assert_eq!((optim.loss_scale(), amp.loss_scales().get(0)), (32.0, 32.0));
        assert!(optim.set_loss_scale(0.0).is_err());
        optim.backward(model.loss(&[1.0]), &model);
        assert_eq!(optim.step(0.5, model).values(), [0.5]);
        assert!(
            Fp16Optimizer::<_, Mixed>::with_static_loss_scale(
                SgdConfig::new().init::<Mixed, Dot<Mixed>>(),
                &amp,
                f32::NAN
            )
            .is_err()
        );
    });
}

#[test]
fn a_replay_repeats_the_batch_until_it_fits() {
    let amp = o2();
    amp.scope(|| {
        // 3 * S is finite in f16 up to S = 2^14: four backoffs from 2^18.
        let rule = LossScaleConfig::apex_fp16_utils().with_init(2f32.powi(18));
        let mut optim = dynamic(&amp, rule);
        let mut calls = 0;
        let mut loss = |model: &Dot<Mixed>| {
            calls += 1;
            model.loss(&[3.0])
        };
        let model = optim.replay(0.125, Dot::new(&amp, &[1.0]), 10, &mut loss);
        assert_eq!(model.values(), [0.625], "applied once");
        assert_eq!(optim.loss_scale(), 2f32.powi(14));
        let model = optim.replay(0.125, model, 10, &mut loss);
        assert_eq!(model.values(), [0.25], "and now at once");
        assert_eq!(calls, 6);
    });
}

#[test]
fn a_replay_is_bounded() {
    let amp = o2();
    amp.scope(|| {
        let start = Dot::new(&amp, &[1.0]);
        let calls = |optim: &mut DotOptim, replays| {
            let mut calls = 0;
            let model = optim.replay(0.125, start.clone(), replays, |model| {
                calls += 1;
                model.loss(&[f32::NAN])
            });
            assert_eq!(model.values(), [1.0]);
            assert!(optim.overflow());
            calls
        };
        let rule = LossScaleConfig::apex_fp16_utils().with_init(1024.0);
        assert_eq!(calls(&mut dynamic(&amp, rule), 0), 1);
        assert_eq!(calls(&mut dynamic(&amp, rule), 3), 4);
        // At the floor, or with a static scale, nothing would change.
        assert_eq!(calls(&mut dynamic(&amp, rule), 100), 11, "10 backoffs to 1");
        assert_eq!(calls(&mut fixed(&amp, 128.0), 100), 1);
        // With hysteresis, every second overflow.
        let patient = rule.with_hysteresis(2);
        assert_eq!(calls(&mut dynamic(&amp, patient), 1), 2);
    });
}

#[test]
fn a_replay_leaves_batch_norm_as_one_clean_forward_does() {
    let run = |init: f32| {
        let amp = o2();
        amp.scope(|| {
            let rule = LossScaleConfig::apex_fp16_utils().with_init(init);
            let mut optim = net_optim(&amp, rule);
            let mut model = net(&amp);
            for i in 0..3 {
                model = optim.replay(0.01, model, 40, |model| model.loss(batch(i)));
            }
            assert_eq!(optim.amp_optimizer().monitor().applied(), 3);
            let skipped = optim.amp_optimizer().monitor().skipped();
            assert_eq!(skipped > 0, init > 1e6, "{skipped}");
            let eval = model.valid();
            let statistics = [
                eval.norm.running_mean.value_sync().into_data(),
                eval.norm.running_var.value_sync().into_data(),
            ];
            (values::<Mixed, _>(&model), statistics)
        })
    };
    assert_eq!(run(2f32.powi(32)), run(256.0));
}

#[test]
#[should_panic(expected = "gradients overflowed 1 step(s) in a row")]
fn an_overflow_at_the_floor_can_stop_training() {
    let amp = o2();
    amp.scope(|| {
        let rule = LossScaleConfig::apex_fp16_utils().with_init(1.0);
        let mut optim = dynamic(&amp, rule.with_at_floor(AtFloorPolicy::Error));
        let model = Dot::new(&amp, &[1.0]);
        optim.backward(model.loss(&[f32::NAN]), &model);
        optim.step(0.125, model)
    });
}

#[test]
fn a_saved_run_continues_exactly() {
    let rule = LossScaleConfig::apex_fp16_utils();
    let train = |optim: &mut NetOptim, mut model: Net<Mixed>, steps: core::ops::Range<usize>| {
        for i in steps {
            optim.backward(model.loss(batch(i)), &model);
            model = optim.step(0.01, model);
        }
        model
    };
    let (amp, resumed) = (o2(), o2());
    let (expected, saved_model, bytes) = amp.scope(|| {
        let mut optim = net_optim(&amp, rule);
        let model = train(&mut optim, net(&amp), 0..25);
        let record = optim.to_record::<Net<Mixed>>();
        let recorder = NamedMpkBytesRecorder::<HalfPrecisionSettings>::new();
        let bytes = Recorder::<Mixed>::record(&recorder, record, ()).unwrap();
        // Saved as well: clones share their running statistics.
        let saved = Recorder::<Mixed>::record(&recorder, model.clone().into_record(), ()).unwrap();
        let model = train(&mut optim, model, 25..30);
        assert_eq!(model.first.weight.val().dtype(), DType::F16);
        let masters = optim.amp_optimizer().full_model(model.clone());
        let expected = (values::<Mixed, _>(&model), values::<Mixed, _>(&masters));
        ((expected, optim.loss_scale()), saved, bytes)
    });
    let got = resumed.scope(|| {
        let recorder = NamedMpkBytesRecorder::<HalfPrecisionSettings>::new();
        let record = Recorder::<Mixed>::load(&recorder, bytes, &Default::default()).unwrap();
        let optim = net_optim(&resumed, rule);
        let mut optim = optim.try_load_record::<Net<Mixed>>(record).unwrap();
        let record = Recorder::<Mixed>::load(&recorder, saved_model, &Default::default()).unwrap();
        let model = net(&resumed).load_record(record);
        let model = optim.amp_optimizer().restore_model(model);
        let model = train(&mut optim, model, 25..30);
        let masters = optim.amp_optimizer().full_model(model.clone());
        let got = (values::<Mixed, _>(&model), values::<Mixed, _>(&masters));
        (got, optim.loss_scale())
    });
    assert_eq!(got, expected);
}
