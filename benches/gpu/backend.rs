//! The backend under test, the only place that knows it is CUDA.

use burn::backend::Cuda;
use burn::backend::cuda::CudaDevice;
use burn::tensor::backend::Backend;
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;

pub type Bare<F> = Cuda<F, i32>;
pub type Device = CudaDevice;

pub fn device() -> Device {
    Device::default()
}

/// Bytes that live tensors take; what the pool keeps in reserve is not counted.
pub fn bytes_in_use<B: Backend<Device = Device>>(device: &Device) -> u64 {
    B::sync(device).expect("the device runs what is queued");
    let client = CudaRuntime::client(device);
    client
        .memory_usage()
        .expect("the device answers")
        .bytes_in_use
}
