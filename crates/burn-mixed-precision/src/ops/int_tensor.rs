use burn_backend::Backend;

use crate::delegate::signatures::*;
use crate::tensor::MixedTensor;
use crate::{MixedPrecision, counter, delegate};

impl<B: Backend> IntTensorOps<Self> for MixedPrecision<B> {
    delegate::int_tensor!(but reads and floats: B);

    fn int_into_data(
        tensor: IntTensor<Self>,
    ) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        counter::host_read();
        B::int_into_data(tensor)
    }

    fn int_into_float(tensor: IntTensor<Self>, out_dtype: FloatDType) -> FloatTensor<Self> {
        MixedTensor::new(B::int_into_float(tensor, out_dtype))
    }
}
