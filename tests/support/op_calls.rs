//! One call of every operation of Burn's backend traits that has a float tensor, on small inputs.

#![allow(dead_code, reason = "no test file uses all of it")]

use burn::tensor::TensorMetadata;
use burn::tensor::ops::{
    AttentionModuleOptions, BoolTensor, ConvOptions, ConvTransposeOptions, DeformConvOptions,
    FloatTensor, GridSampleOptions, IntTensor, InterpolateMode, InterpolateOptions,
    MaxPool1dWithIndices, MaxPool2dWithIndices, QuantizedTensor, UnfoldOptions,
};
use burn_backend::ops::{DeformConv2dBackward, MaxPool1dBackward, MaxPool2dBackward};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{
    Backend, BoolDType, DType, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
    TensorPrimitive, read_sync,
};

/// A float input: its shape and the range its values are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub shape: &'static [usize],
    low: f32,
    high: f32,
    /// False for an input that the operation only asks for its shape: the policy leaves it alone.
    pub cast: bool,
}

/// Values in [-2, 2].
pub const fn any(shape: &'static [usize]) -> Input {
    Input {
        shape,
        low: -2.0,
        high: 2.0,
        cast: true,
    }
}

/// Values in [0.05, 0.95]: inside the domain of log, acos, atanh and a positive base of powers.
pub const fn unit(shape: &'static [usize]) -> Input {
    Input {
        low: 0.05,
        high: 0.95,
        ..any(shape)
    }
}

/// Values in [1.1, 3].
pub const fn above_one(shape: &'static [usize]) -> Input {
    Input {
        low: 1.1,
        high: 3.0,
        ..any(shape)
    }
}

pub const fn only_shape(shape: &'static [usize]) -> Input {
    Input {
        cast: false,
        ..any(shape)
    }
}

impl Input {
    /// The same values for the same position, in f32; never two alike in one tensor.
    pub fn values(&self, position: usize) -> TensorData {
        let count: usize = self.shape.iter().product();
        // The golden ratio's fractional part spreads points evenly and never repeats one.
        let point = |i: usize| ((i + 1 + 17 * position) as f64 * 0.618_033_988_749_894_9).fract();
        let value = |i| self.low + (self.high - self.low) * point(i) as f32;
        TensorData::new((0..count).map(value).collect(), self.shape.to_vec())
    }

    pub fn tensor<B: Backend>(&self, position: usize, dtype: DType) -> FloatTensor<B> {
        let data = self.values(position).convert_dtype(dtype);
        B::float_from_data(data, &Default::default())
    }
}

/// An output of any kind.
pub enum Out<B: Backend> {
    Float(FloatTensor<B>),
    Int(IntTensor<B>),
    Bool(BoolTensor<B>),
    Quantized(QuantizedTensor<B>),
    Data(TensorData),
}

impl<B: Backend> Out<B> {
    /// The data as it is stored: read where no policy is in force.
    pub fn data(self) -> TensorData {
        burn_amp::scope::disabled(|| match self {
            Out::Float(tensor) => read_sync(B::float_into_data(tensor)).unwrap(),
            Out::Int(tensor) => read_sync(B::int_into_data(tensor)).unwrap(),
            Out::Bool(tensor) => read_sync(B::bool_into_data(tensor)).unwrap(),
            Out::Quantized(tensor) => read_sync(B::q_into_data(tensor)).unwrap(),
            Out::Data(data) => data,
        })
    }

    /// The dtype of a float output.
    pub fn float_dtype(&self) -> Option<DType> {
        match self {
            Out::Float(tensor) => Some(tensor.dtype()),
            _ => None,
        }
    }
}

/// A call of one trait method.
pub struct Call<B: Backend> {
    /// The method's name.
    pub name: &'static str,
    /// Its float inputs, in the order of its signature.
    pub inputs: Vec<Input>,
    /// Makes the call on these float inputs.
    pub run: fn(Vec<FloatTensor<B>>) -> Vec<Out<B>>,
}

impl<B: Backend> Call<B> {
    pub fn inputs(&self, dtypes: &[DType]) -> Vec<FloatTensor<B>> {
        self.inputs
            .iter()
            .zip(dtypes)
            .enumerate()
            .map(|(position, (input, dtype))| input.tensor::<B>(position, *dtype))
            .collect()
    }
}

pub fn exactly<T, const N: usize>(list: Vec<T>) -> [T; N] {
    let count = list.len();
    list.try_into()
        .unwrap_or_else(|_| panic!("{count} inputs for a call that takes {N}"))
}

