use core::fmt;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Int, Tensor};

use crate::classification::loss;
use crate::model::Cnn;

/// The dtypes of a model's tensors, read off the tensors of one more forward and backward pass.
#[derive(Debug, Default)]
pub struct Dtypes {
    /// Parameters and running statistics.
    pub weights: ByLayer,
    /// The output of each layer.
    pub activations: ByLayer,
    pub gradients: ByLayer,
}

impl Dtypes {
    /// Runs the model on a batch, in training mode, and looks.
    pub fn of<B: AutodiffBackend>(
        model: &Cnn<B>,
        images: Tensor<B, 4>,
        labels: Tensor<B, 1, Int>,
    ) -> Dtypes {
        let mut dtypes = Dtypes::default();
        let logits = model.forward_watched(images, |layer, dtype| {
            dtypes.activations.add(layer, dtype);
        });
        let loss = loss(logits, labels);
        dtypes.activations.add("loss", loss.dtype());
        let mut parameters = Parameters {
            layer: Vec::new(),
            grads: GradientsParams::from_grads(loss.backward(), model),
            dtypes: &mut dtypes,
        };
        model.visit(&mut parameters);
        dtypes
    }
}

/// The layers of each dtype.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ByLayer(Vec<(DType, Vec<String>)>);

impl ByLayer {
    fn add(&mut self, layer: &str, dtype: DType) {
        let known = self.0.iter().position(|(known, _)| *known == dtype);
        let at = known.unwrap_or_else(|| {
            self.0.push((dtype, Vec::new()));
            self.0.len() - 1
        });
        let layers = &mut self.0[at].1;
        if !layers.iter().any(|known| known == layer) {
            layers.push(layer.to_string());
        }
    }
}

impl fmt::Display for ByLayer {
    /// `f16 (conv1, conv2), f32 (norm1)`; only the dtype where there is only one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(dtype, _)] = &*self.0 {
            return f.pad(dtype.name());
        }
        for (at, (dtype, layers)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({})", dtype.name(), layers.join(", "))?;
        }
        Ok(())
    }
}

/// Walks a model's parameters, each beside its gradient.
struct Parameters<'a> {
    layer: Vec<String>,
    grads: GradientsParams,
    dtypes: &'a mut Dtypes,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Parameters<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.layer.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.layer.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let layer = self.layer.first().map_or("", String::as_str);
        self.dtypes.weights.add(layer, param.val().dtype());
        if let Some(grad) = self.grads.get::<B::InnerBackend, D>(param.id) {
            self.dtypes.gradients.add(layer, grad.dtype());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_grouped_by_dtype() {
        let mut by_layer = ByLayer::default();
        by_layer.add("conv", DType::F16);
        assert_eq!(by_layer.to_string(), "f16");
        by_layer.add("norm", DType::F32);
        by_layer.add("norm", DType::F32);
        by_layer.add("linear", DType::F16);
        assert_eq!(by_layer.to_string(), "f16 (conv, linear), f32 (norm)");
    }
}
