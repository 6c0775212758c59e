//! Every layer and loss of burn-nn runs at every level, forward and backward, in training and in
//! evaluation, on f32 and on half inputs; its output has the dtype listed here.

#[path = "support/models.rs"]
mod models;
mod support;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::nn::activation::*;
use burn::nn::attention::*;
use burn::nn::conv::*;
use burn::nn::interpolate::*;
use burn::nn::loss::*;
use burn::nn::pool::*;
use burn::nn::transformer::*;
use burn::nn::*;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Int, Tensor};
use burn_amp::{Amp, HalfDType, OptLevel};
use models::counted;
use support::{HALVES, Mixed, amp, unless_it_panics};

/// What came out of one forward pass, or of one and its backward.
#[derive(Debug, PartialEq)]
struct Outcome {
    dtype: DType,
    finite: bool,
}

struct Case {
    name: &'static str,
    /// The dtype of the output at O1, O2 and O3, each of an f32 and of a half input: `f` is f32,
    /// `h` half, `t` f32 in training and half in evaluation.
    ///
    /// f32 out of half comes from Burn's code: RNNs fill an f32 tensor step by step, positions and
    /// noise are f32 constants, group and instance norm keep statistics per row, elu and its kin
    /// combine the input with an exponential.
    outputs: &'static str,
    /// In training, and in evaluation.
    run: fn(&Amp, DType) -> [Outcome; 2],
}

fn x<B: Backend, const D: usize>(shape: [usize; D], dtype: DType) -> Tensor<B, D> {
    models::wave::<B, D>(shape, 0)
        .cast(dtype)
        .detach()
        .require_grad()
}

/// Numbers in (0, 1).
fn p<B: Backend, const D: usize>(shape: [usize; D], dtype: DType) -> Tensor<B, D> {
    x(shape, dtype) * 0.45 + 0.5
}

fn all_finite<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> bool {
    let data = tensor.into_data().convert::<f32>();
    data.iter::<f32>().all(f32::is_finite)
}

struct FiniteGradients<'a> {
    grads: &'a <Mixed as AutodiffBackend>::Gradients,
    finite: bool,
}

impl ModuleVisitor<Mixed> for FiniteGradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Mixed, D>>) {
        if let Some(grad) = param.val().grad(self.grads) {
            assert_eq!(
                grad.dtype(),
                param.val().dtype(),
                "a gradient has its weight's dtype"
            );
            self.finite &= all_finite(grad);
        }
    }
}

fn trained<M: Module<Mixed>, const D: usize>(module: &M, output: Tensor<Mixed, D>) -> Outcome {
    let grads = output.clone().cast(DType::F32).sum().backward();
    let mut gradients = FiniteGradients {
        grads: &grads,
        finite: true,
    };
    module.visit(&mut gradients);
    Outcome {
        dtype: output.dtype(),
        finite: gradients.finite && all_finite(output),
    }
}

fn evaluated<B: Backend, const D: usize>(output: Tensor<B, D>) -> Outcome {
    Outcome {
        dtype: output.dtype(),
        finite: all_finite(output),
    }
}

/// `name outputs module; |m, d| output;` with `B` the backend and `d` the dtype of the inputs.
macro_rules! cases {
    ($($name:literal $outputs:literal $module:expr; |$m:ident, $d:ident| $output:expr;)*) => {
        vec![$(Case {
            name: $name,
            outputs: $outputs,
            run: |amp, $d| {
                let module = {
                    type B = Mixed;
                    amp.cast_model::<B, _>($module)
                };
                let train = {
                    type B = Mixed;
                    let $m = &module;
                    amp.scope(|| trained(&module, $output))
                };
                let evaluate = {
                    type B = <Mixed as AutodiffBackend>::InnerBackend;
                    let module = AutodiffModule::<Mixed>::valid(&module);
                    let $m = &module;
                    amp.scope(|| evaluated::<B, _>($output))
                };
                [train, evaluate]
            },
        }),*]
    };
}

/// A loss has no parameters to train: this stands for its module.
#[derive(Module, Clone, Debug, Default)]
struct NoParameters;

