#![expect(
    clippy::missing_trait_methods,
    reason = "the rest speaks to the server of `Self`, and takes pointers, which need unsafe code"
)]

use burn_backend::DeviceId;
use burn_backend::distributed::{CollectiveTensor, DistributedBackend, ReduceOperation};
use burn_backend::tensor::{Device, FloatTensor};

use crate::FastBackward;

impl<B: DistributedBackend> DistributedBackend for FastBackward<B> {
    /// Waits for the reduction: a handle that is not ready cannot change its type.
    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOperation,
        device_ids: Vec<DeviceId>,
    ) -> CollectiveTensor<Self> {
        CollectiveTensor::new(B::all_reduce(tensor, op, device_ids).resolve())
    }

    fn sync_collective(device: &Device<Self>) {
        B::sync_collective(device)
    }
}
