//! A classifier as in Burn's examples: nothing here knows of mixed precision.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, Relu};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor, TensorData};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use burn_amp::{Amp, NumericsMonitor};

use crate::data::{Batch, CLASSES, FEATURES};
use crate::support::Mixed;

#[derive(Module, Debug)]
pub struct Net<B: Backend> {
    first: Linear<B>,
    norm: BatchNorm<B>,
    last: Linear<B>,
    activation: Relu,
    #[module(skip)]
    numerics: Option<NumericsMonitor>,
}

impl<B: Backend> Net<B> {
    pub fn new(device: &B::Device) -> Self {
        Net {
            first: LinearConfig::new(FEATURES, 16).init(device),
            norm: BatchNormConfig::new(16).init(device),
            last: LinearConfig::new(16, CLASSES).init(device),
            activation: Relu::new(),
            numerics: None,
        }
    }

    /// Its training steps are watched.
    pub fn watched(mut self, numerics: NumericsMonitor) -> Self {
        self.numerics = Some(numerics);
        self
    }

    fn forward(&self, features: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = self.norm.forward(self.first.forward(features));
        self.last.forward(self.activation.forward(x))
    }

    fn forward_classification(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        let output = self.forward(batch.features);
        let loss = CrossEntropyLossConfig::new()
            .init(&output.device())
            .forward(output.clone(), batch.classes.clone());
        ClassificationOutput::new(loss, output, batch.classes)
    }

    /// The dtypes of the linear layers' parameters and of the norm's.
    pub fn dtypes(&self) -> (Vec<DType>, Vec<DType>) {
        (
            [&self.first, &self.last]
                .into_iter()
                .flat_map(|l| {
                    [
                        Some(l.weight.val().dtype()),
                        l.bias.as_ref().map(|b| b.val().dtype()),
                    ]
                })
                .flatten()
                .collect(),
            vec![
                self.norm.gamma.val().dtype(),
                self.norm.beta.val().dtype(),
                self.norm.running_mean.value().dtype(),
                self.norm.running_var.value().dtype(),
            ],
        )
    }

    /// The ids of the parameters that are trained.
    pub fn trained(&self) -> Vec<ParamId> {
        let linear = [&self.first, &self.last];
        let linear = linear
            .into_iter()
            .flat_map(burn::module::list_param_ids::<_, B>);
        linear
            .chain([self.norm.gamma.id, self.norm.beta.id])
            .collect()
    }
}

impl<B: AutodiffBackend> TrainStep for Net<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let pass = || {
            let item = self.forward_classification(batch);
            TrainOutput::new(self, item.loss.backward(), item)
        };
        match &self.numerics {
            Some(numerics) => numerics.watch(pass),
            None => pass(),
        }
    }
}

impl<B: Backend> InferenceStep for Net<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        self.forward_classification(batch)
    }
}

/// One beginning for several runs: a clone would share its running statistics with the original.
pub struct Beginning(Net<Mixed>);

impl Beginning {
    pub fn random() -> Self {
        let model = Net::new(&Default::default());
        // Burn draws a parameter when it is first looked at, in each clone anew.
        bits::<Mixed, _>(&model);
        Beginning(model)
    }

    /// The ids of the parameters that are trained.
    pub fn trained(&self) -> Vec<ParamId> {
        self.0.trained()
    }

    pub fn model(&self, amp: &Amp) -> Net<Mixed> {
        let record = Module::<Mixed>::into_record(self.0.clone());
        amp.cast_model(Net::new(&Default::default()).load_record(record))
    }
}

/// Every float tensor of a model, as stored.
pub fn bits<B: Backend, M: Module<B>>(model: &M) -> Vec<(ParamId, TensorData)> {
    struct Read(Vec<(ParamId, TensorData)>);
    impl<B: Backend> ModuleVisitor<B> for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let data = burn_amp::scope::disabled(|| param.val().into_data());
            self.0.push((param.id, data));
        }
    }
    let mut read = Read(Vec::new());
    model.visit(&mut read);
    read.0
}