/// `method(x: input, ...) kind [arguments];` calls `B::method(arguments)`, whose result is of `kind`.
macro_rules! calls {
    ($($name:ident($($x:ident: $input:expr),*) $kind:ident [$($arg:expr),* $(,)?];)*) => {
        vec![$(Call {
            name: stringify!($name),
            inputs: vec![$($input),*],
            run: |inputs| {
                let [$($x),*] = exactly(inputs);
                $kind::<B>(B::$name($($arg),*))
            },
        }),*]
    };
}
#[allow(unused_imports, reason = "no test file uses all of it")]
pub(crate) use calls;

pub fn float<B: Backend>(tensor: FloatTensor<B>) -> Vec<Out<B>> {
    vec![Out::Float(tensor)]
}

pub fn int<B: Backend>(tensor: IntTensor<B>) -> Vec<Out<B>> {
    vec![Out::Int(tensor)]
}

pub fn boolean<B: Backend>(tensor: BoolTensor<B>) -> Vec<Out<B>> {
    vec![Out::Bool(tensor)]
}

pub fn quantized<B: Backend>(tensor: QuantizedTensor<B>) -> Vec<Out<B>> {
    vec![Out::Quantized(tensor)]
}

pub fn either<B: Backend>(tensor: TensorPrimitive<B>) -> Vec<Out<B>> {
    vec![match tensor {
        TensorPrimitive::Float(tensor) => Out::Float(tensor),
        TensorPrimitive::QFloat(tensor) => Out::Quantized(tensor),
    }]
}

pub fn float_and_int<B: Backend>((a, b): (FloatTensor<B>, IntTensor<B>)) -> Vec<Out<B>> {
    vec![Out::Float(a), Out::Int(b)]
}

pub fn two_floats<B: Backend>((a, b): (FloatTensor<B>, FloatTensor<B>)) -> Vec<Out<B>> {
    vec![Out::Float(a), Out::Float(b)]
}

pub fn pooled1d<B: Backend>(pooled: MaxPool1dWithIndices<B>) -> Vec<Out<B>> {
    vec![Out::Float(pooled.output), Out::Int(pooled.indices)]
}

pub fn pooled2d<B: Backend>(pooled: MaxPool2dWithIndices<B>) -> Vec<Out<B>> {
    vec![Out::Float(pooled.output), Out::Int(pooled.indices)]
}

pub fn pool1d_grad<B: Backend>(grads: MaxPool1dBackward<B>) -> Vec<Out<B>> {
    vec![Out::Float(grads.x_grad)]
}

pub fn pool2d_grad<B: Backend>(grads: MaxPool2dBackward<B>) -> Vec<Out<B>> {
    vec![Out::Float(grads.x_grad)]
}

pub fn deform_grads<B: Backend>(grads: DeformConv2dBackward<B>) -> Vec<Out<B>> {
    [
        Some(grads.x_grad),
        Some(grads.offset_grad),
        Some(grads.weight_grad),
        grads.mask_grad,
        grads.bias_grad,
    ]
    .into_iter()
    .flatten()
    .map(Out::Float)
    .collect()
}

/// Only the shape and dtype: the contents are not defined.
pub fn shape_of_float<B: Backend>(tensor: FloatTensor<B>) -> Vec<Out<B>> {
    let shape: Vec<i64> = tensor.shape().iter().map(|dim| *dim as i64).collect();
    vec![
        Out::Data(TensorData::from(shape.as_slice())),
        Out::Float(B::float_zeros(
            [1].into(),
            &Default::default(),
            tensor.dtype().into(),
        )),
    ]
}

/// That it is the default device is all there is to see.
pub fn device<B: Backend>(device: B::Device) -> Vec<Out<B>> {
    flag::<B>(device == B::Device::default())
}

pub fn flag<B: Backend>(value: bool) -> Vec<Out<B>> {
    vec![Out::Data(TensorData::from([value]))]
}

pub fn future<B: Backend>(
    data: impl Future<Output = Result<TensorData, burn_backend::ExecutionError>>,
) -> Vec<Out<B>> {
    // The dtype that the policy reads in is tested elsewhere: here, with no policy, it is stored.
    vec![Out::Data(read_sync(data).unwrap())]
}

pub fn ints<B: Backend, const D: usize>(shape: [usize; D], values: &[i64]) -> IntTensor<B> {
    B::int_from_data(
        TensorData::new(values.to_vec(), shape).convert_dtype(DType::I32),
        &Default::default(),
    )
}

