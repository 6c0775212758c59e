use core::ops::Range;

use burn_backend::ops::ConvOptions;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType, Shape, Slice, TensorMetadata};

use crate::{HalfDType, cast};

/// The most bytes that are taken for the time of a product; a larger batch is computed in parts.
///
/// 128 channels of 56 x 56 under a 3 x 3 kernel take 7.2 MB an image in half: a batch of 64 is one
/// part, which leaves a GPU enough to do, and the memory is that of a few activations.
const PART_BYTES: usize = 512 << 20;

/// On a GPU a product pays where four times the output positions of an image are no fewer than the
/// output channels; otherwise the products of single images, which are as large as the weight,
/// outweigh the windows they are made of.
///
/// Milliseconds on an H200 in f16, 3 x 3 kernels, Burn's own and `ChannelsFirst`: 128 channels of
/// 56 x 56 8.3 and 1.3; 64 of 32 x 32 2.9 and 0.42; 128 of 16 x 16 1.2 and 0.31; 256 of 8 x 8 0.43 and
/// 0.35; 512 of 4 x 4 0.17 and 0.83. f32 is alike: 9.2 and 1.7, to 0.24 and 0.85.
const POSITIONS_FACTOR: usize = 4;

/// From so many output positions of an image on, 56 x 56, overlapping rows are the faster layout on a
/// GPU: 128 channels take 1.3 to 1.5 ms against 1.7 to 1.9 in f16, and 2.1 to 2.3 against 2.4 in f32.
/// Smaller images were not measured.
const OVERLAP_POSITIONS: usize = 56 * 56;

/// Which convolutions the products were faster for, backend by backend, as far as it was measured.
#[derive(Clone, Copy)]
enum Measured {
    Cuda,
    /// Kernels of one element, in both dtypes: 64 to 32 channels of 28 x 28 in f32 36 ms and 4.8. With
    /// larger ones Burn's kernel is as fast or up to three times faster.
    Flex,
}

impl Measured {
    /// By the name a backend gives itself, which names those it decorates.
    fn named(backend: &str) -> Option<Self> {
        [("cubecl<cuda>", Measured::Cuda), ("flex", Measured::Flex)]
            .into_iter()
            .find(|(name, _)| backend.contains(name))
            .map(|(_, measured)| measured)
    }

    /// The layout that was faster than Burn's own kernel.
    fn layout<const N: usize>(self, geometry: &Geometry<N>) -> Option<Im2col> {
        let positions = geometry.positions();
        match self {
            _ if geometry.groups > 1 => None,
            Measured::Cuda if POSITIONS_FACTOR * positions < geometry.channels_out => None,
            Measured::Cuda if geometry.rows_overlap() && positions >= OVERLAP_POSITIONS => {
                Some(Im2col::OverlappingRows)
            }
            Measured::Flex if geometry.kernel != [1; N] => None,
            Measured::Cuda | Measured::Flex => Some(Im2col::ChannelsFirst),
        }
    }
}

/// Products are this wide, or a multiple: their outputs were wrong on CUDA under Burn 0.21's fusion
/// for 27 columns, a 3 x 3 kernel over 3 channels. Channels of zeros make up the rest.
const WIDTH: usize = 8;

/// Layouts in which a convolution's weight gradient is one batched matrix product.
///
/// The gradient of an output times the window of the input that it saw, summed over images and
/// positions. The windows are a strided view of the padded input; making a matrix of them is one
/// copy.
///
/// # Numerics
///
/// A product covers one image, or one row of the kernel in it, and is rounded to the inputs' dtype.
/// The products are added in f32 and the sum is rounded once, so the error does not grow with the
/// batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Im2col {
    /// A row per element of the window, holding all output positions of one image.
    ChannelsFirst,
    /// A row per output position, holding its window with the channels innermost, where the copy
    /// unfolds only the inner dimensions: the windows along the first one overlap in memory. A third
    /// of the memory for a 3 x 3 kernel, and one product per image and row of the kernel. Only for
    /// stride 1 in the first dimension and one group; otherwise it is `ChannelsFirst`.
    OverlappingRows,
}

