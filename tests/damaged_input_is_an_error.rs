//! Configurations, names and records that were damaged or made up are refused with an error, or mean
//! what they say: no input makes a parser panic, and none that is accepted makes a later step panic.

mod support;

use burn::module::Module;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{GradientsParams, Optimizer, Sgd, SgdConfig};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn_amp::{
    AmpConfig, AmpOptimizer, AmpRecord, CastRule, HalfDType, LossScale, LossScaleConfig,
    LossScaling, ModelType, Op, OptLevel,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use support::net::{Net, batch};
use support::{Mixed, amp, unless_it_panics};

/// A change of a text or of bytes.
#[derive(Debug, Clone)]
enum Damage {
    Delete(Index, usize),
    Insert(Index, Vec<u8>),
    Flip(Index, u8),
    Double(Index, usize),
    Truncate(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let tokens = [
        "-",
        "0",
        "1e999",
        "NaN",
        "null",
        "\"\"",
        "{",
        "}",
        "[",
        ",",
        ":",
        "\"",
        "\u{e9}",
        "1e-46",
        "18446744073709551616",
        "-1",
        "true",
        "O4",
        "f16",
    ];
    let token = select(tokens.to_vec()).prop_map(|token| token.as_bytes().to_vec());
    prop_oneof![
        (any::<Index>(), 1..8usize).prop_map(|(at, count)| Damage::Delete(at, count)),
        (any::<Index>(), token).prop_map(|(at, token)| Damage::Insert(at, token)),
        (any::<Index>(), 1u8..).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        (any::<Index>(), 1..8usize).prop_map(|(at, count)| Damage::Double(at, count)),
        any::<Index>().prop_map(Damage::Truncate),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            return bytes;
        }
        let (at, count) = match damage {
            Damage::Delete(at, count) | Damage::Double(at, count) => (at, *count),
            Damage::Insert(at, _) | Damage::Flip(at, _) | Damage::Truncate(at) => (at, 0),
        };
        let at = at.index(bytes.len());
        let end = (at + count).min(bytes.len());
        match damage {
            Damage::Delete(..) => drop(bytes.drain(at..end)),
            Damage::Double(..) => {
                let copy = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            Damage::Insert(_, token) => drop(bytes.splice(at..at, token.iter().copied())),
            Damage::Flip(_, bits) => bytes[at] ^= bits,
            Damage::Truncate(_) => bytes.truncate(at),
        }
    }
    bytes
}

/// Runs a property without a file of seeds: what shrinking leaves is short enough to be read.
fn check<S: Strategy>(input: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config).run(&input, property).unwrap();
}

/// What is accepted is written as it is read.
fn read_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    text: &str,
) -> Result<Option<T>, TestCaseError> {
    let Ok(value) = serde_json::from_str::<T>(text) else {
        return Ok(None);
    };
    // As a value, not as text: serde_json reads some f64 texts to the last bit but one only, unless
    // its `float_roundtrip` is on. It has no infinity and no NaN, which come back as null.
    let written = serde_json::to_value(&value).unwrap();
    if let Ok(again) = serde_json::from_value::<T>(written) {
        prop_assert_eq!(&again, &value, "{}", text);
    }
    Ok(Some(value))
}

fn configs() -> Vec<String> {
    let unusual = AmpConfig::new(OptLevel::O2)
        .with_half(HalfDType::Bf16)
        .with_loss_scale(LossScaling::Static(128.0))
        .with_min_loss_scale(0.5)
        .with_max_loss_scale(1e6)
        .with_num_losses(3)
        .with_master_weights(true)
        .with_keep_batchnorm_fp32(true)
        .with_cast_model_type(ModelType::Half)
        .with_cast_model_outputs(ModelType::F32)
        .with_rule(Op::FloatExp, CastRule::AsIs)
        .with_keep_f32_modules(["Gate"]);
    let configs = [AmpConfig::default(), unusual];
    configs.map(|c| serde_json::to_string(&c).unwrap()).into()
}

