use burn_backend::Backend;
use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
    DeformConvOptions, InterpolateOptions, MaxPool1dBackward, MaxPool1dWithIndices,
    MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps, UnfoldOptions,
};
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn_backend::{Shape, TensorMetadata};

use super::attention;
use crate::cast::{Plan, affine, binary, unary};
use crate::tensor::MixedTensor;
use crate::{HalfDType, MixedPrecision, Op, Policy, scope};

/// `linear` over all rows at once, so that the weight's gradient is one product: see
/// [`Policy::flattens_linear`].
fn flat_linear<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let mut shape = x.shape();
    let last = shape.num_dims() - 1;
    let rows = (0..last).map(|dim| shape[dim]).product();
    let x = B::float_reshape(x, Shape::new([rows, shape[last]]));
    let output = B::linear(x, weight, bias);
    shape[last] = output.shape()[1];
    B::float_reshape(output, shape)
}

impl<B: Backend> ModuleOps<Self> for MixedPrecision<B> {
    fn embedding(weights: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self> {
        unary(Op::Embedding, weights, |weights| {
            B::embedding(weights, indices)
        })
    }

    fn embedding_backward(
        weights: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        indices: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        unary(Op::EmbeddingBackward, output_grad, |output_grad| {
            B::embedding_backward(weights.inner, output_grad, indices)
        })
    }

    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let flat = x.rank() > 2
            && scope::policy(
                || B::float_device(&x.inner),
                |policy| policy.is_some_and(Policy::flattens_linear),
            );
        match flat {
            true => affine(Op::Linear, x, weight, bias, flat_linear::<B>),
            false => affine(Op::Linear, x, weight, bias, B::linear),
        }
    }

    fn linear_x_backward(
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(
            Op::LinearXBackward,
            weight,
            output_grad,
            B::linear_x_backward,
        )
    }

    fn linear_weight_backward(
        x: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(
            Op::LinearWeightBackward,
            x,
            output_grad,
            B::linear_weight_backward,
        )
    }

