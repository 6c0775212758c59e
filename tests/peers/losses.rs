//! Several models, losses and optimizers: Apex's `test_multiple_models_optimizers_losses`.

use burn::tensor::{TensorData, f16};
use burn_amp::OptLevel;

use crate::support::Mixed;
use crate::support::gradients::gradients;
use crate::topologies::*;

#[test]
fn a19_scales_fall_independently() {
    let amp = settings(OptLevel::O2, Scales::PerLoss);
    amp.scope(|| {
        let mut training = Training::new(TWO_TWO_TWO, Scales::PerLoss, &amp);
        training.iterate(None, &[]);
        for _ in 0..3 {
            training.iterate(Some((1, W0)), &[]);
        }
        let scales = [0, 1].map(|loss| *training.scaler.loss_scale(loss).state());
        assert_eq!((scales[0].scale, scales[0].growth_tracker), (4.0, 4));
        assert_eq!((scales[1].scale, scales[1].growth_tracker), (2.0, 0));
        assert_eq!((scales[0].skipped, scales[1].skipped), (0, 3));
        let record = burn::optim::Optimizer::<Group, Mixed>::to_record(&training.optims[0]);
        assert_eq!(record.loss_scales()[1].scale(), 2.0, "the record shows it");
    });
}

#[test]
fn a20_every_topology_trains_under_one_scale_or_one_per_loss() {
    for level in LEVELS {
        for topology in TOPOLOGIES {
            for scales in SCALES {
                let amp = settings(level, scales);
                amp.scope(|| {
                    let mut training = Training::new(topology, scales, &amp);
                    let starts = match scales {
                        Scales::PerLoss => vec![4.0, 16.0],
                        Scales::Shared => vec![4.0],
                    };
                    for (loss, start) in starts.into_iter().enumerate() {
                        assert_eq!(training.scaler.loss_scale(loss).scale(), start);
                    }
                    let before = training.loss(0).into_scalar();
                    for _ in 0..ITERATIONS {
                        let skipped = training.iterate(None, &[]);
                        assert!(skipped.iter().all(|skipped| !skipped));
                    }
                    assert!(training.loss(0).into_scalar() < before, "{topology:?}");
                });
            }
        }
    }
}

/// Plain f32 numbers: two weights per model, momentum 0.125, learning rate 0.25.
#[derive(Clone, Copy)]
struct Reference {
    w: [[f32; 2]; 2],
    velocity: Option<[[f32; 2]; 2]>,
}

impl Reference {
    fn new(unique: f32) -> Self {
        Reference {
            w: [[unique, unique + 1.0], [1.0 + unique, 2.0 + unique]],
            velocity: None,
        }
    }

    /// The gradient of `losses` losses that contain this model: each weight's is the other weight.
    /// That of the half weight is half itself, and so is the half weight that the loss sees.
    fn grads(&self, losses: usize) -> [[f32; 2]; 2] {
        let half = |x: f32| f16::from_f32(x).to_f32();
        let times = |x: f32| x * losses as f32;
        [
            self.w[W1].map(|x| times(half(x))),
            self.w[W0].map(|x| times(half(x))),
        ]
    }

    fn step(&mut self, grads: [[f32; 2]; 2]) {
        let velocity = match self.velocity {
            None => grads,
            Some(old) => {
                core::array::from_fn(|w| core::array::from_fn(|i| grads[w][i] + old[w][i] * 0.125))
            }
        };
        for (w, v) in self.w.iter_mut().flatten().zip(velocity.iter().flatten()) {
            *w -= v * 0.25;
        }
        self.velocity = Some(velocity);
    }
}

