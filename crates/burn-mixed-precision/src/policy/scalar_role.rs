use super::Op;

/// What an operation does with the numbers beside its tensor, and so what happens to a number that a
/// half tensor cannot hold: one that rounding makes zero or infinite.
///
/// Rules that name a dtype decide first: under [`Full`](crate::CastRule::Full) every number is f32
/// anyway, and under [`Lower`](crate::CastRule::Lower) the caller asked for half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarRole {
    /// The result depends on it: arithmetic, powers, comparisons.
    ///
    /// A number that half cannot hold counts as an f32 operand: computed in f32, the output is f32.
    /// `x + 1e-8` keeps its guard, `x * 65536` stays finite, `x < 1e-8` is true for zero.
    Operand,
    /// As [`Operand`](ScalarRole::Operand), for division: the derivative is the number's reciprocal,
    /// which half has to hold too.
    Divisor,
    /// It is a constant of a formula whose results are of moderate size: computed in f32, a half
    /// input gives a half output.
    Constant,
    /// It is written into the tensor: fills and clamps.
    ///
    /// A finite number beyond the range becomes the last finite one before it (infinities stay), so
    /// that a masking -1e9 does not become -inf. One that would become zero is an
    /// [`Operand`](ScalarRole::Operand): it is there because zero will not do.
    Fill,
}

impl ScalarRole {
    /// The role's name in docs/op-table.md.
    pub const fn name(self) -> &'static str {
        match self {
            ScalarRole::Operand => "operand",
            ScalarRole::Divisor => "divisor",
            ScalarRole::Constant => "constant",
            ScalarRole::Fill => "fill",
        }
    }
}

impl Op {
    /// What this operation does with its numbers; `None` if it takes none.
    pub const fn scalar_role(self) -> Option<ScalarRole> {
        Some(match self {
            Op::FloatAddScalar
            | Op::FloatSubScalar
            | Op::FloatMulScalar
            | Op::FloatRemainderScalar
            | Op::FloatPowiScalar
            | Op::FloatPowiScalarImpl
            | Op::FloatPowfScalar
            | Op::FloatPowfScalarImpl
            | Op::FloatEqualElem
            | Op::FloatNotEqualElem
            | Op::FloatGreaterElem
            | Op::FloatGreaterEqualElem
            | Op::FloatLowerElem
            | Op::FloatLowerEqualElem
            | Op::LeakyRelu => ScalarRole::Operand,
            Op::FloatDivScalar => ScalarRole::Divisor,
            Op::HardSigmoid | Op::LayerNorm => ScalarRole::Constant,
            Op::FloatMaskFill | Op::FloatClamp | Op::FloatClampMin | Op::FloatClampMax => {
                ScalarRole::Fill
            }
            _ => return None,
        })
    }
}
