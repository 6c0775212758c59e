//! The life of a loss scale.

use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::prelude::DeviceOps;
use burn::tensor::{DType, FloatDType, Tensor};
use burn_amp::{
    AmpConfig, AmpOptimizer, AtFloorPolicy, Fp16Optimizer, HalfDType, LossScaleConfig, LossScaling,
    OptLevel, ScaleEvent, Scaler, StepStatus,
};

use crate::log_capture::warnings;
use crate::one_weight::{OneWeight, PlainSgd, amp_sgd, outcome, sgd, step, stored};
use crate::support::{Mixed, amp};

#[test]
fn row_16_a_scale_that_only_falls_stops_above_zero_and_says_so() {
    let mut scale = LossScaleConfig::default().init().unwrap();
    let events: Vec<_> = (0..200).map(|_| scale.update(true).event).collect();
    assert_eq!(scale.scale(), 1.0);
    // 16 halvings from 65536 to 1.
    assert!(
        events[..16]
            .iter()
            .all(|event| *event == ScaleEvent::BackedOff)
    );
    assert!(
        events[16..]
            .iter()
            .all(|event| *event == ScaleEvent::AtFloor)
    );
    // Without a floor: 2^16 / 2^166 is half the smallest f32, 2^-149, and rounds to zero.
    let mut scale = LossScaleConfig::default().with_floor(0.0).init().unwrap();
    for _ in 0..166 {
        scale.update(true);
    }
    assert_eq!(scale.scale(), 0.0);
}

/// Twice 3e38 is beyond f32 (3.4e38), a 2^-20th of it is not: the scaled gradient is finite, the true
/// one is not.
#[test]
fn row_17_a_gradient_that_only_unscaling_makes_infinite_is_found() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let mut optim = amp_sgd(&amp, LossScaleConfig::fixed(2f32.powi(-20)));
        let model = OneWeight::<Mixed>::new(&[1.0]);
        let twice = |model: &OneWeight<Mixed>| model.loss(&[3e38]) + model.loss(&[3e38]);
        let model = step(model, &mut optim, 1.0, twice);
        assert_eq!(optim.last_step().unwrap().status, StepStatus::Skipped);
        assert_eq!(model.values(), [1.0]);
    });
}

#[test]
fn row_18_a_scale_that_only_grows_stays_finite() {
    // 1e38 times 16 is beyond f32.
    let rule = LossScaleConfig::default()
        .without_cap()
        .with_init(1e38)
        .with_growth_factor(16.0)
        .with_growth_interval(1);
    let mut scale = rule.init().unwrap();
    assert_eq!(scale.update(false).event, ScaleEvent::AtCap);
    assert_eq!(scale.scale(), 1e38);
    // And by default it stops at 2^24: eight doublings.
    let mut scale = LossScaleConfig::default()
        .with_growth_interval(1)
        .init()
        .unwrap();
    for _ in 0..100 {
        scale.update(false);
    }
    assert_eq!(scale.scale(), 16_777_216.0);
}

#[test]
fn row_19_a_half_loss_is_scaled_in_f32() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        assert_eq!(HalfDType::F16.round(65_536.0), f64::INFINITY);
        // By hand: the scaled loss itself.
        let scaler = burn_amp::GradScaler::new(LossScaleConfig::torch()).unwrap();
        let half = Tensor::<Mixed, 1>::ones([1], &Default::default()).cast(FloatDType::F16);
        let scaled = scaler.scale(half.clone()).to_data();
        assert_eq!(scaled.dtype, DType::F32);
        assert_eq!(scaled.to_vec::<f32>().unwrap(), [65_536.0]);
        // A multiplication in the program does the same.
        let product = half.mul_scalar(65_536.0);
        assert_eq!(product.dtype(), DType::F32);
        assert_eq!(stored(product), [65_536.0]);
    });
}

#[test]
fn row_20_at_the_floor_the_run_goes_on_warns_or_stops_and_names_the_parameter() {
    let at_floor = |policy| {
        let amp = amp(OptLevel::O1, HalfDType::F16);
        let rule = LossScaleConfig::default()
            .with_init(1.0)
            .with_at_floor(policy);
        let mut result = None;
        let said = warnings(|| {
            amp.scope(|| {
                let mut optim = amp_sgd(&amp, rule);
                let model = OneWeight::<Mixed>::new(&[1.0]);
                let loss = model.loss(&[f32::INFINITY]);
                let grads = GradientsParams::from_grads(loss.backward(), &model);
                result = Some(optim.try_step(1.0, model, grads).1);
            });
        });
        (result.unwrap().map(|outcome| outcome.status), said)
    };
    let (result, said) = at_floor(AtFloorPolicy::Continue);
    assert_eq!((result, said), (Ok(StepStatus::Skipped), vec![]));
    let (result, said) = at_floor(AtFloorPolicy::Warn);
    assert_eq!(result, Ok(StepStatus::Skipped));
    assert!(said.len() == 1 && said[0].contains("weight"), "{said:?}");
    let (result, _) = at_floor(AtFloorPolicy::Error);
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("cannot go below 1")
    );
}

