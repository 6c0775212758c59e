//! Random graphs of random operations over f32, f16 and bf16 leaves stay within a bound that is
//! computed, not chosen: every value and every gradient against the same graph in f64.
//!
//! The bound is a running error analysis. Beside each f64 value stands how far the decorated value
//! may be from it, and each operation passes it on: the inputs' errors times the operation's slopes,
//! plus one rounding to the dtype it computed in, which is read off the decorated tensor. Gradients
//! are treated alike, backwards. Underflow counts with half a subnormal's spacing; graphs whose bound
//! reaches the end of f16 are left out. A slope that jumps (relu) is uncertain where the bound
//! reaches the jump.
//!
//! `PROPTEST_CASES=20000 cargo test --test random_graphs_match_f64 -- --nocapture` runs longer and
//! prints how sharp the bound was.

mod bound;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Mutex;

use burn::nn::LayerNormConfig;
use burn::tensor::activation::{relu, sigmoid, softmax};
use burn::tensor::module::{conv1d, linear};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor, TensorData};
use burn_amp::{Amp, HalfDType, OptLevel, scope};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use bound::{Id, Pointwise, Tape};
use support::{HALVES, Mixed, amp};

/// An operation of a graph, on one to three earlier tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Matmul,
    Linear,
    Conv1d,
    Add,
    Sub,
    Mul,
    Div,
    Cat,
    Softmax,
    LayerNorm,
    Relu,
    Tanh,
    Sigmoid,
    Sqrt,
    Exp,
    Recip,
    SumDim,
    MeanDim,
    Transpose,
    AddScalar,
    MulScalar,
    ToHalf,
    ToFull,
}

const CALLS: [Call; 23] = [
    Call::Matmul,
    Call::Linear,
    Call::Conv1d,
    Call::Add,
    Call::Sub,
    Call::Mul,
    Call::Div,
    Call::Cat,
    Call::Softmax,
    Call::LayerNorm,
    Call::Relu,
    Call::Tanh,
    Call::Sigmoid,
    Call::Sqrt,
    Call::Exp,
    Call::Recip,
    Call::SumDim,
    Call::MeanDim,
    Call::Transpose,
    Call::AddScalar,
    Call::MulScalar,
    Call::ToHalf,
    Call::ToFull,
];

/// Tensors are 4 x 4, or broadcast to it.
const SHAPES: [[usize; 2]; 4] = [[4, 4], [1, 4], [4, 1], [1, 1]];
const EPSILON: f64 = 0.25;

#[derive(Debug, Clone)]
struct Leaf {
    shape: [usize; 2],
    dtype: DType,
    values: Vec<f32>,
}

#[derive(Debug, Clone)]
struct Line {
    call: Call,
    inputs: [Index; 3],
}

#[derive(Debug, Clone)]
struct Graph {
    level: OptLevel,
    half: HalfDType,
    loss_scale: Option<f32>,
    leaves: Vec<Leaf>,
    lines: Vec<Line>,
}

fn graph() -> impl Strategy<Value = Graph> {
    let leaf = (
        select(SHAPES.to_vec()),
        select(vec![DType::F32, DType::F32, DType::F16, DType::BF16]),
        prop::collection::vec(-1f32..1.0, 16),
    )
        .prop_map(|(shape, dtype, mut values)| {
            values.truncate(shape[0] * shape[1]);
            Leaf {
                shape,
                dtype,
                values,
            }
        });
    let line = (select(CALLS.to_vec()), any::<[Index; 3]>())
        .prop_map(|(call, inputs)| Line { call, inputs });
    (
        select(vec![OptLevel::O1, OptLevel::O2, OptLevel::O3]),
        select(HALVES.to_vec()),
        prop::option::of(select(vec![1f32, 64.0])),
        prop::collection::vec(leaf, 2..5),
        prop::collection::vec(line, 1..16),
    )
        .prop_map(|(level, half, loss_scale, leaves, lines)| Graph {
            level,
            half,
            loss_scale,
            leaves,
            lines,
        })
}

/// A tensor of the graph: as the decorator computed it, and in f64 with its bound.
#[derive(Clone)]
struct Node {
    mixed: Tensor<Mixed, 2>,
    id: Id,
}

