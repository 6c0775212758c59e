//! What several decorators pass on: a macro per trait of Burn's, which writes its methods for the
//! backend that is named.
//!
//! A file that uses one imports [`signatures`], the types that the methods are written in.

mod activation;
mod backend;
mod bool_tensor;
mod int_tensor;
mod module;
mod qtensor;
mod tensor;
mod transaction;

/// The types of all methods.
pub(crate) mod signatures {
    pub(crate) use core::future::Future;
    pub(crate) use core::ops::Range;

    pub(crate) use burn_backend::ops::{
        ActivationOps, AttentionModuleOptions, BoolTensorOps, ConvOptions, ConvTransposeOptions,
        DeformConv2dBackward, DeformConvOptions, FloatTensorOps, GridSampleOptions, IntTensorOps,
        InterpolateOptions, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward,
        MaxPool2dWithIndices, ModuleOps, QTensorOps, TransactionOps, TransactionPrimitive,
        TransactionPrimitiveData, UnfoldOptions,
    };
    pub(crate) use burn_backend::quantization::QuantScheme;
    pub(crate) use burn_backend::tensor::quantization::QuantizationParametersPrimitive;
    pub(crate) use burn_backend::tensor::{
        BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor, QuantizedTensor,
    };
    pub(crate) use burn_backend::{
        BoolDType, DType, DTypeUsageSet, Distribution, ExecutionError, FloatDType, IntDType,
        Scalar, Shape, Slice, TensorData, TensorPrimitive,
    };

    pub(crate) use crate::ops::forward;
}

pub(crate) use activation::activation;
pub(crate) use backend::backend;
pub(crate) use bool_tensor::bool_tensor;
pub(crate) use int_tensor::int_tensor;
pub(crate) use module::module;
pub(crate) use qtensor::{forward_retyped, qtensor, retype};
pub(crate) use tensor::tensor;
pub(crate) use transaction::transaction;
