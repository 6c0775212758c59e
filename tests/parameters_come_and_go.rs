//! Parameters may appear, freeze and go without a gradient between steps.

mod support;

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{DType, FloatDType, Tensor};
use burn_amp::{AmpOptimizer, HalfDType, OptLevel, StepStatus};
use support::{Mixed, amp, net::fixed};

#[derive(Module, Debug)]
struct Growing<B: burn::tensor::backend::Backend> {
    layers: Vec<Linear<B>>,
}

fn layer() -> Linear<Mixed> {
    fixed(
        LinearConfig::new(3, 3)
            .with_bias(false)
            .init(&Default::default()),
    )
}

fn loss(model: &Growing<Mixed>, used: usize) -> Tensor<Mixed, 1> {
    let x = Tensor::<Mixed, 2>::ones([2, 3], &Default::default());
    model.layers[..used]
        .iter()
        .fold(x, |x, layer| layer.forward(x))
        .powi_scalar(2)
        .mean()
}

fn weight(model: &Growing<Mixed>, layer: usize) -> Vec<f32> {
    model.layers[layer]
        .weight
        .val()
        .into_data()
        .iter::<f32>()
        .collect()
}

#[test]
fn a_parameter_added_between_steps_trains_from_its_own_value() {
    for level in [OptLevel::O1, OptLevel::O2] {
        let amp = amp(level, HalfDType::F16);
        amp.scope(|| {
            let mut model = amp.cast_model(Growing {
                layers: vec![layer()],
            });
            let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
            for round in 1..4 {
                for _ in 0..2 {
                    let grads = GradientsParams::from_grads(loss(&model, round).backward(), &model);
                    let before = weight(&model, round - 1);
                    model = optim.step(0.01, model, grads);
                    assert_ne!(
                        before,
                        weight(&model, round - 1),
                        "{level}: the newest layer moves"
                    );
                }
                model.layers.push(amp.cast_model(layer()));
            }
        });
    }
}

#[test]
fn a_parameter_without_a_gradient_stays_bitwise() {
    for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        let amp = amp(level, HalfDType::F16);
        amp.scope(|| {
            let mut model = amp.cast_model(Growing {
                layers: vec![layer(), layer()],
            });
            let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
            let unused = weight(&model, 1);
            for _ in 0..3 {
                let grads = GradientsParams::from_grads(loss(&model, 1).backward(), &model);
                model = optim.step(0.01, model, grads);
            }
            assert_eq!(weight(&model, 1), unused, "{level}");
        });
    }
}

#[test]
fn no_gradient_at_all_is_no_step_and_no_error() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let model = Growing {
            layers: vec![layer()],
        };
        let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        let scale = optim.loss_scale();
        let before = weight(&model, 0);
        let model = optim.step(0.01, model, GradientsParams::new());
        assert_eq!(optim.last_step().unwrap().status, StepStatus::NoGradients);
        assert_eq!(optim.loss_scale(), scale, "the growth tracker stands still");
        assert_eq!(weight(&model, 0), before);
    });
}

#[test]
fn an_f32_value_put_into_a_half_model_becomes_its_master() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    amp.scope(|| {
        let mut model = amp.cast_model(Growing {
            layers: vec![layer()],
        });
        let mut optim =
            AmpOptimizer::<_, Mixed>::new(AdamConfig::new().init::<Mixed, Growing<Mixed>>(), &amp);
        let fresh = Growing {
            layers: vec![layer()],
        };
        optim.set_masters(&fresh);
        // The ids of the two models differ: masters go by id, so load the fresh one's record.
        model = model.load_record(fresh.into_record());
        assert_eq!(
            model.layers[0].weight.val().dtype(),
            DType::F16,
            "cast as it is loaded"
        );
        let full = optim.full_model(model.clone());
        assert_eq!(full.layers[0].weight.val().dtype(), DType::F32);
        let exact = layer().weight.val().into_data().to_vec::<f32>().unwrap();
        assert_eq!(
            full.layers[0]
                .weight
                .val()
                .into_data()
                .to_vec::<f32>()
                .unwrap(),
            exact
        );
    });
}

#[derive(Module, Debug)]
struct Pair<B: burn::tensor::backend::Backend> {
    first: Param<Tensor<B, 1>>,
    second: Param<Tensor<B, 1>>,
}

