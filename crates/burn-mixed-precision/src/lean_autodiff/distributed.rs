#![expect(
    clippy::missing_trait_methods,
    reason = "gradients are synchronised inside autodiff, and the rest takes pointers, which need unsafe code"
)]

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::DeviceId;
use burn_backend::distributed::{
    CollectiveTensor, DistributedBackend, DistributedConfig, DistributedParams, ReduceOperation,
};
use burn_backend::tensor::{Device, FloatTensor};

use crate::LeanAutodiff;
use crate::ops::forward;

impl<B: DistributedBackend, C: CheckpointStrategy> DistributedBackend for LeanAutodiff<B, C> {
    forward! { Autodiff<B, C> =>
        fn start_communication_server(devices: &[Device<Self>], config: DistributedConfig);
        fn close_communication_server(device: &Device<Self>);
        fn register_sync_parameters(device: &Device<Self>, distributed_params: Vec<DistributedParams>);
        fn submit_sync_collective(device: &Device<Self>);
        fn sync_collective(device: &Device<Self>);
    }

    /// Waits for the reduction: a handle that is not ready cannot change its type.
    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOperation,
        device_ids: Vec<DeviceId>,
    ) -> CollectiveTensor<Self> {
        CollectiveTensor::new(Autodiff::<B, C>::all_reduce(tensor, op, device_ids).resolve())
    }
}
