use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn_backend::{Backend, DType};
use burn_mixed_precision::{Amp, RUNNING_STATISTICS};

/// The structs around each parameter of a model, which decide its dtype at O2 and O3.
#[derive(Debug, Default)]
pub(crate) struct ParameterPlaces {
    containers: HashMap<String, Vec<String>>,
}

impl ParameterPlaces {
    pub(crate) fn of<B: Backend, M: Module<B>>(model: &M) -> Self {
        let mut visit = Visit::default();
        model.visit(&mut visit);
        visit.places
    }

    /// The dtype that [`Amp::cast_model`] gives an f32 parameter.
    pub(crate) fn dtype(&self, path: &str, amp: &Amp) -> DType {
        let field = path.rsplit('.').next().unwrap_or(path);
        let is_statistic = RUNNING_STATISTICS.iter().any(|(name, _)| *name == field);
        self.containers
            .get(path)
            .filter(|_| !is_statistic)
            .and_then(|containers| amp.parameter_dtype(containers))
            .map_or(DType::F32, DType::from)
    }
}

#[derive(Default)]
struct Visit {
    fields: Vec<String>,
    containers: Vec<String>,
    places: ParameterPlaces,
}

impl<B: Backend> ModuleVisitor<B> for Visit {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.fields.push(name.to_string());
        self.containers.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.fields.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<B, D>>) {
        let path = self.fields.join(".");
        self.places.containers.insert(path, self.containers.clone());
    }
}