fn layers() -> Vec<Case> {
    cases! {
        "Linear" "hh hh hh" LinearConfig::new(4, 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([2, 4], d));
        "Conv1d" "hh hh hh" Conv1dConfig::new(2, 3, 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "Conv2d" "hh hh hh" Conv2dConfig::new([2, 3], [3, 3]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "Conv3d" "hh hh hh" Conv3dConfig::new([2, 3], [2, 2, 2]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 5>([1, 2, 3, 3, 3], d));
        "ConvTranspose1d" "hh hh hh" ConvTranspose1dConfig::new([2, 3], 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "ConvTranspose2d" "hh hh hh" ConvTranspose2dConfig::new([2, 3], [3, 3]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "ConvTranspose3d" "hh hh hh" ConvTranspose3dConfig::new([2, 3], [2, 2, 2]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 5>([1, 2, 3, 3, 3], d));
        "DeformConv2d" "hh hh hh" DeformConv2dConfig::new([1, 2], [2, 2]).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([1, 1, 3, 3], d), p::<B, 4>([1, 8, 2, 2], d), None);
        "Embedding" "ff hh hh" EmbeddingConfig::new(5, 4).init::<B>(&Default::default());
            |m, _d| m.forward(counted::<B, 2>([2, 3], 5, 0));
        "BatchNorm" "fh fh fh" BatchNormConfig::new(2).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([3, 2, 4, 4], d));
        "BatchNorm of one dimension" "fh fh fh" BatchNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([3, 4, 5], d));
        "LayerNorm" "ff fh fh" LayerNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "GroupNorm" "ff ff fh" GroupNormConfig::new(2, 4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "InstanceNorm" "ff ff fh" InstanceNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "RmsNorm" "fh fh fh" RmsNormConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "LocalResponseNorm" "ff ff fh" LocalResponseNormConfig::new(3).init();
            |m, d| m.forward(x::<B, 4>([2, 4, 3, 3], d));
        "AvgPool1d" "fh fh fh" AvgPool1dConfig::new(2).init(); |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "AvgPool2d" "fh fh fh" AvgPool2dConfig::new([2, 2]).init(); |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "AdaptiveAvgPool1d" "fh fh fh" AdaptiveAvgPool1dConfig::new(3).init();
            |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "AdaptiveAvgPool2d" "fh fh fh" AdaptiveAvgPool2dConfig::new([3, 3]).init();
            |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "MaxPool1d" "fh fh fh" MaxPool1dConfig::new(2).init(); |m, d| m.forward(x::<B, 3>([2, 2, 6], d));
        "MaxPool2d" "fh fh fh" MaxPool2dConfig::new([2, 2]).init(); |m, d| m.forward(x::<B, 4>([2, 2, 6, 6], d));
        "Dropout" "fh fh fh" DropoutConfig::new(0.5).init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "GaussianNoise" "ft ft ft" GaussianNoiseConfig::new(0.1).init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "PositionalEncoding" "ff ff ff" PositionalEncodingConfig::new(4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "RotaryEncoding" "ff ff ff" RotaryEncodingConfig::new(8, 4).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 4>([2, 2, 3, 4], d));
        "Unfold4d" "fh fh fh" Unfold4dConfig::new([2, 2]).init(); |m, d| m.forward(x::<B, 4>([2, 2, 4, 4], d));
        "Interpolate1d" "ff fh fh" Interpolate1dConfig::new().with_output_size(Some(8)).init();
            |m, d| m.forward(x::<B, 3>([2, 2, 4], d));
        "Interpolate2d" "ff fh fh" Interpolate2dConfig::new().with_output_size(Some([8, 8])).init();
            |m, d| m.forward(x::<B, 4>([2, 2, 4, 4], d));
        "MultiHeadAttention" "hh hh hh" MultiHeadAttentionConfig::new(4, 2).init::<B>(&Default::default());
            |m, d| m.forward(MhaInput::self_attn(x::<B, 3>([2, 3, 4], d))).context;
        "MultiHeadAttention, masked" "hh hh hh" MultiHeadAttentionConfig::new(4, 2).init::<B>(&Default::default());
            |m, d| m.forward(
                MhaInput::self_attn(x::<B, 3>([2, 3, 4], d))
                    .mask_attn(generate_autoregressive_mask::<B>(2, 3, &Default::default()))
            ).context;
        "CrossAttention" "hh hh hh" CrossAttentionConfig::new(4, 4, 2, 2, 2).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d), x::<B, 3>([2, 5, 4], d), None);
        "PositionWiseFeedForward" "hh hh hh" PositionWiseFeedForwardConfig::new(4, 8).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 3, 4], d));
        "TransformerEncoder" "ff fh fh" TransformerEncoderConfig::new(4, 8, 2, 2).init::<B>(&Default::default());
            |m, d| m.forward(TransformerEncoderInput::new(x::<B, 3>([2, 3, 4], d)));
        "TransformerEncoder, norm first" "fh fh fh"
            TransformerEncoderConfig::new(4, 8, 2, 2).with_norm_first(true).init::<B>(&Default::default());
            |m, d| m.forward(TransformerEncoderInput::new(x::<B, 3>([2, 3, 4], d)));
        "TransformerDecoder" "ff fh fh" TransformerDecoderConfig::new(4, 8, 2, 2).init::<B>(&Default::default());
            |m, d| m.forward(TransformerDecoderInput::new(
                x::<B, 3>([2, 3, 4], d), x::<B, 3>([2, 5, 4], d)
            ));
        "Rnn" "ff ff ff" RnnConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "BiRnn" "ff ff ff" BiRnnConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "Gru" "ff ff ff" GruConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None);
        "BiGru" "ff ff ff" BiGruConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "Lstm" "ff ff ff" LstmConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
        "BiLstm" "ff ff ff" BiLstmConfig::new(4, 3, true).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 3>([2, 5, 4], d), None).0;
    }
}

