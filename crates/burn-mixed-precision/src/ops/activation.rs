use burn_backend::ops::ActivationOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Scalar};

use crate::cast::{binary, unary, with_scalars};
use crate::{MixedPrecision, Op};

impl<B: Backend> ActivationOps<Self> for MixedPrecision<B> {
    fn leaky_relu(tensor: FloatTensor<Self>, negative_slope: Scalar) -> FloatTensor<Self> {
        with_scalars(
            Op::LeakyRelu,
            tensor,
            [negative_slope],
            |tensor, [slope]| B::leaky_relu(tensor, slope),
        )
    }

    fn relu(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::Relu, tensor, B::relu)
    }

    fn relu_backward(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::ReluBackward, output, grad, B::relu_backward)
    }

    fn gelu(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::Gelu, tensor, B::gelu)
    }

    fn prelu(tensor: FloatTensor<Self>, alpha: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::Prelu, tensor, alpha, B::prelu)
    }

    fn gelu_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::GeluBackward, x, grad, B::gelu_backward)
    }

    fn sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::Sigmoid, tensor, B::sigmoid)
    }

    fn sigmoid_backward(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::SigmoidBackward, output, grad, B::sigmoid_backward)
    }

    fn hard_sigmoid(tensor: FloatTensor<Self>, alpha: Scalar, beta: Scalar) -> FloatTensor<Self> {
        with_scalars(
            Op::HardSigmoid,
            tensor,
            [alpha, beta],
            |tensor, [alpha, beta]| B::hard_sigmoid(tensor, alpha, beta),
        )
    }

    fn log_sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::LogSigmoid, tensor, B::log_sigmoid)
    }

    fn softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::Softmax, tensor, |tensor| B::softmax(tensor, dim))
    }

    fn log_softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::LogSoftmax, tensor, |tensor| B::log_softmax(tensor, dim))
    }

    fn softmin(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::Softmin, tensor, |tensor| B::softmin(tensor, dim))
    }

    fn log_sigmoid_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::LogSigmoidBackward, x, grad, B::log_sigmoid_backward)
    }
}