#[test]
fn a_damaged_configuration_is_refused_or_valid() {
    let damages = prop::collection::vec(damage(), 1..4);
    check((select(configs()), damages), |(text, damages)| {
        let Ok(text) = String::from_utf8(damaged(text.into_bytes(), &damages)) else {
            return Ok(());
        };
        if let Some(config) = read_back::<AmpConfig>(&text)? {
            match config.build() {
                Ok(amp) => {
                    let scale = amp.config().max_loss_scale();
                    prop_assert!(scale.is_finite() && scale > 0.0);
                    prop_assert!(amp.loss_scales().num_losses() > 0);
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
        Ok(())
    });
}

#[test]
fn a_damaged_loss_scale_is_refused_or_goes_on() {
    let mut moved = LossScaleConfig::deepspeed().init().unwrap();
    for found_inf in [false, true, true, false] {
        moved.update(found_inf);
    }
    let rules = [
        LossScaleConfig::default(),
        LossScaleConfig::paddle(),
        LossScaleConfig::fixed(3.0),
    ];
    let texts: Vec<String> = rules
        .map(|rule| serde_json::to_string(&rule.init().unwrap()).unwrap())
        .into_iter()
        .chain([serde_json::to_string(&moved).unwrap()])
        .collect();
    let damages = prop::collection::vec(damage(), 1..4);
    let trace = prop::collection::vec(any::<bool>(), 8);
    check((select(texts), damages, trace), |(text, damages, trace)| {
        let Ok(text) = String::from_utf8(damaged(text.into_bytes(), &damages)) else {
            return Ok(());
        };
        if let Some(mut scale) = read_back::<LossScale>(&text)? {
            prop_assert!(scale.config().validate().is_ok());
            for found_inf in trace {
                let update = scale.update(found_inf);
                prop_assert!(!update.after.is_nan() && update.after >= 0.0);
            }
        }
        Ok(())
    });
}

#[test]
fn made_up_names_are_refused_or_read_back() {
    let ops: Vec<String> = Op::ALL.iter().map(Op::to_string).collect();
    let names = [
        "O0",
        "O1",
        "O3",
        "f16",
        "bf16",
        "bfloat16",
        "half",
        "lower",
        "full_then_lower",
        "as_is",
        "dynamic",
        "128",
        "1e-38",
        "3.4e38",
    ];
    let known = ops
        .into_iter()
        .chain(names.map(String::from))
        .collect::<Vec<_>>();
    let near = (select(known), prop::collection::vec(damage(), 0..3))
        .prop_map(|(name, damages)| damaged(name.into_bytes(), &damages))
        .prop_filter_map("text", |bytes| String::from_utf8(bytes).ok());
    check(prop_oneof![near, ".{0,12}"], |name| {
        macro_rules! named {
            ($($kind:ty),*) => {$(
                match name.parse::<$kind>() {
                    Ok(value) => prop_assert_eq!(value.to_string().parse::<$kind>().unwrap(), value),
                    Err(error) => {
                        // The message shows what was given.
                        let shown = error.to_string();
                        prop_assert!(shown.contains(&name), "{} {}", shown, name);
                    }
                }
            )*};
        }
        named!(OptLevel, HalfDType, Op, CastRule, LossScaling, ModelType);
        Ok(())
    });
}

type Optim = AmpOptimizer<
    OptimizerAdaptor<Sgd<burn_amp::MixedPrecision<support::Bare>>, Net<Mixed>, Mixed>,
    Mixed,
>;
type Saved =
    AmpRecord<<OptimizerAdaptor<Sgd<burn_amp::MixedPrecision<support::Bare>>, Net<Mixed>, Mixed> as Optimizer<Net<Mixed>, Mixed>>::Record>;

/// A model at O2 after two steps.
fn trained(amp: &burn_amp::Amp) -> (Net<Mixed>, Optim) {
    let mut model = amp.cast_model(Net::new(&Default::default()));
    let mut optim = AmpOptimizer::new(SgdConfig::new().init(), amp);
    for step in 0..2 {
        model = stepped(model, &mut optim, step);
    }
    (model, optim)
}

fn stepped(model: Net<Mixed>, optim: &mut Optim, step: usize) -> Net<Mixed> {
    let grads = GradientsParams::from_grads(model.loss(batch(step)).backward(), &model);
    optim.step(0.01, model, grads)
}

/// Loads a record and makes a step with it. `None` if that panicked; otherwise whether it was taken.
fn used(
    amp: &burn_amp::Amp,
    model: &Net<Mixed>,
    load: impl FnOnce() -> Option<Saved>,
) -> Option<bool> {
    unless_it_panics(|| {
        let Some(record) = load() else {
            return false;
        };
        let optim = AmpOptimizer::new(SgdConfig::new().init(), amp);
        let Ok(mut optim) = optim.try_load_record::<Net<Mixed>>(record) else {
            return false;
        };
        let model = stepped(model.clone(), &mut optim, 5);
        assert!(model.num_params() > 0);
        true
    })
}

#[test]
fn a_damaged_record_is_refused_or_steps() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::new();
    let (model, bytes) = amp.scope(|| {
        let (model, optim) = trained(&amp);
        let record = Optimizer::<Net<Mixed>, Mixed>::to_record(&optim);
        (
            model,
            Recorder::<Mixed>::record(&recorder, record, ()).unwrap(),
        )
    });
    // The inner optimizer's record comes last, and is Burn's: it panics at a damaged parameter id.
    let inner = bytes
        .windows(5)
        .rposition(|name| name == b"inner")
        .expect("a field");
    let (own, inner) = bytes.split_at(inner - 1);
    check(prop::collection::vec(damage(), 1..3), |damages| {
        let bytes = [&damaged(own.to_vec(), &damages), inner].concat();
        let load = || Recorder::<Mixed>::load(&recorder, bytes, &Default::default()).ok();
        let outcome = amp.scope(|| used(&amp, &model, load));
        prop_assert!(outcome.is_some(), "a damaged record panics");
        Ok(())
    });
}

/// Replaces one value somewhere inside.
fn replace(value: &mut Value, path: &[Index], by: &Value) {
    let Some((first, rest)) = path.split_first() else {
        *value = by.clone();
        return;
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let field = first.index(fields.len());
            replace(
                fields.values_mut().nth(field).expect("below the length"),
                rest,
                by,
            );
        }
        Value::Array(items) if !items.is_empty() => {
            let item = first.index(items.len());
            replace(&mut items[item], rest, by);
        }
        _ => *value = by.clone(),
    }
}

#[test]
fn a_record_with_another_value_in_any_place_is_refused_or_steps() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    let (model, item) = amp.scope(|| {
        let (model, optim) = trained(&amp);
        let record = Optimizer::<Net<Mixed>, Mixed>::to_record(&optim);
        let item = Record::<Mixed>::into_item::<FullPrecisionSettings>(record);
        (model, serde_json::to_value(&item).unwrap())
    });
    let made_up = [
        "null",
        "true",
        "0",
        "-1",
        "1",
        "7",
        "3.5",
        "1e39",
        "18446744073709551615",
        "\"\"",
        "\"F16\"",
        "\"F32\"",
        "\"F64\"",
        "\"I64\"",
        "\"Bool\"",
        "\"O0\"",
        "[]",
        "[0]",
        "[3,3]",
        "[2,2,3]",
        "{}",
    ];
    let made_up: Vec<Value> = made_up
        .iter()
        .map(|t| serde_json::from_str(t).unwrap())
        .collect();
    let path = prop::collection::vec(any::<Index>(), 1..7);
    check((path, select(made_up)), |(path, by)| {
        let mut changed = item.clone();
        replace(&mut changed["V1"]["state"], &path, &by);
        let load = || {
            let item = serde_json::from_value(changed.clone()).ok()?;
            Some(
                <Saved as Record<Mixed>>::from_item::<FullPrecisionSettings>(
                    item,
                    &Default::default(),
                ),
            )
        };
        let outcome = amp.scope(|| used(&amp, &model, load));
        prop_assert!(
            outcome.is_some(),
            "a record with {} at {:?} panics",
            by,
            path
        );
        Ok(())
    });
}

#[test]
fn a_record_of_another_shape_is_refused_with_both_shapes() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    amp.scope(|| {
        let (model, optim) = trained(&amp);
        let record = Optimizer::<Net<Mixed>, Mixed>::to_record(&optim);
        let item = Record::<Mixed>::into_item::<FullPrecisionSettings>(record);
        let mut item = serde_json::to_value(&item).unwrap();
        let weights = item["V1"]["state"]["weights"].as_array_mut().unwrap();
        let transposed = weights
            .iter_mut()
            .find(|w| w[1]["shape"] == serde_json::json!([6, 8]));
        transposed.expect("the first layer's")[1]["shape"] = serde_json::json!([8, 6]);
        let record = <Saved as Record<Mixed>>::from_item::<FullPrecisionSettings>(
            serde_json::from_value(item).unwrap(),
            &Default::default(),
        );
        let optim: Optim = AmpOptimizer::new(SgdConfig::new().init(), &amp);
        let mut optim = optim.try_load_record::<Net<Mixed>>(record).unwrap();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stepped(model, &mut optim, 5);
        }));
        let message = panic.unwrap_err().downcast::<String>().unwrap();
        assert!(
            message.contains("[8, 6]") && message.contains("[6, 8]"),
            "{message}"
        );
    });
}