fn activations() -> Vec<Case> {
    cases! {
        "Celu" "ff ff fh" CeluConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Elu" "ff ff fh" EluConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Gelu" "fh fh fh" Gelu::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Gelu, approximate" "ff ff fh" Gelu::new_approximate(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "GLU" "fh fh fh" GLU::new(1); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "HardShrink" "fh fh fh" HardShrinkConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "HardSigmoid" "fh fh fh" HardSigmoidConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "HardSwish" "fh fh fh" HardSwish::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "LeakyRelu" "fh fh fh" LeakyReluConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "PRelu" "hh hh hh" PReluConfig::new().init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Relu" "fh fh fh" Relu::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Selu" "ff ff fh" Selu::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Shrink" "fh fh fh" ShrinkConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Sigmoid" "fh fh fh" Sigmoid::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "SoftShrink" "fh fh fh" SoftShrinkConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Softplus" "ff ff fh" SoftplusConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Softsign" "fh fh fh" Softsign::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "SwiGlu" "hh hh hh" SwiGluConfig::new(6, 3).init::<B>(&Default::default());
            |m, d| m.forward(x::<B, 2>([2, 6], d));
        "Tanh" "fh fh fh" Tanh::new(); |m, d| m.forward(x::<B, 2>([2, 6], d));
        "ThresholdedRelu" "fh fh fh" ThresholdedReluConfig::new().init(); |m, d| m.forward(x::<B, 2>([2, 6], d));
    }
}

