//! The weight gradient of single convolutions: Burn's own kernel beside matrix products.

use std::ops::Range;
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn::tensor::ops::{ConvOptions, FloatTensor, FloatTensorOps, ModuleOps};
use burn::tensor::{FloatDType, Tensor, TensorMetadata, TensorPrimitive};
use burn_amp::Im2col;

use crate::backend::{self, Bare, Device};
use crate::data;

type B = Bare<f32>;

const WARM_UP: usize = 3;
const TIMED: usize = 10;

pub struct Layer {
    images: usize,
    channels: [usize; 2],
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
}

const fn layer(
    images: usize,
    channels: [usize; 2],
    size: usize,
    kernel: usize,
    stride: usize,
) -> Layer {
    Layer {
        images,
        channels,
        size,
        kernel,
        stride,
        padding: kernel / 2,
    }
}

/// Those of the cnn and its stem, those of ResNet-18, and odd sizes to check the values of.
pub const LAYERS: [Layer; 16] = [
    layer(64, [128, 128], 56, 3, 1),
    layer(64, [3, 128], 56, 3, 1),
    layer(128, [3, 64], 32, 3, 1),
    layer(128, [64, 64], 32, 3, 1),
    layer(128, [64, 128], 32, 3, 2),
    layer(128, [64, 128], 32, 1, 2),
    layer(128, [128, 128], 16, 3, 1),
    layer(128, [128, 256], 16, 3, 2),
    layer(128, [128, 256], 16, 1, 2),
    layer(128, [256, 256], 8, 3, 1),
    layer(128, [256, 512], 8, 3, 2),
    layer(128, [256, 512], 8, 1, 2),
    layer(128, [512, 512], 4, 3, 1),
    layer(16, [5, 10], 7, 3, 1),
    layer(32, [64, 63], 7, 3, 1),
    layer(64, [256, 64], 56, 1, 1),
];

/// How a tensor of images lies in memory. Burn's convolutions put out the second.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Nchw,
    Nhwc,
}

impl Layer {
    fn output(&self) -> usize {
        (self.size + 2 * self.padding - self.kernel) / self.stride + 1
    }

    fn options(&self) -> ConvOptions<2> {
        ConvOptions::new([self.stride; 2], [self.padding; 2], [1; 2], 1)
    }
}

fn images(
    count: usize,
    channels: usize,
    size: usize,
    memory: Memory,
    dtype: FloatDType,
    device: &Device,
) -> FloatTensor<B> {
    let images = match memory {
        Memory::Nchw => data::floats::<B, 4>([count, channels, size, size], device).cast(dtype),
        Memory::Nhwc => data::floats::<B, 4>([count, size, size, channels], device)
            .cast(dtype)
            .permute([0, 3, 1, 2]),
    };
    images.into_primitive().tensor()
}

/// Prints a line per layer out of these, dtype, memory layout and way: milliseconds, and the largest difference
/// from Burn's kernel in f32 on the same values, in parts of the largest element.
pub fn print(layers: Range<usize>) {
    let device = backend::device();
    for layer in &LAYERS[layers] {
        for dtype in [FloatDType::F32, FloatDType::F16] {
            for memory in [Memory::Nchw, Memory::Nhwc] {
                measure(layer, dtype, memory, &device);
            }
        }
    }
}

fn measure(layer: &Layer, dtype: FloatDType, memory: Memory, device: &Device) {
    let [channels_in, channels_out] = layer.channels;
    let x = images(layer.images, channels_in, layer.size, memory, dtype, device);
    let grad = images(
        layer.images,
        channels_out,
        layer.output(),
        memory,
        dtype,
        device,
    );
    // Where both have one shape they are equal: a sum of squares, which f16 holds up to 65504.
    let terms = layer.images * layer.output() * layer.output();
    let grad = <B as FloatTensorOps<B>>::float_mul_scalar(grad, (64.0 / terms as f64).into());
    let weight = Tensor::<B, 4>::zeros(
        [channels_out, channels_in, layer.kernel, layer.kernel],
        device,
    );
    let weight_of = |dtype: FloatDType| weight.clone().cast(dtype).into_primitive().tensor();
    let kernel = |x, grad, dtype| {
        <B as ModuleOps<B>>::conv2d_weight_backward(x, weight_of(dtype), grad, layer.options())
    };
    let wide = |tensor: &FloatTensor<B>| {
        let tensor = Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(tensor.clone()));
        tensor.cast(FloatDType::F32).into_primitive().tensor()
    };
    let reference = values(kernel(wide(&x), wide(&grad), FloatDType::F32));
    let largest = reference
        .iter()
        .fold(0f32, |max, value| max.max(value.abs()));

    let report = |way: &str, run: &dyn Fn() -> FloatTensor<B>| {
        let time = time(run, device);
        let off = values(run())
            .iter()
            .zip(&reference)
            .fold(0f32, |max, (a, b)| max.max((a - b).abs()));
        println!(
            "{}\t{}->{}\t{}x{}\tk{} s{}\t{dtype:?}\t{memory:?}\t{way}\t{:.3}\t{:.1e}",
            layer.images,
            channels_in,
            channels_out,
            layer.size,
            layer.size,
            layer.kernel,
            layer.stride,
            time.as_secs_f64() * 1e3,
            off / largest,
        );
    };
    report("Burn", &|| kernel(x.clone(), grad.clone(), dtype));
    for layout in [Im2col::ChannelsFirst, Im2col::OverlappingRows] {
        let shape = weight.shape();
        report(&format!("{layout:?}"), &|| {
            let (x, grad, shape) = (x.clone(), grad.clone(), shape.clone());
            layout.weight_gradient::<B, 2>(x, shape, grad, &layer.options())
        });
    }
    let name = B::name(device);
    let fastest = Im2col::fastest(&name, &weight.shape(), &grad.shape(), &layer.options());
    println!("the rule: {fastest:?}");
}

fn values(tensor: FloatTensor<B>) -> Vec<f32> {
    let tensor = Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(tensor));
    let data = tensor.cast(FloatDType::F32).into_data();
    data.to_vec().expect("f32")
}

/// The median, each run with a `sync` at both ends.
fn time(run: &dyn Fn() -> FloatTensor<B>, device: &Device) -> Duration {
    let sync = || B::sync(device).expect("the device runs what is queued");
    let once = || {
        sync();
        let start = Instant::now();
        let output = run();
        sync();
        let time = start.elapsed();
        drop(output);
        time
    };
    let mut times: Vec<Duration> = (0..WARM_UP + TIMED).map(|_| once()).skip(WARM_UP).collect();
    times.sort_unstable();
    times[TIMED / 2]
}
