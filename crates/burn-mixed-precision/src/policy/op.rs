use core::fmt;
use core::str::FromStr;

use super::CastRule;
use crate::{AmpError, OptLevel};

/// Writes the enum [`Op`] and its rules out of one table.
macro_rules! op_table {
    ($( $variant:ident $name:literal $o1:ident $o2:ident $o3:ident; )*) => {
        /// A floating-point operation of Burn's backend traits that has a casting rule.
        ///
        /// The name is the one of Burn's trait method. Operations that only move or create data
        /// (reshape, slice, gather, zeros, ...) have none: they keep the dtype of their input.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Op {
            $(
                #[doc = concat!("Burn's `", $name, "`.")]
                $variant,
            )*
        }

        impl Op {
            /// Every operation of the table, in its order.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];

            /// The name of Burn's trait method, as overrides and reports spell it.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name),* }
            }

            /// The rule of this operation at an optimization level, before any override.
            ///
            /// At O0 every operation is [`CastRule::AsIs`].
            pub const fn default_rule(self, level: OptLevel) -> CastRule {
                let (o1, o2, o3) = match self {
                    $(Op::$variant => (CastRule::$o1, CastRule::$o2, CastRule::$o3)),*
                };
                match level {
                    OptLevel::O0 => CastRule::AsIs,
                    OptLevel::O1 => o1,
                    OptLevel::O2 => o2,
                    OptLevel::O3 => o3,
                }
            }
        }
    };
}

