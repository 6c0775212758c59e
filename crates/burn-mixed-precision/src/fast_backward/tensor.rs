use burn_backend::Backend;

use crate::delegate::signatures::*;
use crate::{FastBackward, delegate, observe};

impl<B: Backend> FloatTensorOps<Self> for FastBackward<B> {
    delegate::tensor!(B);

    /// A mark multiplies nothing: see `observe::mark`.
    fn float_mul_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        match observe::mark(rhs) {
            Some(mark) => {
                observe::marked::<B>(mark, &lhs);
                lhs
            }
            None => B::float_mul_scalar(lhs, rhs),
        }
    }
}
