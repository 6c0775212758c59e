//! Every layer and loss of burn-nn, run forward and backward on inputs and weights of any dtype.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::any::Any;
use std::cell::RefCell;

use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::activation::*;
use burn::nn::attention::*;
use burn::nn::conv::*;
use burn::nn::interpolate::*;
use burn::nn::loss::*;
use burn::nn::pool::*;
use burn::nn::transformer::*;
use burn::nn::*;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, DType, Int, Tensor};
use burn_amp::{Amp, scope};

use crate::models::{counted, wave};
use crate::support::Mixed;
use crate::support::net::fixed;

/// What came out of one forward pass, or of one and its backward.
#[derive(Debug)]
pub struct Outcome {
    pub dtype: DType,
    pub output: Vec<f32>,
    /// Of the weights, then of the inputs; none in evaluation.
    pub gradients: Vec<Vec<f32>>,
}

impl Outcome {
    pub fn is_finite(&self) -> bool {
        let mut values = self.gradients.iter().flatten().chain(&self.output);
        values.all(|value| value.is_finite())
    }
}

/// The dtype of an input, and the one its values were rounded to before: a reference in f32 for an
/// input in half has the half input's values.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub dtype: DType,
    pub values_of: DType,
}

impl Given {
    pub fn exactly(dtype: DType) -> Self {
        Given {
            dtype,
            values_of: dtype,
        }
    }
}

/// How a case is run.
pub struct Setup<'a> {
    pub amp: &'a Amp,
    pub input: Given,
    /// The dtype of every float tensor of the module, statistics too; `None` for those of the level.
    pub weights: Option<DType>,
}

/// How accurate a case is: docs/numerics.md derives the numbers.
#[derive(Clone, Copy, Debug)]
pub enum Accuracy {
    /// The roundings to half on the longest path from input and weights to output: at O1 and O2, and
    /// at O3.
    Rounds(u32, u32),
    /// Random, in training: only evaluation can be compared, where it does nothing.
    Random,
}
use Accuracy::*;

pub struct Case {
    pub name: &'static str,
    /// The dtype of the output at O1, O2 and O3, each of an f32 and of a half input: `f` is f32,
    /// `h` half, `t` f32 in training and half in evaluation.
    ///
    /// f32 out of half comes from Burn's code: RNNs fill an f32 tensor step by step, positions and
    /// noise are f32 constants, group and instance norm keep statistics per row, elu and its kin
    /// combine the input with an exponential.
    pub outputs: &'static str,
    pub accuracy: Accuracy,
    /// In training, and in evaluation.
    pub run: fn(&Setup) -> [Outcome; 2],
}

thread_local! {
    /// The inputs of the module under test: they are leaves too.
    static INPUTS: RefCell<Vec<Box<dyn Any>>> = RefCell::default();
}

fn leaf<B: Backend, const D: usize>(values: Tensor<B, D>, given: Given) -> Tensor<B, D> {
    let leaf = values
        .cast(given.values_of)
        .cast(given.dtype)
        .detach()
        .require_grad();
    INPUTS.with_borrow_mut(|inputs| inputs.push(Box::new(leaf.clone())));
    leaf
}

/// Numbers in [-1, 1].
fn x<B: Backend, const D: usize>(shape: [usize; D], given: Given) -> Tensor<B, D> {
    leaf(wave(shape, 0), given)
}

/// Numbers in (0, 1).
fn p<B: Backend, const D: usize>(shape: [usize; D], given: Given) -> Tensor<B, D> {
    leaf(wave::<B, D>(shape, 1) * 0.45 + 0.5, given)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    scope::disabled(|| tensor.into_data())
        .convert::<f32>()
        .to_vec()
        .unwrap()
}

struct Gradients<'a> {
    grads: &'a <Mixed as AutodiffBackend>::Gradients,
    found: Vec<Vec<f32>>,
}

