//! What is written to disk and read again: Apex's `test_checkpointing` and `network_to_half`, torch's
//! scaler states, JMP's policy texts.

use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::DType;
use burn_amp::{
    Amp, AmpConfig, AmpOptimizer, AmpRecord, CastRule, GradScaler, HalfDType, LossScaleConfig,
    LossScaling, Op, OptLevel, scope,
};

use crate::support::net::{Net, batch, bits};
use crate::support::{Mixed, Plain, amp};
use crate::{Dot, leaf, stored};

type Optim = AmpOptimizer<OptimizerAdaptor<Adam, Net<Mixed>, Mixed>, Mixed>;
type Record =
    AmpRecord<<OptimizerAdaptor<Adam, Net<Mixed>, Mixed> as Optimizer<Net<Mixed>, Mixed>>::Record>;

fn recorder() -> BinBytesRecorder<FullPrecisionSettings> {
    BinBytesRecorder::new()
}

fn start(amp: &Amp) -> (Net<Mixed>, Optim) {
    let model = amp.cast_model(Net::new(&Default::default()));
    (model, AmpOptimizer::new(AdamConfig::new().init(), amp))
}

/// Steps with the losses in turn; the loss of the last batch is returned.
fn train(
    mut model: Net<Mixed>,
    optim: &mut Optim,
    epochs: core::ops::Range<usize>,
    losses: usize,
) -> (Net<Mixed>, f32) {
    let mut last = f32::NAN;
    for epoch in epochs {
        let loss_id = epoch % losses;
        let loss = scope::with_loss_id(loss_id, || {
            // The fourth of five overflows in forward.
            let x = batch::<Mixed>(0);
            let x = if epoch % 5 == 3 {
                x.mul_scalar(1e30)
            } else {
                x
            };
            let loss = model.loss(x);
            let value = loss.clone().into_scalar();
            last = if value.is_finite() { value } else { last };
            loss.backward()
        });
        let grads = GradientsParams::from_grads(loss, &model);
        let verdict = optim.scaler().clone();
        let verdict = verdict.inspect().gradients(loss_id, &model, &grads).judge();
        model = optim.step_with(&verdict, &[loss_id], 0.02, model, grads);
    }
    (model, last)
}

#[test]
fn a17_records_hold_f32_at_every_level_and_training_goes_on_from_them() {
    for level in OptLevel::ALL {
        let amp = amp(level, HalfDType::F16);
        amp.scope(|| {
            let (model, mut optim) = start(&amp);
            let (model, first) = train(model, &mut optim, 0..1, 1);
            let bytes = Recorder::<Mixed>::record(&recorder(), model.into_record(), ()).unwrap();
            // Without this crate: the record is plain f32.
            let plain = Net::<Plain>::new(&Default::default());
            let plain =
                plain.load_record(recorder().load(bytes.clone(), &Default::default()).unwrap());
            assert!(
                bits(&plain)
                    .iter()
                    .all(|(_, data)| data.dtype == DType::F32)
            );

            let (model, mut optim) = start(&amp);
            let model = model.load_record(recorder().load(bytes, &Default::default()).unwrap());
            let (_, last) = train(model, &mut optim, 0..10, 1);
            if level != OptLevel::O3 {
                assert!(last < first, "{level}: {first} to {last}");
            }
        });
    }
}

#[test]
fn a18_five_epochs_a_restart_and_five_are_ten() {
    for level in OptLevel::ALL {
        for losses in [1, 2] {
            let settings = || {
                AmpConfig::new(level)
                    .with_num_losses(losses)
                    .build()
                    .unwrap()
            };
            let scales = |optim: &Optim| -> Vec<_> {
                (0..losses)
                    .map(|loss| optim.scaler().loss_scale(loss))
                    .collect()
            };
            let straight = settings();
            let (whole, whole_scales) = straight.scope(|| {
                let (model, mut optim) = start(&straight);
                let (model, _) = train(model, &mut optim, 0..10, losses);
                (bits(&model), scales(&optim))
            });
            let (first, again) = (settings(), settings());
            let (model_bytes, optim_bytes) = first.scope(|| {
                let (model, mut optim) = start(&first);
                let (model, _) = train(model, &mut optim, 0..5, losses);
                let record = Optimizer::<Net<Mixed>, Mixed>::to_record(&optim);
                (
                    Recorder::<Mixed>::record(&recorder(), model.into_record(), ()).unwrap(),
                    Recorder::<Mixed>::record(&recorder(), record, ()).unwrap(),
                )
            });
            again.scope(|| {
                let device = Default::default();
                let (model, optim) = start(&again);
                let model = model.load_record(recorder().load(model_bytes, &device).unwrap());
                let record: Record =
                    Recorder::<Mixed>::load(&recorder(), optim_bytes, &device).unwrap();
                let mut optim = optim.try_load_record::<Net<Mixed>>(record).unwrap();
                let (model, _) = train(model, &mut optim, 5..10, losses);
                assert_eq!(scales(&optim), whole_scales, "{level} {losses}");
                let resumed = bits(&model).into_iter().map(|(_, data)| data);
                assert!(
                    resumed.eq(whole.into_iter().map(|(_, data)| data)),
                    "{level} {losses}"
                );
            });
        }
    }
}

