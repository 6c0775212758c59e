//! A convolution's weight gradient as a matrix product is Burn's, within the format, in every layout.

mod support;

use core::ops::Range;

use burn::module::Param;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use burn_amp::{AmpBackend, AmpConfig, ConvBackward, HalfDType, Im2col, OptLevel, scope};
use burn_backend::ops::{ConvOptions, FloatTensorOps, ModuleOps};
use burn_backend::tensor::FloatTensor;
use burn_backend::{DType, Shape, TensorMetadata, read_sync};
use proptest::collection::vec;
use proptest::prelude::*;
use support::{Bare, F32_PRODUCT, HALVES, unit_roundoff};

type Fast = AmpBackend<Bare>;

const LAYOUTS: [Im2col; 2] = [Im2col::ChannelsFirst, Im2col::OverlappingRows];

/// A convolution over `N` dimensions, and what its weight gradient is made of.
#[derive(Debug, Clone)]
struct Case<const N: usize> {
    images: usize,
    channels_in: usize,
    channels_out: usize,
    groups: usize,
    kernel: [usize; N],
    input: [usize; N],
    stride: [usize; N],
    padding: [usize; N],
    dilation: [usize; N],
    seed: u64,
}

impl<const N: usize> Case<N> {
    fn options(&self) -> ConvOptions<N> {
        ConvOptions::new(self.stride, self.padding, self.dilation, self.groups)
    }

    fn output(&self) -> [usize; N] {
        core::array::from_fn(|i| {
            let reach = self.dilation[i] * (self.kernel[i] - 1) + 1;
            (self.input[i] + 2 * self.padding[i] - reach) / self.stride[i] + 1
        })
    }

    fn shape(&self, images: usize, channels: usize, size: &[usize; N]) -> Shape {
        Shape::from([&[images, channels], size.as_slice()].concat())
    }

    fn x(&self) -> TensorData {
        values(
            self.shape(self.images, self.channels_in, &self.input),
            self.seed,
        )
    }

    fn output_grad(&self) -> TensorData {
        let shape = self.shape(self.images, self.channels_out, &self.output());
        values(shape, self.seed + 1)
    }

    fn weight(&self) -> Shape {
        let channels_in = self.channels_in / self.groups;
        self.shape(self.channels_out, channels_in, &self.kernel)
    }

    /// Products that are added up in one element.
    fn terms(&self) -> usize {
        self.images * self.output().iter().product::<usize>()
    }
}

/// Values in [-2, 2] without a pattern.
fn values(shape: Shape, seed: u64) -> TensorData {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 24) as f32) * 4.0 - 2.0
    };
    TensorData::new((0..shape.num_elements()).map(|_| next()).collect(), shape)
}

fn tensor(data: &TensorData, dtype: DType) -> FloatTensor<Bare> {
    Bare::float_from_data(data.clone().convert_dtype(dtype), &Default::default())
}

fn read(tensor: FloatTensor<Bare>) -> Vec<f64> {
    let data = read_sync(Bare::float_into_data(tensor)).unwrap();
    data.convert::<f64>().to_vec().unwrap()
}

/// Burn's own kernel.
trait Kernel<const N: usize> {
    fn weight_backward(
        x: FloatTensor<Bare>,
        weight: FloatTensor<Bare>,
        output_grad: FloatTensor<Bare>,
        options: ConvOptions<N>,
    ) -> FloatTensor<Bare>;
}

struct Burn;

macro_rules! kernels {
    ($($n:literal $name:ident;)*) => {
        $(impl Kernel<$n> for Burn {
            fn weight_backward(
                x: FloatTensor<Bare>,
                weight: FloatTensor<Bare>,
                output_grad: FloatTensor<Bare>,
                options: ConvOptions<$n>,
            ) -> FloatTensor<Bare> {
                Bare::$name(x, weight, output_grad, options)
            }
        })*
    };
}

kernels! {
    1 conv1d_weight_backward;
    2 conv2d_weight_backward;
    3 conv3d_weight_backward;
}

fn by_kernel<const N: usize>(
    case: &Case<N>,
    x: &TensorData,
    grad: &TensorData,
    dtype: DType,
) -> Vec<f64>
where
    Burn: Kernel<N>,
{
    let zeros = Bare::float_zeros(case.weight(), &Default::default(), dtype.into());
    read(Burn::weight_backward(
        tensor(x, dtype),
        zeros,
        tensor(grad, dtype),
        case.options(),
    ))
}

