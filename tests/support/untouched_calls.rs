//! One call of every operation on integer, boolean and quantized tensors.

use burn::tensor::ops::{BoolTensor, IntTensor, QuantizedTensor};
use burn_backend::quantization::{QuantLevel, QuantParam, QuantScheme, QuantValue};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::tensor::quantization::QuantizationParametersPrimitive;
use burn_backend::{Backend, DType, FloatDType, IntDType, Scalar, Slice, TensorData, read_sync};

use super::op_calls::*;

fn i<B: Backend>() -> IntTensor<B> {
    ints::<B, 2>([2, 3], &[3, -1, 4, 1, -5, 9])
}

fn j<B: Backend>() -> IntTensor<B> {
    ints::<B, 2>([2, 3], &[2, 7, 1, 8, 2, 8])
}

fn k<B: Backend>() -> IntTensor<B> {
    ints::<B, 2>([2, 3], &[0, 2, 1, 1, 0, 2])
}

fn b<B: Backend>() -> BoolTensor<B> {
    alternating::<B>()
}

fn c<B: Backend>() -> BoolTensor<B> {
    bools::<B, 2>([2, 3], &[true, true, false, false, true, false])
}

fn rows<B: Backend>(rows: &[i64]) -> IntTensor<B> {
    ints::<B, 1>([rows.len()], rows)
}

fn two_ints<B: Backend>((a, b): (IntTensor<B>, IntTensor<B>)) -> Vec<Out<B>> {
    vec![Out::Int(a), Out::Int(b)]
}

fn quantized_and_int<B: Backend>((a, b): (QuantizedTensor<B>, IntTensor<B>)) -> Vec<Out<B>> {
    vec![Out::Quantized(a), Out::Int(b)]
}

fn index<B: Backend>(tensor: impl Future<Output = IntTensor<B>>) -> Vec<Out<B>> {
    vec![Out::Int(read_sync(tensor))]
}

