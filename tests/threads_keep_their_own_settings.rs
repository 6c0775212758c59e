//! Several models at different levels on one device, a thread each; backward, steps and scales across
//! threads.

mod support;

use std::sync::Barrier;
use std::thread;

use burn::module::AutodiffModule;
use burn::optim::{AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{DType, Tensor, TensorData};
use burn_amp::{
    Amp, AmpConfig, AmpOptimizer, HalfDType, LossScaleConfig, LossScaling, OptLevel, Scaler, scope,
};
use support::gradients::gradients;
use support::net::{Net, batch, bits};
use support::{HALVES, Mixed, amp};

/// Every level in both half dtypes: eight settings of one device.
fn settings() -> Vec<Amp> {
    let halves = |level| HALVES.map(|half| amp(level, half));
    OptLevel::ALL.into_iter().flat_map(halves).collect()
}

/// What a run leaves: weights, masters and the scale.
type Left = (Vec<TensorData>, Vec<TensorData>, f32);

/// Eight steps, one of them with an overflow, at the barrier's pace if there is one.
fn train(amp: &Amp, pace: Option<&Barrier>) -> Left {
    amp.scope(|| {
        let mut model = amp.cast_model(Net::<Mixed>::new(&Default::default()));
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), amp);
        for step in 0..8 {
            if let Some(pace) = pace {
                pace.wait();
            }
            let x = batch::<Mixed>(step);
            let x = if step == 3 { x * 1e30 } else { x };
            let grads = GradientsParams::from_grads(model.loss(x).backward(), &model);
            model = optim.step(0.01, model, grads);
        }
        let data = |model: &Net<Mixed>| bits(model).into_iter().map(|(_, data)| data).collect();
        // Folds what BatchNorm has noted on this thread in.
        drop(model.valid());
        let full = optim.full_model(model.clone());
        (data(&model), data(&full), optim.loss_scale().scale())
    })
}

#[test]
fn models_at_every_level_train_side_by_side_as_they_do_alone() {
    let alone: Vec<Left> = settings().iter().map(|amp| train(amp, None)).collect();
    let together: Vec<Left> = {
        let settings = settings();
        let pace = Barrier::new(settings.len());
        thread::scope(|threads| {
            let runs: Vec<_> = settings
                .iter()
                .map(|amp| threads.spawn(|| train(amp, Some(&pace))))
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        })
    };
    for (amp, (together, alone)) in settings().iter().zip(together.iter().zip(&alone)) {
        let config = amp.config();
        assert_eq!(together, alone, "{} {}", config.opt_level(), config.half());
    }
}

#[test]
fn threads_that_share_settings_share_nothing_else() {
    // One Amp with a static scale: the scale is common, the models and optimizers are not.
    let config = AmpConfig::new(OptLevel::O2).with_loss_scale(LossScaling::Static(128.0));
    let amp = config.build().unwrap();
    let alone = train(&amp, None);
    let pace = Barrier::new(4);
    thread::scope(|threads| {
        let runs: Vec<_> = (0..4)
            .map(|_| threads.spawn(|| train(&amp, Some(&pace))))
            .collect();
        for run in runs {
            assert_eq!(run.join().unwrap(), alone);
        }
    });
}

#[test]
fn backward_on_another_thread_gives_the_same_gradients() {
    for half in HALVES {
        for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
            let amp = amp(level, half);
            amp.loss_scales().set(0, 128.0);
            amp.loss_scales().attach();
            let (model, here, loss) = amp.scope(|| {
                let model = amp.cast_model(Net::<Mixed>::new(&Default::default()));
                let loss = model.loss(batch(1));
                let grads = GradientsParams::from_grads(loss.backward(), &model);
                let here = gradients::<Mixed, _>(&model, &grads);
                let loss = model.loss(batch(1));
                (model, here, loss)
            });
            // The scale belongs to the region, and the region to the thread; dtypes to the graph.
            let there = thread::scope(|threads| {
                let work = threads
                    .spawn(|| amp.scope(|| GradientsParams::from_grads(loss.backward(), &model)));
                work.join().unwrap()
            });
            assert_eq!(
                gradients::<Mixed, _>(&model, &there),
                here,
                "{level} {half}"
            );
        }
    }
}

