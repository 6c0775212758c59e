//! What the Learner does with a batch, written as for any backend: nothing here knows of precision.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

use crate::classification::loss;
use crate::loading::Batch;
use crate::model::Cnn;

fn classify<B: Backend>(model: &Cnn<B>, batch: Batch<B>) -> ClassificationOutput<B> {
    let logits = model.forward(batch.images);
    let loss = loss(logits.clone(), batch.labels.clone());
    ClassificationOutput::new(loss, logits, batch.labels)
}

impl<B: AutodiffBackend> TrainStep for Cnn<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let item = classify(self, batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl<B: Backend> InferenceStep for Cnn<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        classify(self, batch)
    }
}