struct Pair {
    level: OptLevel,
    half: HalfDType,
    tape: Tape,
    nodes: Vec<Node>,
}

impl Pair {
    fn leaf(&mut self, leaf: &Leaf) {
        let data = TensorData::new(leaf.values.clone(), leaf.shape).convert_dtype(leaf.dtype);
        let mixed = Tensor::from_data(data.clone(), (&Default::default(), leaf.dtype));
        let id = self.tape.leaf(data);
        self.nodes.push(Node {
            mixed: mixed.require_grad(),
            id,
        });
    }

    fn dims(&self, node: &Node) -> [usize; 2] {
        node.mixed.dims()
    }

    /// The operation itself where its inputs are in its domain, else one that takes anything.
    fn admissible(&self, call: Call, [a, b, c]: [&Node; 3]) -> Call {
        let [a_dims, b_dims, c_dims] = [a, b, c].map(|node| self.dims(node));
        let (low, high) = self.tape.range(a.id);
        let (b_low, b_high) = self.tape.range(b.id);
        match call {
            Call::Matmul if a_dims[1] != b_dims[0] => Call::Mul,
            Call::Linear if a_dims[1] != 4 || b_dims != [4, 4] || c_dims != [1, 4] => Call::Add,
            Call::Conv1d | Call::Cat if a_dims != [4, 4] || b_dims != [4, 4] => Call::Sub,
            Call::LayerNorm if a_dims[1] != 4 => Call::Relu,
            Call::Exp if high > 3.0 => Call::Tanh,
            Call::Sqrt if low < 0.25 => Call::Sigmoid,
            Call::Recip if low < 0.25 && high > -0.25 => Call::Softmax,
            Call::Div if b_low < 0.25 && b_high > -0.25 => Call::Mul,
            call => call,
        }
    }

    fn run(&mut self, line: &Line) {
        let inputs = line
            .inputs
            .map(|index| self.nodes[index.index(self.nodes.len())].clone());
        let call = self.admissible(line.call, inputs.each_ref());
        let [a, b, c] = inputs;
        let mixed = self.decorated(call, a.mixed.clone(), b.mixed.clone(), c.mixed.clone());
        let inputs = [&a, &b, &c].map(|node| (node.id, node.mixed.dtype()));
        let id = self.reference(call, inputs, mixed.dtype());
        self.nodes.push(Node { mixed, id });
    }

    fn decorated(
        &self,
        call: Call,
        a: Tensor<Mixed, 2>,
        b: Tensor<Mixed, 2>,
        c: Tensor<Mixed, 2>,
    ) -> Tensor<Mixed, 2> {
        match call {
            Call::Matmul => a.matmul(b),
            Call::Linear => linear(a, b, Some(c.reshape([4]))),
            Call::Conv1d => {
                let options = ConvOptions::new([1], [1], [1], 1);
                let weight = Tensor::cat(vec![b.clone(), b.clone(), b], 1).reshape([4, 4, 3]);
                conv1d(a.reshape([1, 4, 4]), weight, None, options).reshape([4, 4])
            }
            Call::Add => a + b,
            Call::Sub => a - b,
            Call::Mul => a * b,
            Call::Div => a / b,
            Call::Cat => Tensor::cat(vec![a, b], 0).slice([2..6, 0..4]),
            Call::Softmax => softmax(a, 1),
            Call::LayerNorm => LayerNormConfig::new(4)
                .with_epsilon(EPSILON)
                .init(&a.device())
                .forward(a),
            Call::Relu => relu(a),
            Call::Tanh => a.tanh(),
            Call::Sigmoid => sigmoid(a),
            Call::Sqrt => a.sqrt(),
            Call::Exp => a.exp(),
            Call::Recip => a.recip(),
            Call::SumDim => a.sum_dim(0),
            Call::MeanDim => a.mean_dim(1),
            Call::Transpose => a.transpose(),
            Call::AddScalar => a + 1.5,
            Call::MulScalar => a * -0.3,
            Call::ToHalf => a.cast(self.half.float_dtype()),
            Call::ToFull => a.cast(DType::F32),
        }
    }

