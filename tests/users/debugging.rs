//! Finding out what went wrong.

use burn::tensor::{DType, Tensor};
use burn_amp::{HalfDType, OptLevel};

use crate::support::{HALVES, Mixed, amp};

fn helper(x: Tensor<Mixed, 2>) -> Tensor<Mixed, 2> {
    fn nested(x: Tensor<Mixed, 2>) -> Tensor<Mixed, 2> {
        x.clone().matmul(x)
    }
    let boxed: Box<dyn Fn(Tensor<Mixed, 2>) -> Tensor<Mixed, 2>> = Box::new(nested);
    boxed(x)
}

#[test]
fn row_68_a_region_reaches_into_the_functions_it_calls() {
    let x = || Tensor::<Mixed, 2>::ones([2, 2], &Default::default());
    for half in HALVES {
        assert_eq!(
            amp(OptLevel::O1, half).scope(|| helper(x()).dtype()),
            half.dtype()
        );
    }
    amp(OptLevel::O0, HalfDType::F16).scope(|| assert_eq!(helper(x()).dtype(), DType::F32));
}
