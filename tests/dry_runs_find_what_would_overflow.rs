//! A dry run in f32 says at which level, in which dtype and in which operation of which module a model
//! would overflow or vanish, and finds nothing in models that train.

#[path = "support/models.rs"]
mod models;
mod support;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn_amp::{
    AmpBackend, AmpConfig, CastRule, DryRun, Fault, HalfDType, Op, OptLevel, Prediction,
};

use models::{Cnn, Mlp, Reader, Trainable, Transformer};
use support::{Bare, HALVES, Mixed};

type B = AmpBackend<Bare>;

const LEVELS: [OptLevel; 3] = [OptLevel::O1, OptLevel::O2, OptLevel::O3];

#[derive(Module, Debug)]
struct Net<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    head: Linear<B>,
}

/// A layer all of whose weights are one number.
fn layer<B: Backend>(inputs: usize, outputs: usize, weight: f64) -> Linear<B> {
    LinearConfig::new(inputs, outputs)
        .with_bias(false)
        .with_initializer(burn::nn::Initializer::Constant { value: weight })
        .init(&Default::default())
}

impl<B: Backend> Net<B> {
    /// The hidden activations are 8 times `first`, then 64 * `first * second`, then `64 * head` of that.
    fn new(first: f64, second: f64, head: f64) -> Self {
        Net {
            first: layer(8, 8, first),
            second: layer(8, 8, second),
            head: layer(8, 2, head),
        }
    }

    fn loss(&self) -> Tensor<B, 1> {
        let x = Tensor::<B, 2>::ones([4, 8], &Default::default());
        let x = relu(self.first.forward(x));
        let x = relu(self.second.forward(x));
        self.head.forward(x).mean()
    }
}

/// Whether it finds this fault in this operation of this module.
fn finds(prediction: &Prediction, fault: Fault, op: &str, path: &str) -> bool {
    let is = |risk: &burn_amp::Risk| (risk.fault, risk.op, risk.place.path()) == (fault, op, path);
    prediction.risks.iter().any(is)
}

#[test]
fn a_checkpoint_with_activations_beyond_65504_overflows_at_every_level_in_f16_alone() {
    // 800, then 640,000, then 5.12.
    let net = Net::<B>::new(100.0, 100.0, 1e-6);
    let run = DryRun::of(&net, Net::loss);
    assert!(run.is_finite() && run.saw_gradients());
    for level in LEVELS {
        let f16 = run.at(level, HalfDType::F16);
        assert!(finds(&f16, Fault::Overflows, "linear", "second"), "{f16}");
        assert!(!finds(&f16, Fault::Overflows, "linear", "first"), "{f16}");
        let bf16 = run.at(level, HalfDType::Bf16);
        assert!(bf16.risks.is_empty(), "{bf16}");
    }
    let full = run.at(OptLevel::O0, HalfDType::F16);
    assert!(full.risks.is_empty(), "{full}");
    let text = run.to_string();
    for part in [
        "O0: fits",
        "O1 in bf16: fits",
        "linear of second: its output reaches 2^19, 100.0% of it is infinite in f16",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(run.levels().len(), 7);
    let json: serde_json::Value = serde_json::from_str(&run.to_json()).unwrap();
    assert_eq!(json[1]["level"], "O1");
    assert_eq!(json[1]["risks"][0]["place"], "second");
}

#[test]
fn what_the_dry_run_finds_happens() {
    let run = DryRun::of(&Net::<B>::new(100.0, 100.0, 1e-6), Net::loss);
    for (half, overflows) in HALVES.into_iter().zip([true, false]) {
        let amp = support::amp(OptLevel::O1, half);
        let loss = amp.scope(|| {
            let output = Net::<B>::new(100.0, 100.0, 1e-6);
            output.loss().into_data().iter::<f32>().next().unwrap()
        });
        assert_eq!(!loss.is_finite(), overflows, "{half}");
        assert_eq!(!run.at(OptLevel::O1, half).risks.is_empty(), overflows);
    }
}

#[test]
fn an_override_that_takes_the_operation_out_of_half_ends_the_risk() {
    let run = DryRun::of(&Net::<B>::new(100.0, 100.0, 1e-6), Net::loss);
    let amp = AmpConfig::new(OptLevel::O1)
        .with_rule(Op::Linear, CastRule::Full)
        .build()
        .unwrap();
    let prediction = run.under(&amp);
    assert!(
        !finds(&prediction, Fault::Overflows, "linear", "second"),
        "{prediction}"
    );
}

#[test]
fn weights_that_half_flushes_are_named_where_the_level_rounds_them() {
    let run = DryRun::of(&Net::<B>::new(1.0, 1e-9, 1e3), Net::loss);
    for level in LEVELS {
        let f16 = run.at(level, HalfDType::F16);
        let weight = f16
            .risks
            .iter()
            .find(|risk| risk.parameter.as_deref() == Some("second.weight"));
        let weight = weight.unwrap_or_else(|| panic!("{f16}"));
        assert_eq!((weight.fault, weight.share), (Fault::CastLosesDigits, 1.0));
        let bf16 = run.at(level, HalfDType::Bf16);
        assert!(bf16.risks.is_empty(), "{bf16}");
    }
}

#[test]
fn gradients_that_no_loss_scale_saves_are_found_and_those_that_one_saves_are_not() {
    // The gradient of the head's output is 1/8 of the factor.
    let of = |factor: f32| {
        let net = Net::<B>::new(0.1, 0.1, 0.1);
        DryRun::of(&net, |net| net.loss() * factor)
    };
    let run = of(1e-6);
    let o1 = run.at(OptLevel::O1, HalfDType::F16);
    assert!(o1.risks.is_empty(), "{o1}");
    assert!(!o1.gradient_scales.unwrap().contains(1.0));
    // O3 has no loss scale.
    let o3 = run.at(OptLevel::O3, HalfDType::F16);
    assert!(
        finds(&o3, Fault::GradientVanishes, "linear", "head"),
        "{o3}"
    );
    // Beyond the cap of the dynamic scale.
    let o1 = of(1e-14).at(OptLevel::O1, HalfDType::F16);
    assert!(
        finds(&o1, Fault::GradientVanishes, "linear", "head"),
        "{o1}"
    );
    let bf16 = of(1e-14).at(OptLevel::O1, HalfDType::Bf16);
    assert!(bf16.risks.is_empty(), "{bf16}");
}

#[test]
fn models_that_train_have_no_risk_at_o1() {
    fn check<M: Trainable<B>>(name: &str) {
        let run = DryRun::of(&support::net::fixed(M::new()), |model| model.loss(0));
        for half in HALVES {
            let prediction = run.at(OptLevel::O1, half);
            assert!(prediction.risks.is_empty(), "{name}: {prediction}");
        }
    }
    check::<Mlp<B>>("mlp");
    check::<Cnn<B>>("cnn");
    check::<Transformer<B>>("transformer");
    check::<Reader<B>>("reader");
}

#[test]
fn a_dry_run_changes_no_weight_and_without_the_inner_position_sees_forward() {
    let net = Net::<Mixed>::new(100.0, 100.0, 1e-6);
    let weight = |net: &Net<Mixed>| net.second.weight.val().into_data();
    let before = weight(&net);
    let run = DryRun::of(&net, Net::loss);
    assert_eq!(weight(&net), before);
    assert!(!run.saw_gradients());
    let f16 = run.at(OptLevel::O1, HalfDType::F16);
    assert!(finds(&f16, Fault::Overflows, "linear", "second"), "{f16}");
}