#[test]
fn the_gradient_of_a_tied_parameter_counts_once_and_is_clipped_once() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let tied = Param::from_tensor(Tensor::<Mixed, 1>::ones([4], &Default::default()));
        let model = Pair {
            first: tied.clone(),
            second: tied,
        };
        let optim = AmpOptimizer::new(SgdConfig::new().init(), &amp);
        let mut optim = optim.with_clip_norm(1.0).unwrap();
        let loss = (model.first.val() * 3.0 + model.second.val()).sum();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let model = optim.step(1.0, model, grads);
        assert_eq!(optim.last_step().unwrap().grad_norm, Some(8.0));
        // Four elements of 4, clipped to the norm 1: 1/2 each.
        let stepped = model.first.val().into_data();
        stepped.assert_approx_eq::<f32>(&[0.5f32; 4].into(), Default::default());
    });
}

#[test]
fn f64_parameters_train_beside_f32_ones() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.scope(|| {
        let ones = Tensor::<Mixed, 1>::ones([2], &Default::default());
        let model = Pair {
            first: Param::from_tensor(ones.clone()),
            second: Param::from_tensor(ones.cast(FloatDType::F64)),
        };
        let mut optim = AmpOptimizer::new(SgdConfig::new().init(), &amp);
        let loss = (model.first.val() * model.second.val()).sum();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let model = optim.step(0.5, model, grads);
        assert_eq!(optim.last_step().unwrap().grad_norm, Some(2.0));
        assert_eq!(model.second.val().dtype(), DType::F64);
        for values in [model.first.val(), model.second.val()] {
            assert_eq!(
                values.into_data().iter::<f64>().collect::<Vec<_>>(),
                [0.5; 2]
            );
        }
    });
}

#[test]
fn a_half_weight_that_is_changed_between_steps_goes_on_from_its_new_value() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    amp.scope(|| {
        let ones = || Param::from_tensor(Tensor::<Mixed, 1>::ones([2], &Default::default()));
        let mut model = amp.cast_model(Pair {
            first: ones(),
            second: ones(),
        });
        let mut optim = AmpOptimizer::new(SgdConfig::new().init(), &amp);
        let values = |model: &Pair<Mixed>| -> Vec<f32> {
            model.first.val().into_data().iter::<f32>().collect()
        };
        // f16 cannot take a step of 1e-4 down from 1, the master can.
        let lr = 1e-4;
        let (once, twice) = (1.0 - lr as f32, 1.0 - lr as f32 - lr as f32);
        let step = |optim: &mut AmpOptimizer<_, Mixed>, model: Pair<Mixed>| {
            let loss = (model.first.val() + model.second.val()).sum() * 0.125;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            optim.step(8.0 * lr, model, grads)
        };
        model = step(&mut optim, model);
        assert_eq!(values(&model), [1.0, 1.0]);
        assert_eq!(values(&optim.full_model(model.clone())), [once, once]);
        model.first = model.first.map(|tensor| {
            let changed = Tensor::from_floats([1.0, 0.5], &tensor.device());
            changed.cast(FloatDType::F16).require_grad()
        });
        assert_eq!(values(&optim.full_model(model.clone())), [once, 0.5]);
        model = step(&mut optim, model);
        let half_once = 0.5 - lr as f32;
        assert_eq!(values(&optim.full_model(model.clone())), [twice, half_once]);
        // As do masters that were chosen, although the model's weights were not rounded from them.
        let chosen = Pair {
            first: model
                .first
                .clone()
                .map(|tensor| tensor.ones_like().cast(FloatDType::F32)),
            second: model.second.clone(),
        };
        optim.set_masters(&chosen);
        model = step(&mut optim, model);
        assert_eq!(values(&optim.full_model(model)), [once, once]);
    });
}

#[test]
fn a_parameter_that_was_removed_is_not_missed() {
    for level in [OptLevel::O1, OptLevel::O2] {
        let amp = amp(level, HalfDType::F16);
        amp.scope(|| {
            let mut model = amp.cast_model(Growing {
                layers: vec![layer(), layer()],
            });
            let mut optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
            for layers in [2, 1, 1] {
                model.layers.truncate(layers);
                let before = weight(&model, 0);
                let grads = GradientsParams::from_grads(loss(&model, layers).backward(), &model);
                model = optim.step(0.01, model, grads);
                assert_ne!(
                    before,
                    weight(&model, 0),
                    "{level}: the layer that stayed moves"
                );
            }
        });
    }
}
