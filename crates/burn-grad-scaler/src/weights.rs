//! Parameters in full precision, and the way between them and a half model.

use std::collections::{HashMap, HashSet};

use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Element, FloatDType, Tensor, TensorData, TensorPrimitive};
use burn_mixed_precision::{Amp, HalfDType, OptLevel, RUNNING_STATISTICS};

use crate::stochastic;

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
    /// Parameters whose kept value was chosen, and is not (yet) what the model's was rounded from.
    chosen: HashSet<ParamId>,
}

impl<B: Backend> Default for Weights<B> {
    fn default() -> Self {
        Weights {
            values: HashMap::new(),
            loaded: HashMap::new(),
            chosen: HashSet::new(),
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
        self.chosen.remove(&id);
        let TensorPrimitive::Float(value) = value.into_primitive() else {
            return; // Quantized parameters are not trained.
        };
        self.values.insert(id, value);
    }

    /// Keeps a value that wins over the model's at the next step.
    pub fn choose<const D: usize>(&mut self, id: ParamId, value: Tensor<B, D>) {
        self.set(id, value);
        self.chosen.insert(id);
    }

    /// The f32 master of a half parameter with this present value, if it has one.
    ///
    /// Element by element, where the master still rounds to it: an element that was changed in the
    /// model since the last step, by clamping or by a record, goes on from there.
    pub fn master<const D: usize>(
        &self,
        id: ParamId,
        present: Tensor<B, D>,
    ) -> Option<Tensor<B, D>> {
        let master = self.get::<D>(id)?.to_device(&present.device());
        if self.chosen.contains(&id) {
            return Some(master);
        }
        let is_half = HalfDType::of(master.dtype()).is_some();
        if is_half || master.shape() != present.shape() {
            return None;
        }
        let rounded: FloatDType = present.dtype().into();
        let unchanged = master.clone().cast(rounded).equal(present.clone());
        Some(present.cast(FloatDType::F32).mask_where(unchanged, master))
    }

    /// The value that a record has for this parameter, f32 or f64, on its device.
    ///
    /// # Panics
    ///
    /// If the parameter has another shape.
    pub fn loaded<const D: usize>(
        &self,
        id: ParamId,
        present: &Tensor<B, D>,
    ) -> Option<Tensor<B, D>> {
        let data = self.loaded.get(&id)?.clone();
        assert!(
            data.shape == present.shape(),
            "the optimizer's record has shape {} for parameter {id}, the model has {}: load the \
             records of one model",
            data.shape,
            present.shape()
        );
        // Its own dtype, f32 or f64: the default float of the backend may be half.
        let dtype = data.dtype;
        Some(Tensor::from_data(data, (&present.device(), dtype)))
    }

    pub fn load(&mut self, values: impl IntoIterator<Item = (ParamId, TensorData)>) {
        self.values.clear();
        self.chosen.clear();
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

/// Gives an optimizer a module in full precision: saved values for parameters whose record was just
/// loaded, masters for half parameters, and without masters the half values widened. So the
/// optimizer's arithmetic and state are f32 at every level: Adam's eps of 1e-8 is 0 in f16.
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
///
/// O0 leaves a model that is half by hand as it is.
fn model_dtype(amp: &Amp, containers: &[String], current: DType) -> FloatDType {
    match (amp.parameter_dtype(containers), current) {
        (_, DType::F64) | (None, _) => current.into(),
        _ if is_o0(amp) => current.into(),
        (Some(dtype), _) => dtype,
    }
}

fn is_o0(amp: &Amp) -> bool {
    amp.config().opt_level() == OptLevel::O0
}

/// Puts another value into a parameter, a leaf as the old one was.
fn replace<B: AutodiffBackend, const D: usize>(
    param: Param<Tensor<B, D>>,
    value: Tensor<B::InnerBackend, D>,
) -> Param<Tensor<B, D>> {
    let id = param.id;
    param.map(|old| leaf_like(id, &old, value))
}

/// A new leaf in the place of an old one: tracked as that was, and marked as that was for Burn's
/// data-parallel training, which would leave the gradient of an unmarked parameter to each device.
fn leaf_like<B: AutodiffBackend, const D: usize>(
    id: ParamId,
    old: &Tensor<B, D>,
    value: Tensor<B::InnerBackend, D>,
) -> Tensor<B, D> {
    let leaf = Tensor::from_inner(value).set_require_grad(old.is_require_grad());
    #[cfg(feature = "distributed")]
    if old.is_distributed() {
        return leaf.set_distributed(id.val().into());
    }
    let _ = id;
    leaf
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
        let present = param.val().inner();
        let current = present.dtype();
        let dtype = model_dtype(self.amp, &self.containers, current);
        self.lowers_to.insert(id, dtype);
        let half = HalfDType::of(current).is_some();
        let masters = self.amp.config().master_weights();
        let kept = match self.weights.loaded::<D>(id, &present) {
            None if half && masters => self.weights.master(id, present),
            loaded => loaded,
        };
        match kept {
            Some(kept) => replace(param, kept),
            None if half && !is_o0(self.amp) => {
                param.map(|tensor| cast_leaf(id, tensor, FloatDType::F32))
            }
            // An f32 value, also where a half one belongs: fresh from outside, its own master.
            None => param,
        }
    }
}

fn cast_leaf<B: AutodiffBackend, const D: usize>(
    id: ParamId,
    tensor: Tensor<B, D>,
    dtype: FloatDType,
) -> Tensor<B, D> {
    if tensor.dtype() == DType::from(dtype) {
        return tensor;
    }
    let value = tensor.clone().inner().cast(dtype);
    leaf_like(id, &tensor, value)
}

/// Takes the stepped module apart again: values to keep, parameters in the model's dtypes.
pub(crate) struct Lower<'a, B: AutodiffBackend> {
    pub weights: &'a mut Weights<B::InnerBackend>,
    pub lowers_to: &'a HashMap<ParamId, FloatDType>,
    pub masters: bool,
    /// Rounds at random what goes to half.
    pub stochastic: bool,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Lower<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(dtype) = self.lowers_to.get(&param.id) else {
            return param;
        };
        let stepped = param.val().inner();
        let param = match HalfDType::of((*dtype).into()) {
            Some(half) if self.stochastic && stepped.dtype() == DType::F32 => {
                replace(param, stochastic::round(stepped.clone(), half))
            }
            _ => {
                let id = param.id;
                param.map(|tensor| cast_leaf(id, tensor, *dtype))
            }
        };
        // Without masters the model's value is all that is left of the step.
        let kept = match self.masters {
            true => stepped,
            false => param.val().inner(),
        };
        self.weights.set(param.id, kept);
        param
    }
}

