//! Which operation runs in which dtype: data, not code.

mod explain;
mod op;
mod promote;
mod rule;
mod scalar_role;

pub use explain::{DecidedBy, Explanation, Reason};
pub use op::Op;
pub(crate) use promote::{Meeting, is_like_a_mask, meet, widest};
pub use rule::CastRule;
pub use scalar_role::ScalarRole;

use crate::{ConvBackward, HalfDType, OptLevel};

/// One casting rule per operation, and the half dtype they lower to.
///
/// A policy is a value: build it once, [query](Policy::rule) it, give it to a device with
/// [`AmpConfig`](crate::AmpConfig) or to a block with [`scope::with_policy`](crate::scope::with_policy).
///
/// # Example: which dtype does an operation run in?
///
/// ```
/// use burn_mixed_precision::{CastRule, HalfDType, Op, OptLevel, Policy};
///
/// let policy = Policy::new(OptLevel::O1, HalfDType::F16).with_rule(Op::FloatExp, CastRule::Lower);
/// assert_eq!(policy.rule(Op::FloatMatmul), CastRule::Lower);
/// assert_eq!(policy.rule(Op::FloatExp), CastRule::Lower);
/// assert_eq!(policy.rule(Op::Softmax), CastRule::Full);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    enabled: bool,
    /// Whose table the rules are before any override; none of [`Policy::full`].
    level: Option<OptLevel>,
    half: HalfDType,
    rules: [CastRule; Op::ALL.len()],
    channel_vectors: bool,
    full_host_reads: bool,
    flat_linear: bool,
    scalar_guard: bool,
    conv_backward: ConvBackward,
    lean_backward: bool,
}

impl Policy {
    /// The table of an optimization level; O0 gives [`Policy::off`].
    pub fn new(level: OptLevel, half: HalfDType) -> Self {
        let mut rules = [CastRule::AsIs; Op::ALL.len()];
        for (rule, op) in rules.iter_mut().zip(Op::ALL) {
            *rule = op.default_rule(level);
        }
        Policy {
            enabled: level != OptLevel::O0,
            level: Some(level),
            half,
            rules,
            channel_vectors: true,
            full_host_reads: matches!(level, OptLevel::O1 | OptLevel::O2),
            flat_linear: level != OptLevel::O0,
            scalar_guard: level != OptLevel::O0,
            conv_backward: match level {
                OptLevel::O0 => ConvBackward::Kernel,
                _ => ConvBackward::Fastest,
            },
            lean_backward: level != OptLevel::O0,
        }
    }

    /// No casts at all: every operation reaches the inner backend untouched.
    pub fn off() -> Self {
        Policy::new(OptLevel::O0, HalfDType::F16)
    }

    /// Every operation in f32, whatever its inputs.
    ///
    /// Unlike [`Policy::off`] it accepts half inputs beside f32 ones: for linear algebra and other
    /// delicate blocks in the middle of a mixed-precision program.
    pub fn full() -> Self {
        Policy {
            enabled: true,
            level: None,
            half: HalfDType::F16,
            rules: [CastRule::Full; Op::ALL.len()],
            channel_vectors: false,
            full_host_reads: true,
            flat_linear: true,
            scalar_guard: true,
            conv_backward: ConvBackward::Fastest,
            lean_backward: false,
        }
    }

    /// Replaces the rule of one operation.
    #[must_use]
    pub fn with_rule(mut self, op: Op, rule: CastRule) -> Self {
        self.rules[op as usize] = rule;
        self
    }

    /// Switches the channel-vector exception of [`CastRule::Promote`].
    #[must_use]
    pub fn with_channel_vectors(mut self, keep: bool) -> Self {
        self.channel_vectors = keep;
        self
    }

    /// Switches whether half tensors are read back to the host as f32.
    #[must_use]
    pub fn with_full_host_reads(mut self, full: bool) -> Self {
        self.full_host_reads = full;
        self
    }

    /// Switches whether `linear` [flattens](Policy::flattens_linear) the batch dimensions.
    #[must_use]
    pub fn with_flat_linear(mut self, flat: bool) -> Self {
        self.flat_linear = flat;
        self
    }

