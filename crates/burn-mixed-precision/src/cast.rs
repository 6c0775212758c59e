//! The only place where tensors change their dtype.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, FloatDType, Scalar, Shape, TensorMetadata};

use crate::policy::{Meeting, is_like_a_mask, meet, widest};
use crate::tensor::MixedTensor;
use crate::{CastRule, HalfDType, Op, Policy, ScalarRole, counter, observe, scalar, scope};

/// Casts a tensor and counts it; an equal dtype is free.
#[expect(clippy::disallowed_methods, reason = "this is where casts are made")]
pub(crate) fn to_dtype<B: Backend>(tensor: FloatTensor<B>, dtype: FloatDType) -> FloatTensor<B> {
    if tensor.dtype() == DType::from(dtype) {
        return tensor;
    }
    counter::made();
    B::float_cast(tensor, dtype)
}

/// Casts without counting: inside backward, and for somebody who looks on. An equal dtype is free.
#[expect(clippy::disallowed_methods, reason = "this is where casts are made")]
pub(crate) fn uncounted<B: Backend>(tensor: FloatTensor<B>, dtype: FloatDType) -> FloatTensor<B> {
    match tensor.dtype() == DType::from(dtype) {
        true => tensor,
        false => B::float_cast(tensor, dtype),
    }
}

/// What one call of an operation does to its float inputs and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The dtype the inputs are brought to.
    inputs: Option<FloatDType>,
    /// The dtype the output is rounded to.
    output: Option<FloatDType>,
    /// Whether the output is a fresh f32 tensor that several lowered operations may read.
    cache_output: bool,
    /// The number of the call, if somebody observes it.
    call: Option<u64>,
}

impl Plan {
    pub(crate) const UNTOUCHED: Plan = Plan {
        inputs: None,
        output: None,
        cache_output: false,
        call: None,
    };

    /// Decides for a call of `op` with these float inputs, the first being the main one.
    pub(crate) fn new<B: Backend>(op: Op, inputs: &[Option<&MixedTensor<B>>]) -> Plan {
        let floats = || inputs.iter().copied().flatten();
        let Some(first) = floats().next() else {
            return Plan::UNTOUCHED;
        };
        let plan = scope::policy(
            || B::float_device(&first.inner),
            |policy| Plan::under(policy, |policy| policy.rule(op), floats()),
        );
        plan.observed(op, inputs, &[])
    }

    /// The same plan, which shows what it is applied to if somebody observes.
    fn observed<B: Backend>(
        self,
        op: Op,
        inputs: &[Option<&MixedTensor<B>>],
        numbers: &[Scalar],
    ) -> Plan {
        if !observe::is_on() {
            return self;
        }
        let takes_infinity = numbers.iter().any(|n| n.elem::<f64>().is_infinite());
        Plan {
            call: observe::begin(Some(op), None, inputs, takes_infinity),
            ..self
        }
    }

    /// As [`observed`](Plan::observed), for a custom operation.
    pub(crate) fn observed_custom<B: Backend>(
        self,
        rule: CastRule,
        inputs: &[Option<&MixedTensor<B>>],
    ) -> Plan {
        if !observe::is_on() {
            return self;
        }
        Plan {
            call: observe::begin(None, Some(rule), inputs, false),
            ..self
        }
    }