impl Gradients<'_> {
    fn add<const D: usize>(&mut self, leaf: &Tensor<Mixed, D>) {
        if let Some(grad) = leaf.grad(self.grads) {
            assert_eq!(
                grad.dtype(),
                leaf.dtype(),
                "a gradient has its leaf's dtype"
            );
            self.found.push(values(grad));
        }
    }

    fn add_input(&mut self, input: &dyn Any) {
        fn of<const D: usize>(input: &dyn Any) -> Option<&Tensor<Mixed, D>> {
            input.downcast_ref()
        }
        if let Some(leaf) = of::<2>(input) {
            self.add(leaf);
        } else if let Some(leaf) = of::<3>(input) {
            self.add(leaf);
        } else if let Some(leaf) = of::<4>(input) {
            self.add(leaf);
        } else if let Some(leaf) = of::<5>(input) {
            self.add(leaf);
        } else {
            panic!("an input of a rank that no case has");
        }
    }
}

impl ModuleVisitor<Mixed> for Gradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Mixed, D>>) {
        self.add(&param.val());
    }
}

fn trained<M: Module<Mixed>, const D: usize>(module: &M, output: Tensor<Mixed, D>) -> Outcome {
    // Every element counts differently: the plain sum of a softmax or a norm has no gradient.
    let output_in_f32 = output.clone().cast(DType::F32);
    let weights = wave::<Mixed, D>(output.dims(), 2) + 1.5;
    let grads = scope::disabled(|| (output_in_f32 * weights).sum()).backward();
    let mut gradients = Gradients {
        grads: &grads,
        found: Vec::new(),
    };
    module.visit(&mut gradients);
    for input in INPUTS.take() {
        gradients.add_input(&*input);
    }
    Outcome {
        dtype: output.dtype(),
        gradients: gradients.found,
        output: values(output),
    }
}

fn evaluated<B: Backend, const D: usize>(output: Tensor<B, D>) -> Outcome {
    INPUTS.take();
    Outcome {
        dtype: output.dtype(),
        output: values(output),
        gradients: Vec::new(),
    }
}

struct CastAll(DType);

impl<B: Backend> ModuleMapper<B> for CastAll {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let tracked = tensor.is_require_grad();
            let plain = tensor.detach().set_require_grad(false);
            plain.cast(self.0).set_require_grad(tracked)
        })
    }
}

fn prepared<M: Module<Mixed>>(module: M, setup: &Setup) -> M {
    let module = fixed::<Mixed, M>(module);
    match setup.weights {
        Some(dtype) => module.map(&mut CastAll(dtype)),
        None => setup.amp.cast_model::<Mixed, M>(module),
    }
}

/// `name outputs accuracy, module; |m, d| output;` with `B` the backend and `d` what the inputs are.
macro_rules! cases {
    ($($name:literal $outputs:literal $accuracy:expr, $module:expr; |$m:ident, $d:ident| $output:expr;)*) => {
        vec![$(Case {
            name: $name,
            outputs: $outputs,
            accuracy: $accuracy,
            run: |setup| {
                let module = {
                    type B = Mixed;
                    prepared($module, setup)
                };
                let $d = setup.input;
                INPUTS.take();
                let train = {
                    type B = Mixed;
                    let $m = &module;
                    setup.amp.scope(|| trained(&module, $output))
                };
                let evaluate = {
                    type B = <Mixed as AutodiffBackend>::InnerBackend;
                    let module = AutodiffModule::<Mixed>::valid(&module);
                    let $m = &module;
                    setup.amp.scope(|| evaluated::<B, _>($output))
                };
                [train, evaluate]
            },
        }),*]
    };
}

/// A loss has no parameters to train: this stands for its module.
#[derive(Module, Clone, Debug, Default)]
struct NoParameters;