#[derive(Module, Debug)]
struct Block<B: burn::tensor::backend::Backend> {
    linear: Linear<B>,
    norm: BatchNorm<B>,
}

#[test]
fn a33_a_half_network_keeps_batch_norm_and_its_buffers_in_f32() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    amp.scope(|| {
        let block: Block<Mixed> = amp.cast_model(Block {
            linear: LinearConfig::new(4, 4).init(&Default::default()),
            norm: BatchNormConfig::new(4).init(&Default::default()),
        });
        assert_eq!(block.linear.weight.val().dtype(), DType::F16);
        assert_eq!(
            block.linear.bias.as_ref().unwrap().val().dtype(),
            DType::F16
        );
        let norm = &block.norm;
        let kept = [norm.gamma.val(), norm.beta.val(), norm.running_mean.value()];
        assert!(kept.iter().all(|tensor| tensor.dtype() == DType::F32));
        assert_eq!(norm.running_var.value().dtype(), DType::F32);
        let y = block
            .norm
            .forward(block.linear.forward(leaf([2, 4], DType::F32)));
        assert_eq!(y.dtype(), DType::F16);
    });
}

#[test]
fn g06_a_scalers_state_survives_and_a_disabled_one_ignores_it() {
    let rule = LossScaleConfig::torch()
        .with_init(3.0)
        .with_growth_factor(4.0)
        .with_backoff_factor(0.25)
        .with_growth_interval(2);
    let saved = |scaler: &GradScaler| serde_json::to_string(scaler.state()).unwrap();
    // Before first use and after it.
    for steps in [0, 1] {
        let mut scaler = GradScaler::new(rule).unwrap();
        let model = Dot::<Plain>::new(&[1.0], burn::tensor::FloatDType::F32);
        for _ in 0..steps {
            let scaled = scaler.scale(model.loss(&[1.0])).backward(&model);
            assert!(scaler.unscale(&model, scaled).is_finite());
            scaler.update().unwrap();
        }
        let mut other = GradScaler::new(LossScaleConfig::torch()).unwrap();
        other.load_state(serde_json::from_str(&saved(&scaler)).unwrap());
        assert_eq!(other.state(), scaler.state());
        assert_eq!(other.state().config(), &rule);
        assert_eq!(other.state().state().growth_tracker, steps);
    }
    let mut disabled = GradScaler::disabled();
    disabled.load_state(GradScaler::new(rule).unwrap().state().to_owned());
    assert_eq!(disabled.get_scale(), 1.0);
    assert!(
        serde_json::from_str::<burn_amp::LossScale>("{}").is_err(),
        "an empty state"
    );
}

#[test]
fn b04_policies_are_read_from_the_text_they_are_written_as() {
    for level in OptLevel::ALL {
        assert_eq!(level.to_string().parse::<OptLevel>().unwrap(), level);
    }
    for half in [HalfDType::F16, HalfDType::Bf16] {
        assert_eq!(half.to_string().parse::<HalfDType>().unwrap(), half);
    }
    for op in Op::ALL {
        assert_eq!(op.to_string().parse::<Op>().unwrap(), *op);
        let rule = op.default_rule(OptLevel::O1);
        assert_eq!(rule.to_string().parse::<CastRule>().unwrap(), rule);
    }
    for scaling in [LossScaling::Dynamic, LossScaling::Static(128.0)] {
        assert_eq!(scaling.to_string().parse::<LossScaling>().unwrap(), scaling);
    }
    // Missing fields take their default; unknown ones and unknown values are refused.
    let read = |text: &str| serde_json::from_str::<AmpConfig>(text);
    assert_eq!(
        read(r#"{"opt_level":"O2"}"#).unwrap(),
        AmpConfig::new(OptLevel::O2)
    );
    for wrong in [
        r#"{"compute":"half"}"#,
        r#"{"half":"f17"}"#,
        r#"{"opt_level":"02"}"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    // Only floating tensors are cast.
    let amp = amp(OptLevel::O3, HalfDType::F16);
    amp.scope(|| {
        let ints = burn::tensor::Tensor::<Mixed, 1, burn::tensor::Int>::from_ints(
            [1, 2],
            &Default::default(),
        );
        let module = amp.cast_model(burn::module::Param::from_tensor(leaf::<Mixed, 1>(
            [2],
            DType::F32,
        )));
        assert_eq!(stored(&module.val()).dtype, DType::F16);
        assert!(!amp.cast_model::<Mixed, _>(ints).dtype().is_float());
    });
}