fn by_product<const N: usize>(
    layout: Im2col,
    case: &Case<N>,
    x: &TensorData,
    grad: &TensorData,
    dtype: DType,
) -> Vec<f64> {
    let gradient = layout.weight_gradient::<Bare, N>(
        tensor(x, dtype),
        case.weight(),
        tensor(grad, dtype),
        &case.options(),
    );
    assert_eq!(gradient.shape(), case.weight());
    assert_eq!(gradient.dtype(), dtype);
    read(gradient)
}

fn rounded(data: TensorData, dtype: DType) -> TensorData {
    data.convert_dtype(dtype).convert_dtype(DType::F64)
}

/// Largest relative error of one rounding to a dtype, and the least distance of two numbers in it.
fn rounding(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (unit_roundoff(HalfDType::F16), 2f64.powi(-24)),
        DType::BF16 => (unit_roundoff(HalfDType::Bf16), 0.0),
        DType::F32 => (F32_PRODUCT, 0.0),
        _ => (2f64.powi(-53), 0.0),
    }
}

/// The gradient by its definition, in f64, and the sum of the absolute values of its products.
fn by_definition<const N: usize>(
    case: &Case<N>,
    x: &TensorData,
    grad: &TensorData,
) -> [Vec<f64>; 2] {
    let (x, grad): (Vec<f64>, Vec<f64>) = (x.iter().collect(), grad.iter().collect());
    let (output, kernel, input) = (case.output(), case.kernel, case.input);
    let (taps, positions) = (indices(&kernel), indices(&output));
    let inputs: usize = input.iter().product();
    let channels_in = case.channels_in / case.groups;
    let mut sums = [Vec::new(), Vec::new()];
    for out in 0..case.channels_out {
        let group = out / (case.channels_out / case.groups);
        for channel in (0..channels_in).map(|channel| group * channels_in + channel) {
            for tap in &taps {
                let (mut sum, mut size) = (0.0, 0.0);
                for image in 0..case.images {
                    for (position, at) in positions.iter().enumerate() {
                        let seen = |i: usize| {
                            let padded = at[i] * case.stride[i] + tap[i] * case.dilation[i];
                            let inside = padded.checked_sub(case.padding[i])?;
                            (inside < input[i]).then_some(inside)
                        };
                        let flat = (0..N).try_fold(0, |flat, i| Some(flat * input[i] + seen(i)?));
                        let Some(flat) = flat else { continue };
                        let x = x[(image * case.channels_in + channel) * inputs + flat];
                        let row = image * case.channels_out + out;
                        let product = x * grad[row * positions.len() + position];
                        sum += product;
                        size += product.abs();
                    }
                }
                sums[0].push(sum);
                sums[1].push(size);
            }
        }
    }
    sums
}

/// Every index of an array of this size, in order.
fn indices<const N: usize>(size: &[usize; N]) -> Vec<[usize; N]> {
    let index = |mut flat: usize| {
        let mut index = [0; N];
        for i in (0..N).rev() {
            index[i] = flat % size[i];
            flat /= size[i];
        }
        index
    };
    (0..size.iter().product()).map(index).collect()
}

/// Burn 0.21 leaves the rest of its product in when a grouped one-dimensional convolution has a
/// stride that does not use all of the input: its gradient is a wrong one.
fn burn_is_wrong<const N: usize>(case: &Case<N>) -> bool {
    let used = |i: usize| {
        (case.output()[i] - 1) * case.stride[i] + case.dilation[i] * (case.kernel[i] - 1) + 1
    };
    let rest = case.input[0] + 2 * case.padding[0] - used(0);
    N == 1 && case.groups > 1 && rest >= case.dilation[0]
}

