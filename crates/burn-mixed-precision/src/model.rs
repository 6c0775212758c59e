//! The dtypes of a model's parameters at O2 and O3.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use burn_backend::{Backend, DType, FloatDType};

use crate::{AmpConfig, ModelType};

/// Casts a model's parameters to what the configuration asks for.
pub(crate) fn cast<B: Backend, M: Module<B>>(model: M, config: &AmpConfig) -> M {
    match config.cast_model_type() {
        Some(_) => model.map(&mut CastModel {
            config,
            containers: Vec::new(),
            fields: Vec::new(),
        }),
        None => model,
    }
}

/// The dtype of a parameter at this path of struct names; `None` leaves it as it is.
///
/// Burn names the struct that holds a field as `Struct:Name`; the whole path counts, so that a norm
/// that is built of other modules is kept in f32 too.
pub(crate) fn dtype_at(path: &[String], config: &AmpConfig) -> Option<FloatDType> {
    let keep = config.keep_f32_modules();
    let kept = path.iter().any(|container| {
        let name = container
            .split_once(':')
            .map_or(&**container, |(_, name)| name);
        keep.iter().any(|kept| kept == name)
    });
    config.cast_model_type().map(|model_type| match model_type {
        ModelType::Half if !kept => config.half().float_dtype(),
        _ => FloatDType::F32,
    })
}

/// The fields of BatchNorm that hold running statistics, and what Burn initialises them to.
///
/// Forward changes them and no gradient does. They stay in f32 at every level: a running variance
/// can leave the f16 range, and a moving average loses its small updates in half.
pub const RUNNING_STATISTICS: [(&str, f64); 2] = [("running_mean", 0.0), ("running_var", 1.0)];

struct CastModel<'a> {
    config: &'a AmpConfig,
    /// The structs around the parameter.
    containers: Vec<String>,
    /// The fields that lead to it.
    fields: Vec<String>,
}

impl<B: Backend> ModuleMapper<B> for CastModel<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.containers.push(container_type.to_string());
        self.fields.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.containers.pop();
        self.fields.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let field = self.fields.last();
        let is_statistic = |(name, _): &(&str, f64)| field.is_some_and(|field| field == name);
        if RUNNING_STATISTICS.iter().any(is_statistic) {
            return param;
        }
        match dtype_at(&self.containers, self.config) {
            Some(dtype) => cast_param(param, dtype),
            None => param,
        }
    }
}

/// Keeps the parameter's id and gradient tracking. f64 parameters stay.
fn cast_param<B: Backend, const D: usize>(
    param: Param<Tensor<B, D>>,
    dtype: FloatDType,
) -> Param<Tensor<B, D>> {
    let current = param.val().dtype();
    if current == DType::F64 || current == DType::from(dtype) {
        return param;
    }
    let (id, tensor, mapper) = param.consume();
    let tracked = tensor.is_require_grad();
    let plain = tensor.detach().set_require_grad(false);
    let reloads_in = mapper.on_load(mapper.on_save(plain.clone())).dtype();
    let cast = plain.cast(dtype).set_require_grad(tracked);
    if reloads_in == DType::from(dtype) {
        return Param::from_mapped_value(id, cast, mapper);
    }
    // A record loads in the backend's default dtype: from here on, loading casts. Saving needs
    // nothing, since reading a half tensor for a record is exact in any dtype that holds it.
    let inner = mapper.clone();
    Param::from_mapped_value(id, cast, Default::default())
        .load_mapper(move |tensor: Tensor<B, D>| {
            // Recorded on a tracked tensor, the cast would leave a parameter that is no leaf.
            let plain = tensor.detach().set_require_grad(false);
            inner.on_load(plain).cast(dtype)
        })
        .save_mapper(move |tensor| mapper.on_save(tensor))
}