pub fn bools<B: Backend, const D: usize>(shape: [usize; D], values: &[bool]) -> BoolTensor<B> {
    B::bool_from_data(
        TensorData::new(values.to_vec(), shape).convert_dtype(DType::Bool(BOOL)),
        &Default::default(),
    )
}

pub fn alternating<B: Backend>() -> BoolTensor<B> {
    bools::<B, 2>([2, 3], &[true, false, true, false, true, false])
}

pub fn dims(dims: &[usize]) -> Shape {
    Shape::from(dims.to_vec())
}

pub fn number(value: f64) -> Scalar {
    Scalar::from(value)
}

/// GPUs store a bool in a byte.
pub const BOOL: BoolDType = match cfg!(any(feature = "cuda", feature = "wgpu")) {
    true => BoolDType::U8,
    false => BoolDType::Native,
};
pub const INT: IntDType = IntDType::I32;

const VECTOR: &[usize] = &[3];
const MATRIX: &[usize] = &[2, 3];
const SQUARE: &[usize] = &[3, 3];
/// Batch, channels, length.
const SIGNAL: &[usize] = &[2, 2, 5];
/// Batch, channels, height, width.
const IMAGE: &[usize] = &[2, 2, 5, 5];
const VOLUME: &[usize] = &[1, 2, 3, 3, 3];

fn conv<const D: usize>() -> ConvOptions<D> {
    ConvOptions::new([1; D], [0; D], [1; D], 1)
}

fn transposed<const D: usize>() -> ConvTransposeOptions<D> {
    ConvTransposeOptions::new([1; D], [0; D], [0; D], [1; D], 1)
}

fn deform() -> DeformConvOptions<2> {
    DeformConvOptions::new([1; 2], [0; 2], [1; 2], 1, 1)
}

fn nearest() -> InterpolateOptions {
    InterpolateOptions::new(InterpolateMode::Nearest)
}

fn bilinear() -> InterpolateOptions {
    InterpolateOptions::new(InterpolateMode::Bilinear)
}

/// Calls of every method that has a rule of its own in the policy: `Op`.
pub fn ruled<B: Backend>() -> Vec<Call<B>> {
    let mut calls = arithmetic::<B>();
    calls.extend(element_wise::<B>());
    calls.extend(reductions::<B>());
    calls.extend(selections::<B>());
    calls.extend(comparisons::<B>());
    calls.extend(layers::<B>());
    calls.extend(convolutions::<B>());
    calls.extend(pools::<B>());
    calls
}

fn arithmetic<B: Backend>() -> Vec<Call<B>> {
    calls! {
        float_add(a: any(MATRIX), b: any(MATRIX)) float [a, b];
        float_sub(a: any(MATRIX), b: any(MATRIX)) float [a, b];
        float_mul(a: any(MATRIX), b: any(MATRIX)) float [a, b];
        float_div(a: any(MATRIX), b: unit(MATRIX)) float [a, b];
        float_add(a: any(MATRIX), b: any(&[1, 3])) float [a, b];
        float_sub(a: any(&[1, 3]), b: any(MATRIX)) float [a, b];
        float_mul(a: any(MATRIX), b: any(&[1, 3])) float [a, b];
        float_div(a: any(&[1, 3]), b: unit(MATRIX)) float [a, b];
        float_add(a: any(MATRIX), b: any(&[2, 1])) float [a, b];
        float_mul(a: any(IMAGE), b: any(&[1, 2, 1, 1])) float [a, b];
        float_sub(a: any(IMAGE), b: any(&[1, 2, 1, 1])) float [a, b];
        float_add(a: any(IMAGE), b: any(&[1, 1, 1, 5])) float [a, b];
        float_mul(a: any(IMAGE), b: any(&[1, 1, 1, 5])) float [a, b];
        float_remainder(a: any(MATRIX), b: unit(MATRIX)) float [a, b];
        float_matmul(a: any(MATRIX), b: any(SQUARE)) float [a, b];
        float_cross(a: any(MATRIX), b: any(MATRIX)) float [a, b, 1];
        float_atan2(a: any(MATRIX), b: any(MATRIX)) float [a, b];
        float_powf(a: unit(MATRIX), b: any(MATRIX)) float [a, b];
        float_powi(a: any(MATRIX)) float [a, ints::<B, 2>([2, 3], &[0, 1, 2, 3, 2, 1])];
        float_add_scalar(a: any(MATRIX)) float [a, number(0.3)];
        float_sub_scalar(a: any(MATRIX)) float [a, number(0.3)];
        float_mul_scalar(a: any(MATRIX)) float [a, number(0.3)];
        float_div_scalar(a: any(MATRIX)) float [a, number(0.3)];
        float_remainder_scalar(a: any(MATRIX)) float [a, number(0.3)];
        float_powi_scalar(a: any(MATRIX)) float [a, Scalar::from(3)];
        float_powi_scalar_impl(a: any(MATRIX)) float [a, Scalar::from(3)];
        float_powf_scalar(a: unit(MATRIX)) float [a, number(1.7)];
        float_powf_scalar_impl(a: unit(MATRIX)) float [a, number(1.7)];
        float_cat(a: any(MATRIX), b: any(MATRIX), c: any(&[1, 3])) float [vec![a, b, c], 0];
        float_mask_where(a: any(MATRIX), b: any(MATRIX)) float [a, alternating::<B>(), b];
        float_mask_fill(a: any(MATRIX)) float [a, alternating::<B>(), number(0.1)];
        float_slice_assign(a: any(SQUARE), b: any(&[1, 3])) float [
            a, &[Slice::from(1..2), Slice::from(0..3)], b
        ];
        float_scatter_add(a: any(MATRIX), b: any(MATRIX)) float [
            1, a, ints::<B, 2>([2, 3], &[0, 0, 2, 1, 2, 2]), b
        ];
        float_scatter_nd(a: any(SQUARE), b: any(MATRIX)) float [
            a, ints::<B, 2>([2, 1], &[2, 0]), b, IndexingUpdateOp::Add
        ];
        float_select_add(a: any(SQUARE), b: any(MATRIX)) float [a, 0, ints::<B, 1>([2], &[1, 1]), b];
        float_grid_sample_2d(x: any(IMAGE), grid: any(&[2, 3, 3, 2])) float [
            x, grid, GridSampleOptions::new(InterpolateMode::Bilinear)
        ];
    }
}

