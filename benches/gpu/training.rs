//! A training run: the same steps whatever the backend, the level and the model.

use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use crate::Mode;
use crate::backend;
use crate::measure::{self, Sample};
use crate::task::Task;

const LEARNING_RATE: f64 = 1e-4;
const SEED: u64 = 42;

pub struct Training<B: AutodiffBackend, T: Task<B>, O> {
    pub device: B::Device,
    batch: T::Batch,
    /// Always there between steps; an optimizer takes a model by value.
    model: Option<T>,
    optim: O,
}

impl<B: AutodiffBackend, T: Task<B>, O: Optimizer<T, B>> Training<B, T, O> {
    pub fn forward(&self) -> Tensor<B, 1> {
        let model = self.model.as_ref().expect("a step gives the model back");
        model.loss(self.batch.clone())
    }

    /// Everything from the end of backward on: unscale, finite check and the optimizer's own step.
    pub fn update(&mut self, grads: B::Gradients) {
        let model = self.model.take().expect("a step gives the model back");
        let grads = GradientsParams::from_grads(grads, &model);
        self.model = Some(self.optim.step(LEARNING_RATE, model, grads));
    }

    pub fn step(&mut self) {
        let grads = self.forward().backward();
        self.update(grads);
    }

    pub fn sync(&self) {
        B::sync(&self.device).expect("the device runs what is queued");
    }
}

pub fn run<B, T, O>(new: impl FnOnce(&B::Device) -> T, optim: O, mode: Mode) -> Option<Sample>
where
    B: AutodiffBackend<Device = backend::Device>,
    T: Task<B>,
    O: Optimizer<T, B>,
{
    let device = backend::device();
    B::seed(&device, SEED);
    let mut training = Training {
        batch: T::batch(&device),
        model: Some(new(&device)),
        optim,
        device,
    };
    match mode {
        Mode::Measure => Some(measure::sample(&mut training)),
        Mode::Phases => {
            measure::print_phases(&mut training);
            None
        }
        Mode::Steps(steps) => {
            (0..steps).for_each(|_| training.step());
            training.sync();
            None
        }
    }
}