/// What is known of a convolution from its shapes.
struct Geometry<const N: usize> {
    images: usize,
    groups: usize,
    /// Per group.
    channels_in: usize,
    /// Per group.
    channels_out: usize,
    kernel: [usize; N],
    output: [usize; N],
    options: ConvOptions<N>,
}

impl<const N: usize> Geometry<N> {
    fn new(weight: &Shape, output_grad: &Shape, options: &ConvOptions<N>) -> Self {
        Geometry {
            images: output_grad[0],
            groups: options.groups,
            channels_in: weight[1],
            channels_out: weight[0] / options.groups,
            kernel: core::array::from_fn(|i| weight[2 + i]),
            output: core::array::from_fn(|i| output_grad[2 + i]),
            options: options.clone(),
        }
    }

    /// Output positions of one image.
    fn positions(&self) -> usize {
        self.output.iter().product()
    }

    /// Elements of a window, over the padded channels of one group.
    fn window(&self) -> usize {
        self.padded_channels() * self.kernel.iter().product::<usize>()
    }

    /// Channels of one group with those that [`WIDTH`] asks for.
    fn padded_channels(&self) -> usize {
        let taps: usize = self.kernel.iter().product();
        // 8 is a power of two: what `taps` lacks to it is another one.
        let lacking = WIDTH >> taps.trailing_zeros().min(WIDTH.trailing_zeros());
        self.channels_in.next_multiple_of(lacking)
    }

    /// Whether the windows of neighbouring rows of the output share their rows of the input, all of
    /// one group.
    fn rows_overlap(&self) -> bool {
        self.options.stride[0] == 1 && self.groups == 1
    }
}

impl Im2col {
    /// The layout that was measured to be fastest for a convolution of these shapes on a backend of
    /// this name; `None` where Burn's own kernel is at least as fast, or nothing was measured.
    pub fn fastest<const N: usize>(
        backend: &str,
        weight: &Shape,
        output_grad: &Shape,
        options: &ConvOptions<N>,
    ) -> Option<Im2col> {
        let geometry = Geometry::new(weight, output_grad, options);
        Measured::named(backend)?.layout(&geometry)
    }

    /// The gradient of a loss with respect to a convolution's weight, from the input, the gradient
    /// with respect to the output, and the weight's shape.
    ///
    /// It is in the dtype of the inputs, which must be the same.
    pub fn weight_gradient<B: Backend, const N: usize>(
        self,
        x: FloatTensor<B>,
        weight: Shape,
        output_grad: FloatTensor<B>,
        options: &ConvOptions<N>,
    ) -> FloatTensor<B> {
        let geometry = Geometry::new(&weight, &output_grad.shape(), options);
        let image = self.elements_of_image(&geometry) * x.dtype().size();
        let part = (PART_BYTES / image.max(1)).max(1);
        self.in_parts::<B, N>(x, weight, output_grad, &geometry, part)
    }

    /// Adds up the gradients of parts of the batch, each of so many images.
    fn in_parts<B: Backend, const N: usize>(
        self,
        x: FloatTensor<B>,
        weight: Shape,
        output_grad: FloatTensor<B>,
        geometry: &Geometry<N>,
        part: usize,
    ) -> FloatTensor<B> {
        let dtype = x.dtype().into();
        let sum = (0..geometry.images)
            .step_by(part)
            .map(|start| {
                let images = start..(start + part).min(geometry.images);
                self.of_part::<B, N>(
                    of_images::<B>(x.clone(), images.clone()),
                    of_images::<B>(output_grad.clone(), images),
                    geometry,
                )
            })
            .reduce(B::float_add)
            .unwrap_or_else(|| B::float_zeros(weight, &B::float_device(&x), dtype));
        let gradient = first_of::<B>(sum, 1, geometry.channels_in, 1);
        cast::uncounted::<B>(gradient, dtype)
    }