fn element_wise<B: Backend>() -> Vec<Call<B>> {
    calls! {
        float_exp(a: any(MATRIX)) float [a];
        float_log(a: unit(MATRIX)) float [a];
        float_log1p(a: unit(MATRIX)) float [a];
        float_recip(a: unit(MATRIX)) float [a];
        float_tan(a: any(MATRIX)) float [a];
        float_cosh(a: any(MATRIX)) float [a];
        float_sinh(a: any(MATRIX)) float [a];
        float_acos(a: unit(MATRIX)) float [a];
        float_asin(a: unit(MATRIX)) float [a];
        float_neg(a: any(MATRIX)) float [a];
        float_clamp(a: any(MATRIX)) float [a, number(-0.5), number(0.5)];
        float_clamp_min(a: any(MATRIX)) float [a, number(-0.5)];
        float_clamp_max(a: any(MATRIX)) float [a, number(0.5)];
        float_sqrt(a: unit(MATRIX)) float [a];
        float_abs(a: any(MATRIX)) float [a];
        float_sign(a: any(MATRIX)) float [a];
        float_cos(a: any(MATRIX)) float [a];
        float_sin(a: any(MATRIX)) float [a];
        float_tanh(a: any(MATRIX)) float [a];
        float_acosh(a: above_one(MATRIX)) float [a];
        float_asinh(a: any(MATRIX)) float [a];
        float_atan(a: any(MATRIX)) float [a];
        float_atanh(a: unit(MATRIX)) float [a];
        float_erf(a: any(MATRIX)) float [a];
        float_round(a: any(MATRIX)) float [a];
        float_floor(a: any(MATRIX)) float [a];
        float_ceil(a: any(MATRIX)) float [a];
        float_trunc(a: any(MATRIX)) float [a];
        relu(a: any(MATRIX)) float [a];
        leaky_relu(a: any(MATRIX)) float [a, number(0.1)];
        prelu(a: any(MATRIX), alpha: any(&[1, 3])) float [a, alpha];
        gelu(a: any(MATRIX)) float [a];
        sigmoid(a: any(MATRIX)) float [a];
        hard_sigmoid(a: any(MATRIX)) float [a, number(0.2), number(0.5)];
        log_sigmoid(a: any(MATRIX)) float [a];
        relu_backward(a: any(MATRIX), grad: any(MATRIX)) float [a, grad];
        gelu_backward(a: any(MATRIX), grad: any(MATRIX)) float [a, grad];
        sigmoid_backward(a: unit(MATRIX), grad: any(MATRIX)) float [a, grad];
        log_sigmoid_backward(a: any(MATRIX), grad: any(MATRIX)) float [a, grad];
    }
}