    /// The same in f64, with the roundings of an operation that computes in one dtype: its inputs
    /// are cast to it, its output to the dtype that the decorated one has.
    fn reference(&mut self, call: Call, inputs: [(Id, DType); 3], out: DType) -> Id {
        let full = self.level != OptLevel::O3
            && matches!(
                call,
                Call::Softmax
                    | Call::LayerNorm
                    | Call::Exp
                    | Call::Recip
                    | Call::SumDim
                    | Call::MeanDim
            );
        let compute = if full { DType::F32 } else { out };
        let tape = &mut self.tape;
        let [a, b, c] = inputs.map(|(id, dtype)| tape.cast(id, dtype, compute));
        let y = match call {
            Call::Matmul => tape.matmul(a, b, compute),
            Call::Linear => {
                let product = tape.matmul(a, b, compute);
                tape.add(product, c, compute)
            }
            Call::Conv1d => tape.conv1d(a, b, compute),
            Call::Add => tape.add(a, b, compute),
            Call::Sub => tape.sub(a, b, compute),
            Call::Mul => tape.mul(a, b, compute),
            Call::Div => {
                let inverse = tape.pointwise(Pointwise::Recip, b, compute);
                tape.mul(a, inverse, compute)
            }
            Call::Cat => tape.cat_and_slice(a, b, compute),
            Call::Softmax => tape.softmax(a, compute),
            Call::LayerNorm => tape.layer_norm(a, EPSILON, compute),
            Call::Relu => tape.pointwise(Pointwise::Relu, a, compute),
            Call::Tanh => tape.pointwise(Pointwise::Tanh, a, compute),
            Call::Sigmoid => tape.pointwise(Pointwise::Sigmoid, a, compute),
            Call::Sqrt => tape.pointwise(Pointwise::Sqrt, a, compute),
            Call::Exp => tape.pointwise(Pointwise::Exp, a, compute),
            Call::Recip => tape.pointwise(Pointwise::Recip, a, compute),
            Call::SumDim => tape.sum_dim(a, 0, compute),
            Call::MeanDim => tape.mean_dim(a, 1, compute),
            Call::Transpose => tape.transpose(a, compute),
            Call::AddScalar => tape.add_scalar(a, 1.5, compute),
            Call::MulScalar => tape.mul_scalar(a, -0.3, compute),
            Call::ToHalf | Call::ToFull => a,
        };
        tape.cast(y, compute, out)
    }
}

/// Fixed weights of the loss, so that no gradient cancels by symmetry.
fn weights(dims: [usize; 2]) -> TensorData {
    let weight = |i: usize| (0.9 * i as f32 + 0.4).sin();
    TensorData::new(
        (0..dims[0] * dims[1]).map(weight).collect::<Vec<f32>>(),
        dims,
    )
}

/// How sharp the bounds were, over all graphs of this process.
#[derive(Debug, Default)]
struct Sharpness {
    graphs: usize,
    out_of_range: usize,
    /// Gradients whose bound is below a tenth of their largest element.
    sharp: usize,
    gradients: usize,
    /// The largest error, as a share of its bound.
    used: f64,
}

static SHARPNESS: Mutex<Sharpness> = Mutex::new(Sharpness {
    graphs: 0,
    out_of_range: 0,
    sharp: 0,
    gradients: 0,
    used: 0.0,
});

/// The largest error as a share of its bound, over the elements of one tensor.
fn used(got: &TensorData, value: &[f64], bound: &[f64]) -> Result<f64, TestCaseError> {
    let got: Vec<f64> = got.iter::<f64>().collect();
    prop_assert_eq!(got.len(), value.len());
    let mut most = 0f64;
    for ((got, value), bound) in got.iter().zip(value).zip(bound) {
        let error = (got - value).abs();
        // The f64 arithmetic of reference and bound itself is good for 1e-12.
        let allowed = bound + 1e-12 * value.abs().max(1e-30);
        prop_assert!(
            error <= allowed,
            "{} instead of {}: off by {:e}, bound {:e}",
            got,
            value,
            error,
            allowed
        );
        if *bound > 0.0 {
            most = most.max(error / bound);
        }
    }
    Ok(most)
}