// Columns: O1, O2, O3.
op_table! {
    // Products with a long reduction: tensor cores multiply half inputs and add up in f32, so this is
    // where half precision pays. torch.amp's lower-precision list and Apex's FP16_FUNCS.
    FloatMatmul "float_matmul" Lower Lower Lower;
    Linear "linear" Lower Lower Lower;
    Conv1d "conv1d" Lower Lower Lower;
    Conv2d "conv2d" Lower Lower Lower;
    Conv3d "conv3d" Lower Lower Lower;
    ConvTranspose1d "conv_transpose1d" Lower Lower Lower;
    ConvTranspose2d "conv_transpose2d" Lower Lower Lower;
    ConvTranspose3d "conv_transpose3d" Lower Lower Lower;
    Attention "attention" Lower Lower Lower;
    Prelu "prelu" Lower Lower Lower;

    // Their gradients. Seen only when the decorator stands inside autodiff; outside, autodiff calls
    // them on the inner backend in the dtypes that forward used.
    LinearXBackward "linear_x_backward" Lower Lower Lower;
    LinearWeightBackward "linear_weight_backward" Lower Lower Lower;
    Conv1dXBackward "conv1d_x_backward" Lower Lower Lower;
    Conv1dWeightBackward "conv1d_weight_backward" Lower Lower Lower;
    Conv2dXBackward "conv2d_x_backward" Lower Lower Lower;
    Conv2dWeightBackward "conv2d_weight_backward" Lower Lower Lower;
    Conv3dXBackward "conv3d_x_backward" Lower Lower Lower;
    Conv3dWeightBackward "conv3d_weight_backward" Lower Lower Lower;
    ConvTranspose1dXBackward "conv_transpose1d_x_backward" Lower Lower Lower;
    ConvTranspose1dWeightBackward "conv_transpose1d_weight_backward" Lower Lower Lower;
    ConvTranspose2dXBackward "conv_transpose2d_x_backward" Lower Lower Lower;
    ConvTranspose2dWeightBackward "conv_transpose2d_weight_backward" Lower Lower Lower;
    ConvTranspose3dXBackward "conv_transpose3d_x_backward" Lower Lower Lower;
    ConvTranspose3dWeightBackward "conv_transpose3d_weight_backward" Lower Lower Lower;

    // Bias gradients are sums over the batch and every position: f32, as every other sum.
    LinearBiasBackward "linear_bias_backward" Full Full AsIs;
    Conv1dBiasBackward "conv1d_bias_backward" Full Full AsIs;
    Conv2dBiasBackward "conv2d_bias_backward" Full Full AsIs;
    Conv3dBiasBackward "conv3d_bias_backward" Full Full AsIs;
    ConvTranspose1dBiasBackward "conv_transpose1d_bias_backward" Full Full AsIs;
    ConvTranspose2dBiasBackward "conv_transpose2d_bias_backward" Full Full AsIs;
    ConvTranspose3dBiasBackward "conv_transpose3d_bias_backward" Full Full AsIs;

    // Leave the half range within a few steps of their domain: exp(12) > 65504, 300^2 > 65504,
    // 1/6e-8 > 65504; or lose their digits in it. torch.amp's fp32 list.
    FloatExp "float_exp" Full Full AsIs;
    FloatLog "float_log" Full Full AsIs;
    FloatLog1p "float_log1p" Full Full AsIs;
    FloatPowf "float_powf" Full Full AsIs;
    FloatPowi "float_powi" Full Full AsIs;
    FloatPowiScalar "float_powi_scalar" Full Full AsIs;
    FloatPowiScalarImpl "float_powi_scalar_impl" Full Full AsIs;
    FloatPowfScalar "float_powf_scalar" Full Full AsIs;
    FloatPowfScalarImpl "float_powf_scalar_impl" Full Full AsIs;
    FloatRecip "float_recip" Full Full AsIs;
    FloatTan "float_tan" Full Full AsIs;
    FloatCosh "float_cosh" Full Full AsIs;
    FloatSinh "float_sinh" Full Full AsIs;
    FloatAcos "float_acos" Full Full AsIs;
    FloatAsin "float_asin" Full Full AsIs;

    // Sums grow with the number of elements: 65536 ones overflow f16, and bf16 stops counting at 256.
    // mean deviates from torch.amp, which leaves it alone since its CUDA kernel accumulates in f32:
    // not every Burn backend does (burn#4769).
    FloatSum "float_sum" Full Full AsIs;
    FloatSumDim "float_sum_dim" Full Full AsIs;
    FloatProd "float_prod" Full Full AsIs;
    FloatProdDim "float_prod_dim" Full Full AsIs;
    FloatMean "float_mean" Full Full AsIs;
    FloatMeanDim "float_mean_dim" Full Full AsIs;
    FloatCumsum "float_cumsum" Full Full AsIs;
    FloatCumprod "float_cumprod" Full Full AsIs;

    // Normalisations: exponentials and variances inside, results of moderate size. At O2 the result
    // returns to half, as Apex's half model keeps it.
    Softmax "softmax" Full FullThenLower AsIs;
    Softmin "softmin" Full FullThenLower AsIs;
    LayerNorm "layer_norm" Full FullThenLower AsIs;
    Interpolate "interpolate" Full FullThenLower AsIs;
    InterpolateBackward "interpolate_backward" Full FullThenLower AsIs;

    // Samples an image between its pixels: f16 has 16 positions from one pixel to the next beyond the
    // 64th, and 2 beyond the 512th. As torchvision has it under torch.amp.
    DeformConv2d "deform_conv2d" FullThenLower FullThenLower Lower;
    DeformConv2dBackward "deform_conv2d_backward" FullThenLower FullThenLower Lower;

    // Where models end and losses begin. Full at O3 too: stands in for Apex's cast of the model's
    // output to f32, which O3 keeps as well.
    LogSoftmax "log_softmax" Full Full Full;
    LogSigmoid "log_sigmoid" Full Full Full;
    LogSigmoidBackward "log_sigmoid_backward" Full Full Full;
    CtcLoss "ctc_loss" Full Full Full;
    CtcLossBackward "ctc_loss_backward" Full Full Full;

    // No half kernels in Burn's backends.
    Rfft "rfft" Full Full Full;
    Irfft "irfft" Full Full Full;

    // Element-wise arithmetic on two tensors: the widest dtype, or half beside a channel vector.
    // torch's own type promotion; Apex's CASTS.
    FloatAdd "float_add" Promote Promote Promote;
    FloatSub "float_sub" Promote Promote Promote;
    FloatMul "float_mul" Promote Promote Promote;
    FloatDiv "float_div" Promote Promote Promote;

    // Several tensors that must share a dtype: the widest. Apex's CASTS and SEQUENCE_CASTS, torch.amp's
    // promote list.
    FloatRemainder "float_remainder" Promote Promote Promote;
    FloatAtan2 "float_atan2" Promote Promote Promote;
    FloatCross "float_cross" Promote Promote Promote;
    FloatCat "float_cat" Promote Promote Promote;
    FloatMaskWhere "float_mask_where" Promote Promote Promote;
    FloatScatterAdd "float_scatter_add" Promote Promote Promote;
    FloatScatterNd "float_scatter_nd" Promote Promote Promote;
    FloatSelectAdd "float_select_add" Promote Promote Promote;
    FloatSliceAssign "float_slice_assign" Promote Promote Promote;
    FloatGridSample2d "float_grid_sample_2d" Promote Promote Promote;
    FloatEqual "float_equal" Promote Promote Promote;
    FloatNotEqual "float_not_equal" Promote Promote Promote;
    FloatGreater "float_greater" Promote Promote Promote;
    FloatGreaterEqual "float_greater_equal" Promote Promote Promote;
    FloatLower "float_lower" Promote Promote Promote;
    FloatLowerEqual "float_lower_equal" Promote Promote Promote;

    // Gradients of operations below: the saved tensor and the incoming gradient must agree.
    ReluBackward "relu_backward" Promote Promote Promote;
    GeluBackward "gelu_backward" Promote Promote Promote;
    SigmoidBackward "sigmoid_backward" Promote Promote Promote;
    AvgPool1dBackward "avg_pool1d_backward" Promote Promote Promote;
    AvgPool2dBackward "avg_pool2d_backward" Promote Promote Promote;
    AdaptiveAvgPool1dBackward "adaptive_avg_pool1d_backward" Promote Promote Promote;
    AdaptiveAvgPool2dBackward "adaptive_avg_pool2d_backward" Promote Promote Promote;
    MaxPool1dWithIndicesBackward "max_pool1d_with_indices_backward" Promote Promote Promote;
    MaxPool2dWithIndicesBackward "max_pool2d_with_indices_backward" Promote Promote Promote;

    // Bounded or monotone element-wise functions, safe in the dtype of their input.
    Relu "relu" AsIs AsIs AsIs;
    LeakyRelu "leaky_relu" AsIs AsIs AsIs;
    Gelu "gelu" AsIs AsIs AsIs;
    Sigmoid "sigmoid" AsIs AsIs AsIs;
    HardSigmoid "hard_sigmoid" AsIs AsIs AsIs;
    FloatAddScalar "float_add_scalar" AsIs AsIs AsIs;
    FloatSubScalar "float_sub_scalar" AsIs AsIs AsIs;
    FloatMulScalar "float_mul_scalar" AsIs AsIs AsIs;
    FloatDivScalar "float_div_scalar" AsIs AsIs AsIs;
    FloatRemainderScalar "float_remainder_scalar" AsIs AsIs AsIs;
    FloatNeg "float_neg" AsIs AsIs AsIs;
    FloatClamp "float_clamp" AsIs AsIs AsIs;
    FloatClampMin "float_clamp_min" AsIs AsIs AsIs;
    FloatClampMax "float_clamp_max" AsIs AsIs AsIs;
    FloatSqrt "float_sqrt" AsIs AsIs AsIs;
    FloatAbs "float_abs" AsIs AsIs AsIs;
    FloatSign "float_sign" AsIs AsIs AsIs;
    FloatCos "float_cos" AsIs AsIs AsIs;
    FloatSin "float_sin" AsIs AsIs AsIs;
    FloatTanh "float_tanh" AsIs AsIs AsIs;
    FloatAcosh "float_acosh" AsIs AsIs AsIs;
    FloatAsinh "float_asinh" AsIs AsIs AsIs;
    FloatAtan "float_atan" AsIs AsIs AsIs;
    FloatAtanh "float_atanh" AsIs AsIs AsIs;
    FloatErf "float_erf" AsIs AsIs AsIs;
    FloatRound "float_round" AsIs AsIs AsIs;
    FloatFloor "float_floor" AsIs AsIs AsIs;
    FloatCeil "float_ceil" AsIs AsIs AsIs;
    FloatTrunc "float_trunc" AsIs AsIs AsIs;
    FloatMaskFill "float_mask_fill" AsIs AsIs AsIs;

    // Comparisons with a number and tests: the result is boolean.
    FloatEqualElem "float_equal_elem" AsIs AsIs AsIs;
    FloatNotEqualElem "float_not_equal_elem" AsIs AsIs AsIs;
    FloatGreaterElem "float_greater_elem" AsIs AsIs AsIs;
    FloatGreaterEqualElem "float_greater_equal_elem" AsIs AsIs AsIs;
    FloatLowerElem "float_lower_elem" AsIs AsIs AsIs;
    FloatLowerEqualElem "float_lower_equal_elem" AsIs AsIs AsIs;
    FloatAny "float_any" AsIs AsIs AsIs;
    FloatAnyDim "float_any_dim" AsIs AsIs AsIs;
    FloatAll "float_all" AsIs AsIs AsIs;
    FloatAllDim "float_all_dim" AsIs AsIs AsIs;
    FloatIsNan "float_is_nan" AsIs AsIs AsIs;
    FloatIsInf "float_is_inf" AsIs AsIs AsIs;

    // Selection: the result is one of the inputs, so no digit is lost.
    FloatMax "float_max" AsIs AsIs AsIs;
    FloatMaxDim "float_max_dim" AsIs AsIs AsIs;
    FloatMaxDimWithIndices "float_max_dim_with_indices" AsIs AsIs AsIs;
    FloatMaxAbs "float_max_abs" AsIs AsIs AsIs;
    FloatMaxAbsDim "float_max_abs_dim" AsIs AsIs AsIs;
    FloatMin "float_min" AsIs AsIs AsIs;
    FloatMinDim "float_min_dim" AsIs AsIs AsIs;
    FloatMinDimWithIndices "float_min_dim_with_indices" AsIs AsIs AsIs;
    FloatArgmax "float_argmax" AsIs AsIs AsIs;
    FloatArgmin "float_argmin" AsIs AsIs AsIs;
    FloatArgtopk "float_argtopk" AsIs AsIs AsIs;
    FloatTopk "float_topk" AsIs AsIs AsIs;
    FloatSort "float_sort" AsIs AsIs AsIs;
    FloatSortWithIndices "float_sort_with_indices" AsIs AsIs AsIs;
    FloatArgsort "float_argsort" AsIs AsIs AsIs;
    FloatCummin "float_cummin" AsIs AsIs AsIs;
    FloatCummax "float_cummax" AsIs AsIs AsIs;
    MaxPool1d "max_pool1d" AsIs AsIs AsIs;
    MaxPool1dWithIndices "max_pool1d_with_indices" AsIs AsIs AsIs;
    MaxPool2d "max_pool2d" AsIs AsIs AsIs;
    MaxPool2dWithIndices "max_pool2d_with_indices" AsIs AsIs AsIs;
    Embedding "embedding" AsIs AsIs AsIs;

    // Averages over a window of moderate size, and scattering sums of few terms, as in torch.amp.
    AvgPool1d "avg_pool1d" AsIs AsIs AsIs;
    AvgPool2d "avg_pool2d" AsIs AsIs AsIs;
    AdaptiveAvgPool1d "adaptive_avg_pool1d" AsIs AsIs AsIs;
    AdaptiveAvgPool2d "adaptive_avg_pool2d" AsIs AsIs AsIs;
    EmbeddingBackward "embedding_backward" AsIs AsIs AsIs;
    Unfold4d "unfold4d" AsIs AsIs AsIs;
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = AmpError;

    /// Accepts Burn's method name, with or without its `float_` prefix (`matmul`, `float_matmul`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Op::ALL
            .iter()
            .copied()
            .find(|op| op.name() == text || op.name().strip_prefix("float_") == Some(text))
            .ok_or_else(|| AmpError::UnknownOp {
                name: text.to_string(),
            })
    }
}

impl serde::Serialize for Op {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Op {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}
