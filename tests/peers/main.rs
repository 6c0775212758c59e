//! What the test suites of Apex, torch, JMP, Keras and DeepSpeed assert, asked of this library.
//!
//! Each test carries the number under which docs/conformance.md lists the behaviour: `a` for Apex's
//! `tests/L0/run_amp`, `t` for torch's autocast tests, `g` for those of torch's `GradScaler`, `b` for
//! the others. Where we deviate, the test shows what we do instead.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/topologies.rs"]
mod topologies;

mod conformance;
mod kernels;
mod losses;
mod operations;
mod records;
mod recurrent;
mod regions;
mod scale;
mod steps;
mod workers;

use burn::module::{Module, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use burn_amp::{HalfDType, OptLevel, scope};

use support::{Mixed, amp};

const F32_AND_F16: [DType; 2] = [DType::F32, DType::F16];

/// All pairs of f32 and f16.
fn pairs() -> impl Iterator<Item = (DType, DType)> {
    F32_AND_F16
        .into_iter()
        .flat_map(|a| F32_AND_F16.map(|b| (a, b)))
}

/// The wider of two of these dtypes.
fn widest(a: DType, b: DType) -> DType {
    if a == b { a } else { DType::F32 }
}

/// Values in [-3/4, 3/4], exact in every float dtype.
fn constant<B: Backend, const D: usize>(shape: [usize; D], dtype: DType) -> Tensor<B, D> {
    let count: usize = shape.iter().product();
    let value = |i: usize| ((i * 7 + 3) % 13) as f32 / 8.0 - 0.75;
    let data = TensorData::new((0..count).map(value).collect::<Vec<_>>(), shape);
    Tensor::from_data(data.convert_dtype(dtype), (&Default::default(), dtype))
}

/// The same as a tracked leaf.
fn leaf<B: AutodiffBackend, const D: usize>(shape: [usize; D], dtype: DType) -> Tensor<B, D> {
    constant(shape, dtype).require_grad()
}

/// Runs a block at O1 in f16.
fn o1<R>(block: impl FnOnce() -> R) -> R {
    amp(OptLevel::O1, HalfDType::F16).scope(block)
}

/// The values of a tensor as they are stored.
fn stored<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> TensorData {
    scope::disabled(|| tensor.to_data())
}

fn floats<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> Vec<f32> {
    stored(tensor).iter::<f32>().collect()
}

/// The dtype of a leaf's gradient for the sum of an output.
fn gradient_dtype<const D: usize, const E: usize>(
    leaf: &Tensor<Mixed, D>,
    output: Tensor<Mixed, E>,
) -> DType {
    let grads = output.sum().backward();
    leaf.grad(&grads).expect("the leaf was used").dtype()
}

/// A model whose gradient is the input: loss = sum(weight * x).
#[derive(Module, Debug)]
struct Dot<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl<B: Backend> Dot<B> {
    fn new(values: &[f32], dtype: FloatDType) -> Self {
        let weight = Tensor::<B, 1>::from_floats(values, &Default::default());
        Dot {
            weight: Param::from_tensor(scope::disabled(|| weight.cast(dtype))),
        }
    }

    /// In the dtype of the weight, and summed in f32.
    fn loss(&self, x: &[f32]) -> Tensor<B, 1> {
        let weight = self.weight.val();
        let x = Tensor::<B, 1>::from_floats(x, &Default::default()).cast(weight.dtype());
        (weight * x).cast(FloatDType::F32).sum()
    }

    fn values(&self) -> Vec<f32> {
        floats(&self.weight.val())
    }
}