#[test]
fn a21_without_overflow_every_gradient_and_weight_is_the_reference() {
    for topology in TOPOLOGIES {
        for scales in SCALES {
            let amp = settings(OptLevel::O2, scales);
            amp.scope(|| {
                let mut training = Training::new(topology, scales, &amp);
                let mut reference: Vec<Reference> =
                    (0..3).map(|m| Reference::new(1.0 + m as f32)).collect();
                for i in 0..ITERATIONS {
                    for (loss, models) in topology.losses.iter().enumerate() {
                        let of_loss = training.backward(loss);
                        for (o, grads) in of_loss.iter().enumerate() {
                            let Some(grads) = grads else { continue };
                            let got = gradients::<Mixed, _>(&training.groups[o], grads);
                            for (position, m) in topology.optimizers[o].iter().enumerate() {
                                for w in [W0, W1] {
                                    let got = got[2 * position + w].as_ref();
                                    let expected = models
                                        .contains(m)
                                        .then(|| TensorData::from(reference[*m].grads(1)[w]));
                                    assert_eq!(
                                        got,
                                        expected.as_ref(),
                                        "{topology:?} iteration {i} loss {loss} model {m} w{w}"
                                    );
                                }
                            }
                        }
                    }
                    training.iterate(None, &[]);
                    for (m, reference) in reference.iter_mut().enumerate() {
                        let losses = topology.losses.iter().filter(|ms| ms.contains(&m)).count();
                        if losses > 0 {
                            reference.step(reference.grads(losses));
                        }
                    }
                }
                let run = training.finish(Vec::new());
                for (o, models) in topology.optimizers.iter().enumerate() {
                    for (position, m) in models.iter().enumerate() {
                        let expected = reference[*m].w;
                        for w in [W0, W1] {
                            let master = &run.masters[o][2 * position + w];
                            assert_eq!(*master, TensorData::from(expected[w]), "master w{w}");
                        }
                        let model = &run.models[o][2 * position + W1];
                        let rounded = expected[W1].map(f16::from_f32);
                        assert_eq!(*model, TensorData::from(rounded), "model = round(master)");
                    }
                }
            });
        }
    }
}

#[test]
fn a22_an_overflow_leaves_out_exactly_the_steps_it_concerns() {
    let mut cases = 0;
    for level in LEVELS {
        for topology in TOPOLOGIES {
            for scales in SCALES {
                for case in 0..8 {
                    let injection = Injection {
                        iteration: case & 1,
                        loss: case >> 1 & 1,
                        parameter: [W0, W1][case >> 2],
                    };
                    let concerned = skips(topology, scales, injection.loss);
                    let got = run(level, topology, scales, Some(injection), |_| Vec::new());
                    let reference = run(level, topology, scales, None, |i| match i {
                        i if i == injection.iteration => concerned.clone(),
                        _ => Vec::new(),
                    });
                    assert_eq!(
                        got, reference,
                        "{level} {topology:?} {scales:?} {injection:?}"
                    );
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 128);
}

#[test]
fn a23_who_skips_is_whom_the_loss_reaches() {
    let of = |topology, loss| skips(topology, Scales::PerLoss, loss);
    assert_eq!(of(TWO_TWO_ONE, 0), [0]);
    assert_eq!(of(TWO_TWO_ONE, 1), [0]);
    assert_eq!(of(TWO_TWO_TWO, 0), [0]);
    assert_eq!(of(TWO_TWO_TWO, 1), [1]);
    assert_eq!(of(THREE_TWO_TWO, 0), [0]);
    assert_eq!(of(THREE_TWO_TWO, 1), [0, 1]);
    // And the optimizers do as the table says.
    for level in LEVELS {
        for loss in [0, 1] {
            let injection = Injection {
                iteration: 1,
                loss,
                parameter: W1,
            };
            let run = run(
                level,
                THREE_TWO_TWO,
                Scales::PerLoss,
                Some(injection),
                |_| Vec::new(),
            );
            assert_eq!(run.skipped[1], [true, loss == 1], "{level} loss {loss}");
            assert_eq!(
                run.skipped[2],
                [false, false],
                "{level}: the next one is clean"
            );
        }
    }
}

#[test]
fn a24_the_iteration_after_an_overflow_starts_clean() {
    // Apex has three ways of zeroing gradients; here a step uses them up, and a skipped one too.
    for topology in TOPOLOGIES {
        for parameter in [W0, W1] {
            let amp = settings(OptLevel::O2, Scales::PerLoss);
            amp.scope(|| {
                let mut training = Training::new(topology, Scales::PerLoss, &amp);
                assert!(training.iterate(Some((0, parameter)), &[])[0]);
                assert!(training.iterate(None, &[]).iter().all(|skipped| !skipped));
                let run = training.finish(Vec::new());
                let every = run.models.iter().chain(&run.masters).flatten();
                let mut finite = every.map(|data| data.iter::<f32>().all(f32::is_finite));
                assert!(finite.all(|finite| finite), "{topology:?}");
            });
        }
    }
}
