//! A step whose gradients are not finite never happened.

mod support;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param, ParamId, list_param_ids};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Distribution, Tensor};
use burn_amp::{Amp, AmpConfig, AmpOptimizer, LossScaling, OptLevel, StepStatus};
use support::net::{Net, batch, bits};
use support::{HALVES, Mixed};

type Inner = <Mixed as AutodiffBackend>::InnerBackend;

type Optim = AmpOptimizer<OptimizerAdaptor<Adam, Net<Mixed>, Mixed>, Mixed>;

fn setup(amp: &Amp) -> (Net<Mixed>, Optim) {
    let model = amp.cast_model(Net::new(&Default::default()));
    (model, AmpOptimizer::new(AdamConfig::new().init(), amp))
}

/// Puts an infinity into the gradient of one parameter.
struct Poison<'a> {
    grads: &'a mut GradientsParams,
    id: ParamId,
}

impl ModuleVisitor<Mixed> for Poison<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Mixed, D>>) {
        if param.id == self.id {
            let grad = self
                .grads
                .remove::<Inner, D>(param.id)
                .expect("has a gradient");
            let grad = grad.mul_scalar(0.0).add_scalar(f32::INFINITY);
            self.grads.register::<Inner, D>(param.id, grad);
        }
    }
}

fn step(
    model: Net<Mixed>,
    optim: &mut Optim,
    x: Tensor<Mixed, 2>,
    poison: Option<ParamId>,
) -> Net<Mixed> {
    let loss = model.loss(x);
    let mut grads = GradientsParams::from_grads(loss.backward(), &model);
    if let Some(id) = poison {
        model.visit(&mut Poison {
            grads: &mut grads,
            id,
        });
    }
    optim.step(0.01, model, grads)
}

#[test]
fn an_injected_inf_leaves_exactly_that_step_out() {
    for (level, half) in [OptLevel::O1, OptLevel::O2]
        .into_iter()
        .flat_map(|l| HALVES.map(|h| (l, h)))
    {
        // Static, so that the reference's scale is the same; the dynamic scale has its own test.
        let amp = || {
            AmpConfig::new(level)
                .with_half(half)
                .with_loss_scale(LossScaling::Static(128.0))
                .build()
                .unwrap()
        };
        let amp_ref = amp();
        let positions = amp_ref.scope(|| trained(&setup(&amp_ref).0).len());
        for iteration in [0, 1] {
            for position in 0..positions {
                let amp = amp();
                let (got, outcome) = amp.scope(|| {
                    let (mut model, mut optim) = setup(&amp);
                    let mut outcome = None;
                    for i in 0..4 {
                        let poison = (i == iteration).then(|| trained(&model)[position]);
                        let before = bits(&model);
                        model = step(model, &mut optim, batch(i), poison);
                        if i == iteration {
                            outcome = optim.last_step();
                            let after = bits(&model);
                            let same = before.iter().zip(&after).all(|(a, b)| a.1 == b.1);
                            assert!(iteration == 0 || same, "the skipped step changed something");
                        }
                    }
                    (bits(&model), outcome.unwrap())
                });
                assert_eq!(outcome.status, StepStatus::Skipped);
                let reference = {
                    let amp = self::reference_amp(&amp);
                    amp.scope(|| {
                        let (mut model, mut optim) = setup(&amp);
                        for i in (0..4).filter(|i| *i != iteration) {
                            model = step(model, &mut optim, batch(i), None);
                        }
                        bits(&model)
                    })
                };
                for ((_, got), (_, reference)) in got.iter().zip(&reference) {
                    assert_eq!(
                        got, reference,
                        "{level} {half} iteration {iteration}, gradient {position}"
                    );
                }
            }
        }
    }
}

/// The parameters that have a gradient: the weights and biases of all layers, the norm's too.
fn trained(model: &Net<Mixed>) -> Vec<ParamId> {
    let linear = [&model.first, &model.last];
    let linear = linear.into_iter().flat_map(list_param_ids::<_, Mixed>);
    let trained: Vec<ParamId> = linear
        .chain([model.norm.gamma.id, model.norm.beta.id])
        .collect();
    assert_eq!(trained.len(), 6);
    trained
}

fn reference_amp(amp: &Amp) -> Amp {
    amp.config().clone().build().unwrap()
}

#[test]
fn a_forward_overflow_does_not_poison_batch_norm() {
    for at in [0, 2] {
        let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
        amp.scope(|| {
            let (mut model, mut optim) = setup(&amp);
            for i in 0..4 {
                let x = if i == at {
                    batch(i).mul_scalar(1e30)
                } else {
                    batch(i)
                };
                model = step(model, &mut optim, x, None);
                let skipped = optim.last_step().unwrap().was_skipped();
                assert_eq!(skipped, i == at, "step {i}");
            }
            let eval = model.valid();
            let stats = [
                eval.norm.running_mean.value_sync(),
                eval.norm.running_var.value_sync(),
            ];
            for stat in stats {
                assert_eq!(stat.dtype(), DType::F32);
                let values = stat.into_data().to_vec::<f32>().unwrap();
                assert!(
                    values.iter().all(|v| v.is_finite()),
                    "at step {at}: {values:?}"
                );
            }
        });
    }
}

#[test]
fn masters_move_where_half_weights_cannot() {
    let amp = AmpConfig::new(OptLevel::O2).build().unwrap();
    amp.scope(|| {
        let (mut model, mut optim) = setup(&amp);
        let x = Tensor::random([4, 6], Distribution::Default, &Default::default());
        for _ in 0..3 {
            model = step(model, &mut optim, x.clone(), None);
        }
        assert_eq!(model.first.weight.val().dtype(), DType::F16);
        assert_eq!(model.norm.gamma.val().dtype(), DType::F32);
        let full = optim.full_model(model.clone());
        assert_eq!(full.first.weight.val().dtype(), DType::F32);
        let master = full.first.weight.val().into_data().to_vec::<f32>().unwrap();
        let half = model
            .first
            .weight
            .val()
            .into_data()
            .to_vec::<f32>()
            .unwrap();
        assert!(master != half, "the master has digits that half has not");
        for (m, h) in master.iter().zip(&half) {
            assert_eq!(
                burn::tensor::f16::from_f32(*m).to_f32(),
                *h,
                "half = round(master)"
            );
        }
    });
}