    fn linear_bias_backward(output_grad: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::LinearBiasBackward, output_grad, B::linear_bias_backward)
    }

    fn conv1d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: ConvOptions<1>,
    ) -> FloatTensor<Self> {
        affine(Op::Conv1d, x, weight, bias, |x, weight, bias| {
            B::conv1d(x, weight, bias, options)
        })
    }

    fn conv1d_x_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<1>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::Conv1dXBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv1d_x_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv1d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<1>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::Conv1dWeightBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv1d_weight_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv1d_bias_backward(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unary(Op::Conv1dBiasBackward, output_grad, |output_grad| {
            B::conv1d_bias_backward(x.inner, bias.inner, output_grad)
        })
    }

    fn conv2d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self> {
        affine(Op::Conv2d, x, weight, bias, |x, weight, bias| {
            B::conv2d(x, weight, bias, options)
        })
    }

    fn conv2d_x_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::Conv2dXBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv2d_x_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv2d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::Conv2dWeightBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv2d_weight_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv2d_bias_backward(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unary(Op::Conv2dBiasBackward, output_grad, |output_grad| {
            B::conv2d_bias_backward(x.inner, bias.inner, output_grad)
        })
    }

    fn deform_conv2d(
        x: FloatTensor<Self>,
        offset: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        mask: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        options: DeformConvOptions<2>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::DeformConv2d,
            &[
                Some(&x),
                Some(&offset),
                Some(&weight),
                mask.as_ref(),
                bias.as_ref(),
            ],
        );
        plan.finish(B::deform_conv2d(
            plan.cast(x),
            plan.cast(offset),
            plan.cast(weight),
            mask.map(|mask| plan.cast(mask)),
            bias.map(|bias| plan.cast(bias)),
            options,
        ))
    }

    fn deform_conv2d_backward(
        x: FloatTensor<Self>,
        offset: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        mask: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        output_grad: FloatTensor<Self>,
        options: DeformConvOptions<2>,
    ) -> DeformConv2dBackward<Self> {
        let plan = Plan::new(
            Op::DeformConv2dBackward,
            &[
                Some(&x),
                Some(&offset),
                Some(&weight),
                mask.as_ref(),
                bias.as_ref(),
                Some(&output_grad),
            ],
        );
        let grads = B::deform_conv2d_backward(
            plan.cast(x),
            plan.cast(offset),
            plan.cast(weight),
            mask.map(|mask| plan.cast(mask)),
            bias.map(|bias| plan.cast(bias)),
            plan.cast(output_grad),
            options,
        );
        DeformConv2dBackward::new(
            plan.finish(grads.x_grad),
            plan.finish(grads.offset_grad),
            plan.finish(grads.weight_grad),
            grads.mask_grad.map(|grad| plan.finish(grad)),
            grads.bias_grad.map(|grad| plan.finish(grad)),
        )
    }

    fn conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: ConvOptions<3>,
    ) -> FloatTensor<Self> {
        affine(Op::Conv3d, x, weight, bias, |x, weight, bias| {
            B::conv3d(x, weight, bias, options)
        })
    }

    fn conv3d_x_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<3>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::Conv3dXBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv3d_x_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv3d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvOptions<3>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::Conv3dWeightBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv3d_weight_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv3d_bias_backward(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unary(Op::Conv3dBiasBackward, output_grad, |output_grad| {
            B::conv3d_bias_backward(x.inner, bias.inner, output_grad)
        })
    }

    fn conv_transpose1d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: ConvTransposeOptions<1>,
    ) -> FloatTensor<Self> {
        affine(Op::ConvTranspose1d, x, weight, bias, |x, weight, bias| {
            B::conv_transpose1d(x, weight, bias, options)
        })
    }

    fn conv_transpose1d_x_backward(
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvTransposeOptions<1>,
    ) -> FloatTensor<Self> {
        binary(
            Op::ConvTranspose1dXBackward,
            weight,
            output_grad,
            |weight, output_grad| B::conv_transpose1d_x_backward(weight, output_grad, options),
        )
    }

    fn conv_transpose1d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvTransposeOptions<1>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::ConvTranspose1dWeightBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv_transpose1d_weight_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv_transpose1d_bias_backward(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unary(
            Op::ConvTranspose1dBiasBackward,
            output_grad,
            |output_grad| B::conv_transpose1d_bias_backward(x.inner, bias.inner, output_grad),
        )
    }

    fn conv_transpose2d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: ConvTransposeOptions<2>,
    ) -> FloatTensor<Self> {
        affine(Op::ConvTranspose2d, x, weight, bias, |x, weight, bias| {
            B::conv_transpose2d(x, weight, bias, options)
        })
    }

    fn conv_transpose2d_x_backward(
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvTransposeOptions<2>,
    ) -> FloatTensor<Self> {
        binary(
            Op::ConvTranspose2dXBackward,
            weight,
            output_grad,
            |weight, output_grad| B::conv_transpose2d_x_backward(weight, output_grad, options),
        )
    }

    fn conv_transpose2d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvTransposeOptions<2>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::ConvTranspose2dWeightBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv_transpose2d_weight_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv_transpose2d_bias_backward(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unary(
            Op::ConvTranspose2dBiasBackward,
            output_grad,
            |output_grad| B::conv_transpose2d_bias_backward(x.inner, bias.inner, output_grad),
        )
    }

    fn conv_transpose3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: ConvTransposeOptions<3>,
    ) -> FloatTensor<Self> {
        affine(Op::ConvTranspose3d, x, weight, bias, |x, weight, bias| {
            B::conv_transpose3d(x, weight, bias, options)
        })
    }

    fn conv_transpose3d_x_backward(
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvTransposeOptions<3>,
    ) -> FloatTensor<Self> {
        binary(
            Op::ConvTranspose3dXBackward,
            weight,
            output_grad,
            |weight, output_grad| B::conv_transpose3d_x_backward(weight, output_grad, options),
        )
    }

    fn conv_transpose3d_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        options: ConvTransposeOptions<3>,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::ConvTranspose3dWeightBackward,
            &[Some(&x), Some(&weight), Some(&output_grad)],
        );
        plan.finish(B::conv_transpose3d_weight_backward(
            plan.cast(x),
            plan.cast(weight),
            plan.cast(output_grad),
            options,
        ))
    }

    fn conv_transpose3d_bias_backward(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unary(
            Op::ConvTranspose3dBiasBackward,
            output_grad,
            |output_grad| B::conv_transpose3d_bias_backward(x.inner, bias.inner, output_grad),
        )
    }

    fn unfold4d(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        options: UnfoldOptions,
    ) -> FloatTensor<Self> {
        unary(Op::Unfold4d, x, |x| B::unfold4d(x, kernel_size, options))
    }

    fn avg_pool1d(
        x: FloatTensor<Self>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> FloatTensor<Self> {
        unary(Op::AvgPool1d, x, |x| {
            B::avg_pool1d(
                x,
                kernel_size,
                stride,
                padding,
                count_include_pad,
                ceil_mode,
            )
        })
    }

    fn avg_pool1d_backward(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> FloatTensor<Self> {
        binary(Op::AvgPool1dBackward, x, grad, |x, grad| {
            B::avg_pool1d_backward(
                x,
                grad,
                kernel_size,
                stride,
                padding,
                count_include_pad,
                ceil_mode,
            )
        })
    }

    fn avg_pool2d(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> FloatTensor<Self> {
        unary(Op::AvgPool2d, x, |x| {
            B::avg_pool2d(
                x,
                kernel_size,
                stride,
                padding,
                count_include_pad,
                ceil_mode,
            )
        })
    }

    fn avg_pool2d_backward(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> FloatTensor<Self> {
        binary(Op::AvgPool2dBackward, x, grad, |x, grad| {
            B::avg_pool2d_backward(
                x,
                grad,
                kernel_size,
                stride,
                padding,
                count_include_pad,
                ceil_mode,
            )
        })
    }

    fn adaptive_avg_pool2d(x: FloatTensor<Self>, output_size: [usize; 2]) -> FloatTensor<Self> {
        unary(Op::AdaptiveAvgPool2d, x, |x| {
            B::adaptive_avg_pool2d(x, output_size)
        })
    }

    fn adaptive_avg_pool2d_backward(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(
            Op::AdaptiveAvgPool2dBackward,
            x,
            grad,
            B::adaptive_avg_pool2d_backward,
        )
    }

    fn adaptive_avg_pool1d(x: FloatTensor<Self>, output_size: usize) -> FloatTensor<Self> {
        unary(Op::AdaptiveAvgPool1d, x, |x| {
            B::adaptive_avg_pool1d(x, output_size)
        })
    }

    fn adaptive_avg_pool1d_backward(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(
            Op::AdaptiveAvgPool1dBackward,
            x,
            grad,
            B::adaptive_avg_pool1d_backward,
        )
    }

    fn max_pool1d(
        x: FloatTensor<Self>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> FloatTensor<Self> {
        unary(Op::MaxPool1d, x, |x| {
            B::max_pool1d(x, kernel_size, stride, padding, dilation, ceil_mode)
        })
    }

    fn max_pool1d_with_indices(
        x: FloatTensor<Self>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> MaxPool1dWithIndices<Self> {
        let plan = Plan::new(Op::MaxPool1dWithIndices, &[Some(&x)]);
        let pooled = B::max_pool1d_with_indices(
            plan.cast(x),
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
        );
        MaxPool1dWithIndices::new(plan.finish(pooled.output), pooled.indices)
    }

    fn max_pool1d_with_indices_backward(
        x: FloatTensor<Self>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        output_grad: FloatTensor<Self>,
        indices: IntTensor<Self>,
    ) -> MaxPool1dBackward<Self> {
        let plan = Plan::new(
            Op::MaxPool1dWithIndicesBackward,
            &[Some(&x), Some(&output_grad)],
        );
        let grads = B::max_pool1d_with_indices_backward(
            plan.cast(x),
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            plan.cast(output_grad),
            indices,
        );
        MaxPool1dBackward::new(plan.finish(grads.x_grad))
    }

    fn max_pool2d(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> FloatTensor<Self> {
        unary(Op::MaxPool2d, x, |x| {
            B::max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode)
        })
    }

    fn max_pool2d_with_indices(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> MaxPool2dWithIndices<Self> {
        let plan = Plan::new(Op::MaxPool2dWithIndices, &[Some(&x)]);
        let pooled = B::max_pool2d_with_indices(
            plan.cast(x),
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
        );
        MaxPool2dWithIndices::new(plan.finish(pooled.output), pooled.indices)
    }

    fn max_pool2d_with_indices_backward(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        output_grad: FloatTensor<Self>,
        indices: IntTensor<Self>,
    ) -> MaxPool2dBackward<Self> {
        let plan = Plan::new(
            Op::MaxPool2dWithIndicesBackward,
            &[Some(&x), Some(&output_grad)],
        );
        let grads = B::max_pool2d_with_indices_backward(
            plan.cast(x),
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            plan.cast(output_grad),
            indices,
        );
        MaxPool2dBackward::new(plan.finish(grads.x_grad))
    }

    fn interpolate(
        x: FloatTensor<Self>,
        output_size: [usize; 2],
        options: InterpolateOptions,
    ) -> FloatTensor<Self> {
        unary(Op::Interpolate, x, |x| {
            B::interpolate(x, output_size, options)
        })
    }

    fn interpolate_backward(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        output_size: [usize; 2],
        options: InterpolateOptions,
    ) -> FloatTensor<Self> {
        binary(Op::InterpolateBackward, x, grad, |x, grad| {
            B::interpolate_backward(x, grad, output_size, options)
        })
    }

    fn attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: Option<BoolTensor<Self>>,
        attn_bias: Option<FloatTensor<Self>>,
        options: AttentionModuleOptions,
    ) -> FloatTensor<Self> {
        let plan = Plan::new(
            Op::Attention,
            &[Some(&query), Some(&key), Some(&value), attn_bias.as_ref()],
        );
        let half = HalfDType::of(plan.inside(query.dtype()));
        let refined = attn_bias.is_some();
        let (query, key, value) = (plan.cast(query), plan.cast(key), plan.cast(value));
        plan.finish(match half {
            Some(half) if attention::is_composed::<B>(&query, refined, &options) => {
                let bias = attn_bias.map(MixedTensor::into_inner);
                attention::composed::<B>(half, query, key, value, mask, bias, options)
            }
            _ => {
                let bias = attn_bias.map(|bias| plan.cast(bias));
                B::attention(query, key, value, mask, bias, options)
            }
        })
    }

    fn layer_norm(
        tensor: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let inputs = [Some(&tensor), Some(&gamma), beta.as_ref()];
        let (plan, _) = Plan::beside(Op::LayerNorm, &inputs, [epsilon.into()]);
        plan.finish(B::layer_norm(
            plan.cast(tensor),
            plan.cast(gamma),
            beta.map(|beta| plan.cast(beta)),
            epsilon,
        ))
    }

    fn ctc_loss(
        log_probs: FloatTensor<Self>,
        targets: IntTensor<Self>,
        input_lengths: IntTensor<Self>,
        target_lengths: IntTensor<Self>,
        blank: usize,
    ) -> FloatTensor<Self> {
        unary(Op::CtcLoss, log_probs, |log_probs| {
            B::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank)
        })
    }

    forward! {
        fn has_ctc_loss_backward() -> bool;
    }

    fn ctc_loss_backward(
        log_probs: FloatTensor<Self>,
        targets: IntTensor<Self>,
        input_lengths: IntTensor<Self>,
        target_lengths: IntTensor<Self>,
        grad_loss: FloatTensor<Self>,
        blank: usize,
    ) -> FloatTensor<Self> {
        binary(
            Op::CtcLossBackward,
            log_probs,
            grad_loss,
            |log_probs, grad_loss| {
                B::ctc_loss_backward(
                    log_probs,
                    targets,
                    input_lengths,
                    target_lengths,
                    grad_loss,
                    blank,
                )
            },
        )
    }

    fn rfft(
        signal: FloatTensor<Self>,
        dim: usize,
        n: Option<usize>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let plan = Plan::new(Op::Rfft, &[Some(&signal)]);
        let (re, im) = B::rfft(plan.cast(signal), dim, n);
        (plan.finish(re), plan.finish(im))
    }

    fn irfft(
        spectrum_re: FloatTensor<Self>,
        spectrum_im: FloatTensor<Self>,
        dim: usize,
        n: Option<usize>,
    ) -> FloatTensor<Self> {
        binary(
            Op::Irfft,
            spectrum_re,
            spectrum_im,
            |spectrum_re, spectrum_im| B::irfft(spectrum_re, spectrum_im, dim, n),
        )
    }
}