pub fn layers() -> Vec<Case> {
    cases! {
        "Linear" "hh hh hh" Rounds(3, 3), LinearConfig::new(4, 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([2, 4], d));
        "Linear, no bias" "hh hh hh" Rounds(3, 3),
            LinearConfig::new(4, 3).with_bias(false).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "Conv1d" "hh hh hh" Rounds(3, 3), Conv1dConfig::new(2, 3, 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "Conv2d" "hh hh hh" Rounds(3, 3), Conv2dConfig::new([2, 3], [3, 3]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "Conv2d, grouped, no bias" "hh hh hh" Rounds(3, 3),
            Conv2dConfig::new([4, 4], [3, 3]).with_groups(2).with_bias(false).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 4, 6, 6], d));
        "Conv3d" "hh hh hh" Rounds(3, 3), Conv3dConfig::new([2, 3], [2, 2, 2]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 5>([1, 2, 3, 3, 3], d));
        "ConvTranspose1d" "hh hh hh" Rounds(3, 3), ConvTranspose1dConfig::new([2, 3], 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "ConvTranspose2d" "hh hh hh" Rounds(3, 3), ConvTranspose2dConfig::new([2, 3], [3, 3]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "ConvTranspose3d" "hh hh hh" Rounds(3, 3), ConvTranspose3dConfig::new([2, 3], [2, 2, 2]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 5>([1, 2, 3, 3, 3], d));
        "DeformConv2d" "fh fh hh" Rounds(2, 4), DeformConv2dConfig::new([1, 2], [2, 2]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([1, 1, 3, 3], d), p::<B, 4>([1, 8, 2, 2], d), None);
        "Embedding" "ff hh hh" Rounds(1, 1), EmbeddingConfig::new(5, 4).init::<B>(&Default::default());
            |m, _d| m.forward(counted::<B, 2>([2, 3], 5, 0));
        "BatchNorm" "fh fh fh" Rounds(6, 7), BatchNormConfig::new(2).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([3, 2, 4, 4], d));
        "BatchNorm of one dimension" "fh fh fh" Rounds(6, 7), BatchNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([3, 4, 5], d));
        "BatchNorm of a matrix" "fh fh fh" Rounds(6, 7), BatchNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([5, 4], d));
        "LayerNorm, no bias" "ff fh fh" Rounds(1, 6),
            LayerNormConfig::new(4).with_bias(false).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "GroupNorm, not affine" "ff ff fh" Rounds(0, 4),
            GroupNormConfig::new(2, 4).with_affine(false).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "InstanceNorm, not affine" "ff ff fh" Rounds(0, 4),
            InstanceNormConfig::new(4).with_affine(false).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "LayerNorm" "ff fh fh" Rounds(1, 7), LayerNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "GroupNorm" "ff ff fh" Rounds(0, 7), GroupNormConfig::new(2, 4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "InstanceNorm" "ff ff fh" Rounds(0, 7), InstanceNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "RmsNorm" "fh fh fh" Rounds(4, 4), RmsNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "LocalResponseNorm" "ff ff fh" Rounds(2, 7), LocalResponseNormConfig::new(3).init();
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "AvgPool1d" "fh fh fh" Rounds(1, 1), AvgPool1dConfig::new(2).init(); |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "AvgPool2d" "fh fh fh" Rounds(1, 1), AvgPool2dConfig::new([2, 2]).init(); |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "AdaptiveAvgPool1d" "fh fh fh" Rounds(1, 1), AdaptiveAvgPool1dConfig::new(3).init();
            |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "AdaptiveAvgPool2d" "fh fh fh" Rounds(1, 1), AdaptiveAvgPool2dConfig::new([3, 3]).init();
            |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "MaxPool1d" "fh fh fh" Rounds(0, 0), MaxPool1dConfig::new(2).init(); |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "MaxPool2d" "fh fh fh" Rounds(0, 0), MaxPool2dConfig::new([2, 2]).init(); |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "Dropout" "fh fh fh" Random, DropoutConfig::new(0.5).init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "GaussianNoise" "ft ft ft" Random, GaussianNoiseConfig::new(0.1).init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "PositionalEncoding" "ff ff ff" Rounds(0, 0), PositionalEncodingConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "RotaryEncoding" "ff ff ff" Rounds(3, 3), RotaryEncodingConfig::new(8, 4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 2, 3, 4], d));
        "Unfold4d" "fh fh fh" Rounds(0, 0), Unfold4dConfig::new([2, 2]).init(); |m, d| m.forward(x::<B, 4>([2, 2, 4, 4], d));
        "Interpolate1d" "ff fh fh" Rounds(1, 1), Interpolate1dConfig::new().with_output_size(Some(8)).init();
            |m, d| m.forward(x::<B, 3>([2, 2, 4], d));
        "Interpolate2d" "ff fh fh" Rounds(1, 1), Interpolate2dConfig::new().with_output_size(Some([8, 8])).init();
            |m, d| m.forward(x::<B, 4>([2, 2, 4, 4], d));
        "Interpolate2d, linear" "ff fh fh" Rounds(1, 4),
            Interpolate2dConfig::new()
                .with_output_size(Some([8, 8]))
                .with_mode(InterpolateMode::Linear)
                .init();
            |m, d| m.forward(x::<B, 4>([2, 2, 4, 4], d));
        "attention" "hh hh hh" Rounds(6, 6), NoParameters;
            |_m, d| burn::tensor::module::attention(
                x::<B, 4>([1, 2, 3, 4], d), p::<B, 4>([1, 2, 5, 4], d), x::<B, 4>([1, 2, 5, 4], d),
                None, None, Default::default(),
            );
        "MultiHeadAttention" "hh hh hh" Rounds(9, 12), MultiHeadAttentionConfig::new(4, 2).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward(MhaInput::self_attn(x::<B, 3>([2, 3, 4], d))).context;
        "MultiHeadAttention, masked" "hh hh hh" Rounds(9, 12), MultiHeadAttentionConfig::new(4, 2).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward(
                MhaInput::self_attn(x::<B, 3>([2, 3, 4], d))
                    .mask_attn(generate_autoregressive_mask::<B>(2, 3, &Default::default()))
            ).context;
        "MultiHeadAttention, padded" "hh hh hh" Rounds(9, 12),
            MultiHeadAttentionConfig::new(4, 2).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward(
                MhaInput::self_attn(x::<B, 3>([2, 3, 4], d)).mask_pad(
                    // Of the second sequence nothing is left.
                    Tensor::<B, 2, Bool>::from_data(
                        [[false, false, true], [true; 3]], &Default::default()
                    )
                )
            ).context;
        "MultiHeadAttention, quiet" "hh hh hh" Rounds(9, 12),
            MultiHeadAttentionConfig::new(4, 2)
                .with_dropout(0.0)
                .with_quiet_softmax(true)
                .init::<B>(&Default::default());
            |m, d| m.forward(MhaInput::self_attn(x::<B, 3>([2, 3, 4], d))).context;
        "MultiHeadAttention, cached" "hh hh hh" Rounds(9, 12),
            MultiHeadAttentionConfig::new(4, 2).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward_cache(
                MhaInput::self_attn(x::<B, 3>([2, 3, 4], d)), &mut MhaCache::autoregressive()
            ).context;
        "CrossAttention" "hh hh hh" Rounds(9, 12), CrossAttentionConfig::new(4, 4, 2, 2, 2).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d), x::<B, 3>([2, 5, 4], d), None);
        "PositionWiseFeedForward" "hh hh hh" Rounds(6, 6), PositionWiseFeedForwardConfig::new(4, 8).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "TransformerEncoder" "ff fh fh" Rounds(38, 68), TransformerEncoderConfig::new(4, 8, 2, 2).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward(TransformerEncoderInput::new(x::<B, 3>([2, 3, 4], d)));
        "TransformerEncoder, norm first" "fh fh fh" Rounds(38, 68),
            TransformerEncoderConfig::new(4, 8, 2, 2).with_dropout(0.0).with_norm_first(true).init::<B>(&Default::default());
            |m, d| m.forward(TransformerEncoderInput::new(x::<B, 3>([2, 3, 4], d)));
        "TransformerDecoder" "ff fh fh" Rounds(60, 108), TransformerDecoderConfig::new(4, 8, 2, 2).with_dropout(0.0).init::<B>(&Default::default());
            |m, d| m.forward(TransformerDecoderInput::new(
                x::<B, 3>([2, 3, 4], d), x::<B, 3>([2, 5, 4], d)
            ));
        "TransformerDecoder, norm first" "fh fh fh" Rounds(60, 108),
            TransformerDecoderConfig::new(4, 8, 2, 2)
                .with_dropout(0.0)
                .with_norm_first(true)
                .init::<B>(&Default::default());
            |m, d| m.forward(TransformerDecoderInput::new(
                x::<B, 3>([2, 3, 4], d), x::<B, 3>([2, 5, 4], d)
            ));
        "Rnn" "ff ff ff" Rounds(15, 15), RnnConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "BiRnn" "ff ff ff" Rounds(15, 15), BiRnnConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "Gru" "ff ff ff" Rounds(27, 27), GruConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None);
        "Gru, reset before" "ff ff ff" Rounds(27, 27),
            GruConfig::new(4, 3, true).with_reset_after(false).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), Some(x::<B, 2>([2, 3], d)));
        "BiGru" "ff ff ff" Rounds(27, 27), BiGruConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "Lstm" "ff ff ff" Rounds(24, 24), LstmConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "Lstm, from a state" "ff ff ff" Rounds(24, 24),
            LstmConfig::new(4, 3, true).with_reverse(true).init::<B>(&Default::default());
            |m, d| m.forward(
                x::<B, 3>([2, 5, 4], d),
                Some(LstmState::new(x::<B, 2>([2, 3], d), x::<B, 2>([2, 3], d)))
            ).0;
        "BiLstm" "ff ff ff" Rounds(24, 24), BiLstmConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
    }
}

