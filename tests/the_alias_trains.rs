//! `AmpBackend<B>` is one type to name, and trains, validates and resumes as the decorator alone.

#[path = "support/models.rs"]
mod models;
mod support;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use burn_amp::{
    Amp, AmpBackend, AmpConfig, AmpOptimizer, AmpRecord, ConvBackward, FastBackward,
    MixedPrecision, OptLevel,
};
use models::{Cnn, Trainable, wave};
use support::net::{bits, fixed};
use support::{Bare, Mixed};

type Fast = AmpBackend<Bare>;
type Adaptor<B> = OptimizerAdaptor<Adam, Cnn<B>, B>;
type Optim<B> = AmpOptimizer<Adaptor<B>, B>;

const LEVELS: [OptLevel; 2] = [OptLevel::O1, OptLevel::O2];

fn settings(level: OptLevel, backward: ConvBackward) -> Amp {
    AmpConfig::new(level)
        .with_conv_backward(backward)
        .build()
        .unwrap()
}

struct Run<B: AutodiffBackend> {
    model: Cnn<B>,
    optim: Optim<B>,
    losses: Vec<f32>,
}

impl<B: AutodiffBackend> Run<B> {
    fn new(amp: &Amp) -> Self {
        Run {
            model: amp.cast_model(fixed(Cnn::new())),
            optim: AmpOptimizer::new(AdamConfig::new().init(), amp),
            losses: Vec::new(),
        }
    }

    /// Steps on the same batch; inputs at O2 are widened by the model's first operation.
    fn steps(mut self, count: usize) -> Self {
        for _ in 0..count {
            let loss = self.model.loss(0);
            let value = loss.to_data().convert::<f32>();
            self.losses.push(value.to_vec().unwrap()[0]);
            let grads = GradientsParams::from_grads(loss.backward(), &self.model);
            self.model = self.optim.step(3e-2, self.model, grads);
        }
        self
    }
}

#[test]
fn the_loss_falls_as_without_the_inner_decorator() {
    for level in LEVELS {
        let fast = settings(level, ConvBackward::Im2col);
        let fast = fast.scope(|| Run::<Fast>::new(&fast).steps(40).losses);
        let plain = settings(level, ConvBackward::Fastest);
        let plain = plain.scope(|| Run::<Mixed>::new(&plain).steps(40).losses);
        assert!(fast[39] < 0.5 * fast[0], "{level}: {fast:?}");
        assert_eq!(fast[0], plain[0], "{level}: forward is the same");
        assert_ne!(fast, plain, "{level}: the gradients came from one kernel");
        // The first gradients differ by roundings; a step of Adam moves by its sign.
        assert!((fast[1] - plain[1]).abs() < 0.02 * plain[1], "{level}");
    }
}

#[test]
fn with_both_inner_positions_off_the_run_is_the_same_bit_by_bit() {
    for level in LEVELS {
        let amp = AmpConfig::new(level)
            .with_conv_backward(ConvBackward::Kernel)
            .with_lean_backward(false)
            .build()
            .unwrap();
        amp.scope(|| {
            let fast = Run::<Fast>::new(&amp).steps(5);
            let plain = Run::<Mixed>::new(&amp).steps(5);
            assert_eq!(fast.losses, plain.losses);
            let values = |of: Vec<(_, TensorData)>| of.into_iter().map(|(_, data)| data);
            assert!(
                values(bits::<Fast, _>(&fast.model)).eq(values(bits::<Mixed, _>(&plain.model)))
            );
        });
    }
}

#[test]
fn a_run_resumes_exactly() {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let device = Default::default();
    for level in LEVELS {
        let amp = settings(level, ConvBackward::Im2col);
        amp.scope(|| {
            let straight = Run::<Fast>::new(&amp).steps(6);
            let half_way = Run::<Fast>::new(&amp).steps(3);
            let optim = Optimizer::<Cnn<Fast>, Fast>::to_record(&half_way.optim);
            let optim = Recorder::<Fast>::record(&recorder, optim, ()).unwrap();
            let model = half_way.model.into_record();
            let model = Recorder::<Fast>::record(&recorder, model, ()).unwrap();

            let fresh = Run::<Fast>::new(&amp);
            let record: AmpRecord<<Adaptor<Fast> as Optimizer<Cnn<Fast>, Fast>>::Record> =
                Recorder::<Fast>::load(&recorder, optim, &device).unwrap();
            let resumed = Run {
                model: fresh
                    .model
                    .load_record(recorder.load(model, &device).unwrap()),
                optim: Optimizer::<Cnn<Fast>, Fast>::load_record(fresh.optim, record),
                losses: Vec::new(),
            };
            let resumed = resumed.steps(3);
            assert_eq!(resumed.losses, straight.losses[3..], "{level}");
            let values = |of: Vec<(_, TensorData)>| of.into_iter().map(|(_, data)| data);
            assert!(
                values(bits::<Fast, _>(&resumed.model))
                    .eq(values(bits::<Fast, _>(&straight.model)))
            );
        });
    }
}

fn layer<B: AutodiffBackend>() -> Conv2d<B> {
    fixed(Conv2dConfig::new([3, 4], [3, 3]).init(&Default::default()))
}

#[test]
fn validation_runs_on_the_backend_without_autodiff() {
    type Valid = MixedPrecision<FastBackward<Bare>>;
    settings(OptLevel::O1, ConvBackward::Im2col).scope(|| {
        let layer = layer::<Fast>();
        let x = wave::<Fast, 4>([2, 3, 6, 6], 0);
        let valid: Conv2d<Valid> = layer.valid();
        let output = valid.forward(x.clone().inner()).into_data();
        assert_eq!(output, layer.forward(x).into_data());
    });
}

#[test]
fn a_checkpointing_strategy_can_be_named() {
    type Checkpointed = AmpBackend<Bare, BalancedCheckpointing>;
    fn gradient<B: AutodiffBackend>() -> TensorData {
        let layer = layer::<B>();
        let output = layer.forward(wave([2, 3, 6, 6], 0));
        let grads = output.powi_scalar(2).sum().backward();
        layer.weight.grad(&grads).unwrap().into_data()
    }
    settings(OptLevel::O1, ConvBackward::Im2col)
        .scope(|| assert_eq!(gradient::<Checkpointed>(), gradient::<Fast>()));
}

/// A weight that is used twice gets the sum of a product's gradient and a kernel's.
#[test]
fn a_shared_weight_gets_the_gradients_of_both_uses() {
    fn gradient<B: AutodiffBackend>() -> Vec<f32> {
        let layer = layer::<B>();
        let weight = Param::from_tensor(layer.weight.val());
        let once = layer.forward(wave([2, 3, 6, 6], 0)).sum();
        let twice = layer.forward(wave([2, 3, 6, 6], 1)).sum() + weight.val().sum();
        let grads = (once + twice).backward();
        let gradient: Tensor<B::InnerBackend, 4> = layer.weight.grad(&grads).unwrap();
        gradient.into_data().to_vec().unwrap()
    }
    let of = |backward| settings(OptLevel::O1, backward).scope(gradient::<Fast>);
    let plain = settings(OptLevel::O0, ConvBackward::Kernel).scope(gradient::<Autodiff<Bare>>);
    for backward in [ConvBackward::Im2col, ConvBackward::Kernel] {
        for (value, plain) in of(backward).iter().zip(&plain) {
            // 64 terms below 1, each operand rounded to f16.
            assert!(
                (value - plain).abs() <= 64.0 * 3.0 / 2048.0,
                "{backward:?}: {value} {plain}"
            );
        }
    }
}