fn reductions<B: Backend>() -> Vec<Call<B>> {
    calls! {
        float_sum(a: any(MATRIX)) float [a];
        float_sum_dim(a: any(MATRIX)) float [a, 1];
        float_prod(a: unit(MATRIX)) float [a];
        float_prod_dim(a: unit(MATRIX)) float [a, 1];
        float_mean(a: any(MATRIX)) float [a];
        float_mean_dim(a: any(MATRIX)) float [a, 1];
        float_cumsum(a: any(MATRIX)) float [a, 1];
        float_cumprod(a: any(MATRIX)) float [a, 1];
        softmax(a: any(MATRIX)) float [a, 1];
        softmin(a: any(MATRIX)) float [a, 1];
        log_softmax(a: any(MATRIX)) float [a, 1];
    }
}

fn selections<B: Backend>() -> Vec<Call<B>> {
    calls! {
        float_cummin(a: any(MATRIX)) float [a, 1];
        float_cummax(a: any(MATRIX)) float [a, 1];
        float_max(a: any(MATRIX)) float [a];
        float_max_dim(a: any(MATRIX)) float [a, 1];
        float_max_dim_with_indices(a: any(MATRIX)) float_and_int [a, 1, INT];
        float_max_abs(a: any(MATRIX)) float [a];
        float_max_abs_dim(a: any(MATRIX)) float [a, 1];
        float_min(a: any(MATRIX)) float [a];
        float_min_dim(a: any(MATRIX)) float [a, 1];
        float_min_dim_with_indices(a: any(MATRIX)) float_and_int [a, 1, INT];
        float_argmax(a: any(MATRIX)) int [a, 1, INT];
        float_argmin(a: any(MATRIX)) int [a, 1, INT];
        float_argtopk(a: any(MATRIX)) int [a, 1, 2, INT];
        float_topk(a: any(MATRIX)) float [a, 1, 2];
        float_sort(a: any(MATRIX)) float [a, 1, false];
        float_sort_with_indices(a: any(MATRIX)) float_and_int [a, 1, true, INT];
        float_argsort(a: any(MATRIX)) int [a, 1, false, INT];
    }
}

fn comparisons<B: Backend>() -> Vec<Call<B>> {
    calls! {
        float_equal(a: any(MATRIX), b: any(MATRIX)) boolean [a, b, BOOL];
        float_not_equal(a: any(MATRIX), b: any(MATRIX)) boolean [a, b, BOOL];
        float_greater(a: any(MATRIX), b: any(MATRIX)) boolean [a, b, BOOL];
        float_greater_equal(a: any(MATRIX), b: any(MATRIX)) boolean [a, b, BOOL];
        float_lower(a: any(MATRIX), b: any(MATRIX)) boolean [a, b, BOOL];
        float_lower_equal(a: any(MATRIX), b: any(MATRIX)) boolean [a, b, BOOL];
        float_equal_elem(a: any(MATRIX)) boolean [a, number(0.5), BOOL];
        float_not_equal_elem(a: any(MATRIX)) boolean [a, number(0.5), BOOL];
        float_greater_elem(a: any(MATRIX)) boolean [a, number(0.5), BOOL];
        float_greater_equal_elem(a: any(MATRIX)) boolean [a, number(0.5), BOOL];
        float_lower_elem(a: any(MATRIX)) boolean [a, number(0.5), BOOL];
        float_lower_equal_elem(a: any(MATRIX)) boolean [a, number(0.5), BOOL];
        float_any(a: any(MATRIX)) boolean [a, BOOL];
        float_any_dim(a: any(MATRIX)) boolean [a, 1, BOOL];
        float_all(a: any(MATRIX)) boolean [a, BOOL];
        float_all_dim(a: any(MATRIX)) boolean [a, 1, BOOL];
        float_is_nan(a: any(MATRIX)) boolean [a, BOOL];
        float_is_inf(a: any(MATRIX)) boolean [a, BOOL];
    }
}

