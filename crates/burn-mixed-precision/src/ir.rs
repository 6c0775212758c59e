use burn_backend::Backend;
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor, QuantizedTensor};
use burn_ir::{BackendIr, HandleKind, TensorHandle};

use crate::MixedPrecision;

/// Lets Burn's remote server and its router run their operations on a decorated backend, whatever `B`
/// is.
///
/// The policy is the server's: a client names operations and sees nothing of the dtypes in which they
/// run. docs/scaling.md says what that means for training.
///
/// A handle is the decorator's own tensor, so that a weight keeps its half copy between operations.
impl<B: Backend> BackendIr for MixedPrecision<B> {
    type Handle = HandleKind<Self>;

    /// # Panics
    ///
    /// As the other three: if the handle is one of another kind of tensor.
    fn float_tensor(handle: TensorHandle<Self::Handle>) -> FloatTensor<Self> {
        match handle.handle {
            HandleKind::Float(tensor) => tensor,
            other => unexpected("float", &other),
        }
    }

    fn int_tensor(handle: TensorHandle<Self::Handle>) -> IntTensor<Self> {
        match handle.handle {
            HandleKind::Int(tensor) => tensor,
            other => unexpected("int", &other),
        }
    }

    fn bool_tensor(handle: TensorHandle<Self::Handle>) -> BoolTensor<Self> {
        match handle.handle {
            HandleKind::Bool(tensor) => tensor,
            other => unexpected("bool", &other),
        }
    }

    fn quantized_tensor(handle: TensorHandle<Self::Handle>) -> QuantizedTensor<Self> {
        match handle.handle {
            HandleKind::Quantized(tensor) => tensor,
            other => unexpected("quantized", &other),
        }
    }

    fn float_tensor_handle(tensor: FloatTensor<Self>) -> Self::Handle {
        HandleKind::Float(tensor)
    }

    fn int_tensor_handle(tensor: IntTensor<Self>) -> Self::Handle {
        HandleKind::Int(tensor)
    }

    fn bool_tensor_handle(tensor: BoolTensor<Self>) -> Self::Handle {
        HandleKind::Bool(tensor)
    }

    fn quantized_tensor_handle(tensor: QuantizedTensor<Self>) -> Self::Handle {
        HandleKind::Quantized(tensor)
    }
}

fn unexpected<B: Backend>(expected: &str, handle: &HandleKind<B>) -> ! {
    panic!("expected a {expected} handle, got {}", handle.name())
}
