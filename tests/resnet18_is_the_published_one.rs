//! ResNet-18 of the examples is that of He et al. (2015), table 1, with CIFAR's stem, layer by layer.
#![cfg(feature = "flex")]

#[path = "../examples/models/resnet18.rs"]
mod resnet18;

use burn::backend::Flex;
use burn::nn::BatchNorm;
use burn::tensor::Tensor;
use resnet18::{ConvNorm, ResNet18};

/// What a convolution and its norm are: channels in and out, kernel, stride, parameters.
fn layer(layer: &ConvNorm<Flex>) -> ([usize; 2], usize, usize, usize) {
    let ConvNorm { conv, norm } = layer;
    assert!(conv.bias.is_none());
    let [wide, narrow, height, width] = conv.weight.val().dims();
    assert_eq!(height, width);
    assert_eq!(conv.stride[0], conv.stride[1]);
    let weights = wide * narrow * height * width;
    (
        [narrow, wide],
        height,
        conv.stride[0],
        weights + trained(norm, wide),
    )
}

/// Gamma and beta: running statistics are no parameters.
fn trained(norm: &BatchNorm<Flex>, channels: usize) -> usize {
    assert_eq!(norm.gamma.val().dims(), [channels]);
    assert_eq!(norm.beta.val().dims(), [channels]);
    2 * channels
}

/// The published network: for each stage its channels, and stride and shortcut of its first block.
#[test]
fn every_layer_is_as_published() {
    let model = ResNet18::<Flex>::new(10, &Default::default());
    // For CIFAR the stem is 3x3 with stride 1, and nothing is pooled.
    assert_eq!(layer(&model.stem), ([3, 64], 3, 1, 3 * 64 * 9 + 128));
    let mut parameters = layer(&model.stem).3;
    assert_eq!(model.blocks.len(), 8);
    let mut before = 64;
    for (block, wide) in model
        .blocks
        .iter()
        .zip([64, 64, 128, 128, 256, 256, 512, 512])
    {
        let stride = if wide > before { 2 } else { 1 };
        let expected = [before * wide * 9 + 2 * wide, wide * wide * 9 + 2 * wide];
        assert_eq!(
            layer(&block.first),
            ([before, wide], 3, stride, expected[0])
        );
        assert_eq!(layer(&block.second), ([wide, wide], 3, 1, expected[1]));
        parameters += expected[0] + expected[1];
        assert_eq!(block.shortcut.is_some(), stride == 2);
        if let Some(shortcut) = &block.shortcut {
            let expected = before * wide + 2 * wide;
            assert_eq!(layer(shortcut), ([before, wide], 1, 2, expected));
            parameters += expected;
        }
        before = wide;
    }
    assert_eq!(model.head.weight.val().dims(), [512, 10]);
    let bias = model.head.bias.as_ref().expect("the head has a bias");
    assert_eq!(bias.val().dims(), [10]);
    parameters += 512 * 10 + 10;
    assert_eq!(parameters, 11_173_962);
}

/// The sizes of the feature maps: 32, 32, 16, 8 and 4 for images of 32x32 pixels.
#[test]
fn feature_maps_shrink_as_published() {
    let device = Default::default();
    let model = ResNet18::<Flex>::new(10, &device);
    let images = Tensor::zeros([1, 3, 32, 32], &device);
    let mut x = model.stem.forward(images.clone());
    assert_eq!(x.dims(), [1, 64, 32, 32]);
    for (block, (channels, side)) in model.blocks.iter().zip([
        (64, 32),
        (64, 32),
        (128, 16),
        (128, 16),
        (256, 8),
        (256, 8),
        (512, 4),
        (512, 4),
    ]) {
        x = block.forward(x);
        assert_eq!(x.dims(), [1, channels, side, side]);
    }
    assert_eq!(model.forward(images).dims(), [1, 10]);
}
