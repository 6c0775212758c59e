//! BatchNorm's running statistics: what forward changes although the step may be skipped.

use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use burn_mixed_precision::RUNNING_STATISTICS;

use crate::weights::Weights;

/// The initial value of the statistic at this path of field names, if it is one.
fn initial(path: &[String]) -> Option<f64> {
    let field = path.last()?;
    let found = RUNNING_STATISTICS.iter().find(|(name, _)| name == field);
    found.map(|(_, value)| *value)
}

/// Keeps the present statistics of a module, to return to if the next step is skipped.
pub(crate) fn keep<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    weights: &mut Weights<B::InnerBackend>,
) {
    if has_any(module) {
        settle(module);
        module.visit(&mut Keep::<B> {
            weights,
            all: true,
            path: Vec::new(),
        });
    }
}

/// Returns a module to the statistics that were kept.
///
/// Before the first applied step none were. Then the statistics without the notes of the last
/// forward are taken, which for a step of one forward is what they were before it; elements that
/// are not finite even so return to Burn's initial value.
pub(crate) fn roll_back<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: M,
    weights: &mut Weights<B::InnerBackend>,
) -> M {
    if !has_any(&module) {
        return module;
    }
    module.visit(&mut Keep::<B> {
        weights,
        all: false,
        path: Vec::new(),
    });
    settle(&module);
    module.map(&mut RollBack::<B> {
        weights,
        path: Vec::new(),
    })
}

fn has_any<B: AutodiffBackend, M: AutodiffModule<B>>(module: &M) -> bool {
    let mut find = Find::default();
    module.visit(&mut find);
    find.found
}

/// Folds what forward has noted into the statistics.
///
/// Burn notes a thread's update apart and folds it in at the next forward: a note of a step that did
/// not happen would come in late. `valid` is the one call that folds it in on any module.
fn settle<B: AutodiffBackend, M: AutodiffModule<B>>(module: &M) {
    drop(module.valid());
}

#[derive(Default)]
struct Find {
    found: bool,
}

impl<B: Backend> ModuleVisitor<B> for Find {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.found |= RUNNING_STATISTICS.iter().any(|(field, _)| *field == name);
    }
}

struct Keep<'a, B: AutodiffBackend> {
    weights: &'a mut Weights<B::InnerBackend>,
    /// Or only those that have no kept value.
    all: bool,
    path: Vec<String>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Keep<'_, B> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let known = || self.weights.knows(param.id);
        if initial(&self.path).is_some() && (self.all || !known()) {
            self.weights.set(param.id, param.val().inner());
        }
    }
}

struct RollBack<'a, B: AutodiffBackend> {
    weights: &'a Weights<B::InnerBackend>,
    path: Vec<String>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for RollBack<'_, B> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(initial) = initial(&self.path) else {
            return param;
        };
        let present = param.val().inner();
        let device = present.device();
        let kept = self
            .weights
            .get::<D>(param.id)
            .or_else(|| self.weights.loaded::<D>(param.id, &present));
        param.map(|present| {
            let kept = kept.map_or(present, |kept| Tensor::from_inner(kept.to_device(&device)));
            let not_finite = kept.clone().is_finite().bool_not();
            kept.mask_fill(not_finite, initial)
        })
    }
}