pub fn activations() -> Vec<Case> {
    cases! {
        "Celu" "ff ff fh" Rounds(1, 4), CeluConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Elu" "ff ff fh" Rounds(0, 3), EluConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Gelu" "fh fh fh" Rounds(1, 1), Gelu::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Gelu, approximate" "ff ff fh" Rounds(0, 9), Gelu::new_approximate(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "GLU" "fh fh fh" Rounds(2, 2), GLU::new(1); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "HardShrink" "fh fh fh" Rounds(0, 0), HardShrinkConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "HardSigmoid" "fh fh fh" Rounds(3, 3), HardSigmoidConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "HardSwish" "fh fh fh" Rounds(4, 4), HardSwish::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "LeakyRelu" "fh fh fh" Rounds(2, 2), LeakyReluConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "PRelu" "hh hh hh" Rounds(3, 3), PReluConfig::new().init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([2, 6], d));
        "PRelu, of channels" "hh hh hh" Rounds(3, 3),
            PReluConfig::new().with_num_parameters(6).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Relu" "fh fh fh" Rounds(0, 0), Relu::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Selu" "ff ff fh" Rounds(2, 4), Selu::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Shrink" "fh fh fh" Rounds(2, 2), ShrinkConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Sigmoid" "fh fh fh" Rounds(1, 1), Sigmoid::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "SoftShrink" "fh fh fh" Rounds(2, 2), SoftShrinkConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Softplus" "ff ff fh" Rounds(1, 5), SoftplusConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Softsign" "fh fh fh" Rounds(2, 2), Softsign::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "SwiGlu" "hh hh hh" Rounds(6, 6), SwiGluConfig::new(6, 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Tanh" "fh fh fh" Rounds(1, 1), Tanh::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "ThresholdedRelu" "fh fh fh" Rounds(0, 0), ThresholdedReluConfig::new().with_alpha(0.3).init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
    }
}

pub fn losses() -> Vec<Case> {
    cases! {
        "BinaryCrossEntropyLoss" "ff ff ff" Rounds(0, 4), NoParameters;
            |_m, d| BinaryCrossEntropyLossConfig::new().init::<B>(&Default::default())
                .forward(p::<B, 2>([2, 3], d), counted::<B, 2>([2, 3], 2, 0));
        "BinaryCrossEntropyLoss, logits" "ff ff ff" Rounds(0, 0), NoParameters;
            |_m, d| BinaryCrossEntropyLossConfig::new().with_logits(true).init::<B>(&Default::default())
                .forward(x::<B, 2>([2, 3], d), counted::<B, 2>([2, 3], 2, 0));
        "CosineEmbeddingLoss" "ff ff fh" Rounds(3, 8), NoParameters;
            |_m, d| CosineEmbeddingLossConfig::new().init().forward(
                x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Tensor::<B, 1, Int>::ones([2], &Default::default())
            );
        "CrossEntropyLoss" "ff ff ff" Rounds(0, 0), NoParameters;
            |_m, d| CrossEntropyLossConfig::new().init::<B>(&Default::default())
                .forward(x::<B, 2>([2, 3], d), counted::<B, 1>([2], 3, 0));
        "CrossEntropyLoss, smoothed and weighted" "ff ff ff" Rounds(0, 0), NoParameters;
            |_m, d| CrossEntropyLossConfig::new()
                .with_smoothing(Some(0.1))
                .with_weights(Some(vec![1.0, 2.0, 3.0]))
                .init::<B>(&Default::default())
                .forward(x::<B, 2>([2, 3], d), counted::<B, 1>([2], 3, 0));
        "CrossEntropyLoss, probabilities" "ff ff fh" Rounds(0, 3), NoParameters;
            |_m, d| CrossEntropyLossConfig::new().with_logits(false).init::<B>(&Default::default())
                .forward(p::<B, 2>([2, 3], d), counted::<B, 1>([2], 3, 0));
        "CTCLoss" "ff ff ff" Rounds(0, 0), NoParameters;
            |_m, d| CTCLossConfig::new().init().forward(
                burn::tensor::activation::log_softmax(x::<B, 3>([4, 1, 3], d), 2),
                Tensor::<B, 2, Int>::from_data([[1, 2]], &Default::default()),
                Tensor::<B, 1, Int>::from_data([4], &Default::default()),
                Tensor::<B, 1, Int>::from_data([2], &Default::default()),
            );
        "HuberLoss" "ff ff fh" Rounds(3, 5), NoParameters;
            |_m, d| HuberLossConfig::new(0.5).init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "KLDivLoss" "ff ff fh" Rounds(0, 5), NoParameters;
            |_m, d| KLDivLossConfig::new().init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::BatchMean);
        "LpLoss" "ff ff fh" Rounds(2, 4), NoParameters;
            |_m, d| LpLossConfig::new(1.5).init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "MseLoss" "ff ff fh" Rounds(2, 4), NoParameters;
            |_m, d| MseLoss::new().forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "MseLoss, f32 targets" "ff ff ff" Rounds(0, 0), NoParameters;
            |_m, d| MseLoss::new()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], Given::exactly(DType::F32)), Reduction::Mean);
        "PoissonNllLoss" "ff ff fh" Rounds(1, 4), NoParameters;
            |_m, d| PoissonNllLossConfig::new().init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "RNNTLoss" "ff ff ff" Rounds(0, 0), NoParameters;
            |_m, d| RNNTLossConfig::new().init().forward(
                x::<B, 4>([1, 4, 3, 3], d),
                Tensor::<B, 2, Int>::from_data([[1, 2]], &Default::default()),
                Tensor::<B, 1, Int>::from_data([4], &Default::default()),
                Tensor::<B, 1, Int>::from_data([2], &Default::default()),
            );
        "SmoothL1Loss" "ff ff fh" Rounds(3, 5), NoParameters;
            |_m, d| SmoothL1LossConfig::new().init()
                .forward_with_reduction(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
    }
}
