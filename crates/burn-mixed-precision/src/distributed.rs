#![expect(
    clippy::missing_trait_methods,
    reason = "gradients are synchronised inside autodiff, and the rest takes pointers, which need unsafe code"
)]

use burn_backend::DeviceId;
use burn_backend::distributed::{
    CollectiveTensor, DistributedBackend, DistributedConfig, DistributedParams, ReduceOperation,
};
use burn_backend::tensor::{Device, FloatTensor};

use crate::MixedPrecision;
use crate::tensor::MixedTensor;

/// What Burn's data-parallel training (`ExecutionStrategy::ddp`) asks of a backend.
///
/// Gradients are reduced inside autodiff, while they are scaled, in the dtype of their parameter: in
/// f32 at O1, in half at O2 and O3, which is half of what goes over the wires.
impl<B: DistributedBackend> DistributedBackend for MixedPrecision<B> {
    fn start_communication_server(devices: &[Device<Self>], config: DistributedConfig) {
        B::start_communication_server(devices, config)
    }

    fn close_communication_server(device: &Device<Self>) {
        B::close_communication_server(device)
    }

    fn register_sync_parameters(device: &Device<Self>, distributed_params: Vec<DistributedParams>) {
        B::register_sync_parameters(device, distributed_params)
    }

    fn submit_sync_collective(device: &Device<Self>) {
        B::submit_sync_collective(device)
    }

    /// Waits for the reduction: a handle that is not ready cannot change its type.
    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOperation,
        device_ids: Vec<DeviceId>,
    ) -> CollectiveTensor<Self> {
        let reduced = B::all_reduce(tensor.into_inner(), op, device_ids).resolve();
        CollectiveTensor::new(MixedTensor::new(reduced))
    }

    fn sync_collective(device: &Device<Self>) {
        B::sync_collective(device)
    }
}