pub fn integers<B: Backend>() -> Vec<Call<B>> {
    calls! {
        int_into_data() future [i::<B>()];
        int_from_data() int [TensorData::from([1i64, 2, 3]), &Default::default()];
        int_device() device [&i::<B>()];
        int_to_device() int [i::<B>(), &Default::default()];
        int_reshape() int [i::<B>(), dims(&[3, 2])];
        int_slice() int [i::<B>(), &[Slice::from(0..2), Slice::from(1..3)]];
        int_slice_assign() int [
            i::<B>(), &[Slice::from(0..1), Slice::from(0..3)], ints::<B, 2>([1, 3], &[7, 8, 9])
        ];
        int_into_float() float [i::<B>(), FloatDType::F16];
        int_empty() shape_of_int [dims(&[2, 3]), &Default::default(), INT];
        int_mask_where() int [i::<B>(), b::<B>(), j::<B>()];
        int_mask_fill() int [i::<B>(), b::<B>(), Scalar::from(7)];
        int_gather() int [1, i::<B>(), k::<B>()];
        int_scatter_add() int [1, i::<B>(), k::<B>(), j::<B>()];
        int_scatter_nd() int [
            i::<B>(), ints::<B, 2>([2, 1], &[1, 0]), j::<B>(), IndexingUpdateOp::Add
        ];
        int_gather_nd() int [i::<B>(), ints::<B, 2>([2, 1], &[1, 0])];
        int_select() int [i::<B>(), 1, rows::<B>(&[2, 0])];
        int_select_add() int [i::<B>(), 0, rows::<B>(&[1, 1]), j::<B>()];
        int_repeat_dim() int [i::<B>(), 1, 2];
        int_cat() int [vec![i::<B>(), j::<B>()], 0];
        int_equal() boolean [i::<B>(), j::<B>(), BOOL];
        int_not_equal() boolean [i::<B>(), j::<B>(), BOOL];
        int_equal_elem() boolean [i::<B>(), Scalar::from(4), BOOL];
        int_not_equal_elem() boolean [i::<B>(), Scalar::from(4), BOOL];
        int_greater() boolean [i::<B>(), j::<B>(), BOOL];
        int_greater_elem() boolean [i::<B>(), Scalar::from(1), BOOL];
        int_greater_equal() boolean [i::<B>(), j::<B>(), BOOL];
        int_greater_equal_elem() boolean [i::<B>(), Scalar::from(1), BOOL];
        int_lower() boolean [i::<B>(), j::<B>(), BOOL];
        int_lower_elem() boolean [i::<B>(), Scalar::from(1), BOOL];
        int_lower_equal() boolean [i::<B>(), j::<B>(), BOOL];
        int_lower_equal_elem() boolean [i::<B>(), Scalar::from(1), BOOL];
        int_add() int [i::<B>(), j::<B>()];
        int_add_scalar() int [i::<B>(), Scalar::from(3)];
        int_powi() int [i::<B>(), k::<B>()];
        int_powi_scalar() int [i::<B>(), Scalar::from(3)];
        int_powi_scalar_impl() int [i::<B>(), Scalar::from(3)];
        int_clamp_min() int [i::<B>(), Scalar::from(0)];
        int_clamp_max() int [i::<B>(), Scalar::from(3)];
        int_clamp() int [i::<B>(), Scalar::from(0), Scalar::from(3)];
        int_sub() int [i::<B>(), j::<B>()];
        int_sub_scalar() int [i::<B>(), Scalar::from(3)];
        int_mul() int [i::<B>(), j::<B>()];
        int_mul_scalar() int [i::<B>(), Scalar::from(3)];
        int_div() int [i::<B>(), j::<B>()];
        int_div_scalar() int [i::<B>(), Scalar::from(3)];
        int_remainder() int [i::<B>(), j::<B>()];
        int_remainder_scalar() int [i::<B>(), Scalar::from(3)];
        int_matmul() int [i::<B>(), ints::<B, 2>([3, 2], &[1, 2, 3, 4, 5, 6])];
        int_neg() int [i::<B>()];
        int_zeros() int [dims(&[2]), &Default::default(), INT];
        int_ones() int [dims(&[2]), &Default::default(), INT];
        int_full() int [dims(&[2]), Scalar::from(7), &Default::default(), INT];
        int_sum() int [i::<B>()];
        int_sum_dim() int [i::<B>(), 1];
        int_prod() int [i::<B>()];
        int_prod_dim() int [i::<B>(), 1];
        int_mean() int [i::<B>()];
        int_mean_dim() int [i::<B>(), 1];
        int_cumsum() int [i::<B>(), 1];
        int_cumprod() int [i::<B>(), 1];
        int_cummin() int [i::<B>(), 1];
        int_cummax() int [i::<B>(), 1];
        int_argmax() int [i::<B>(), 1];
        int_argtopk() int [i::<B>(), 1, 2];
        int_topk() int [i::<B>(), 1, 2];
        int_argmin() int [i::<B>(), 1];
        int_max() int [i::<B>()];
        int_max_dim() int [i::<B>(), 1];
        int_max_dim_with_indices() two_ints [i::<B>(), 1];
        int_max_abs() int [i::<B>()];
        int_max_abs_dim() int [i::<B>(), 1];
        int_min() int [i::<B>()];
        int_min_dim() int [i::<B>(), 1];
        int_min_dim_with_indices() two_ints [i::<B>(), 1];
        int_abs() int [i::<B>()];
        int_transpose() int [i::<B>()];
        int_swap_dims() int [i::<B>(), 0, 1];
        int_permute() int [i::<B>(), &[1, 0]];
        int_flip() int [i::<B>(), &[1]];
        int_arange_step() int [0..9, 2, &Default::default(), INT];
        int_arange() int [0..9, &Default::default(), INT];
        int_any() boolean [i::<B>(), BOOL];
        int_any_dim() boolean [i::<B>(), 1, BOOL];
        int_all() boolean [i::<B>(), BOOL];
        int_all_dim() boolean [i::<B>(), 1, BOOL];
        int_sign() int [i::<B>()];
        int_expand() int [ints::<B, 2>([1, 3], &[1, 2, 3]), dims(&[2, 3])];
        int_sort() int [i::<B>(), 1, false];
        int_sort_with_indices() two_ints [i::<B>(), 1, true];
        int_argsort() int [i::<B>(), 1, false];
        bitwise_and() int [i::<B>(), j::<B>()];
        bitwise_and_scalar() int [i::<B>(), Scalar::from(3)];
        bitwise_or() int [i::<B>(), j::<B>()];
        bitwise_or_scalar() int [i::<B>(), Scalar::from(3)];
        bitwise_xor() int [i::<B>(), j::<B>()];
        bitwise_xor_scalar() int [i::<B>(), Scalar::from(3)];
        bitwise_not() int [i::<B>()];
        bitwise_left_shift() int [i::<B>(), k::<B>()];
        bitwise_left_shift_scalar() int [i::<B>(), Scalar::from(2)];
        bitwise_right_shift() int [i::<B>(), k::<B>()];
        bitwise_right_shift_scalar() int [i::<B>(), Scalar::from(2)];
        int_cast() int [i::<B>(), IntDType::I64];
        int_unfold() int [i::<B>(), 1, 2, 1];
    }
}