fn check(graph: &Graph) -> Result<(), TestCaseError> {
    let amp: Amp = amp(graph.level, graph.half);
    if let Some(scale) = graph.loss_scale {
        amp.loss_scales().set(0, scale);
        amp.loss_scales().attach();
    }
    amp.scope(|| {
        let mut pair = Pair {
            level: graph.level,
            half: graph.half,
            tape: Tape::new(graph.half),
            nodes: Vec::new(),
        };
        for leaf in &graph.leaves {
            pair.leaf(leaf);
        }
        for line in &graph.lines {
            pair.run(line);
        }
        let last: Vec<Node> = pair.nodes.iter().rev().take(2).cloned().collect();
        let mut losses = Vec::new();
        for node in last {
            let weights = weights(pair.dims(&node));
            let mixed = Tensor::<Mixed, 2>::from_data(weights.clone(), &Default::default());
            losses.push((node.mixed.clone() * mixed).sum());
            let id = pair.tape.cast(node.id, node.mixed.dtype(), DType::F32);
            let weights = pair.tape.leaf(weights);
            let product = pair.tape.mul(id, weights, DType::F32);
            pair.tape.add_to_loss(product);
        }
        let loss = losses.into_iter().reduce(|a, b| a + b).expect("two losses");
        let gradients = pair.tape.gradients();
        let scale = graph.loss_scale.unwrap_or(1.0);
        let mut sharpness = Sharpness {
            graphs: 1,
            ..Sharpness::default()
        };
        if pair.tape.leaves_half(&gradients, scale.into()) {
            sharpness.out_of_range = 1;
        } else {
            for (n, node) in pair.nodes.iter().enumerate() {
                let data = scope::disabled(|| node.mixed.to_data());
                let (value, bound) = pair.tape.data(node.id);
                let used = used(&data, &value, &bound)
                    .map_err(|e| TestCaseError::fail(format!("value {n}: {e}")))?;
                sharpness.used = sharpness.used.max(used);
            }
            let grads = loss.backward();
            for (n, (node, leaf)) in pair.nodes.iter().zip(&graph.leaves).enumerate() {
                let got = node.mixed.grad(&grads);
                let Some((value, bound)) = &gradients[node.id.index()] else {
                    // Zero in f64 is zero, or no gradient at all.
                    let zero = got.is_none_or(|g| g.abs().max().into_scalar() == 0.0);
                    prop_assert!(zero, "leaf {} has a gradient and should not", n);
                    continue;
                };
                prop_assert!(got.is_some(), "leaf {} has lost its gradient", n);
                let got = scope::disabled(|| got.unwrap().into_data());
                let dtype = match graph.loss_scale {
                    Some(_) => DType::F32,
                    None => leaf.dtype,
                };
                prop_assert_eq!(got.dtype, dtype, "gradient of leaf {}", n);
                let (value, bound) = (bound::flat(value), bound::flat(bound));
                let used = used(&got, &value, &bound)
                    .map_err(|e| TestCaseError::fail(format!("gradient of leaf {n}: {e}")))?;
                sharpness.used = sharpness.used.max(used);
                sharpness.gradients += 1;
                let largest = |x: &[f64]| x.iter().fold(0f64, |m, x| m.max(x.abs()));
                sharpness.sharp += usize::from(largest(&bound) < 0.1 * largest(&value));
            }
        }
        let mut all = SHARPNESS.lock().unwrap_or_else(|e| e.into_inner());
        all.graphs += sharpness.graphs;
        all.out_of_range += sharpness.out_of_range;
        all.sharp += sharpness.sharp;
        all.gradients += sharpness.gradients;
        all.used = all.used.max(sharpness.used);
        Ok(())
    })
}

#[test]
fn every_value_and_gradient_is_within_its_bound() {
    // Shrinking leaves a graph of a line or two, which is a better record than a seed.
    let config = proptest::test_runner::Config {
        failure_persistence: None,
        ..Default::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner.run(&graph(), |graph| check(&graph)).unwrap();
    let all = SHARPNESS.lock().unwrap();
    println!("{all:?}");
    // A bound that is as large as the gradient would say nothing.
    assert!(all.out_of_range * 4 < all.graphs, "{all:?}");
    assert!(all.sharp * 2 > all.gradients, "{all:?}");
}
