use core::any::Any;
use core::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn_backend::Backend;

use crate::tensor::MixedTensor;

/// The paths of a model's parameters, found again by the cast slot that a parameter shares with every
/// clone of its tensor.
#[derive(Default)]
pub(crate) struct Names {
    /// The weak reference keeps the address from being given to another slot.
    by_slot: HashMap<usize, (Weak<dyn Any + Send + Sync>, Arc<str>)>,
}

thread_local! {
    /// The names that are being taken, and the path of the parameter that is being visited.
    static TAKING: RefCell<Option<(Names, String)>> = const { RefCell::new(None) };
}

impl Names {
    /// The names of a model, which hold until its parameters are updated; none on a backend that is
    /// not decorated.
    pub(crate) fn of<B: Backend, M: Module<B>>(model: &M) -> Self {
        TAKING.set(Some(Default::default()));
        model.visit(&mut Visit { path: Vec::new() });
        TAKING.take().map(|(names, _)| names).unwrap_or_default()
    }

    /// The path of a parameter, if this tensor is one.
    pub(super) fn get<B: Backend>(&self, tensor: &MixedTensor<B>) -> Option<Arc<str>> {
        let slot = tensor.slot()?;
        let (_, path) = self.by_slot.get(&address(&slot))?;
        Some(path.clone())
    }
}

/// Takes down the name of a parameter that is being visited.
///
/// The visitor knows any backend, and reaches the decorator by an operation that takes the tensor as it
/// is: a question that `MixedPrecision` answers here by the way.
pub(crate) fn name<B: Backend>(tensor: &MixedTensor<B>) {
    TAKING.with_borrow_mut(|taking| {
        if let (Some((names, path)), Some(slot)) = (taking, tensor.slot()) {
            let named = (Arc::downgrade(&slot), path.as_str().into());
            names.by_slot.insert(address(&slot), named);
        }
    });
}

fn address(slot: &Arc<dyn Any + Send + Sync>) -> usize {
    Arc::as_ptr(slot).cast::<()>() as usize
}

struct Visit {
    path: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Visit {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        TAKING.with_borrow_mut(|taking| {
            if let Some((_, path)) = taking {
                *path = self.path.join(".");
            }
        });
        // Asked for the sake of `name`, which is on its way.
        let _ = tensor.is_require_grad();
    }
}