fn shape_of_int<B: Backend>(tensor: IntTensor<B>) -> Vec<Out<B>> {
    let data = Out::<B>::Int(tensor).data();
    vec![Out::Data(TensorData::zeros::<i32, _>(data.shape))]
}

fn shape_of_bool<B: Backend>(tensor: BoolTensor<B>) -> Vec<Out<B>> {
    let data = Out::<B>::Bool(tensor).data();
    vec![Out::Data(TensorData::zeros::<i32, _>(data.shape))]
}

pub fn booleans<B: Backend>() -> Vec<Call<B>> {
    calls! {
        bool_empty() shape_of_bool [dims(&[2, 3]), &Default::default(), BOOL];
        bool_zeros() boolean [dims(&[2]), &Default::default(), BOOL];
        bool_ones() boolean [dims(&[2]), &Default::default(), BOOL];
        bool_into_data() future [b::<B>()];
        bool_from_data() boolean [TensorData::from([true, false]), &Default::default()];
        bool_into_int() int [b::<B>(), INT];
        bool_into_float() float [b::<B>(), FloatDType::F16];
        bool_device() device [&b::<B>()];
        bool_to_device() boolean [b::<B>(), &Default::default()];
        bool_reshape() boolean [b::<B>(), dims(&[3, 2])];
        bool_slice() boolean [b::<B>(), &[Slice::from(0..2), Slice::from(1..3)]];
        bool_slice_assign() boolean [
            b::<B>(), &[Slice::from(0..1), Slice::from(0..3)],
            bools::<B, 2>([1, 3], &[false, false, true])
        ];
        bool_mask_where() boolean [b::<B>(), c::<B>(), c::<B>()];
        bool_mask_fill() boolean [b::<B>(), c::<B>(), Scalar::from(true)];
        bool_gather() boolean [1, b::<B>(), k::<B>()];
        bool_scatter_or() boolean [1, b::<B>(), k::<B>(), c::<B>()];
        bool_select() boolean [b::<B>(), 1, rows::<B>(&[2, 0])];
        bool_select_or() boolean [b::<B>(), 0, rows::<B>(&[1, 1]), c::<B>()];
        bool_repeat_dim() boolean [b::<B>(), 1, 2];
        bool_cat() boolean [vec![b::<B>(), c::<B>()], 0];
        bool_equal() boolean [b::<B>(), c::<B>()];
        bool_not_equal() boolean [b::<B>(), c::<B>()];
        bool_equal_elem() boolean [b::<B>(), Scalar::from(true)];
        bool_not_equal_elem() boolean [b::<B>(), Scalar::from(true)];
        bool_not() boolean [b::<B>()];
        bool_and() boolean [b::<B>(), c::<B>()];
        bool_or() boolean [b::<B>(), c::<B>()];
        bool_xor() boolean [b::<B>(), c::<B>()];
        bool_transpose() boolean [b::<B>()];
        bool_swap_dims() boolean [b::<B>(), 0, 1];
        bool_permute() boolean [b::<B>(), &[1, 0]];
        bool_flip() boolean [b::<B>(), &[1]];
        bool_any() boolean [b::<B>()];
        bool_any_dim() boolean [b::<B>(), 1];
        bool_all() boolean [b::<B>()];
        bool_all_dim() boolean [b::<B>(), 1];
        bool_argwhere() index [b::<B>(), INT];
        bool_expand() boolean [bools::<B, 2>([1, 3], &[true, false, true]), dims(&[2, 3])];
        bool_unfold() boolean [b::<B>(), 1, 2, 1];
    }
}

/// Symmetric 8-bit integers with one f32 scale for the whole tensor.
fn scheme() -> QuantScheme {
    QuantScheme::default()
        .with_level(QuantLevel::Tensor)
        .with_value(QuantValue::Q8S)
        .with_param(QuantParam::F32)
}

fn q<B: Backend>() -> QuantizedTensor<B> {
    B::quantize_dynamic(any(&[2, 3]).tensor::<B>(0, DType::F32), &scheme())
}

fn p<B: Backend>() -> QuantizedTensor<B> {
    B::quantize_dynamic(unit(&[2, 3]).tensor::<B>(1, DType::F32), &scheme())
}

