//! Parameters in full precision, and the way between them and a half model.

use std::collections::HashMap;

use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Element, FloatDType, Tensor, TensorData, TensorPrimitive};
use burn_mixed_precision::{Amp, HalfDType};

/// The latest value of every parameter that was stepped, and of every tensor that forward changes.
///
/// For half parameters with masters the value is the f32 master. For all others it is the model's
/// own tensor, kept so that the optimizer's record can restore it exactly, whatever the precision
/// of the model's record. It shares the model's memory.
#[derive(Debug, Clone)]
pub(crate) struct Weights<B: Backend> {
    values: HashMap<ParamId, B::FloatTensorPrimitive>,
    /// Values from a record, not yet on a device; they win over the model's at the next step.
    loaded: HashMap<ParamId, TensorData>,
}

impl<B: Backend> Default for Weights<B> {
    fn default() -> Self {
        Weights {
            values: HashMap::new(),
            loaded: HashMap::new(),
        }
    }
}

impl<B: Backend> Weights<B> {
    pub fn get<const D: usize>(&self, id: ParamId) -> Option<Tensor<B, D>> {
        let value = self.values.get(&id)?.clone();
        Some(Tensor::from_primitive(TensorPrimitive::Float(value)))
    }

    pub fn knows(&self, id: ParamId) -> bool {
        self.values.contains_key(&id) || self.loaded.contains_key(&id)
    }

    pub fn set<const D: usize>(&mut self, id: ParamId, value: Tensor<B, D>) {
        self.loaded.remove(&id);
        let TensorPrimitive::Float(value) = value.into_primitive() else {
            return; // Quantized parameters are not trained.
        };
        self.values.insert(id, value);
    }

    /// The value that a record has for this parameter, f32, on the device.
    pub fn loaded<const D: usize>(&self, id: ParamId, device: &B::Device) -> Option<Tensor<B, D>> {
        let data = self.loaded.get(&id)?.clone();
        // An explicit dtype: the default float of the backend may be half.
        Some(Tensor::from_data(data, (device, DType::F32)))
    }

    pub fn load(&mut self, values: impl IntoIterator<Item = (ParamId, TensorData)>) {
        self.values.clear();
        self.loaded = values.into_iter().collect();
    }

    /// Raw f32 (or f64) data of every value, in the order of the ids.
    pub fn to_data(&self) -> Vec<(ParamId, TensorData)> {
        let read = |value: &B::FloatTensorPrimitive| {
            let value: Tensor<B, 1> = flat::<B>(value.clone());
            let data = value.into_data();
            match data.dtype {
                DType::F64 => data,
                _ => data.convert_dtype(f32::dtype()),
            }
        };
        let shape = |value: &B::FloatTensorPrimitive| burn::tensor::TensorMetadata::shape(value);
        let mut data: Vec<(ParamId, TensorData)> = self
            .values
            .iter()
            .map(|(id, value)| {
                let data = read(value);
                (
                    *id,
                    TensorData {
                        shape: shape(value),
                        ..data
                    },
                )
            })
            .chain(self.loaded.iter().map(|(id, data)| (*id, data.clone())))
            .collect();
        data.sort_unstable_by_key(|(id, _)| id.val());
        data
    }
}

fn flat<B: Backend>(value: B::FloatTensorPrimitive) -> Tensor<B, 1> {
    let elements = burn::tensor::TensorMetadata::shape(&value).num_elements();
    let value = B::float_reshape(value, [elements].into());
    Tensor::from_primitive(TensorPrimitive::Float(value))
}

/// Gives an optimizer a module in full precision: masters for half parameters, saved values for
/// parameters whose record was just loaded.
pub(crate) struct Lift<'a, B: AutodiffBackend> {
    pub amp: &'a Amp,
    pub grads: &'a GradientsParams,
    pub weights: &'a Weights<B::InnerBackend>,
    pub containers: Vec<String>,
    /// The dtypes that the model's parameters return to.
    pub lowers_to: HashMap<ParamId, FloatDType>,
}

impl<'a, B: AutodiffBackend> Lift<'a, B> {
    pub fn new(
        amp: &'a Amp,
        grads: &'a GradientsParams,
        weights: &'a Weights<B::InnerBackend>,
    ) -> Self {
        Lift {
            amp,
            grads,
            weights,
            containers: Vec::new(),
            lowers_to: HashMap::new(),
        }
    }
}

/// The dtype a model's parameter has under these settings, if it has this one now.
fn model_dtype(amp: &Amp, containers: &[String], current: DType) -> FloatDType {
    match (amp.parameter_dtype(containers), current) {
        (_, DType::F64) | (None, _) => current.into(),
        (Some(dtype), _) => dtype,
    }
}