fn losses() -> Vec<Case> {
    cases! {
        "BinaryCrossEntropyLoss" "ff ff ff" NoParameters;
            |_m, d| BinaryCrossEntropyLossConfig::new().init::<B>(&Default::default())
                .forward(p::<B, 2>([2, 3], d), counted::<B, 2>([2, 3], 2, 0));
        "BinaryCrossEntropyLoss, logits" "ff ff ff" NoParameters;
            |_m, d| BinaryCrossEntropyLossConfig::new().with_logits(true).init::<B>(&Default::default())
                .forward(x::<B, 2>([2, 3], d), counted::<B, 2>([2, 3], 2, 0));
        "CosineEmbeddingLoss" "ff ff fh" NoParameters;
            |_m, d| CosineEmbeddingLossConfig::new().init().forward(
                x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Tensor::<B, 1, Int>::ones([2], &Default::default())
            );
        "CrossEntropyLoss" "ff ff ff" NoParameters;
            |_m, d| CrossEntropyLossConfig::new().init::<B>(&Default::default())
                .forward(x::<B, 2>([2, 3], d), counted::<B, 1>([2], 3, 0));
        "CrossEntropyLoss, smoothed and weighted" "ff ff ff" NoParameters;
            |_m, d| CrossEntropyLossConfig::new()
                .with_smoothing(Some(0.1))
                .with_weights(Some(vec![1.0, 2.0, 3.0]))
                .init::<B>(&Default::default())
                .forward(x::<B, 2>([2, 3], d), counted::<B, 1>([2], 3, 0));
        "CrossEntropyLoss, probabilities" "ff ff fh" NoParameters;
            |_m, d| CrossEntropyLossConfig::new().with_logits(false).init::<B>(&Default::default())
                .forward(p::<B, 2>([2, 3], d), counted::<B, 1>([2], 3, 0));
        "CTCLoss" "ff ff ff" NoParameters;
            |_m, d| CTCLossConfig::new().init().forward(
                burn::tensor::activation::log_softmax(x::<B, 3>([4, 1, 3], d), 2),
                Tensor::<B, 2, Int>::from_data([[1, 2]], &Default::default()),
                Tensor::<B, 1, Int>::from_data([4], &Default::default()),
                Tensor::<B, 1, Int>::from_data([2], &Default::default()),
            );
        "HuberLoss" "ff ff fh" NoParameters;
            |_m, d| HuberLossConfig::new(0.5).init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "KLDivLoss" "ff ff fh" NoParameters;
            |_m, d| KLDivLossConfig::new().init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::BatchMean);
        "LpLoss" "ff ff fh" NoParameters;
            |_m, d| LpLossConfig::new(1.5).init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "MseLoss" "ff ff fh" NoParameters;
            |_m, d| MseLoss::new().forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "MseLoss, f32 targets" "ff ff ff" NoParameters;
            |_m, d| MseLoss::new()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], DType::F32), Reduction::Mean);
        "PoissonNllLoss" "ff ff fh" NoParameters;
            |_m, d| PoissonNllLossConfig::new().init()
                .forward(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
        "RNNTLoss" "ff ff ff" NoParameters;
            |_m, d| RNNTLossConfig::new().init().forward(
                x::<B, 4>([1, 4, 3, 3], d),
                Tensor::<B, 2, Int>::from_data([[1, 2]], &Default::default()),
                Tensor::<B, 1, Int>::from_data([4], &Default::default()),
                Tensor::<B, 1, Int>::from_data([2], &Default::default()),
            );
        "SmoothL1Loss" "ff ff fh" NoParameters;
            |_m, d| SmoothL1LossConfig::new().init()
                .forward_with_reduction(x::<B, 2>([2, 3], d), p::<B, 2>([2, 3], d), Reduction::Mean);
    }
}

fn letter(dtype: DType, half: HalfDType) -> char {
    match dtype {
        DType::F32 => 'f',
        dtype if dtype == half.dtype() => 'h',
        _ => '?',
    }
}

fn check(cases: Vec<Case>) {
    let mut failures = Vec::new();
    for case in cases {
        let control = (case.run)(&amp(OptLevel::O0, HalfDType::F16), DType::F32);
        assert!(
            control.iter().all(|outcome| outcome.finite),
            "{} in f32",
            case.name
        );
        for half in HALVES {
            let mut outputs = Vec::new();
            for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
                let of = |dtype| {
                    let context = format!("{} at {level}, {half}, of {dtype:?}", case.name);
                    let outcomes = unless_it_panics(|| (case.run)(&amp(level, half), dtype));
                    match outcomes {
                        None => (format!("{context} panics"), '!'),
                        Some([train, valid]) if !(train.finite && valid.finite) => (
                            format!("{context} is not finite: {train:?}, {valid:?}"),
                            '!',
                        ),
                        Some([train, valid]) => {
                            match (letter(train.dtype, half), letter(valid.dtype, half)) {
                                ('f', 'h') => (String::new(), 't'),
                                (train, valid) if train == valid => (String::new(), train),
                                _ => (format!("{context}: {train:?}, then {valid:?}"), '!'),
                            }
                        }
                    }
                };
                let both = [of(DType::F32), of(half.dtype())];
                outputs.push(both.each_ref().map(|(_, letter)| *letter).iter().collect());
                failures.extend(
                    both.into_iter()
                        .map(|(failure, _)| failure)
                        .filter(|f| !f.is_empty()),
                );
            }
            let outputs: Vec<String> = outputs;
            let outputs = outputs.join(" ");
            println!("{:40} {half:4} {outputs}", case.name);
            if outputs != case.outputs {
                failures.push(format!(
                    "{}, {half}: {outputs}, listed is {}",
                    case.name, case.outputs
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_layer() {
    check(layers());
}

#[test]
fn every_activation() {
    check(activations());
}

#[test]
fn every_loss() {
    check(losses());
}