pub fn quantizeds<B: Backend>() -> Vec<Call<B>> {
    calls! {
        quantize(a: any(&[2, 3]), scale: unit(&[1])) quantized [
            a, &scheme(), QuantizationParametersPrimitive { scales: scale }
        ];
        quantize_dynamic(a: any(&[2, 3])) quantized [a, &scheme()];
        dequantize() float [q::<B>(), FloatDType::F16];
        q_from_data() quantized [Out::<B>::Quantized(q::<B>()).data(), &Default::default()];
        q_device() device [&q::<B>()];
        q_to_device() quantized [q::<B>(), &Default::default()];
        q_reshape() quantized [q::<B>(), dims(&[3, 2])];
        q_into_data() future [q::<B>()];
        q_detach() quantized [q::<B>()];
        q_set_require_grad() quantized [q::<B>(), true];
        q_is_require_grad() flag [&q::<B>()];
        q_expand() quantized [q::<B>(), dims(&[2, 2, 3])];
        q_transpose() quantized [q::<B>()];
        q_swap_dims() quantized [q::<B>(), 0, 1];
        q_permute() quantized [q::<B>(), &[1, 0]];
        q_flip() quantized [q::<B>(), &[1]];
        q_select() quantized [q::<B>(), 1, rows::<B>(&[2, 0])];
        q_slice() quantized [q::<B>(), &[Slice::from(0..2), Slice::from(1..3)]];
        q_gather() quantized [1, q::<B>(), k::<B>()];
        q_repeat_dim() quantized [q::<B>(), 1, 2];
        q_add() either [q::<B>(), p::<B>()];
        q_add_scalar() either [q::<B>(), number(0.3)];
        q_clamp_min() either [q::<B>(), number(-0.5)];
        q_clamp_max() either [q::<B>(), number(0.5)];
        q_clamp() either [q::<B>(), number(-0.5), number(0.5)];
        q_sub() either [q::<B>(), p::<B>()];
        q_sub_scalar() either [q::<B>(), number(0.3)];
        q_mul() either [q::<B>(), p::<B>()];
        q_mul_scalar() either [q::<B>(), number(0.3)];
        q_div() either [q::<B>(), p::<B>()];
        q_div_scalar() either [q::<B>(), number(0.3)];
        q_matmul() either [
            burn_backend::TensorPrimitive::QFloat(q::<B>()),
            burn_backend::TensorPrimitive::QFloat(B::q_transpose(p::<B>()))
        ];
        q_matmul(a: any(&[2, 2])) either [
            burn_backend::TensorPrimitive::Float(a), burn_backend::TensorPrimitive::QFloat(q::<B>())
        ];
        q_neg() either [q::<B>()];
        q_recip() either [p::<B>()];
        q_sum() either [q::<B>()];
        q_sum_dim() either [q::<B>(), 1];
        q_prod() either [p::<B>()];
        q_prod_dim() either [p::<B>(), 1];
        q_mean() either [q::<B>()];
        q_mean_dim() either [q::<B>(), 1];
        q_cumsum() either [q::<B>(), 1];
        q_cumprod() either [q::<B>(), 1];
        q_cummin() either [q::<B>(), 1];
        q_cummax() either [q::<B>(), 1];
        q_exp() either [q::<B>()];
        q_log() either [p::<B>()];
        q_log1p() either [p::<B>()];
        q_powf() either [p::<B>(), q::<B>()];
        q_powi() either [q::<B>(), k::<B>()];
        q_powi_scalar() either [q::<B>(), Scalar::from(2)];
        q_powf_scalar() either [p::<B>(), number(1.7)];
        q_sqrt() either [p::<B>()];
        q_abs() quantized [q::<B>()];
        q_cos() either [q::<B>()];
        q_sin() either [q::<B>()];
        q_tan() either [q::<B>()];
        q_cosh() either [q::<B>()];
        q_sinh() either [q::<B>()];
        q_tanh() either [q::<B>()];
        q_erf() either [q::<B>()];
        q_cat() quantized [vec![q::<B>(), p::<B>()], 0];
        q_argmax() int [q::<B>(), 1, INT];
        q_argtopk() int [q::<B>(), 1, 2, INT];
        q_topk() quantized [q::<B>(), 1, 2];
        q_argmin() int [q::<B>(), 1, INT];
        q_max() quantized [q::<B>()];
        q_max_dim() quantized [q::<B>(), 1];
        q_max_dim_with_indices() quantized_and_int [q::<B>(), 1, INT];
        q_min() quantized [q::<B>()];
        q_min_dim() quantized [q::<B>(), 1];
        q_min_dim_with_indices() quantized_and_int [q::<B>(), 1, INT];
        q_max_abs() quantized [q::<B>()];
        q_max_abs_dim() quantized [q::<B>(), 1];
        q_any() boolean [q::<B>(), BOOL];
        q_any_dim() boolean [q::<B>(), 1, BOOL];
        q_all() boolean [q::<B>(), BOOL];
        q_all_dim() boolean [q::<B>(), 1, BOOL];
        q_sort() quantized [q::<B>(), 1, false];
        q_sort_with_indices() quantized_and_int [q::<B>(), 1, true, INT];
        q_argsort() int [q::<B>(), 1, false, INT];
    }
}