/// Compares with f64, in every layout and dtype.
///
/// With S the sum of absolute values of the products of an element: accumulating T terms in f32 is
/// off by at most T * 2^-24 * S; the partial products are rounded to the dtype, which is u * S in
/// all, their sum is rounded once more, and in f16 each rounding is off by half of the least
/// subnormal even if u allows less. Burn's CPU kernel rounds after each term where it has few
/// channels, and these are the images of a batch here.
fn check<const N: usize>(case: &Case<N>) -> Result<(), TestCaseError>
where
    Burn: Kernel<N>,
{
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        let (x, grad) = (rounded(case.x(), dtype), rounded(case.output_grad(), dtype));
        let [exact, sizes] = by_definition(case, &x, &grad);
        let (u, least) = rounding(dtype);
        let accumulated = case.terms() as f64 * u.min(2f64.powi(-24));
        let within = |name: &str, computed: Vec<f64>, roundings: usize, sum: f64| {
            prop_assert_eq!(computed.len(), exact.len());
            for ((computed, exact), size) in computed.iter().zip(&exact).zip(&sizes) {
                let bound = sum * size + roundings as f64 * least / 2.0;
                prop_assert!(
                    (computed - exact).abs() <= bound,
                    "{name} of {dtype:?}: {computed} is not {exact} within {bound}"
                );
            }
            Ok(())
        };
        for layout in LAYOUTS {
            let computed = by_product(layout, case, &x, &grad, dtype);
            let roundings = case.images * case.kernel[0] + 1;
            within(
                &format!("{layout:?}"),
                computed,
                roundings,
                accumulated + 2.0 * u,
            )?;
        }
        if !burn_is_wrong(case) {
            let terms = case.terms();
            let computed = by_kernel(case, &x, &grad, dtype);
            within("Burn's kernel", computed, terms, (terms + 1) as f64 * u)?;
        }
    }
    Ok(())
}

/// One number per dimension.
fn each<const N: usize>(range: Range<usize>) -> impl Strategy<Value = [usize; N]> {
    vec(range, N).prop_map(|numbers| core::array::from_fn(|i| numbers[i]))
}

