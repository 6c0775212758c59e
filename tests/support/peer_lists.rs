//! What torch.amp (its CUDA list) and Apex O1 do with the operations of the table.
//!
//! An operation that a system does not list runs there in the dtype of its input, or is promoted by
//! the framework.

use burn_amp::{CastRule, Op};

/// What another system does with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Cast to half.
    Low,
    /// Cast to f32.
    Full,
    /// Cast to f32, and the output to the dtype of the first input.
    FullThenInput,
    /// Cast to the widest input, by a list or by the framework's own type promotion.
    Widest,
    /// In the dtype of its input.
    Pass,
    /// The system has no such operation, or does not see it.
    Absent,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Low => "half",
            Peer::Full => "f32",
            Peer::FullThenInput => "f32, then as the input",
            Peer::Widest => "widest",
            Peer::Pass => "as is",
            Peer::Absent => "–",
        }
    }

    /// The rule that does the same.
    pub fn rule(self) -> Option<CastRule> {
        match self {
            Peer::Low => Some(CastRule::Lower),
            Peer::Full => Some(CastRule::Full),
            Peer::FullThenInput => Some(CastRule::FullThenLower),
            Peer::Widest => Some(CastRule::Promote),
            Peer::Pass => Some(CastRule::AsIs),
            Peer::Absent => None,
        }
    }
}

/// Operations, torch's CUDA list, Apex O1's list.
const LISTS: &[(&[&str], Peer, Peer)] = &[
    (
        &[
            "float_matmul",
            "linear",
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "prelu",
        ],
        Peer::Low,
        Peer::Low,
    ),
    (&["attention"], Peer::Low, Peer::Absent),
    (
        &[
            "float_exp",
            "float_log",
            "float_powf",
            "float_powi",
            "float_powi_scalar",
            "float_powi_scalar_impl",
            "float_powf_scalar",
            "float_powf_scalar_impl",
            "float_recip",
            "float_tan",
            "float_cosh",
            "float_sinh",
            "float_acos",
            "float_asin",
            "float_sum",
            "float_sum_dim",
            "float_prod",
            "float_prod_dim",
            "float_cumsum",
            "float_cumprod",
            "softmax",
            "softmin",
            "log_softmax",
            "layer_norm",
            "interpolate",
        ],
        Peer::Full,
        Peer::Full,
    ),
    (&["float_log1p"], Peer::Full, Peer::Pass),
    (
        &[
            "float_mean",
            "float_mean_dim",
            "log_sigmoid",
            "rfft",
            "irfft",
            "ctc_loss",
        ],
        Peer::Pass,
        Peer::Pass,
    ),
    (&["gelu"], Peer::Pass, Peer::Full),
    (
        &[
            "float_add",
            "float_sub",
            "float_mul",
            "float_div",
            "float_atan2",
            "float_cross",
            "float_cat",
            "float_equal",
            "float_not_equal",
            "float_greater",
            "float_greater_equal",
            "float_lower",
            "float_lower_equal",
        ],
        Peer::Widest,
        Peer::Widest,
    ),
    (
        &["float_remainder", "float_scatter_add", "float_scatter_nd"],
        Peer::Widest,
        Peer::Pass,
    ),
    (&["float_grid_sample_2d"], Peer::Widest, Peer::Full),
    (
        &["float_mask_where", "float_select_add", "float_slice_assign"],
        Peer::Pass,
        Peer::Pass,
    ),
    (
        &[
            "relu",
            "leaky_relu",
            "sigmoid",
            "hard_sigmoid",
            "float_add_scalar",
            "float_sub_scalar",
            "float_mul_scalar",
            "float_div_scalar",
            "float_remainder_scalar",
            "float_neg",
            "float_clamp",
            "float_clamp_min",
            "float_clamp_max",
            "float_sqrt",
            "float_abs",
            "float_sign",
            "float_cos",
            "float_sin",
            "float_tanh",
            "float_acosh",
            "float_asinh",
            "float_atan",
            "float_atanh",
            "float_erf",
            "float_round",
            "float_floor",
            "float_ceil",
            "float_trunc",
            "float_mask_fill",
            "float_equal_elem",
            "float_not_equal_elem",
            "float_greater_elem",
            "float_greater_equal_elem",
            "float_lower_elem",
            "float_lower_equal_elem",
            "float_any",
            "float_any_dim",
            "float_all",
            "float_all_dim",
            "float_is_nan",
            "float_is_inf",
            "float_max",
            "float_max_dim",
            "float_max_dim_with_indices",
            "float_max_abs",
            "float_max_abs_dim",
            "float_min",
            "float_min_dim",
            "float_min_dim_with_indices",
            "float_argmax",
            "float_argmin",
            "float_argtopk",
            "float_topk",
            "float_sort",
            "float_sort_with_indices",
            "float_argsort",
            "float_cummin",
            "float_cummax",
            "max_pool1d",
            "max_pool1d_with_indices",
            "max_pool2d",
            "max_pool2d_with_indices",
            "avg_pool1d",
            "avg_pool2d",
            "adaptive_avg_pool1d",
            "adaptive_avg_pool2d",
            "embedding",
            "unfold4d",
        ],
        Peer::Pass,
        Peer::Pass,
    ),
    // torchvision's autocast kernel of it (csrc/ops/autocast/deform_conv2d_kernel.cpp).
    (&["deform_conv2d"], Peer::FullThenInput, Peer::Absent),
];

/// Why an operation has another rule at O1 than torch.amp gives it.
const REASONS: &[(&[&str], &str)] = &[
    (
        &["float_mean", "float_mean_dim"],
        "torch's CUDA kernel adds up in f32 whatever its input; not every Burn backend does \
         (burn#4769)",
    ),
    (
        &["log_sigmoid"],
        "a logarithm of small probabilities, and the end of binary losses, which torch has as \
         operations of their own in f32",
    ),
    (
        &["ctc_loss"],
        "torch has no half kernel for it; Burn's is a chain of log-sum-exps over the sequence",
    ),
    (
        &["rfft", "irfft"],
        "Burn's GPU backends have no half kernels for it",
    ),
    (
        &["float_add", "float_sub", "float_mul", "float_div"],
        "widest as in torch, except that a half tensor stays half beside an f32 channel vector: \
         Burn writes BatchNorm in these operations, torch has it as one that returns its input's \
         dtype",
    ),
    (
        &["float_mask_where", "float_select_add", "float_slice_assign"],
        "the same for inputs of one dtype; mixed ones, which torch rounds to the target's dtype \
         or promotes, meet in the widest: Burn's backends refuse them",
    ),
];

/// What torch.amp and Apex O1 do with an operation; a gradient neither of them sees.
pub fn peers(op: Op) -> (Peer, Peer) {
    if op.name().ends_with("_backward") {
        return (Peer::Absent, Peer::Absent);
    }
    let mut found = LISTS.iter().filter(|(ops, ..)| ops.contains(&op.name()));
    match (found.next(), found.next()) {
        (Some((_, torch, apex)), None) => (*torch, *apex),
        _ => panic!("{op} must stand in exactly one list of tests/support/peer_lists.rs"),
    }
}

pub fn reason(op: Op) -> Option<&'static str> {
    let reasoned = |(ops, _): &&(&[&str], &str)| ops.contains(&op.name());
    REASONS.iter().find(reasoned).map(|(_, reason)| *reason)
}