fn layers<B: Backend>() -> Vec<Call<B>> {
    calls! {
        embedding(weights: any(SQUARE)) float [weights, ints::<B, 2>([1, 2], &[2, 0])];
        embedding_backward(weights: only_shape(SQUARE), grad: any(&[1, 2, 3])) float [
            weights, grad, ints::<B, 2>([1, 2], &[2, 0])
        ];
        linear(x: any(MATRIX), w: any(SQUARE)) float [x, w, None];
        linear(x: any(MATRIX), w: any(SQUARE), b: any(VECTOR)) float [x, w, Some(b)];
        linear_x_backward(w: any(SQUARE), grad: any(MATRIX)) float [w, grad];
        linear_weight_backward(x: any(MATRIX), grad: any(MATRIX)) float [x, grad];
        linear_bias_backward(grad: any(MATRIX)) float [grad];
        layer_norm(x: any(MATRIX), gamma: any(VECTOR)) float [x, gamma, None, 1e-5];
        layer_norm(x: any(MATRIX), gamma: any(VECTOR), beta: any(VECTOR)) float [
            x, gamma, Some(beta), 1e-5
        ];
        attention(q: any(&[1, 2, 3, 2]), k: any(&[1, 2, 3, 2]), v: any(&[1, 2, 3, 2])) float [
            q, k, v, None, None, AttentionModuleOptions::default()
        ];
        attention(
            q: any(&[1, 1, 3, 2]), k: any(&[1, 1, 3, 2]), v: any(&[1, 1, 3, 2]),
            bias: any(&[1, 1, 3, 3])
        ) float [
            q, k, v, Some(bools::<B, 4>([1, 1, 3, 3], &[
                false, true, true, false, false, true, false, false, false,
            ])), Some(bias), AttentionModuleOptions::default()
        ];
        ctc_loss(x: unit(&[4, 1, 3])) float [
            x, ints::<B, 2>([1, 2], &[1, 2]), ints::<B, 1>([1], &[4]), ints::<B, 1>([1], &[2]), 0
        ];
        ctc_loss_backward(x: unit(&[4, 1, 3]), grad: unit(&[1])) float [
            x, ints::<B, 2>([1, 2], &[1, 2]), ints::<B, 1>([1], &[4]), ints::<B, 1>([1], &[2]), grad, 0
        ];
        rfft(x: any(&[2, 4])) two_floats [x, 1, None];
        irfft(re: any(&[2, 3]), im: any(&[2, 3])) float [re, im, 1, None];
    }
}

