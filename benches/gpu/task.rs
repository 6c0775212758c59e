use burn::module::AutodiffModule;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

/// A model and the one batch it is trained on, in the backend's default dtype.
pub trait Task<B: AutodiffBackend>: AutodiffModule<B> {
    /// Input and target.
    type Batch: Clone;

    fn new(device: &B::Device) -> Self;

    fn batch(device: &B::Device) -> Self::Batch;

    fn loss(&self, batch: Self::Batch) -> Tensor<B, 1>;
}
