use core::future::Future;

use burn_backend::ops::QTensorOps;
use burn_backend::quantization::QuantScheme;
use burn_backend::tensor::quantization::QuantizationParametersPrimitive;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{
    Backend, BoolDType, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
    TensorPrimitive,
};

use crate::FastBackward;
use crate::ops::forward;

/// The same tensor: only the type that names its backend differs.
fn wrap<B: Backend>(tensor: TensorPrimitive<B>) -> TensorPrimitive<FastBackward<B>> {
    match tensor {
        TensorPrimitive::Float(tensor) => TensorPrimitive::Float(tensor),
        TensorPrimitive::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
    }
}

fn unwrap<B: Backend>(tensor: TensorPrimitive<FastBackward<B>>) -> TensorPrimitive<B> {
    match tensor {
        TensorPrimitive::Float(tensor) => TensorPrimitive::Float(tensor),
        TensorPrimitive::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
    }
}

/// As `forward!`, for operations whose output may be a float tensor or a quantized one.
macro_rules! forward_wrapped {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(fn $name($($arg: $ty),*) -> TensorPrimitive<Self> { wrap(B::$name($($arg),*)) })*
    };
}

impl<B: Backend> QTensorOps<Self> for FastBackward<B> {
    forward! {
        fn q_from_data(data: TensorData, device: &Device<Self>) -> QuantizedTensor<Self>;
    }

    fn quantize(
        tensor: FloatTensor<Self>,
        scheme: &QuantScheme,
        qparams: QuantizationParametersPrimitive<Self>,
    ) -> QuantizedTensor<Self> {
        let qparams = QuantizationParametersPrimitive {
            scales: qparams.scales,
        };
        B::quantize(tensor, scheme, qparams)
    }

    forward! {
        fn quantize_dynamic(tensor: FloatTensor<Self>, scheme: &QuantScheme) -> QuantizedTensor<Self>;
        fn dequantize(tensor: QuantizedTensor<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        fn q_device(tensor: &QuantizedTensor<Self>) -> Device<Self>;
        fn q_to_device(tensor: QuantizedTensor<Self>, device: &Device<Self>) -> QuantizedTensor<Self>;
        fn q_reshape(tensor: QuantizedTensor<Self>, shape: Shape) -> QuantizedTensor<Self>;
    }

    fn q_into_data(
        tensor: QuantizedTensor<Self>,
    ) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        B::q_into_data(tensor)
    }

