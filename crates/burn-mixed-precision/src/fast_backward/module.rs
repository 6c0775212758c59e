use burn_backend::{Backend, TensorMetadata};

use super::choose;
use crate::delegate::signatures::*;
use crate::{FastBackward, delegate};

impl<B: Backend> ModuleOps<Self> for FastBackward<B> {
    delegate::module!(B);

    forward! {
        fn layer_norm(tensor: FloatTensor<Self>, gamma: FloatTensor<Self>, beta: Option<FloatTensor<Self>>, epsilon: f64) -> FloatTensor<Self>;
    }

    fn conv1d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<1>,
    ) -> FloatTensor<Self> {
        match choose::<B, 1>(&x, &weight, &output_grad, &options) {
            Some(layout) => {
                layout.weight_gradient::<B, 1>(x, weight.shape(), output_grad, &options)
            }
            None => B::conv1d_weight_backward(x, weight, output_grad, options),
        }
    }

    fn conv2d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self> {
        match choose::<B, 2>(&x, &weight, &output_grad, &options) {
            Some(layout) => {
                layout.weight_gradient::<B, 2>(x, weight.shape(), output_grad, &options)
            }
            None => B::conv2d_weight_backward(x, weight, output_grad, options),
        }
    }

    fn conv3d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<3>,
    ) -> FloatTensor<Self> {
        match choose::<B, 3>(&x, &weight, &output_grad, &options) {
            Some(layout) => {
                layout.weight_gradient::<B, 3>(x, weight.shape(), output_grad, &options)
            }
            None => B::conv3d_weight_backward(x, weight, output_grad, options),
        }
    }
}