    /// Decides under a policy, by a rule that may depend on it.
    pub(crate) fn under<'a, B: Backend>(
        policy: Option<&Policy>,
        rule: impl FnOnce(&Policy) -> CastRule,
        inputs: impl Iterator<Item = &'a MixedTensor<B>>,
    ) -> Plan {
        match policy {
            Some(policy) if policy.is_enabled() => Plan::decide(
                rule(policy),
                policy.half(),
                inputs.map(|input| input.inner.dtype()),
            ),
            _ => Plan::UNTOUCHED,
        }
    }

    /// Decides by the dtypes and shapes of a call's float inputs: what [`new`](Plan::new) and
    /// [`arithmetic`] come to.
    pub(crate) fn of(policy: &Policy, op: Op, inputs: &[(DType, &Shape)]) -> Plan {
        if !policy.is_enabled() {
            return Plan::UNTOUCHED;
        }
        let met = match inputs {
            [lhs, rhs] => Plan::meeting(policy, op, *lhs, *rhs),
            _ => None,
        };
        met.unwrap_or_else(|| {
            let dtypes = inputs.iter().map(|(dtype, _)| *dtype);
            Plan::decide(policy.rule(op), policy.half(), dtypes)
        })
    }

    /// Where two operands of element-wise arithmetic meet that differ in dtype, under
    /// [`CastRule::Promote`], which knows channel vectors.
    fn meeting(
        policy: &Policy,
        op: Op,
        lhs: (DType, &Shape),
        rhs: (DType, &Shape),
    ) -> Option<Plan> {
        let rounding = VectorRounding::of(op)?;
        if !policy.is_enabled() || policy.rule(op) != CastRule::Promote {
            return None;
        }
        let mask =
            rounding == VectorRounding::Output && (is_like_a_mask(lhs.1) || is_like_a_mask(rhs.1));
        let vectors = policy.keeps_channel_vectors() && !mask;
        Some(match (meet(lhs, rhs, vectors)?, rounding) {
            (Meeting::ChannelVector(half), VectorRounding::Output) => Plan {
                inputs: Some(FloatDType::F32),
                output: Some(half),
                ..Plan::UNTOUCHED
            },
            (Meeting::ChannelVector(dtype) | Meeting::Same(dtype), _) => Plan {
                inputs: Some(dtype),
                ..Plan::UNTOUCHED
            },
        })
    }

    fn decide(rule: CastRule, half: HalfDType, mut dtypes: impl Iterator<Item = DType>) -> Plan {
        let Some(first) = dtypes.next() else {
            return Plan::UNTOUCHED;
        };
        let (mut wide, mut equal) = (first, true);
        for dtype in dtypes {
            wide = widest(wide, dtype);
            equal &= dtype == first;
        }
        let inputs = |dtype: DType| Plan {
            inputs: Some(dtype.into()),
            ..Plan::UNTOUCHED
        };
        if matches!(rule, CastRule::Promote | CastRule::AsIs) || wide == DType::F64 {
            return match equal {
                true => Plan::UNTOUCHED,
                false => Plan {
                    cache_output: wide == DType::F32,
                    ..inputs(wide)
                },
            };
        }
        match rule {
            CastRule::Lower if equal && HalfDType::of(first).is_some() => Plan::UNTOUCHED,
            CastRule::Lower => inputs(half.dtype()),
            CastRule::FullThenLower => Plan {
                output: HalfDType::of(first).map(HalfDType::float_dtype),
                ..inputs(DType::F32)
            },
            _ => Plan {
                cache_output: true,
                ..inputs(DType::F32)
            },
        }
    }

    /// The dtype in which the operation runs that has a first input of this dtype.
    pub(crate) fn inside(&self, first: DType) -> DType {
        self.inputs.map_or(first, DType::from)
    }

    /// The dtype of the output of an operation that runs in `inside`.
    pub(crate) fn outcome(&self, inside: DType) -> DType {
        self.output.map_or(inside, DType::from)
    }

    /// Decides for a call of `op` with numbers beside its float inputs, and gives the numbers as the
    /// call takes them: what half cannot hold is dealt with as [`ScalarRole`] says.
    pub(crate) fn beside<B: Backend, const N: usize>(
        op: Op,
        inputs: &[Option<&MixedTensor<B>>],
        scalars: [Scalar; N],
    ) -> (Plan, [Scalar; N]) {
        let floats = || inputs.iter().copied().flatten();
        let Some(first) = floats().next() else {
            return (Plan::UNTOUCHED, scalars);
        };
        let (plan, numbers) = scope::policy(
            || B::float_device(&first.inner),
            |policy| {
                let plan = Plan::under(policy, |policy| policy.rule(op), floats());
                let inside = plan.inside(first.inner.dtype());
                match (policy, HalfDType::of(inside), op.scalar_role()) {
                    (Some(policy), Some(half), Some(role))
                        if policy.is_enabled() && policy.guards_scalars() =>
                    {
                        plan.guarded(policy.rule(op), role, half, scalars)
                    }
                    _ => (plan, scalars),
                }
            },
        );
        (plan.observed(op, inputs, &numbers), numbers)
    }

    /// The plan of a call in half with these numbers.
    fn guarded<const N: usize>(
        self,
        rule: CastRule,
        role: ScalarRole,
        half: HalfDType,
        scalars: [Scalar; N],
    ) -> (Plan, [Scalar; N]) {
        if rule != CastRule::Lower && scalar::leaves_half(role, &scalars, half) {
            let constant = role == ScalarRole::Constant;
            let plan = Plan {
                inputs: Some(FloatDType::F32),
                output: constant.then_some(half.float_dtype()),
                cache_output: !constant,
                call: None,
            };
            return (plan, scalars);
        }
        match role {
            ScalarRole::Fill => (self, scalars.map(|fill| scalar::saturate(fill, half))),
            _ => (self, scalars),
        }
    }

    /// An input as the operation takes it.
    pub(crate) fn cast<B: Backend>(&self, tensor: MixedTensor<B>) -> FloatTensor<B> {
        match self.call {
            Some(call) => observe::input(call, tensor, |tensor| self.bring(tensor)),
            None => self.bring(tensor),
        }
    }

    /// Brings an input to the dtype of the call.
    fn bring<B: Backend>(&self, tensor: MixedTensor<B>) -> FloatTensor<B> {
        match self.inputs {
            Some(FloatDType::F16) if tensor.inner.dtype() != DType::F16 => {
                tensor.lowered(HalfDType::F16)
            }
            Some(FloatDType::BF16) if tensor.inner.dtype() != DType::BF16 => {
                tensor.lowered(HalfDType::Bf16)
            }
            Some(dtype) => to_dtype::<B>(tensor.inner, dtype),
            None => tensor.inner,
        }
    }

    /// The output as the caller gets it.
    pub(crate) fn finish<B: Backend>(&self, output: FloatTensor<B>) -> MixedTensor<B> {
        let inside = output.dtype();
        let output = match self.output {
            Some(dtype) => to_dtype::<B>(output, dtype),
            None => output,
        };
        let (output, origin) = match self.call {
            Some(call) => observe::output::<B>(call, inside, output),
            None => (output, None),
        };
        let tensor = match self.output.is_none() && self.cache_output {
            true => MixedTensor::new(output).keeping_copies(),
            false => MixedTensor::new(output),
        };
        tensor.coming_from(origin)
    }
}