    forward! {
        fn q_detach(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
        fn q_set_require_grad(tensor: QuantizedTensor<Self>, require_grad: bool) -> QuantizedTensor<Self>;
        fn q_is_require_grad(tensor: &QuantizedTensor<Self>) -> bool;
        fn q_expand(tensor: QuantizedTensor<Self>, shape: Shape) -> QuantizedTensor<Self>;
        fn q_transpose(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
        fn q_swap_dims(tensor: QuantizedTensor<Self>, dim1: usize, dim2: usize) -> QuantizedTensor<Self>;
        fn q_permute(tensor: QuantizedTensor<Self>, axes: &[usize]) -> QuantizedTensor<Self>;
        fn q_flip(tensor: QuantizedTensor<Self>, axes: &[usize]) -> QuantizedTensor<Self>;
        fn q_select(tensor: QuantizedTensor<Self>, dim: usize, indices: IntTensor<Self>) -> QuantizedTensor<Self>;
        fn q_slice(tensor: QuantizedTensor<Self>, slices: &[Slice]) -> QuantizedTensor<Self>;
        fn q_gather(dim: usize, tensor: QuantizedTensor<Self>, indices: IntTensor<Self>) -> QuantizedTensor<Self>;
        fn q_repeat_dim(tensor: QuantizedTensor<Self>, dim: usize, times: usize) -> QuantizedTensor<Self>;
    }

    forward_wrapped! {
        fn q_add(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>);
        fn q_add_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar);
        fn q_clamp_min(tensor: QuantizedTensor<Self>, min: Scalar);
        fn q_clamp_max(tensor: QuantizedTensor<Self>, max: Scalar);
        fn q_clamp(tensor: QuantizedTensor<Self>, min: Scalar, max: Scalar);
        fn q_sub(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>);
        fn q_sub_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar);
        fn q_mul(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>);
        fn q_mul_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar);
        fn q_div(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>);
        fn q_div_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar);
    }

    fn q_matmul(lhs: TensorPrimitive<Self>, rhs: TensorPrimitive<Self>) -> TensorPrimitive<Self> {
        wrap(B::q_matmul(unwrap(lhs), unwrap(rhs)))
    }

    forward_wrapped! {
        fn q_neg(tensor: QuantizedTensor<Self>);
        fn q_recip(tensor: QuantizedTensor<Self>);
        fn q_sum(tensor: QuantizedTensor<Self>);
        fn q_sum_dim(tensor: QuantizedTensor<Self>, dim: usize);
        fn q_prod(tensor: QuantizedTensor<Self>);
        fn q_prod_dim(tensor: QuantizedTensor<Self>, dim: usize);
        fn q_mean(tensor: QuantizedTensor<Self>);
        fn q_mean_dim(tensor: QuantizedTensor<Self>, dim: usize);
        fn q_cumsum(tensor: QuantizedTensor<Self>, dim: usize);
        fn q_cumprod(tensor: QuantizedTensor<Self>, dim: usize);
        fn q_cummin(tensor: QuantizedTensor<Self>, dim: usize);
        fn q_cummax(tensor: QuantizedTensor<Self>, dim: usize);
        fn q_exp(tensor: QuantizedTensor<Self>);
        fn q_log(tensor: QuantizedTensor<Self>);
        fn q_log1p(tensor: QuantizedTensor<Self>);
        fn q_powf(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>);
        fn q_powi(lhs: QuantizedTensor<Self>, rhs: IntTensor<Self>);
        fn q_powi_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar);
        fn q_powf_scalar(tensor: QuantizedTensor<Self>, value: Scalar);
        fn q_sqrt(tensor: QuantizedTensor<Self>);
    }

    forward! {
        fn q_abs(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
    }

    forward_wrapped! {
        fn q_cos(tensor: QuantizedTensor<Self>);
        fn q_sin(tensor: QuantizedTensor<Self>);
        fn q_tan(tensor: QuantizedTensor<Self>);
        fn q_cosh(tensor: QuantizedTensor<Self>);
        fn q_sinh(tensor: QuantizedTensor<Self>);
        fn q_tanh(tensor: QuantizedTensor<Self>);
        fn q_erf(tensor: QuantizedTensor<Self>);
    }

    forward! {
        fn q_cat(tensors: Vec<QuantizedTensor<Self>>, dim: usize) -> QuantizedTensor<Self>;
        fn q_argmax(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
        fn q_argtopk(tensor: QuantizedTensor<Self>, dim: usize, k: usize, out_dtype: IntDType) -> IntTensor<Self>;
        fn q_topk(tensor: QuantizedTensor<Self>, dim: usize, k: usize) -> QuantizedTensor<Self>;
        fn q_argmin(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
        fn q_max(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
        fn q_max_dim(tensor: QuantizedTensor<Self>, dim: usize) -> QuantizedTensor<Self>;
        fn q_max_dim_with_indices(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType) -> (QuantizedTensor<Self>, IntTensor<Self>);
        fn q_min(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
        fn q_min_dim(tensor: QuantizedTensor<Self>, dim: usize) -> QuantizedTensor<Self>;
        fn q_min_dim_with_indices(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType) -> (QuantizedTensor<Self>, IntTensor<Self>);
        fn q_max_abs(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
        fn q_max_abs_dim(tensor: QuantizedTensor<Self>, dim: usize) -> QuantizedTensor<Self>;
        fn q_any(tensor: QuantizedTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn q_any_dim(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn q_all(tensor: QuantizedTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn q_all_dim(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn q_sort(tensor: QuantizedTensor<Self>, dim: usize, descending: bool) -> QuantizedTensor<Self>;
        fn q_sort_with_indices(tensor: QuantizedTensor<Self>, dim: usize, descending: bool, out_dtype: IntDType) -> (QuantizedTensor<Self>, IntTensor<Self>);
        fn q_argsort(tensor: QuantizedTensor<Self>, dim: usize, descending: bool, out_dtype: IntDType) -> IntTensor<Self>;
    }
}