#[test]
fn backward_outside_of_the_region_runs_in_the_dtypes_of_forward() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let x = Tensor::<Mixed, 2>::from_floats([[0.3, 0.7], [0.1, 0.9]], &Default::default());
    let x = x.require_grad();
    let loss = || amp.scope(|| x.clone().matmul(x.clone()).sum());
    let here = x.grad(&loss().backward()).unwrap();
    let (first, second) = (loss(), loss());
    let there = thread::scope(|threads| {
        let x = &x;
        let runs = [first, second].map(|loss| threads.spawn(move || x.grad(&loss.backward())));
        runs.map(|run| run.join().unwrap().unwrap())
    });
    for there in there {
        assert_eq!(there.dtype(), DType::F32);
        assert_eq!(there.into_data(), here.to_data());
    }
}

#[test]
fn one_weight_is_cast_once_however_many_threads_use_it() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let weight = || {
        let values = (0..64).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>();
        let data = TensorData::new(values, [8, 8]);
        Tensor::<Mixed, 2>::from_data(data, &Default::default()).require_grad()
    };
    let x = Tensor::<Mixed, 2>::ones([2, 8], &Default::default()).cast(DType::F16);
    let expected = {
        let weight = weight();
        let loss = amp.scope(|| x.clone().matmul(weight.clone()).sum());
        weight.grad(&loss.backward()).unwrap().into_data()
    };
    for _ in 0..50 {
        let weight = weight();
        let start = Barrier::new(4);
        let made: u64 = thread::scope(|threads| {
            let runs: Vec<_> = (0..4)
                .map(|_| {
                    threads.spawn(|| {
                        amp.scope(|| {
                            start.wait();
                            let (y, count) = burn_amp::measure(|| x.clone().matmul(weight.clone()));
                            let grad = weight.grad(&y.sum().backward()).unwrap();
                            assert_eq!(grad.into_data(), expected);
                            count.made
                        })
                    })
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).sum()
        });
        assert_eq!(made, 1);
    }
}

#[test]
fn a_shared_scaler_counts_every_update_of_every_thread() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 50;
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let rule = LossScaleConfig::default().with_growth_interval(1_000_000);
    let scaler = Scaler::with_rule(&amp, rule).unwrap();
    thread::scope(|threads| {
        for rank in 0..THREADS {
            let (amp, scaler) = (&amp, &scaler);
            threads.spawn(move || {
                amp.scope(|| {
                    let mut model = Net::<Mixed>::new(&Default::default());
                    let mut optim = AmpOptimizer::with_scaler(SgdConfig::new().init(), scaler);
                    for step in 0..STEPS {
                        let x = batch::<Mixed>(step as usize);
                        // Each thread overflows once, at a step of its own.
                        let x = if step == 10 * rank { x * 1e30 } else { x };
                        let grads = GradientsParams::from_grads(model.loss(x).backward(), &model);
                        model = optim.step(1e-3, model, grads);
                        let seen = amp.loss_scales().get(0);
                        assert!(seen.log2().fract() == 0.0 && seen <= 65536.0, "{seen}");
                    }
                });
            });
        }
    });
    let state = *scaler.loss_scale(0).state();
    assert_eq!(state.steps, THREADS * STEPS, "no update is lost");
    // An overflow of forward is one at any scale; others may come from a scale that is high.
    assert!(state.skipped >= THREADS);
    assert_eq!(
        f64::from(state.scale),
        65536.0 * 0.5f64.powi(state.skipped as i32)
    );
    assert_eq!(amp.loss_scales().get(0), state.scale);
}

#[test]
fn a_thread_that_panics_in_a_region_leaves_the_others_alone() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let product = || {
        let x = Tensor::<Mixed, 2>::ones([2, 2], &Default::default());
        x.clone().matmul(x).dtype()
    };
    let weight = Tensor::<Mixed, 2>::ones([2, 2], &Default::default()).require_grad();
    thread::scope(|threads| {
        let failing = threads.spawn(|| {
            support::unless_it_panics(|| {
                amp.scope(|| {
                    // The shapes do not fit: the cast of the weight is made, the product panics.
                    let x = Tensor::<Mixed, 2>::ones([2, 3], &Default::default());
                    x.matmul(weight.clone())
                })
            })
            .is_none()
        });
        let working = threads.spawn(|| amp.scope(|| [(); 20].map(|()| product())));
        assert!(failing.join().unwrap());
        assert_eq!(working.join().unwrap(), [DType::F16; 20]);
    });
    let y = amp.scope(|| weight.clone().matmul(weight.clone()));
    assert_eq!(y.dtype(), DType::F16, "the weight's copy is sound");
    assert_eq!(scope::disabled(product), DType::F32);
}
