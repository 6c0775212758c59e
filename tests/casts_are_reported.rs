//! The cast report counts what the decorator counts, says by whose rule, and finds tensors that bounce
//! between dtypes.

#[path = "support/models.rs"]
mod models;
mod support;

use burn::tensor::activation::softmax;
use burn::tensor::{DType, Tensor};
use burn_amp::observe::{self, Place};
use burn_amp::{
    AmpBackend, AmpConfig, CastEntry, CastReport, CastRule, HalfDType, Op, OptLevel, measure, scope,
};

use models::{Cnn, Mlp, Reader, Trainable, Transformer};
use support::{Bare, HALVES, amp};

type B = AmpBackend<Bare>;

fn square(value: f32) -> Tensor<B, 2> {
    Tensor::full([4, 4], value, &Default::default())
}

/// Two products with an exponential between them, each in a named block.
fn planted(x: &Tensor<B, 2>) -> Tensor<B, 2> {
    let y = scope::module("first", || x.clone().matmul(x.clone()));
    let y = scope::module("middle", || y.exp());
    scope::module("last", || y.matmul(x.clone()))
}

fn entry<'a>(report: &'a CastReport, op: &str, path: &str) -> &'a CastEntry {
    let is = |entry: &&CastEntry| (entry.op, entry.place.path()) == (op, path);
    report.casts.iter().find(is).expect("it casts")
}

#[test]
fn a_tensor_that_bounces_is_found_with_both_operations() {
    let x = square(0.1);
    let (_, report) = amp(OptLevel::O1, HalfDType::F16).scope(|| CastReport::of(|| planted(&x)));
    assert_eq!(report.bounces.len(), 1, "{report}");
    let bounce = &report.bounces[0];
    assert_eq!(
        (bounce.widened_by, bounce.widened_at.path()),
        ("float_exp", "middle")
    );
    assert_eq!(
        (bounce.rounded_by, bounce.rounded_at.path()),
        ("float_matmul", "last")
    );
    // 16 elements to f32 and back.
    assert_eq!(
        (bounce.times, bounce.bytes, bounce.half),
        (1, 64 + 32, DType::F16)
    );
    let text = report.to_string();
    let line = "f16 -> f32 in float_exp of middle -> f16 in float_matmul of last";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_bounce_is_followed_through_operations_that_stay_in_f32() {
    let x = square(0.1);
    let (_, report) = amp(OptLevel::O1, HalfDType::F16).scope(|| {
        CastReport::of(|| {
            let y = x.clone().matmul(x.clone()).exp() + 1.0;
            (y.transpose() * 2.0).matmul(x.clone())
        })
    });
    let bounce = &report.bounces[0];
    assert_eq!(
        (bounce.widened_by, bounce.rounded_by),
        ("float_exp", "float_matmul")
    );
}

#[test]
fn without_the_widening_rule_nothing_bounces() {
    let x = square(0.1);
    let config = AmpConfig::new(OptLevel::O1).with_rule(Op::FloatExp, CastRule::AsIs);
    let (_, report) = config
        .build()
        .unwrap()
        .scope(|| CastReport::of(|| planted(&x)));
    assert_eq!(report.bounces, [], "{report}");
    // A batch that is lowered and a softmax at the end: one way each.
    let (_, report) = amp(OptLevel::O1, HalfDType::F16)
        .scope(|| CastReport::of(|| softmax(x.clone().matmul(x.clone()), 1)));
    assert_eq!(report.bounces, [], "{report}");
}

#[test]
fn casts_are_told_by_operation_module_rule_and_dtypes() {
    let x = square(0.1);
    let (_, report) = amp(OptLevel::O1, HalfDType::F16).scope(|| CastReport::of(|| planted(&x)));
    assert_eq!(report.calls, 3);
    let exp = entry(&report, "float_exp", "middle");
    assert_eq!(
        (exp.rule, exp.from, exp.to),
        (CastRule::Full, DType::F16, DType::F32)
    );
    assert_eq!((exp.made, exp.saved, exp.bytes), (1, 0, 64));
    let first = entry(&report, "float_matmul", "first");
    assert_eq!(
        (first.rule, first.from, first.to),
        (CastRule::Lower, DType::F32, DType::F16)
    );
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["bounces"][0]["widened_by"], "float_exp");
    let casts = json["casts"].as_array().unwrap();
    assert!(
        casts
            .iter()
            .any(|cast| (&cast["op"], &cast["to"]) == (&"float_exp".into(), &"f32".into()))
    );
}

#[test]
fn a_cached_weight_is_counted_as_saved() {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    let layer: burn::nn::Linear<B> = burn::nn::LinearConfig::new(4, 4).init(&Default::default());
    let (_, report) = amp.scope(|| {
        CastReport::of(|| {
            observe::name_parameters(&layer);
            layer.forward(square(1.0));
            layer.forward(square(2.0))
        })
    });
    let places = report.casts.iter().map(|entry| &entry.place);
    assert!(
        places
            .into_iter()
            .all(|place| matches!(place, Place::Module(_))),
        "{report}"
    );
    // Weight and bias once, the batch twice.
    assert_eq!((report.made(), report.saved()), (4, 2), "{report}");
}

#[test]
fn the_report_counts_what_the_decorator_counts() {
    fn check<M: Trainable<B>>() {
        for level in [OptLevel::O1, OptLevel::O2, OptLevel::O3] {
            for half in HALVES {
                let amp = amp(level, half);
                amp.scope(|| {
                    let model = amp.cast_model(M::new());
                    let ((_, report), count) = measure(|| CastReport::of(|| model.loss(0)));
                    assert_eq!((report.made(), report.saved()), (count.made, count.saved));
                    assert!(report.bytes() > 0 || report.made() == 0);
                });
            }
        }
    }
    check::<Mlp<B>>();
    check::<Cnn<B>>();
    check::<Transformer<B>>();
    check::<Reader<B>>();
}