#[test]
fn row_21_inf_and_nan_are_told_apart_and_bf16_has_a_message_of_its_own() {
    let bad = [f32::INFINITY, f32::NAN, f32::NAN, 1.0];
    for half in [HalfDType::F16, HalfDType::Bf16] {
        let amp = amp(OptLevel::O1, half);
        let said = warnings(|| {
            amp.scope(|| {
                let mut optim = amp_sgd(&amp, LossScaleConfig::none());
                let outcome = outcome(&mut optim, &[&bad[..]; 10]);
                let found = outcome.non_finite.unwrap();
                assert_eq!((found.inf, found.nan), (1, 2));
                assert_eq!(found.parameters, ["weight"]);
            });
        });
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("1 inf and 2 nan"), "{said:?}");
        let blames_the_scale = said[0].contains("A lower loss scale");
        assert_eq!(blames_the_scale, half == HalfDType::F16, "{said:?}");
    }
}

#[test]
fn row_22_bf16_steps_are_checked_unless_that_is_switched_off() {
    let amp = amp(OptLevel::O1, HalfDType::Bf16);
    assert_eq!(amp.config().loss_scale(), LossScaling::Static(1.0));
    let trained = |check| {
        amp.scope(|| {
            let mut optim = AmpOptimizer::new(sgd(), &amp)
                .with_finite_check(check)
                .unwrap();
            let model = OneWeight::<Mixed>::new(&[1.0]);
            let model = step(model, &mut optim, 1.0, |model| model.loss(&[f32::INFINITY]));
            (model.values()[0], optim.monitor().skipped())
        })
    };
    assert_eq!(trained(true), (1.0, 1));
    assert_eq!(trained(false), (f32::NEG_INFINITY, 0));
}

#[test]
fn row_23_the_first_few_skips_are_no_warning() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let skips = |bad: usize| {
        let (inf, one): (&[f32], &[f32]) = (&[f32::INFINITY], &[1.0]);
        let gradients: Vec<_> = (0..10).map(|i| if i < bad { inf } else { one }).collect();
        warnings(|| {
            amp.scope(|| {
                outcome(&mut amp_sgd(&amp, LossScaleConfig::default()), &gradients);
            });
        })
    };
    assert_eq!(skips(3), Vec::<String>::new());
    let said = skips(10);
    assert!(
        said.len() == 1 && said[0].contains("10 steps skipped in a row"),
        "{said:?}"
    );
}

/// A generator and a discriminator with a loss and an optimizer each, the second loss reaching both:
/// who skips is whom the loss that overflowed reaches, and only its scale falls.
#[test]
fn row_24_each_loss_has_its_scale_and_skips_whom_it_reaches() {
    let run = |overflow: usize| {
        let config = AmpConfig::new(OptLevel::O1).with_num_losses(2);
        let amp = config.build().unwrap();
        amp.scope(|| {
            let scaler = Scaler::new(&amp);
            let models = [1.0, 2.0].map(|value| OneWeight::<Mixed>::new(&[value]));
            let mut optims = [(); 2].map(|()| AmpOptimizer::with_scaler(sgd(), &scaler));
            let gradient = |loss| if loss == overflow { f32::INFINITY } else { 1.0 };
            let grads = |model: usize, loss| {
                let scaled = burn_amp::scope::with_loss_id(loss, || {
                    models[model].loss(&[gradient(loss)]).backward()
                });
                GradientsParams::from_grads(scaled, &models[model])
            };
            let (of_first, of_second) = (grads(0, 0), grads(1, 1));
            let inspection = scaler.inspect::<Mixed>();
            let verdict = inspection
                .gradients(0, &models[0], &of_first)
                .gradients(1, &models[1], &of_second)
                .judge();
            // The first optimizer's parameters are in both losses, the second's in loss 1 only.
            let [first, second] = models;
            optims[0].step_with(&verdict, &[0, 1], 1.0, first, of_first);
            optims[1].step_with(&verdict, &[1], 1.0, second, of_second);
            let skipped = optims.map(|optim| optim.last_step().unwrap().was_skipped());
            (skipped, [0, 1].map(|loss| scaler.loss_scale(loss).scale()))
        })
    };
    assert_eq!(run(0), ([true, false], [32_768.0, 65_536.0]));
    assert_eq!(run(1), ([true, true], [65_536.0, 32_768.0]));
    assert_eq!(run(2), ([false, false], [65_536.0, 65_536.0]));
}

