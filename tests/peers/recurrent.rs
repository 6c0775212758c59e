//! Recurrent layers: Apex's `test_rnn`, torch's RNN tests.
//!
//! Burn has no cells apart: a layer of one time step is one. Its layers collect their steps in an f32
//! tensor, so their output is f32 where the peers' is half; the products inside are half all the same.

use burn::module::Module;
use burn::nn::{
    BiGruConfig, BiLstmConfig, BiRnnConfig, GruConfig, LstmConfig, LstmState, RnnConfig, RnnState,
};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use burn_amp::{HalfDType, OptLevel, measure, scope};

use crate::support::net::fixed;
use crate::support::{HALVES, Mixed, Plain, amp, unit_roundoff, unless_it_panics};
use crate::{F32_AND_F16, constant, floats, gradient_dtype, leaf, o1};

const STEPS: usize = 10;
const HIDDEN: usize = 64;

/// A layer that was built on a backend, as a function of its input and perhaps a hidden state.
type Layer<B> = Box<dyn Fn(Tensor<B, 3>, Option<Tensor<B, 2>>) -> Tensor<B, 3>>;

fn gru<B: Backend>(input: usize, bias: bool) -> Layer<B> {
    let layer = fixed(GruConfig::new(input, HIDDEN, bias).init::<B>(&Default::default()));
    Box::new(move |x, hidden| layer.forward(x, hidden))
}

fn lstm<B: Backend>(input: usize, bias: bool) -> Layer<B> {
    let layer = fixed(LstmConfig::new(input, HIDDEN, bias).init::<B>(&Default::default()));
    Box::new(move |x, hidden| {
        let state = hidden.map(|hidden| LstmState::new(hidden.zeros_like(), hidden));
        layer.forward(x, state).0
    })
}

fn rnn<B: Backend>(input: usize, bias: bool) -> Layer<B> {
    let layer = fixed(RnnConfig::new(input, HIDDEN, bias).init::<B>(&Default::default()));
    Box::new(move |x, hidden| layer.forward(x, hidden.map(RnnState::new)).0)
}

fn bi_gru<B: Backend>(input: usize, bias: bool) -> Layer<B> {
    let layer = fixed(BiGruConfig::new(input, HIDDEN, bias).init::<B>(&Default::default()));
    Box::new(move |x, _| layer.forward(x, None).0)
}

fn bi_lstm<B: Backend>(input: usize, bias: bool) -> Layer<B> {
    let layer = fixed(BiLstmConfig::new(input, HIDDEN, bias).init::<B>(&Default::default()));
    Box::new(move |x, _| layer.forward(x, None).0)
}

fn bi_rnn<B: Backend>(input: usize, bias: bool) -> Layer<B> {
    let layer = fixed(BiRnnConfig::new(input, HIDDEN, bias).init::<B>(&Default::default()));
    Box::new(move |x, _| layer.forward(x, None).0)
}

type Build<B> = fn(usize, bool) -> Layer<B>;

const ONE_WAY: [Build<Mixed>; 3] = [rnn::<Mixed>, gru::<Mixed>, lstm::<Mixed>];
const BOTH_WAYS: [Build<Mixed>; 3] = [bi_rnn::<Mixed>, bi_gru::<Mixed>, bi_lstm::<Mixed>];

fn all<B: Backend>() -> [Build<B>; 6] {
    [rnn, gru, lstm, bi_rnn, bi_gru, bi_lstm]
}

#[test]
fn a13_cells_step_in_half_and_take_a_hidden_state_in_f32() {
    o1(|| {
        for build in ONE_WAY {
            for dtype in F32_AND_F16 {
                let cell = build(HIDDEN, true);
                let x = leaf::<Mixed, 3>([2, 1, HIDDEN], dtype);
                let mut hidden = constant::<Mixed, 2>([2, HIDDEN], DType::F32);
                for _ in 0..STEPS {
                    let y = cell(x.clone(), Some(hidden));
                    assert_eq!(y.dtype(), DType::F32);
                    hidden = y.reshape([2, HIDDEN]);
                }
                assert_eq!(gradient_dtype(&x, hidden), dtype);
                // The products are half: the weights have been cast.
                let (_, count) = measure(|| cell(x.clone(), None));
                assert!(count.saved >= 4, "{count:?}");
            }
        }
    });
}

#[test]
fn a14_stacks_of_layers_run_twice_in_both_directions() {
    o1(|| {
        for (builds, width) in [(ONE_WAY, HIDDEN), (BOTH_WAYS, 2 * HIDDEN)] {
            for build in builds {
                for dtype in F32_AND_F16 {
                    let layers = [build(8, true), build(width, true)];
                    let x = leaf::<Mixed, 3>([2, STEPS, 8], dtype);
                    let run = || layers.iter().fold(x.clone(), |x, layer| layer(x, None));
                    let (first, second) = (run(), run());
                    assert_eq!(first.dtype(), DType::F32);
                    assert_eq!(floats(&first), floats(&second));
                    assert_eq!(gradient_dtype(&x, second), dtype);
                }
            }
        }
    });
}

#[test]
fn t12_every_kind_of_layer_agrees_with_its_f32_control() {
    for half in HALVES {
        for (ours, control) in all::<Mixed>().into_iter().zip(all::<Plain>()) {
            for bias in [true, false] {
                for dtype in [DType::F32, half.dtype()] {
                    let x = leaf::<Mixed, 3>([2, STEPS, 8], dtype);
                    let (y, grad) = amp(OptLevel::O1, half).scope(|| {
                        let y = ours(8, bias)(x.clone(), None);
                        let grads = y.clone().mean().backward();
                        (floats(&y), floats(&x.grad(&grads).unwrap()))
                    });
                    let x = leaf::<Plain, 3>([2, STEPS, 8], DType::F32);
                    let z = control(8, bias)(x.clone(), None);
                    let grads = z.clone().mean().backward();
                    let (z, control) = (floats(&z), floats(&x.grad(&grads).unwrap()));
                    // As docs/numerics.md counts for an LSTM of ten steps: 50 roundings.
                    let bound = 50.0 * unit_roundoff(half);
                    for (got, control) in [(y, z), (grad, control)] {
                        let norm =
                            |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
                        let differences = got.iter().zip(&control);
                        let off = norm(&mut differences.map(|(a, b)| f64::from(a - b)));
                        let size = norm(&mut control.iter().map(|x| f64::from(*x)));
                        assert!(off <= bound * size, "{half} bias {bias}: {}", off / size);
                    }
                }
            }
        }
    }
}

#[test]
fn t13_mixed_dtypes_work_inside_a_region_and_not_outside() {
    let layer = LstmConfig::new(8, 8, true).init::<Mixed>(&Default::default());
    assert!(layer.num_params() > 0);
    let x = || leaf::<Mixed, 3>([2, 3, 8], DType::F16);
    let y = amp(OptLevel::O1, HalfDType::F16).scope(|| layer.forward(x(), None).0);
    assert!(floats(&y).iter().all(|y| y.is_finite()));
    let outside = unless_it_panics(|| scope::disabled(|| layer.forward(x(), None)));
    assert!(outside.is_none());
}