    /// Switches whether numbers that half cannot hold are [guarded](Policy::guards_scalars).
    #[must_use]
    pub fn with_scalar_guard(mut self, guard: bool) -> Self {
        self.scalar_guard = guard;
        self
    }

    /// Sets how [`FastBackward`](crate::FastBackward) computes the weight gradients of convolutions.
    #[must_use]
    pub fn with_conv_backward(mut self, backward: ConvBackward) -> Self {
        self.conv_backward = backward;
        self
    }

    /// Switches whether [`LeanAutodiff`](crate::LeanAutodiff) [keeps less](Policy::lean_backward).
    #[must_use]
    pub fn with_lean_backward(mut self, lean: bool) -> Self {
        self.lean_backward = lean;
        self
    }

    /// The rule of an operation.
    pub fn rule(&self, op: Op) -> CastRule {
        self.rules[op as usize]
    }

    /// The half dtype that [`CastRule::Lower`] rounds to.
    pub fn half(&self) -> HalfDType {
        self.half
    }

    /// False when no operation is touched: the results are those of the bare backend, bit by bit.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether a half tensor combined with an f32 channel vector stays half.
    ///
    /// A channel vector is an f32 tensor of rank two or more whose only dimension larger than one
    /// is not the first, the batch, and which is broadcast over the half tensor: `[1, C, 1, 1]`
    /// against `[N, C, H, W]`, not `[N, 1]`, not a tensor as large as the half one. Burn writes
    /// BatchNorm's affine part that way; promoted, every activation behind a norm would be f32.
    ///
    /// # Numerics
    ///
    /// add and sub compute in f32 and round once (they keep nothing for backward). mul and div
    /// round the vector to half first, since they save both operands for backward.
    ///
    /// In add and sub a vector along the last dimension of rank four or more is none: that is where
    /// the padding mask of a single sequence stands, `[1, 1, 1, T]`, whose -1e9 would become -inf.
    ///
    /// One layout cannot be told from a channel vector: a statistic per position of a single
    /// sequence, `[1, T, 1]`. Switch the exception off where that matters.
    pub fn keeps_channel_vectors(&self) -> bool {
        self.channel_vectors
    }

    /// Whether reading a half tensor to the host gives f32 data, as Apex's patched `.cpu()` does.
    pub fn reads_full(&self) -> bool {
        self.full_host_reads
    }

    /// Whether `linear` takes all leading dimensions of its input as one (on, except in
    /// [`Policy::off`]).
    ///
    /// The output is the same. Backward differs: Burn's weight gradient of an input `[N, T, in]` is
    /// N products, each rounded to half, and a sum over them; that of `[N * T, in]` is one product.
    /// It is faster on a GPU and needs no memory for N products.
    pub fn flattens_linear(&self) -> bool {
        self.flat_linear
    }

    /// Whether a number beside a half tensor that half would round to zero or to infinity is dealt
    /// with as its [`ScalarRole`] says (on, except in [`Policy::off`]).
    ///
    /// Guards the epsilon of `(x + 1e-8).log()`, the -1e9 of a mask, the scale of `loss * 65536`.
    /// With the guard off the backend rounds the number to the tensor's dtype.
    pub fn guards_scalars(&self) -> bool {
        self.scalar_guard
    }

    /// How [`FastBackward`](crate::FastBackward) computes the weight gradients of convolutions
    /// ([`ConvBackward::Fastest`], except in [`Policy::off`]).
    pub fn conv_backward(&self) -> ConvBackward {
        self.conv_backward
    }

    /// Whether [`LeanAutodiff`](crate::LeanAutodiff) keeps one half tensor of softmax, log_softmax and
    /// layer_norm for backward (on, except in [`Policy::off`] and [`Policy::full`]).
    pub fn lean_backward(&self) -> bool {
        self.lean_backward
    }

    /// The operations whose rule differs from the table of a level.
    pub fn overrides(&self, level: OptLevel) -> impl Iterator<Item = (Op, CastRule)> + '_ {
        Op::ALL
            .iter()
            .map(|op| (*op, self.rule(*op)))
            .filter(move |(op, rule)| op.default_rule(level) != *rule)
    }
}