/// Puts another value into a parameter, a leaf as the old one was.
fn replace<B: AutodiffBackend, const D: usize>(
    param: Param<Tensor<B, D>>,
    value: Tensor<B::InnerBackend, D>,
) -> Param<Tensor<B, D>> {
    param.map(|old| Tensor::from_inner(value).set_require_grad(old.is_require_grad()))
}

impl<B: AutodiffBackend> ModuleMapper<B> for Lift<'_, B> {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.containers.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.containers.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let id = param.id;
        if self.grads.get::<B::InnerBackend, D>(id).is_none() {
            return param;
        }
        let (device, current) = (param.val().device(), param.val().dtype());
        let dtype = model_dtype(self.amp, &self.containers, current);
        self.lowers_to.insert(id, dtype);
        let saved = self.weights.loaded::<D>(id, &device);
        let masters = self.amp.config().master_weights();
        match (HalfDType::of(dtype.into()), HalfDType::of(current)) {
            // No master: the optimizer works on what the model has.
            (Some(_), _) if !masters => match saved {
                Some(saved) => replace(param, saved.cast(dtype)),
                None => param.map(|tensor| lower(tensor, dtype)),
            },
            (Some(_), Some(_)) => {
                let master = saved.or_else(|| self.weights.get::<D>(id));
                let master = match master {
                    Some(master) => master.to_device(&device),
                    None => param.val().inner().cast(FloatDType::F32),
                };
                replace(param, master)
            }
            // An f32 value where a half one belongs is fresh from outside: it is the master.
            _ => match saved {
                Some(saved) => replace(param, saved),
                None => param,
            },
        }
    }
}

fn lower<B: AutodiffBackend, const D: usize>(
    tensor: Tensor<B, D>,
    dtype: FloatDType,
) -> Tensor<B, D> {
    if tensor.dtype() == DType::from(dtype) {
        return tensor;
    }
    let tracked = tensor.is_require_grad();
    Tensor::from_inner(tensor.inner().cast(dtype)).set_require_grad(tracked)
}

/// Takes the stepped module apart again: values to keep, parameters in the model's dtypes.
pub(crate) struct Lower<'a, B: AutodiffBackend> {
    pub weights: &'a mut Weights<B::InnerBackend>,
    pub lowers_to: &'a HashMap<ParamId, FloatDType>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Lower<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(dtype) = self.lowers_to.get(&param.id) else {
            return param;
        };
        self.weights.set(param.id, param.val().inner());
        match DType::from(*dtype) == param.val().dtype() {
            true => param,
            false => param.map(|tensor| lower(tensor, *dtype)),
        }
    }
}

/// Brings gradients to the dtypes of the lifted parameters, clipped.
pub(crate) struct Fit<'a, B: AutodiffBackend> {
    pub grads: &'a mut GradientsParams,
    pub factor: f64,
    pub backend: core::marker::PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Fit<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.grads.remove::<B::InnerBackend, D>(param.id) else {
            return;
        };
        // Clipped before it is rounded to a half parameter's dtype.
        let grad = match self.factor {
            1.0 => grad,
            factor => grad.mul_scalar(factor),
        };
        let dtype = param.val().dtype();
        let grad = match grad.dtype() == dtype {
            true => grad,
            false => grad.cast(dtype),
        };
        self.grads.register::<B::InnerBackend, D>(param.id, grad);
    }
}

/// Replaces every parameter that has a kept value by it, in the model's dtype.
pub(crate) struct Restore<'a, B: AutodiffBackend> {
    pub amp: &'a Amp,
    pub weights: &'a Weights<B::InnerBackend>,
    /// Masters themselves instead of their half copies.
    pub full: bool,
    pub containers: Vec<String>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Restore<'_, B> {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.containers.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.containers.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (device, current) = (param.val().device(), param.val().dtype());
        let kept = self
            .weights
            .loaded::<D>(param.id, &device)
            .or_else(|| self.weights.get::<D>(param.id));
        let dtype = match self.full {
            true if current == DType::F64 => FloatDType::F64,
            true => FloatDType::F32,
            false => model_dtype(self.amp, &self.containers, current),
        };
        match kept {
            Some(value) => replace(param, value.to_device(&device).cast(dtype)),
            None => param.map(|tensor| lower(tensor, dtype)),
        }
    }
}

/// Takes every parameter's present value as the one to keep.
pub(crate) struct Adopt<'a, B: AutodiffBackend> {
    pub weights: &'a mut Weights<B::InnerBackend>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Adopt<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val().inner();
        let value = match HalfDType::of(value.dtype()) {
            Some(_) => value.cast(FloatDType::F32),
            None => value,
        };
        self.weights.set(param.id, value);
    }
}