fn convolutions<B: Backend>() -> Vec<Call<B>> {
    calls! {
        conv1d(x: any(SIGNAL), w: any(&[3, 2, 3])) float [x, w, None, conv()];
        conv1d(x: any(SIGNAL), w: any(&[3, 2, 3]), b: any(VECTOR)) float [x, w, Some(b), conv()];
        conv1d_x_backward(x: any(SIGNAL), w: any(&[3, 2, 3]), grad: any(&[2, 3, 3])) float [
            x, w, grad, conv()
        ];
        conv1d_weight_backward(x: any(SIGNAL), w: any(&[3, 2, 3]), grad: any(&[2, 3, 3])) float [
            x, w, grad, conv()
        ];
        conv1d_bias_backward(
            x: only_shape(SIGNAL), b: only_shape(VECTOR), grad: any(&[2, 3, 3])
        ) float [x, b, grad];
        conv2d(x: any(IMAGE), w: any(&[3, 2, 3, 3])) float [x, w, None, conv()];
        conv2d(x: any(IMAGE), w: any(&[3, 2, 3, 3]), b: any(VECTOR)) float [x, w, Some(b), conv()];
        conv2d_x_backward(x: any(IMAGE), w: any(&[3, 2, 3, 3]), grad: any(&[2, 3, 3, 3])) float [
            x, w, grad, conv()
        ];
        conv2d_weight_backward(
            x: any(IMAGE), w: any(&[3, 2, 3, 3]), grad: any(&[2, 3, 3, 3])
        ) float [x, w, grad, conv()];
        conv2d_bias_backward(
            x: only_shape(IMAGE), b: only_shape(VECTOR), grad: any(&[2, 3, 3, 3])
        ) float [x, b, grad];
        conv3d(x: any(VOLUME), w: any(&[2, 2, 2, 2, 2])) float [x, w, None, conv()];
        conv3d(x: any(VOLUME), w: any(&[2, 2, 2, 2, 2]), b: any(&[2])) float [
            x, w, Some(b), conv()
        ];
        conv3d_x_backward(
            x: any(VOLUME), w: any(&[2, 2, 2, 2, 2]), grad: any(&[1, 2, 2, 2, 2])
        ) float [x, w, grad, conv()];
        conv3d_weight_backward(
            x: any(VOLUME), w: any(&[2, 2, 2, 2, 2]), grad: any(&[1, 2, 2, 2, 2])
        ) float [x, w, grad, conv()];
        conv3d_bias_backward(
            x: only_shape(VOLUME), b: only_shape(&[2]), grad: any(&[1, 2, 2, 2, 2])
        ) float [x, b, grad];
        conv_transpose1d(x: any(SIGNAL), w: any(&[2, 3, 3])) float [x, w, None, transposed()];
        conv_transpose1d(x: any(SIGNAL), w: any(&[2, 3, 3]), b: any(VECTOR)) float [
            x, w, Some(b), transposed()
        ];
        conv_transpose1d_x_backward(w: any(&[2, 3, 3]), grad: any(&[2, 3, 7])) float [
            w, grad, transposed()
        ];
        conv_transpose1d_weight_backward(
            x: any(SIGNAL), w: any(&[2, 3, 3]), grad: any(&[2, 3, 7])
        ) float [x, w, grad, transposed()];
        conv_transpose1d_bias_backward(
            x: only_shape(SIGNAL), b: only_shape(VECTOR), grad: any(&[2, 3, 7])
        ) float [x, b, grad];
        conv_transpose2d(x: any(IMAGE), w: any(&[2, 3, 3, 3])) float [x, w, None, transposed()];
        conv_transpose2d(x: any(IMAGE), w: any(&[2, 3, 3, 3]), b: any(VECTOR)) float [
            x, w, Some(b), transposed()
        ];
        conv_transpose2d_x_backward(w: any(&[2, 3, 3, 3]), grad: any(&[2, 3, 7, 7])) float [
            w, grad, transposed()
        ];
        conv_transpose2d_weight_backward(
            x: any(IMAGE), w: any(&[2, 3, 3, 3]), grad: any(&[2, 3, 7, 7])
        ) float [x, w, grad, transposed()];
        conv_transpose2d_bias_backward(
            x: only_shape(IMAGE), b: only_shape(VECTOR), grad: any(&[2, 3, 7, 7])
        ) float [x, b, grad];
        conv_transpose3d(x: any(VOLUME), w: any(&[2, 2, 2, 2, 2])) float [
            x, w, None, transposed()
        ];
        conv_transpose3d(x: any(VOLUME), w: any(&[2, 2, 2, 2, 2]), b: any(&[2])) float [
            x, w, Some(b), transposed()
        ];
        conv_transpose3d_x_backward(w: any(&[2, 2, 2, 2, 2]), grad: any(&[1, 2, 4, 4, 4])) float [
            w, grad, transposed()
        ];
        conv_transpose3d_weight_backward(
            x: any(VOLUME), w: any(&[2, 2, 2, 2, 2]), grad: any(&[1, 2, 4, 4, 4])
        ) float [x, w, grad, transposed()];
        conv_transpose3d_bias_backward(
            x: only_shape(VOLUME), b: only_shape(&[2]), grad: any(&[1, 2, 4, 4, 4])
        ) float [x, b, grad];
        deform_conv2d(x: any(&[1, 1, 3, 3]), offset: unit(&[1, 8, 2, 2]), w: any(&[1, 1, 2, 2])) float [
            x, offset, w, None, None, deform()
        ];
        deform_conv2d(
            x: any(&[1, 1, 3, 3]), offset: unit(&[1, 8, 2, 2]), w: any(&[1, 1, 2, 2]),
            mask: unit(&[1, 4, 2, 2]), b: any(&[1])
        ) float [x, offset, w, Some(mask), Some(b), deform()];
        deform_conv2d_backward(
            x: any(&[1, 1, 3, 3]), offset: unit(&[1, 8, 2, 2]), w: any(&[1, 1, 2, 2]),
            mask: unit(&[1, 4, 2, 2]), b: any(&[1]), grad: any(&[1, 1, 2, 2])
        ) deform_grads [x, offset, w, Some(mask), Some(b), grad, deform()];
        unfold4d(x: any(IMAGE)) float [x, [3, 3], UnfoldOptions::new([1; 2], [0; 2], [1; 2])];
    }
}