    /// What one image adds to the memory that is taken for the time of a product.
    fn elements_of_image<const N: usize>(self, geometry: &Geometry<N>) -> usize {
        let windows = geometry.groups * geometry.positions() * geometry.window();
        let gradient = geometry.groups * geometry.channels_out * geometry.window();
        match self {
            Im2col::OverlappingRows if geometry.rows_overlap() => {
                windows / geometry.kernel[0] + gradient
            }
            Im2col::ChannelsFirst | Im2col::OverlappingRows => windows + gradient,
        }
    }

    /// The sum over some images, in f32 at least.
    fn of_part<B: Backend, const N: usize>(
        self,
        x: FloatTensor<B>,
        output_grad: FloatTensor<B>,
        geometry: &Geometry<N>,
    ) -> FloatTensor<B> {
        match self {
            Im2col::OverlappingRows if geometry.rows_overlap() => {
                overlapping_rows::<B, N>(x, output_grad, geometry)
            }
            Im2col::ChannelsFirst | Im2col::OverlappingRows => {
                channels_first::<B, N>(x, output_grad, geometry)
            }
        }
    }
}

fn channels_first<B: Backend, const N: usize>(
    x: FloatTensor<B>,
    output_grad: FloatTensor<B>,
    geometry: &Geometry<N>,
) -> FloatTensor<B> {
    let Geometry {
        groups,
        channels_in,
        channels_out,
        ..
    } = *geometry;
    let channels = geometry.padded_channels();
    let images = x.shape()[0];
    let positions = geometry.positions();

    // [images, groups, channels, output.., kernel..] to [images, groups, channels, kernel.., output..]
    let windows = unfold::<B, N>(by_group::<B, N>(x, channels_in, geometry), 3, 0, geometry);
    let axes = order(&[0, 1, 2], &[(N + 3, N), (3, N)]);
    let windows = B::float_reshape(
        B::float_permute(windows, &axes),
        Shape::new([images, groups, geometry.window(), positions]),
    );
    let output_grad = B::float_reshape(
        output_grad,
        Shape::new([images, groups, channels_out, positions]),
    );

    let gradients = B::float_matmul(output_grad, B::float_swap_dims(windows, 2, 3));
    let gradient = B::float_sum_dim(wide::<B>(gradients), 0);
    B::float_reshape(
        gradient,
        shape(&[groups * channels_out, channels], &geometry.kernel, &[]),
    )
}

fn overlapping_rows<B: Backend, const N: usize>(
    x: FloatTensor<B>,
    output_grad: FloatTensor<B>,
    geometry: &Geometry<N>,
) -> FloatTensor<B> {
    let Geometry {
        channels_out,
        kernel,
        output,
        ..
    } = *geometry;
    let channels = geometry.padded_channels();
    let images = x.shape()[0];
    let positions = geometry.positions();
    let per_row = positions / output[0];
    let window = geometry.window() / kernel[0];

    // [images, rows, output.., groups, channels, kernel..] to
    // [images, rows, output.., kernel.., groups, channels], all but the first dimension unfolded.
    let windows = unfold::<B, N>(channels_to_end::<B, N>(x, geometry), 1, 1, geometry);
    let rows = windows.shape()[1];
    let axes = order(&[0], &[(1, N), (N + 3, N - 1), (N + 1, 2)]);
    let windows = B::float_reshape(
        B::float_permute(windows, &axes),
        Shape::new([images, rows * per_row, window]),
    );
    // The windows of a row of the kernel are a contiguous block: a view per row.
    let step = geometry.options.dilation[0] * per_row;
    let windows = B::float_unfold(windows, 1, positions, step);
    let output_grad = B::float_reshape(
        output_grad,
        Shape::new([images, 1, channels_out, positions]),
    );

    let gradients = B::float_matmul(output_grad, B::float_swap_dims(windows, 2, 3));
    let gradient = B::float_sum_dim(wide::<B>(gradients), 0);
    let gradient = B::float_reshape(
        gradient,
        shape(&[kernel[0], channels_out], &kernel[1..], &[channels]),
    );
    B::float_permute(gradient, &order(&[1, N + 1, 0], &[(2, N - 1)]))
}

