use burn_backend::{Backend, DType, TensorData, TensorMetadata};

use crate::tensor::MixedTensor;
use crate::{HalfDType, scope};

/// Whether a tensor's data reaches the host as f32 although it is half.
pub(super) fn reads_full<B: Backend>(tensor: &MixedTensor<B>) -> bool {
    HalfDType::of(tensor.dtype()).is_some()
        && scope::policy(
            || B::float_device(&tensor.inner),
            |policy| policy.is_some_and(|policy| policy.reads_full()),
        )
}

/// Widens on the host, so that only half as many bytes leave the device. Exact.
pub(super) fn widen(data: TensorData) -> TensorData {
    data.convert_dtype(DType::F32)
}