/// A gradient of 4 in f16 is finite up to a scale below 65520 / 4 = 16380, so at 8192: three halvings
/// from 65536, and the fourth attempt is applied.
#[test]
fn row_25_a_batch_can_be_repeated_at_a_lower_scale() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let rule = LossScaleConfig::default();
        let attempts = |replays| {
            let mut optim = Fp16Optimizer::with_dynamic_loss_scale(sgd(), &amp, rule).unwrap();
            optim.set_loss_scale(65_536.0).unwrap();
            let model = OneWeight::<Mixed>::new(&[1.0]);
            let mut times = 0;
            let model = optim.replay(0.25, model, replays, |model| {
                times += 1;
                model.loss_through_f16(4.0)
            });
            (times, model.values()[0], optim.loss_scale())
        };
        assert_eq!(attempts(10), (4, 0.0, 8192.0));
        assert_eq!(
            attempts(2),
            (3, 1.0, 8192.0),
            "bounded: the batch is skipped in the end"
        );
    });
}

/// The part of several ranks that is arithmetic: equal rules that learn the same, the OR of what the
/// ranks found, have equal scales; and Burn's step over several devices finds one device's overflow.
#[test]
fn row_26_ranks_that_learn_the_same_flag_have_the_same_scale() {
    let flags = [[true, false], [false, false], [false, true], [true, true]];
    let mut scales = [LossScaleConfig::default().init().unwrap(); 2];
    for found in flags {
        let any = found[0] || found[1];
        let updates = scales.each_mut().map(|scale| scale.update(any));
        assert_eq!(updates[0], updates[1]);
    }
    assert_eq!(
        scales.map(|scale| scale.scale()),
        [8192.0; 2],
        "three overflows of four"
    );

    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let mut optim = amp_sgd(&amp, LossScaleConfig::default());
        let model = OneWeight::<Mixed>::new(&[1.0]);
        let of =
            |gradient: f32| GradientsParams::from_grads(model.loss(&[gradient]).backward(), &model);
        let device = burn::tensor::Device::<Mixed>::default().to_id();
        let workers = MultiGradientsParams {
            grads: vec![(of(f32::INFINITY), device), (of(1.0), device)],
        };
        let model = optim.step_multi(1.0, model.clone(), workers);
        assert!(optim.last_step().unwrap().was_skipped());
        assert_eq!(model.values(), [1.0]);
    });
}

/// An optimizer that has something to do at every step, such as talking to its peers.
#[derive(Clone)]
struct Counting<O> {
    inner: O,
    steps: u64,
}

impl<O: Optimizer<OneWeight<Mixed>, Mixed>> Optimizer<OneWeight<Mixed>, Mixed> for Counting<O> {
    type Record = O::Record;

    fn step(
        &mut self,
        lr: LearningRate,
        module: OneWeight<Mixed>,
        grads: GradientsParams,
    ) -> OneWeight<Mixed> {
        self.steps += 1;
        self.inner.step(lr, module, grads)
    }

    fn step_multi(
        &mut self,
        lr: LearningRate,
        module: OneWeight<Mixed>,
        grads: MultiGradientsParams,
    ) -> OneWeight<Mixed> {
        self.steps += 1;
        self.inner.step_multi(lr, module, grads)
    }

    fn to_record(&self) -> Self::Record {
        self.inner.to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        Counting {
            inner: self.inner.load_record(record),
            ..self
        }
    }
}

/// Outside of the adapter a wrapper sees every step, inside only those that are applied.
#[test]
fn row_27_what_has_to_happen_at_every_step_wraps_the_adapter() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let inside = Counting {
            inner: sgd(),
            steps: 0,
        };
        let mut optim = Counting {
            inner: AmpOptimizer::<Counting<PlainSgd>, Mixed>::new(inside, &amp),
            steps: 0,
        };
        let mut model = OneWeight::<Mixed>::new(&[1.0]);
        for gradient in [0.5, f32::INFINITY, 0.25] {
            model = step(model, &mut optim, 1.0, |model| model.loss(&[gradient]));
        }
        assert_eq!((optim.steps, optim.inner.inner().steps), (3, 2));
        assert_eq!(model.values(), [0.25]);
    });
}
