use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use crate::data;
use crate::task::Task;

const WIDTH: usize = 4096;
const LAYERS: usize = 4;
const BATCH: usize = 4096;

/// Square linear layers with ReLU between them, trained to return their input.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: AutodiffBackend> Task<B> for Mlp<B> {
    type Batch = Tensor<B, 2>;

    fn new(device: &B::Device) -> Self {
        let layer = |_| LinearConfig::new(WIDTH, WIDTH).init(device);
        Mlp {
            layers: (0..LAYERS).map(layer).collect(),
        }
    }

    fn batch(device: &B::Device) -> Self::Batch {
        data::floats([BATCH, WIDTH], device)
    }

    fn loss(&self, batch: Self::Batch) -> Tensor<B, 1> {
        let (last, hidden) = self.layers.split_last().expect("there are layers");
        let x = hidden.iter().fold(batch.clone(), |x, layer| {
            Relu::new().forward(layer.forward(x))
        });
        MseLoss::new().forward(last.forward(x), batch, Reduction::Mean)
    }
}
