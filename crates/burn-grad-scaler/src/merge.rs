//! Gradients of several devices, summed and put back where Burn's optimizers look for them.

use std::collections::HashMap;

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, MultiGradientsParams};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, DeviceId, DeviceOps};

/// The device on which each parameter's sum lies.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    of: HashMap<ParamId, DeviceId>,
}

/// Sums the gradients of each parameter on the device that Burn's sharded optimizer steps it on.
pub(crate) fn merge<B: AutodiffBackend, M: AutodiffModule<B>>(
    mut grads: MultiGradientsParams,
    module: &M,
) -> (GradientsParams, Devices) {
    let mut merge = Merge {
        from: &mut grads,
        into: GradientsParams::new(),
        devices: Devices::default(),
    };
    module.visit(&mut merge);
    (merge.into, merge.devices)
}

struct Merge<'a> {
    from: &'a mut MultiGradientsParams,
    into: GradientsParams,
    devices: Devices,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Merge<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some((grad, device)) = self.from.remove::<B::InnerBackend, D>(param.id) {
            self.devices.of.insert(param.id, device.id());
            self.into.register::<B::InnerBackend, D>(param.id, grad);
        }
    }
}

impl Devices {
    /// One set of gradients per device again, each gradient in the set of its device only.
    pub fn scatter<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        grads: GradientsParams,
        module: &M,
    ) -> MultiGradientsParams {
        let mut scatter = Scatter {
            from: grads,
            into: MultiGradientsParams::default(),
            devices: self,
        };
        module.visit(&mut scatter);
        scatter.into
    }
}

struct Scatter<'a> {
    from: GradientsParams,
    into: MultiGradientsParams,
    devices: &'a Devices,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Scatter<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.from.remove::<B::InnerBackend, D>(param.id) else {
            return;
        };
        let device = self.devices.of[&param.id];
        let sets = &mut self.into.grads;
        let set = match sets.iter().position(|(_, id)| *id == device) {
            Some(set) => set,
            None => {
                sets.push((GradientsParams::new(), device));
                sets.len() - 1
            }
        };
        sets[set].0.register::<B::InnerBackend, D>(param.id, grad);
    }
}