/// Runs an operation of one float input and one float output.
pub(crate) fn unary<B: Backend>(
    op: Op,
    tensor: MixedTensor<B>,
    run: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> MixedTensor<B> {
    let plan = Plan::new(op, &[Some(&tensor)]);
    plan.finish(run(plan.cast(tensor)))
}

/// Runs an operation of one float input whose output is of another kind.
pub(crate) fn read<B: Backend, R>(
    op: Op,
    tensor: MixedTensor<B>,
    run: impl FnOnce(FloatTensor<B>) -> R,
) -> R {
    let plan = Plan::new(op, &[Some(&tensor)]);
    run(plan.cast(tensor))
}

/// Runs an operation of one float input and numbers, with one float output.
pub(crate) fn with_scalars<B: Backend, const N: usize>(
    op: Op,
    tensor: MixedTensor<B>,
    scalars: [Scalar; N],
    run: impl FnOnce(FloatTensor<B>, [Scalar; N]) -> FloatTensor<B>,
) -> MixedTensor<B> {
    let (plan, scalars) = Plan::beside(op, &[Some(&tensor)], scalars);
    plan.finish(run(plan.cast(tensor), scalars))
}

/// Runs a comparison of one float input with a number.
pub(crate) fn compare_scalar<B: Backend, R>(
    op: Op,
    tensor: MixedTensor<B>,
    scalar: Scalar,
    run: impl FnOnce(FloatTensor<B>, Scalar) -> R,
) -> R {
    let (plan, [scalar]) = Plan::beside(op, &[Some(&tensor)], [scalar]);
    run(plan.cast(tensor), scalar)
}

/// Runs an operation of two float inputs and one float output.
pub(crate) fn binary<B: Backend>(
    op: Op,
    lhs: MixedTensor<B>,
    rhs: MixedTensor<B>,
    run: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> MixedTensor<B> {
    let plan = Plan::new(op, &[Some(&lhs), Some(&rhs)]);
    plan.finish(run(plan.cast(lhs), plan.cast(rhs)))
}

/// Runs an operation of an input, a weight and perhaps a bias.
pub(crate) fn affine<B: Backend>(
    op: Op,
    x: MixedTensor<B>,
    weight: MixedTensor<B>,
    bias: Option<MixedTensor<B>>,
    run: impl FnOnce(FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>) -> FloatTensor<B>,
) -> MixedTensor<B> {
    let plan = Plan::new(op, &[Some(&x), Some(&weight), bias.as_ref()]);
    let bias_cast = bias.map(|bias| plan.cast(bias));
    plan.finish(run(plan.cast(x), plan.cast(weight), bias_cast))
}

/// Runs an operation of two float inputs whose output is of another kind.
pub(crate) fn compare<B: Backend, R>(
    op: Op,
    lhs: MixedTensor<B>,
    rhs: MixedTensor<B>,
    run: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> R,
) -> R {
    let plan = Plan::new(op, &[Some(&lhs), Some(&rhs)]);
    run(plan.cast(lhs), plan.cast(rhs))
}

/// What a half tensor and an f32 channel vector do in an element-wise operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VectorRounding {
    /// The operation saves nothing for backward: compute in f32, round the result once.
    Output,
    /// The operation saves its operands for backward: round the vector, so that they are half.
    Operand,
}

impl VectorRounding {
    /// How this operation knows channel vectors; `None` if it does not.
    fn of(op: Op) -> Option<Self> {
        match op {
            Op::FloatAdd | Op::FloatSub => Some(VectorRounding::Output),
            Op::FloatMul | Op::FloatDiv => Some(VectorRounding::Operand),
            _ => None,
        }
    }
}

/// Runs element-wise arithmetic, which under [`CastRule::Promote`] knows channel vectors.
pub(crate) fn arithmetic<B: Backend>(
    op: Op,
    lhs: MixedTensor<B>,
    rhs: MixedTensor<B>,
    run: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> MixedTensor<B> {
    if lhs.inner.dtype() == rhs.inner.dtype() {
        return binary(op, lhs, rhs, run);
    }
    let (left, right) = (lhs.inner.shape(), rhs.inner.shape());
    let plan = scope::policy(
        || B::float_device(&lhs.inner),
        |policy| {
            policy.and_then(|policy| {
                let (left, right) = ((lhs.inner.dtype(), &left), (rhs.inner.dtype(), &right));
                Plan::meeting(policy, op, left, right)
            })
        },
    );
    let Some(plan) = plan else {
        return binary(op, lhs, rhs, run);
    };
    let plan = plan.observed(op, &[Some(&lhs), Some(&rhs)], &[]);
    plan.finish(run(plan.cast(lhs), plan.cast(rhs)))
}
