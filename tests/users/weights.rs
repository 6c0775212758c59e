//! Weights, optimizer state, checkpoints.

use std::sync::{Arc, Mutex};

use burn::module::Module;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, LearningRate, Optimizer, SimpleOptimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use burn_amp::{Amp, AmpConfig, AmpOptimizer, AmpRecord, HalfDType, LossScaleConfig, OptLevel};

use crate::one_weight::{OneWeight, sgd, step};
use crate::support::{HALVES, Mixed, Plain, amp};

/// 0.94 lies between 0.9375 and 0.94140625 in bf16 (steps of 2^-8 below 1), nearer to the latter.
#[test]
fn row_55_small_updates_move_masters_and_not_bf16_weights() {
    let trained = |level| {
        let amp = amp(level, HalfDType::Bf16);
        amp.scope(|| {
            let mut optim = AmpOptimizer::new(sgd(), &amp);
            let mut model = amp.cast_model(OneWeight::<Mixed>::new(&[1.0]));
            for _ in 0..100 {
                model = step(model, &mut optim, 6e-4, |model| model.loss(&[1.0]));
            }
            let master = optim.full_model(model.clone()).values()[0];
            (model.values()[0], master)
        })
    };
    // Half a step of bf16 below 1 is 2^-9 = 2e-3: an update of 6e-4 is rounded away.
    assert_eq!(trained(OptLevel::O3), (1.0, 1.0));
    let (weight, master) = trained(OptLevel::O2);
    assert_eq!(weight, 0.941_406_25);
    assert!(
        (master - 0.94).abs() <= 100.0 * 2f32.powi(-25),
        "a rounding of f32 each: {master}"
    );
    assert_eq!(trained(OptLevel::O1).0, master);
}

/// The same hundred updates on ten thousand weights. Each moves by 0.1536 of a step of bf16, so it takes
/// the step with that probability: after a hundred the standard deviation is 100 x 0.1536 x 0.8464
/// steps squared under the root, 0.0141, of their mean 1.4e-4; 0.002 is fourteen of these.
#[test]
fn row_55_rounded_at_random_small_updates_count_on_the_average() {
    let config = AmpConfig::new(OptLevel::O3)
        .with_half(HalfDType::Bf16)
        .with_stochastic_rounding(true);
    let amp = config.build().unwrap();
    amp.scope(|| {
        let mut optim = AmpOptimizer::new(sgd(), &amp);
        let mut model = amp.cast_model(OneWeight::<Mixed>::new(&[1.0; 10_000]));
        for _ in 0..100 {
            model = step(model, &mut optim, 6e-4, |model| model.loss(&[1.0; 10_000]));
        }
        assert_eq!(model.weight.val().dtype(), DType::BF16);
        let values = model.values();
        let mean = values.iter().map(|x| *x as f64).sum::<f64>() / 1e4;
        assert!((mean - 0.94).abs() <= 0.002, "{mean}");
        assert!(values.iter().any(|x| *x != values[0]), "each for itself");
    });
    // A number that bf16 has stays, and so does zero.
    let still = AmpOptimizer::new(sgd(), &amp);
    amp.scope(|| {
        let mut optim = still;
        let model = amp.cast_model(OneWeight::<Mixed>::new(&[0.0, 1.0, -0.625, 257.0]));
        let before = model.values();
        let model = step(model, &mut optim, 1.0, |model| model.loss(&[0.0; 4]));
        assert_eq!(model.values(), before);
    });
    // Where there are masters, or no half weights, there is nothing to round.
    for level in [OptLevel::O0, OptLevel::O1, OptLevel::O2] {
        let error = AmpConfig::new(level)
            .with_stochastic_rounding(true)
            .build()
            .unwrap_err();
        assert!(error.to_string().contains("stochastic_rounding"), "{error}");
    }
}

/// A zero gradient has zero moments, and Adam's update is 0 / (0 + eps): 0 in f32, NaN where eps is 0.
#[test]
fn row_56_adams_epsilon_is_not_lost() {
    assert_eq!(HalfDType::F16.round(1e-8), 0.0);
    for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        for half in HALVES {
            let amp = amp(level, half);
            amp.scope(|| {
                let optim = AmpOptimizer::new(AdamConfig::new().with_epsilon(1e-8).init(), &amp);
                let mut optim = optim.with_loss_scale(LossScaleConfig::fixed(4.0)).unwrap();
                let model = amp.cast_model(OneWeight::<Mixed>::new(&[1.0, 2.0]));
                let model = step(model, &mut optim, 0.1, |model| model.loss(&[0.0, 1.0]));
                let values = model.values();
                assert_eq!(values[0], 1.0, "{level} {half}");
                assert!(
                    (values[1] - 1.9).abs() <= 2f32.powi(-7),
                    "{level} {half}: {values:?}"
                );
            });
        }
    }
}

type AmpAdam = AmpOptimizer<OptimizerAdaptor<Adam, OneWeight<Mixed>, Mixed>, Mixed>;
type Record = AmpRecord<
    <OptimizerAdaptor<Adam, OneWeight<Mixed>, Mixed> as Optimizer<OneWeight<Mixed>, Mixed>>::Record,
>;

struct Run {
    model: OneWeight<Mixed>,
    optim: AmpAdam,
}

impl Run {
    fn start(amp: &Amp) -> Run {
        let rule = LossScaleConfig::default().with_growth_interval(2);
        let optim = AmpOptimizer::new(AdamConfig::new().init(), amp);
        Run {
            model: amp.cast_model(OneWeight::new(&[1.0, -0.3])),
            optim: optim.with_loss_scale(rule).unwrap(),
        }
    }

