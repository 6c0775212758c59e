//! Attention out of pieces: two products in half, and f32 between them.
//!
//! Burn composes attention of matmuls, exponentials and sums wherever no kernel does it in one, all
//! in the dtype of its inputs. In f16 the scores of long heads leave the range before they are
//! scaled, a mask's -1e9 is -inf, and the softmax adds up in half. Here the scores are f32 as soon as
//! they are there.

use burn::tensor::{Bool, Tensor};
use burn_backend::ops::AttentionModuleOptions;
use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Backend, FloatDType, TensorMetadata};

use crate::{HalfDType, Policy, cast, scope};

/// Whether attention on half inputs comes out of pieces, or of a kernel that keeps scores in f32.
///
/// Autodiff always composes; elsewhere Burn's fused kernels take no scale of the caller's, no softcap
/// and no bias (burn-cubecl 0.21).
pub(super) fn is_composed<B: Backend>(
    query: &FloatTensor<B>,
    has_bias: bool,
    options: &AttentionModuleOptions,
) -> bool {
    let device = B::float_device(query);
    let refined = has_bias || options.scale.is_some() || options.softcap.is_some();
    (refined || B::ad_enabled(&device))
        && scope::policy(|| device, |policy| policy.is_some_and(Policy::is_enabled))
}

/// Attention of a half query, key and value, with a bias of any dtype; a row whose keys are all
/// masked gives zeros, as in Burn.
pub(super) fn composed<B: Backend>(
    half: HalfDType,
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    value: FloatTensor<B>,
    mask: Option<BoolTensor<B>>,
    bias: Option<FloatTensor<B>>,
    options: AttentionModuleOptions,
) -> FloatTensor<B> {
    let width = query.shape()[3] as f64;
    let scale = options.scale.unwrap_or_else(|| width.sqrt().recip());
    let (before, after) = split(scale, half);
    let query = B::float_mul_scalar(query, before.into());
    let scores = B::float_matmul(query, B::float_transpose(key));
    let scores = cast::to_dtype::<B>(scores, FloatDType::F32);
    let mut scores = B::float_mul_scalar(scores, after.into());
    if let Some(softcap) = options.softcap {
        assert!(
            softcap > 0.0,
            "invalid softcap {softcap}: allowed is a number above 0"
        );
        let capped = B::float_tanh(B::float_div_scalar(scores, softcap.into()));
        scores = B::float_mul_scalar(capped, softcap.into());
    }
    let masks = [mask, options.is_causal.then(|| future::<B>(&scores))];
    for mask in masks.into_iter().flatten() {
        scores = B::float_mask_fill(scores, mask, f32::NEG_INFINITY.into());
    }
    if let Some(bias) = bias {
        scores = B::float_add(scores, cast::to_dtype::<B>(bias, FloatDType::F32));
    }
    let weights = cast::to_dtype::<B>(softmax::<B>(scores), half.float_dtype());
    B::float_matmul(weights, value)
}

/// A scale as a factor for the query, before the product, and one for the scores, after it.
///
/// The first is a power of two and so exact, unless it makes an element of the query subnormal. It
/// leaves the products of f16 sixteen times the range that scaled scores have; an element above 2^-4
/// keeps all its digits whatever the scale.
fn split(scale: f64, half: HalfDType) -> (f64, f64) {
    const HEADROOM: f64 = 16.0;
    const LEAST: f64 = 1.0 / 1024.0;
    if half == HalfDType::Bf16 || !scale.is_normal() {
        return (1.0, scale);
    }
    let power = scale.abs().log2().floor().exp2() / HEADROOM;
    let before = power.clamp(LEAST, 1.0);
    (before, scale / before)
}

/// True where a key comes after its query, the last of both being aligned.
fn future<B: Backend>(scores: &FloatTensor<B>) -> BoolTensor<B> {
    let shape = scores.shape();
    let (queries, keys) = (shape[2], shape[3]);
    let offset = keys as i64 - queries as i64;
    let device = B::float_device(scores);
    let mask = Tensor::<B, 2, Bool>::tril_mask([queries, keys], offset, &device);
    B::bool_expand(mask.reshape([1, 1, queries, keys]).into_primitive(), shape)
}

/// Softmax over the keys that is zero, not NaN, where all of them are masked.
fn softmax<B: Backend>(scores: FloatTensor<B>) -> FloatTensor<B> {
    let max = B::float_clamp_min(B::float_max_dim(scores.clone(), 3), f32::MIN.into());
    let exponentials = B::float_exp(B::float_sub(scores, max));
    let sum = B::float_sum_dim(exponentials.clone(), 3);
    let sum = B::float_clamp_min(sum, f32::MIN_POSITIVE.into());
    B::float_div(exponentials, sum)
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::HalfDType;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_split_scale_is_the_scale(scale in 1e-12..1e6f64, half in prop::sample::select(vec![
            HalfDType::F16, HalfDType::Bf16,
        ])) {
            let (before, after) = split(scale, half);
            prop_assert_eq!(before * after, scale);
            prop_assert!((1.0 / 1024.0..=1.0).contains(&before));
            prop_assert_eq!(before.log2().fract(), 0.0, "a power of two");
        }
    }

    #[test]
    fn scales_that_are_no_numbers_are_left_alone() {
        for scale in [0.0, f64::NAN, f64::INFINITY] {
            let (before, after) = split(scale, HalfDType::F16);
            assert_eq!((before, after.to_bits()), (1.0, scale.to_bits()));
        }
    }
}