fn pools<B: Backend>() -> Vec<Call<B>> {
    calls! {
        avg_pool1d(x: any(SIGNAL)) float [x, 2, 1, 0, true, false];
        avg_pool1d_backward(x: any(SIGNAL), grad: any(&[2, 2, 4])) float [x, grad, 2, 1, 0, true, false];
        avg_pool2d(x: any(IMAGE)) float [x, [2; 2], [1; 2], [0; 2], true, false];
        avg_pool2d_backward(x: any(IMAGE), grad: any(&[2, 2, 4, 4])) float [
            x, grad, [2; 2], [1; 2], [0; 2], true, false
        ];
        adaptive_avg_pool1d(x: any(SIGNAL)) float [x, 3];
        adaptive_avg_pool1d_backward(x: any(SIGNAL), grad: any(&[2, 2, 3])) float [x, grad];
        adaptive_avg_pool2d(x: any(IMAGE)) float [x, [3; 2]];
        adaptive_avg_pool2d_backward(x: any(IMAGE), grad: any(&[2, 2, 3, 3])) float [x, grad];
        max_pool1d(x: any(SIGNAL)) float [x, 2, 1, 0, 1, false];
        max_pool1d_with_indices(x: any(SIGNAL)) pooled1d [x, 2, 1, 0, 1, false];
        max_pool1d_with_indices_backward(x: any(SIGNAL), grad: any(&[2, 2, 4])) pool1d_grad [
            x.clone(), 2, 1, 0, 1, false, grad, B::max_pool1d_with_indices(x, 2, 1, 0, 1, false).indices
        ];
        max_pool2d(x: any(IMAGE)) float [x, [2; 2], [1; 2], [0; 2], [1; 2], false];
        max_pool2d_with_indices(x: any(IMAGE)) pooled2d [
            x, [2; 2], [1; 2], [0; 2], [1; 2], false
        ];
        max_pool2d_with_indices_backward(x: any(IMAGE), grad: any(&[2, 2, 4, 4])) pool2d_grad [
            x.clone(), [2; 2], [1; 2], [0; 2], [1; 2], false, grad,
            B::max_pool2d_with_indices(x, [2; 2], [1; 2], [0; 2], [1; 2], false).indices
        ];
        interpolate(x: any(&[1, 1, 3, 3])) float [x, [6, 6], bilinear()];
        interpolate(x: any(&[1, 1, 3, 3])) float [x, [6, 6], nearest()];
        interpolate_backward(x: any(&[1, 1, 3, 3]), grad: any(&[1, 1, 6, 6])) float [
            x, grad, [6, 6], nearest()
        ];
    }
}

/// Calls of the methods that create, move or cast float data: no rule, the input's dtype.
#[expect(clippy::disallowed_methods, reason = "a cast that the user asks for")]
pub fn moving<B: Backend>() -> Vec<Call<B>> {
    calls! {
        float_from_data() float [any(MATRIX).values(0), &Default::default()];
        float_from_data() float [any(MATRIX).values(0).convert_dtype(DType::F16), &Default::default()];
        float_zeros() float [dims(MATRIX), &Default::default(), FloatDType::F16];
        float_ones() float [dims(MATRIX), &Default::default(), FloatDType::F32];
        float_full() float [dims(MATRIX), number(0.1), &Default::default(), FloatDType::BF16];
        float_empty() shape_of_float [dims(MATRIX), &Default::default(), FloatDType::F16];
        float_into_data(a: any(MATRIX)) future [a];
        float_device(a: any(MATRIX)) device [&a];
        float_to_device(a: any(MATRIX)) float [a, &Default::default()];
        float_into_int(a: any(MATRIX)) int [a, INT];
        float_repeat_dim(a: any(MATRIX)) float [a, 1, 2];
        float_transpose(a: any(MATRIX)) float [a];
        float_swap_dims(a: any(MATRIX)) float [a, 0, 1];
        float_permute(a: any(MATRIX)) float [a, &[1, 0]];
        float_flip(a: any(MATRIX)) float [a, &[1]];
        float_reshape(a: any(MATRIX)) float [a, dims(&[3, 2])];
        float_gather(a: any(MATRIX)) float [1, a, ints::<B, 2>([2, 2], &[0, 2, 1, 1])];
        float_gather_nd(a: any(MATRIX)) float [a, ints::<B, 2>([2, 1], &[1, 0])];
        float_select(a: any(MATRIX)) float [a, 1, ints::<B, 1>([2], &[2, 0])];
        float_slice(a: any(MATRIX)) float [a, &[Slice::from(0..2), Slice::from(1..3)]];
        float_detach(a: any(MATRIX)) float [a];
        float_set_require_grad(a: any(MATRIX)) float [a, true];
        float_is_require_grad(a: any(MATRIX)) flag [&a];
        float_cast(a: any(MATRIX)) float [a, FloatDType::BF16];
        float_expand(a: any(&[1, 3])) float [a, dims(MATRIX)];
        float_unfold(a: any(MATRIX)) float [a, 1, 2, 1];
        has_ctc_loss_backward() flag [];
    }
}