    fn steps(mut self, steps: core::ops::Range<usize>) -> Run {
        for i in steps {
            let bad = i % 4 == 3;
            let gradient = [0.01 * i as f32, if bad { f32::INFINITY } else { -0.2 }];
            self.model = step(self.model, &mut self.optim, 1e-3, |model| {
                model.loss(&gradient)
            });
        }
        self
    }

    fn saved(self) -> [Vec<u8>; 2] {
        let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
        let optim = Optimizer::<OneWeight<Mixed>, Mixed>::to_record(&self.optim);
        [
            Recorder::<Mixed>::record(&recorder, self.model.into_record(), ()).unwrap(),
            Recorder::<Mixed>::record(&recorder, optim, ()).unwrap(),
        ]
    }

    fn resume(amp: &Amp, [model, optim]: [Vec<u8>; 2]) -> Run {
        let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
        let device = Default::default();
        let run = Run::start(amp);
        let record: Record = Recorder::<Mixed>::load(&recorder, optim, &device).unwrap();
        let model = Recorder::<Mixed>::load(&recorder, model, &device).unwrap();
        Run {
            model: run.model.load_record(model),
            optim: Optimizer::<OneWeight<Mixed>, Mixed>::load_record(run.optim, record),
        }
    }

    /// Weights, masters, and the scale with its counters.
    fn state(&self) -> (Vec<f32>, Vec<f32>, burn_amp::LossScale) {
        let full = self.optim.full_model(self.model.clone());
        (self.model.values(), full.values(), self.optim.loss_scale())
    }
}

#[test]
fn row_57_five_steps_and_five_are_ten() {
    for level in [OptLevel::O1, OptLevel::O2] {
        let straight = amp(level, HalfDType::F16);
        let straight = straight.scope(|| Run::start(&straight).steps(0..10).state());
        let amp = amp(level, HalfDType::F16);
        amp.scope(|| {
            let saved = Run::start(&amp).steps(0..5).saved();
            let resumed = Run::resume(&amp, saved).steps(5..10);
            assert_eq!(resumed.state(), straight, "{level}");
        });
    }
}

/// Masters are what is saved, so a run goes on at any level with the values it had, not with the half
/// ones; and one in f32 goes on at O2 with its f32 values as masters.
#[test]
fn row_58_a_checkpoint_keeps_f32_values_at_every_level() {
    let at = |level| amp(level, HalfDType::F16);
    let save = |level| {
        let amp = at(level);
        amp.scope(|| {
            let run = Run::start(&amp).steps(0..3);
            let masters = run.state().1;
            (run.saved(), masters)
        })
    };
    for from in [OptLevel::O0, OptLevel::O1, OptLevel::O2] {
        let (saved, masters) = save(from);
        for to in [OptLevel::O1, OptLevel::O2] {
            let amp = at(to);
            amp.scope(|| {
                let mut run = Run::resume(&amp, saved.clone());
                run.model = run.optim.restore_model(run.model);
                assert_eq!(run.state().1, masters, "from {from} to {to}");
            });
        }
    }
}

#[test]
fn row_59_a_model_record_is_plain_f32_and_needs_no_crate() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    let ([model, _], values) = amp.scope(|| {
        let run = Run::start(&amp).steps(0..3);
        let values = run.model.values();
        (run.saved(), values)
    });
    // Burn's own backend, outside of any region.
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let record = Recorder::<Plain>::load(&recorder, model, &Default::default()).unwrap();
    let plain = OneWeight::<Plain>::new(&[0.0, 0.0]).load_record(record);
    assert_eq!(plain.weight.val().dtype(), DType::F32);
    assert_eq!(plain.values(), values);
}

#[test]
fn row_60_the_scale_is_there_before_the_first_step() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let fresh = Run::start(&amp);
        assert_eq!(fresh.optim.loss_scale().scale(), 65_536.0);
        let run = Run::resume(&amp, fresh.saved()).steps(0..2);
        assert!(run.optim.last_step().unwrap().was_applied());
        assert_eq!(run.state(), Run::start(&amp).steps(0..2).state());
    });
}

/// An optimizer that notes the dtypes it is given.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Vec<[DType; 2]>>>);

impl<B: Backend> SimpleOptimizer<B> for Spy {
    type State<const D: usize> = Tensor<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        momentum: Option<Tensor<B, D>>,
    ) -> (Tensor<B, D>, Option<Tensor<B, D>>) {
        let momentum = match momentum {
            Some(momentum) => momentum * 0.9 + grad.clone(),
            None => grad.clone(),
        };
        self.0
            .lock()
            .unwrap()
            .push([tensor.dtype(), momentum.dtype()]);
        (tensor - momentum.clone() * lr, Some(momentum))
    }

    fn to_device<const D: usize>(state: Tensor<B, D>, device: &B::Device) -> Tensor<B, D> {
        state.to_device(device)
    }
}

#[test]
fn row_61_the_optimizers_state_is_f32_beside_half_parameters() {
    for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        for half in HALVES {
            let amp = amp(level, half);
            amp.scope(|| {
                let spy = Spy::default();
                let inner: OptimizerAdaptor<Spy, OneWeight<Mixed>, Mixed> = spy.clone().into();
                let mut optim = AmpOptimizer::new(inner, &amp);
                let mut model = amp.cast_model(OneWeight::<Mixed>::new(&[1.0]));
                for _ in 0..2 {
                    model = step(model, &mut optim, 0.1, |model| model.loss(&[0.5]));
                }
                assert_eq!(
                    *spy.0.lock().unwrap(),
                    [[DType::F32; 2]; 2],
                    "{level} {half}"
                );
            });
        }
    }
}