fn case<const N: usize>() -> impl Strategy<Value = Case<N>> {
    let channels = (1usize..6, 1usize..4, 1usize..4, 1usize..4);
    let kernel = prop_oneof![3 => each::<N>(1..4), 1 => Just([1; N])];
    let sizes = (
        kernel,
        each::<N>(1..4),
        each::<N>(0..3),
        each::<N>(1..4),
        each::<N>(0..6),
    );
    (channels, sizes, any::<u64>()).prop_map(|(channels, sizes, seed)| {
        let (images, per_group_in, per_group_out, groups) = channels;
        let (kernel, stride, padding, dilation, more) = sizes;
        let least = |i: usize| (dilation[i] * (kernel[i] - 1) + 1).saturating_sub(2 * padding[i]);
        Case {
            images,
            channels_in: groups * per_group_in,
            channels_out: groups * per_group_out,
            groups,
            kernel,
            input: core::array::from_fn(|i| least(i).max(1) + more[i]),
            stride,
            padding,
            dilation,
            seed,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn of_one_dimension(case in case::<1>()) {
        check(&case)?;
    }

    #[test]
    fn of_two_dimensions(case in case::<2>()) {
        check(&case)?;
    }

    #[test]
    fn of_three_dimensions(case in case::<3>()) {
        check(&case)?;
    }
}

/// Enough channels that several images are counted into one product.
#[test]
fn of_many_channels() {
    let case = Case {
        images: 16,
        channels_in: 640,
        channels_out: 640,
        groups: 1,
        kernel: [1],
        input: [1],
        stride: [1],
        padding: [0],
        dilation: [1],
        seed: 1,
    };
    check(&case).unwrap();
}

/// A kernel of 3 x 3 over square images, padded to keep their size.
fn three_by_three(images: usize, channels: [usize; 2], size: usize) -> Case<2> {
    Case {
        images,
        channels_in: channels[0],
        channels_out: channels[1],
        groups: 1,
        kernel: [3, 3],
        input: [size, size],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
        seed: 1,
    }
}

/// 49 positions, which no instruction of a GPU that multiplies tiles divides evenly.
#[test]
fn of_images_of_seven_by_seven() {
    check(&three_by_three(8, [24, 16], 7)).unwrap();
}

/// Root mean squares over the elements. The products' roundings are independent, so together they
/// weigh as much as one of the sum: sqrt(2) in all.
#[test]
fn the_error_is_that_of_two_roundings_whatever_the_batch() {
    let case = three_by_three(256, [8, 8], 6);
    for half in HALVES {
        let dtype = half.dtype();
        let (x, grad) = (rounded(case.x(), dtype), rounded(case.output_grad(), dtype));
        let [exact, _] = by_definition(&case, &x, &grad);
        let error = |of: Vec<f64>| {
            let squares = of.iter().zip(&exact).map(|(a, b)| (a - b).powi(2));
            (squares.sum::<f64>() / exact.len() as f64).sqrt()
        };
        let burn = error(by_kernel(&case, &x, &grad, dtype));
        // The one rounding of the result that no method in this dtype avoids.
        let rounding = error(exact.iter().map(|value| half_of(*value, half)).collect());
        for layout in LAYOUTS {
            let ours = error(by_product(layout, &case, &x, &grad, dtype));
            println!(
                "{half} {layout:?}: {ours:.3e}, Burn's kernel {burn:.3e}, rounding {rounding:.3e}"
            );
            assert!(
                ours <= burn.max(2.0 * rounding),
                "{half} {layout:?}: {ours} against {burn}"
            );
        }
    }
}

fn half_of(value: f64, half: HalfDType) -> f64 {
    let data = TensorData::from([value]).convert_dtype(half.dtype());
    data.iter::<f64>().next().unwrap()
}

fn layer<B: AutodiffBackend>() -> Conv2d<B> {
    let mut conv = Conv2dConfig::new([4, 6], [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .init(&Default::default());
    let shape = conv.weight.shape();
    conv.weight = Param::from_data(values(shape, 7), &Default::default());
    conv.bias = Some(Param::from_data(values([6].into(), 8), &Default::default()));
    conv
}

/// The gradients of weight and bias for a loss that weighs each output.
fn gradients<B: AutodiffBackend>(conv: &Conv2d<B>) -> [TensorData; 2] {
    let device = Default::default();
    let x = Tensor::<B, 4>::from_data(values([32, 4, 9, 9].into(), 3), &device);
    let weights = Tensor::<B, 4>::from_data(values([32, 6, 9, 9].into(), 4), &device);
    let grads = (conv.forward(x) * weights).sum().backward();
    let bias = conv.bias.as_ref().unwrap();
    [
        conv.weight.grad(&grads).unwrap().into_data(),
        bias.grad(&grads).unwrap().into_data(),
    ]
}

fn under(level: OptLevel, backward: ConvBackward) -> [TensorData; 2] {
    AmpConfig::new(level)
        .with_conv_backward(backward)
        .build()
        .unwrap()
        .scope(|| gradients(&layer::<Fast>()))
}

#[test]
fn the_setting_chooses_the_way() {
    let o1 = |backward| under(OptLevel::O1, backward);
    let [kernel, bias] = o1(ConvBackward::Kernel);
    let [product, same_bias] = o1(ConvBackward::Im2col);
    assert_ne!(kernel, product, "both were computed the same way");
    assert_eq!(bias, same_bias);
    // On the CPU Burn's kernel is the faster one for windows of more than one element.
    #[cfg(not(any(feature = "cuda", feature = "wgpu")))]
    assert_eq!(kernel, o1(ConvBackward::Fastest)[0]);

    let plain = gradients(&layer::<support::Plain>());
    for off in ConvBackward::ALL {
        assert_eq!(under(OptLevel::O0, off), plain);
    }
    let off = AmpConfig::new(OptLevel::O1)
        .with_conv_backward(ConvBackward::Im2col)
        .build()
        .unwrap();
    assert_eq!(
        off.scope(|| scope::disabled(|| gradients(&layer::<Fast>()))),
        plain
    );
}

/// Backward runs on the thread that calls it; another one has no part in the scopes of this one.
#[test]
fn settings_of_the_device_hold_on_every_thread() {
    type Device = <Fast as burn_backend::BackendTypes>::Device;
    let device = Device::default();
    AmpConfig::new(OptLevel::O1)
        .with_conv_backward(ConvBackward::Im2col)
        .init::<Fast>(&device)
        .unwrap();
    let elsewhere = std::thread::spawn(|| gradients(&layer::<Fast>()))
        .join()
        .unwrap();
    burn_amp::uninstall(&device);
    assert_eq!(elsewhere, under(OptLevel::O1, ConvBackward::Im2col));
}