/// `[images, channels, ..]` as `[images, groups, channels of a group, ..]`.
fn by_group<B: Backend, const N: usize>(
    tensor: FloatTensor<B>,
    channels: usize,
    geometry: &Geometry<N>,
) -> FloatTensor<B> {
    let all = tensor.shape();
    let grouped = shape(&[all[0], geometry.groups, channels], &all[2..], &[]);
    B::float_reshape(tensor, grouped)
}

/// `[images, channels, ..]` as `[images, .., groups, channels of a group]`.
fn channels_to_end<B: Backend, const N: usize>(
    x: FloatTensor<B>,
    geometry: &Geometry<N>,
) -> FloatTensor<B> {
    let x = by_group::<B, N>(x, geometry.channels_in, geometry);
    B::float_permute(x, &order(&[0], &[(3, N), (1, 2)]))
}

/// Pads the channels and `N` dimensions from `first` on, and replaces all but `skipped` of them by their output
/// positions, with the elements of the windows as dimensions at the end. A view of the padded input.
fn unfold<B: Backend, const N: usize>(
    x: FloatTensor<B>,
    first: usize,
    skipped: usize,
    geometry: &Geometry<N>,
) -> FloatTensor<B> {
    let rank = x.rank();
    // Channels are behind the other dimensions, or before them.
    let channels = if first == 1 { rank - 1 } else { first - 1 };
    let added = geometry.padded_channels() - geometry.channels_in;
    let space = (0..N).map(|i| (first + i, [geometry.options.padding[i]; 2]));
    let padded = pad::<B>(x, space.chain([(channels, [0, added])]));
    (skipped..N).fold(padded, |x, i| {
        let dim = first + i;
        let ConvOptions {
            stride, dilation, ..
        } = &geometry.options;
        let taps = geometry.kernel[i];
        if dilation[i] == 1 {
            return B::float_unfold(x, dim, taps, stride[i]);
        }
        // What one tap of the kernel sees is a window too, and those are a dilation apart.
        let span = (geometry.output[i] - 1) * stride[i] + 1;
        let seen = first_of::<B>(B::float_unfold(x, dim, span, dilation[i]), dim, taps, 1);
        let last = seen.rank() - 1;
        let seen = first_of::<B>(seen, last, span, stride[i]);
        B::float_swap_dims(seen, dim, last)
    })
}

/// Every `step`th of the first elements of a dimension.
fn first_of<B: Backend>(
    tensor: FloatTensor<B>,
    dim: usize,
    end: usize,
    step: usize,
) -> FloatTensor<B> {
    if tensor.shape()[dim] == end && step == 1 {
        return tensor;
    }
    let mut slices = vec![Slice::full(); tensor.rank()];
    slices[dim] = Slice::new(0, Some(end as isize), step as isize);
    B::float_slice(tensor, &slices)
}

/// Puts zeros before and after the elements of some dimensions.
fn pad<B: Backend>(
    x: FloatTensor<B>,
    dims: impl Iterator<Item = (usize, [usize; 2])>,
) -> FloatTensor<B> {
    let mut padded = x.shape();
    let mut slices: Vec<Slice> = padded.iter().map(|size| Slice::from(0..*size)).collect();
    for (dim, [before, after]) in dims {
        let size = padded[dim];
        slices[dim] = Slice::from(before..before + size);
        padded[dim] = before + size + after;
    }
    if padded == x.shape() {
        return x;
    }
    let zeros = B::float_zeros(padded, &B::float_device(&x), x.dtype().into());
    B::float_slice_assign(zeros, &slices, x)
}

