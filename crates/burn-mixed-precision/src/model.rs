//! The dtypes of a model's parameters at O2 and O3.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use burn_backend::{Backend, DType, FloatDType};

use crate::{AmpConfig, HalfDType, ModelType};

/// Casts a model's parameters to what the configuration asks for.
pub(crate) fn cast<B: Backend, M: Module<B>>(model: M, config: &AmpConfig) -> M {
    match config.cast_model_type() {
        Some(ModelType::Half) => model.map(&mut HalfModel {
            half: config.half(),
            keep: config.keep_f32_modules(),
            path: Vec::new(),
        }),
        // f32 is what Burn builds and loads: only a model that was half has something to widen.
        Some(ModelType::F32) => model.map(&mut FullModel),
        None => model,
    }
}

/// Whether a parameter at this path of struct names stays in f32.
///
/// Burn names the struct that holds a field as `Struct:Name`; the whole path counts, so that a norm
/// that is built of other modules is kept too.
fn is_kept(path: &[String], keep: &[String]) -> bool {
    path.iter().any(|container| {
        let name = container
            .split_once(':')
            .map_or(&**container, |(_, name)| name);
        keep.iter().any(|kept| kept == name)
    })
}

struct HalfModel<'a> {
    half: HalfDType,
    keep: &'a [String],
    path: Vec<String>,
}

impl<B: Backend> ModuleMapper<B> for HalfModel<'_> {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.path.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let dtype = match is_kept(&self.path, self.keep) {
            true => FloatDType::F32,
            false => self.half.float_dtype(),
        };
        cast_param(param, dtype)
    }
}

struct FullModel;

impl<B: Backend> ModuleMapper<B> for FullModel {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        cast_param(param, FloatDType::F32)
    }
}

/// Keeps the parameter's id, gradient tracking and load/save mappers. f64 parameters stay.
fn cast_param<B: Backend, const D: usize>(
    param: Param<Tensor<B, D>>,
    dtype: FloatDType,
) -> Param<Tensor<B, D>> {
    let current = param.val().dtype();
    if current == DType::F64 || current == DType::from(dtype) {
        return param;
    }
    param.map(|tensor| {
        let tracked = tensor.is_require_grad();
        tensor
            .detach()
            .set_require_grad(false)
            .cast(dtype)
            .set_require_grad(tracked)
    })
}
