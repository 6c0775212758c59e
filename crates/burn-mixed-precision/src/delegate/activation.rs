/// All of `ActivationOps` but `softmax`, `log_softmax` and `softmin`.
macro_rules! activation {
    ($inner:ty) => {
        forward! { $inner =>
            fn leaky_relu(tensor: FloatTensor<Self>, negative_slope: Scalar) -> FloatTensor<Self>;
            fn relu(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
            fn relu_backward(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
            fn gelu(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
            fn prelu(tensor: FloatTensor<Self>, alpha: FloatTensor<Self>) -> FloatTensor<Self>;
            fn gelu_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
            fn sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
            fn sigmoid_backward(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
            fn hard_sigmoid(tensor: FloatTensor<Self>, alpha: Scalar, beta: Scalar) -> FloatTensor<Self>;
            fn log_sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
            fn log_sigmoid_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
        }
    };
}

pub(crate) use activation;
