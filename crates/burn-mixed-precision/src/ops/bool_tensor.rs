use burn_backend::Backend;

use crate::delegate::signatures::*;
use crate::tensor::MixedTensor;
use crate::{MixedPrecision, counter, delegate};

impl<B: Backend> BoolTensorOps<Self> for MixedPrecision<B> {
    delegate::bool_tensor!(but reads and floats: B);

    fn bool_into_data(
        tensor: BoolTensor<Self>,
    ) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        counter::host_read();
        B::bool_into_data(tensor)
    }

    fn bool_into_float(tensor: BoolTensor<Self>, out_dtype: FloatDType) -> FloatTensor<Self> {
        MixedTensor::new(B::bool_into_float(tensor, out_dtype))
    }
}