/// The tensor itself if it has these images alone.
fn of_images<B: Backend>(tensor: FloatTensor<B>, images: Range<usize>) -> FloatTensor<B> {
    if images.len() == tensor.shape()[0] {
        return tensor;
    }
    B::float_slice(tensor, &[Slice::from(images)])
}

/// Half in f32, any other dtype as it is.
fn wide<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match HalfDType::of(tensor.dtype()) {
        Some(_) => cast::uncounted::<B>(tensor, FloatDType::F32),
        None => tensor,
    }
}

fn shape(first: &[usize], middle: &[usize], last: &[usize]) -> Shape {
    Shape::from([first, middle, last].concat())
}

/// Some axes, then ranges of them, each by its first axis and its length.
fn order(first: &[usize], ranges: &[(usize, usize)]) -> Vec<usize> {
    let ranges = ranges.iter().flat_map(|(start, len)| *start..start + len);
    first.iter().copied().chain(ranges).collect()
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn_backend::ops::FloatTensorOps;
    use burn_backend::{TensorData, read_sync};

    use super::*;

    fn geometry(images: usize, channels: usize, size: usize, kernel: usize) -> Geometry<2> {
        Geometry::new(
            &Shape::new([channels, channels, kernel, kernel]),
            &Shape::new([images, channels, size, size]),
            &ConvOptions::new([1; 2], [kernel / 2; 2], [1; 2], 1),
        )
    }

    #[test]
    fn the_rule_follows_what_was_measured() {
        let layout = |backend: &str, geometry: Geometry<2>| {
            Measured::named(backend).and_then(|measured| measured.layout(&geometry))
        };
        let faster = |backend: &str, geometry| layout(backend, geometry).is_some();
        let cuda = "fast-backward<fusion<cubecl<cuda>>>";
        let of_56 = layout(cuda, geometry(64, 128, 56, 3));
        assert_eq!(of_56, Some(Im2col::OverlappingRows));
        let of_32 = layout(cuda, geometry(128, 64, 32, 3));
        assert_eq!(of_32, Some(Im2col::ChannelsFirst));
        assert!(faster(cuda, geometry(128, 256, 8, 3)));
        assert!(!faster(cuda, geometry(128, 512, 4, 3)));
        assert!(faster("flex", geometry(8, 64, 28, 1)));
        assert!(!faster("flex", geometry(8, 64, 28, 3)));
        assert!(!faster(
            "fusion<cubecl<wgpu<spirv>>>",
            geometry(64, 128, 56, 3)
        ));
        assert!(!faster("ndarray", geometry(64, 128, 56, 1)));
    }

    #[test]
    fn a_batch_in_parts_gives_the_gradient_of_the_whole() {
        let geometry = geometry(5, 2, 4, 3);
        let numbers = |seed: usize| {
            let values: Vec<f32> = (0..5 * 2 * 16)
                .map(|i| ((i * 37 + seed) % 101) as f32 / 50.0 - 1.0)
                .collect();
            Flex::float_from_data(TensorData::new(values, [5, 2, 4, 4]), &Default::default())
        };
        let gradient = |layout: Im2col, part| -> Vec<f32> {
            let weight = Shape::new([2, 2, 3, 3]);
            let (x, grad) = (numbers(0), numbers(5));
            let gradient = layout.in_parts::<Flex, 2>(x, weight, grad, &geometry, part);
            let data = read_sync(Flex::float_into_data(gradient)).unwrap();
            data.to_vec().unwrap()
        };
        let whole = gradient(Im2col::ChannelsFirst, 5);
        for layout in [Im2col::ChannelsFirst, Im2col::OverlappingRows] {
            for part in 1..6 {
                for (part, whole) in gradient(layout, part).iter().zip(&whole) {
                    // 80 products below 1, added up in f32 in another order.
                    assert!(
                        (part - whole).abs() <= 80.0 * 80.0 * f32::EPSILON,
                        "{layout:?}"
                    );
                }
            }
        }
    }
}