/// Brings gradients to the dtypes of the lifted parameters, clipped.
pub(crate) struct Fit<'a, B: AutodiffBackend> {
    pub grads: &'a mut GradientsParams,
    pub factor: f64,
    /// Tied parameters have one id in several places, and one gradient.
    pub fitted: HashSet<ParamId>,
    pub backend: core::marker::PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Fit<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.fitted.insert(param.id) {
            return;
        }
        let Some(grad) = self.grads.remove::<B::InnerBackend, D>(param.id) else {
            return;
        };
        let dtype = param.val().dtype();
        let grad = match grad.dtype() == dtype {
            true => grad,
            false => grad.cast(dtype),
        };
        let grad = match self.factor {
            1.0 => grad,
            factor => grad.mul_scalar(factor),
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
    /// The structs around the parameter, and the fields that lead to it.
    pub path: Vec<(String, String)>,
}

impl<B: AutodiffBackend> Restore<'_, B> {
    fn dtype(&self, current: DType) -> FloatDType {
        let field = self.path.last().map(|(_, field)| field.as_str());
        let is_statistic = RUNNING_STATISTICS
            .iter()
            .any(|(name, _)| Some(*name) == field);
        let containers: Vec<String> = self.path.iter().map(|(c, _)| c.clone()).collect();
        match self.full {
            _ if is_statistic || current == DType::F64 => current.into(),
            true => FloatDType::F32,
            false => model_dtype(self.amp, &containers, current),
        }
    }
}

impl<B: AutodiffBackend> ModuleMapper<B> for Restore<'_, B> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path
            .push((container_type.to_string(), name.to_string()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let device = param.val().device();
        let present = param.val().inner();
        let half = HalfDType::of(present.dtype()).is_some();
        let kept = match (self.weights.loaded::<D>(param.id, &present), self.full) {
            (None, true) if half => self.weights.master(param.id, present),
            (None, false) => self.weights.get(param.id),
            (loaded, _) => loaded,
        };
        let dtype = self.dtype(param.val().dtype());
        match kept {
            Some(value) => replace(param, value.to_device(&device).cast(dtype)),
            None => {
                let id = param.id;
                param.map(|tensor| cast_leaf(id, tensor, dtype))
            }
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
        self.weights.choose(param.id, value);
    }
}
