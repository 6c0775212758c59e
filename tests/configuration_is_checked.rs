//! A configuration is refused with the option's name, or does what it says.

mod support;

use burn_amp::{
    AmpConfig, AmpError, Capability, CastRule, ConvBackward, HalfDType, LossScaling, ModelType,
    NORM_LAYERS, Op, OptLevel, Policy, TraceMode,
};

const O0: OptLevel = OptLevel::O0;
const O1: OptLevel = OptLevel::O1;
const O2: OptLevel = OptLevel::O2;
const O3: OptLevel = OptLevel::O3;

fn refusal(config: AmpConfig) -> String {
    match config.clone().build() {
        Ok(_) => panic!("accepted {config:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn contradictions_are_refused_and_the_message_names_both_options() {
    let config = AmpConfig::new;
    let cases = [
        (
            config(O1).with_cast_model_type(ModelType::Half),
            ["cast_model_type = half", "opt_level = O1", "take O2"],
        ),
        (
            config(O1).with_keep_batchnorm_fp32(true),
            [
                "keep_batchnorm_fp32 = true",
                "opt_level = O1",
                "leave it unset",
            ],
        ),
        (
            config(O1).with_keep_batchnorm_fp32(false),
            [
                "keep_batchnorm_fp32 = false",
                "opt_level = O1",
                "leave it unset",
            ],
        ),
        (
            config(O1).with_master_weights(true),
            ["master_weights = true", "opt_level = O1", "leave it unset"],
        ),
        (
            config(O1).with_master_weights(false),
            ["master_weights = false", "opt_level = O1", "leave it unset"],
        ),
        (
            config(O0).with_patch_functions(true),
            ["patch_functions = true", "opt_level = O0", "take O1"],
        ),
        (
            config(O2).with_patch_functions(true),
            ["patch_functions = true", "opt_level = O2", "take O1"],
        ),
        (
            config(O3).with_patch_functions(true),
            ["patch_functions = true", "opt_level = O3", "take O1"],
        ),
        (
            config(O0).with_master_weights(true),
            ["master_weights = true", "cast_model_type = f32", "take O2"],
        ),
        (
            config(O2)
                .with_cast_model_type(ModelType::F32)
                .with_master_weights(true),
            ["master_weights = true", "cast_model_type = f32", "half"],
        ),
        (
            config(O0).with_rule(Op::FloatExp, CastRule::Lower),
            [
                "rule = float_exp -> lower",
                "opt_level = O0",
                "take O1, O2 or O3",
            ],
        ),
        (
            config(O1)
                .with_patch_functions(false)
                .with_rule(Op::FloatExp, CastRule::Lower),
            [
                "rule = float_exp -> lower",
                "patch_functions = false",
                "no table",
            ],
        ),
    ];
    for (config, parts) in cases {
        let error = config.clone().build().unwrap_err();
        assert!(matches!(error, AmpError::Contradiction { .. }), "{error:?}");
        for part in parts {
            assert!(
                error.to_string().contains(part),
                "\"{error}\" lacks \"{part}\""
            );
        }
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for bad in [0.0, -1.0, 1e-40, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let config = AmpConfig::new(O1);
        for (config, option) in [
            (
                config.clone().with_loss_scale(LossScaling::Static(bad)),
                "loss scale",
            ),
            (config.clone().with_min_loss_scale(bad), "min_loss_scale"),
            (config.clone().with_max_loss_scale(bad), "max_loss_scale"),
        ] {
            let message = refusal(config);
            assert!(message.contains(option), "\"{message}\" lacks \"{option}\"");
            assert!(
                message.contains(&bad.to_string()),
                "\"{message}\" lacks the value"
            );
            assert!(message.contains("finite number above 0"), "{message}");
        }
    }
    let crossed = AmpConfig::new(O1)
        .with_min_loss_scale(8.0)
        .with_max_loss_scale(4.0);
    assert!(refusal(crossed).contains("at most max_loss_scale, which is 4"));
    assert!(refusal(AmpConfig::new(O1).with_num_losses(0)).contains("num_losses \"0\""));
}

#[test]
fn numbers_at_the_edge_of_their_range_are_accepted() {
    for good in [f32::MIN_POSITIVE, 0.5, 1.0, f32::MAX] {
        let config = AmpConfig::new(O1)
            .with_loss_scale(LossScaling::Static(good))
            .with_min_loss_scale(good)
            .with_max_loss_scale(good);
        assert!(config.build().is_ok(), "{good}");
    }
}

/// Apex's table of properties.
#[test]
fn levels_set_the_documented_properties() {
    let f16 = |level| AmpConfig::new(level);
    let bf16 = |level| AmpConfig::new(level).with_half(HalfDType::Bf16);
    let half = Some(ModelType::Half);
    let f32 = Some(ModelType::F32);
    let one = LossScaling::Static(1.0);
    for (level, model, outputs, keeps, masters, scale) in [
        (O0, f32, None, true, false, one),
        (O1, None, None, true, false, LossScaling::Dynamic),
        (O2, half, f32, true, true, LossScaling::Dynamic),
        (O3, half, f32, false, false, one),
    ] {
        let config = f16(level);
        assert_eq!(config.cast_model_type(), model, "{level}");
        assert_eq!(config.cast_model_outputs(), outputs, "{level}");
        assert_eq!(config.master_weights(), masters, "{level}");
        assert_eq!(config.loss_scale(), scale, "{level}");
        assert_eq!(bf16(level).loss_scale(), one, "{level}");
        let kept: &[&str] = if keeps { &NORM_LAYERS } else { &[] };
        assert_eq!(config.keep_f32_modules(), kept, "{level}");
        assert_eq!(
            config.policy(),
            Policy::new(level, HalfDType::F16),
            "{level}"
        );
        assert_eq!(config.policy().is_enabled(), level != O0);
    }
}

#[test]
fn overrides_win_over_the_level() {
    let config = AmpConfig::new(O2)
        .with_cast_model_type(ModelType::F32)
        .with_keep_batchnorm_fp32(false)
        .with_loss_scale(LossScaling::Static(128.0))
        .with_cast_model_outputs(ModelType::Half)
        .with_rule(Op::FloatExp, CastRule::AsIs)
        .with_channel_vectors(false)
        .with_flat_linear(false)
        .with_scalar_guard(false)
        .with_conv_backward(ConvBackward::Im2col)
        .with_lean_backward(false);
    assert_eq!(config.cast_model_type(), Some(ModelType::F32));
    assert_eq!(config.cast_model_outputs(), Some(ModelType::Half));
    assert_eq!(config.loss_scale(), LossScaling::Static(128.0));
    assert!(config.keep_f32_modules().is_empty());
    let amp = config.build().unwrap();
    assert_eq!(amp.policy().rule(Op::FloatExp), CastRule::AsIs);
    assert!(!amp.policy().keeps_channel_vectors());
    assert!(!amp.policy().flattens_linear());
    assert_eq!(amp.policy().conv_backward(), ConvBackward::Im2col);
    assert!(!amp.policy().lean_backward());
    let overrides: Vec<_> = amp.policy().overrides(O2).collect();
    assert_eq!(overrides, [(Op::FloatExp, CastRule::AsIs)]);

    let unpatched = AmpConfig::new(O1).with_patch_functions(false);
    assert_eq!(unpatched.policy(), Policy::off());

    // Apex's own value at these levels, written out: nothing changes.
    for level in [O2, O3] {
        let written_out = AmpConfig::new(level).with_patch_functions(false);
        assert_eq!(
            written_out.policy(),
            AmpConfig::new(level).policy(),
            "{level}"
        );
    }
}

/// Every field with a value that is not its default.
fn unusual() -> AmpConfig {
    AmpConfig::new(O3)
        .with_half(HalfDType::Bf16)
        .with_cast_model_type(ModelType::Half)
        .with_patch_functions(false)
        .with_keep_batchnorm_fp32(true)
        .with_master_weights(true)
        .with_loss_scale(LossScaling::Static(0.1))
        .with_min_loss_scale(0.25)
        .with_max_loss_scale(1e30)
        .with_num_losses(3)
        .with_cast_model_outputs(ModelType::Half)
        .with_capability(Capability::Fallback)
        .with_rule(Op::FloatExp, CastRule::FullThenLower)
        .with_rule(Op::Softmax, CastRule::AsIs)
        .with_channel_vectors(false)
        .with_flat_linear(false)
        .with_scalar_guard(false)
        .with_stochastic_rounding(true)
        .with_conv_backward(ConvBackward::Kernel)
        .with_lean_backward(false)
        .with_keep_f32_modules(["Mine"])
        .with_trace(TraceMode::OnSkip)
}

#[test]
fn json_gives_back_every_field() {
    let json = serde_json::to_value(unusual()).unwrap();
    let default = serde_json::to_value(AmpConfig::default()).unwrap();
    for (field, value) in json.as_object().unwrap() {
        assert_ne!(
            *value, default[field],
            "{field} has its default value here: prove nothing"
        );
    }
    assert_eq!(
        serde_json::from_value::<AmpConfig>(json.clone()).unwrap(),
        unusual()
    );
    let text = serde_json::to_string_pretty(&unusual()).unwrap();
    assert_eq!(serde_json::from_str::<AmpConfig>(&text).unwrap(), unusual());
    assert_eq!(json["rules"]["float_exp"], "full_then_lower");
    assert_eq!(json["opt_level"], "O3");
    assert_eq!(json["half"], "bf16");
}

#[test]
fn json_without_fields_means_the_defaults() {
    let config: AmpConfig = serde_json::from_str("{}").unwrap();
    assert_eq!(config, AmpConfig::default());
    let config: AmpConfig = serde_json::from_str(r#"{"opt_level": "O2"}"#).unwrap();
    assert_eq!(config, AmpConfig::new(O2));
    let config: AmpConfig = serde_json::from_str(r#"{"rules": {"exp": "lower"}}"#).unwrap();
    assert_eq!(config.policy().rule(Op::FloatExp), CastRule::Lower);
}

#[test]
fn json_with_unknown_fields_or_values_is_refused() {
    for (json, named) in [
        (r#"{"opt_levl": "O1"}"#, "opt_levl"),
        (r#"{"opt_level": "01"}"#, "01"),
        (r#"{"half": "f8"}"#, "f8"),
        (r#"{"rules": {"float_expp": "full"}}"#, "float_expp"),
        (r#"{"rules": {"float_exp": "ful"}}"#, "ful"),
        (r#"{"loss_scale": "often"}"#, "often"),
        (r#"{"num_losses": -1}"#, "-1"),
    ] {
        let error = serde_json::from_str::<AmpConfig>(json)
            .unwrap_err()
            .to_string();
        assert!(error.contains(named), "\"{error}\" lacks \"{named}\"");
    }
}

/// JSON has no NaN, but 1e39 is beyond f32: checked when the configuration is used.
#[test]
fn numbers_read_from_json_are_checked_too() {
    let read = serde_json::from_str::<AmpConfig>(r#"{"max_loss_scale": 1e39}"#);
    assert!(read.is_err() || read.unwrap().build().is_err());
    let read: AmpConfig = serde_json::from_str(r#"{"loss_scale": {"static": -2.0}}"#).unwrap();
    assert!(refusal(read).contains("loss scale \"-2\""));
}

#[test]
fn names_are_read_back_as_they_are_written() {
    for level in OptLevel::ALL {
        assert_eq!(level.to_string().parse(), Ok(level));
        assert_eq!(level.to_string().to_lowercase().parse(), Ok(level));
    }
    for half in support::HALVES {
        assert_eq!(half.to_string().parse(), Ok(half));
    }
    for rule in CastRule::ALL {
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
    for op in Op::ALL.iter().copied() {
        assert_eq!(op.to_string().parse(), Ok(op));
        let json = serde_json::to_string(&op).unwrap();
        assert_eq!(serde_json::from_str::<Op>(&json).unwrap(), op);
    }
    for scale in [
        LossScaling::Dynamic,
        LossScaling::Static(0.1),
        LossScaling::Static(65536.0),
    ] {
        assert_eq!(scale.to_string().parse(), Ok(scale));
    }
    for model_type in [ModelType::F32, ModelType::Half] {
        assert_eq!(model_type.to_string().parse(), Ok(model_type));
    }
}

#[test]
fn other_spellings_of_the_half_dtypes_are_known() {
    for name in ["f16", "fp16", "float16", "half", "F16", "Half"] {
        assert_eq!(name.parse(), Ok(HalfDType::F16));
    }
    for name in ["bf16", "bfloat16", "BF16"] {
        assert_eq!(name.parse(), Ok(HalfDType::Bf16));
    }
    assert_eq!("matmul".parse(), Ok(Op::FloatMatmul));
}

#[test]
fn unknown_names_are_refused_with_what_is_allowed() {
    fn refused<T: std::str::FromStr<Err = AmpError>>(text: &str) -> String {
        text.parse::<T>().err().expect("refused").to_string()
    }
    assert!(refused::<OptLevel>("01").contains("letter O, not the digit zero"));
    assert!(!refused::<OptLevel>("O4").contains("letter O"));
    assert!(refused::<OptLevel>("O4").contains("O0, O1, O2 and O3"));
    assert!(refused::<HalfDType>("f8").contains("bf16"));
    assert!(refused::<CastRule>("lowered").contains("full_then_lower"));
    assert!(refused::<Op>("float_expp").contains("\"float_expp\""));
    assert!(refused::<Op>("float_expp").contains("docs/op-table.md"));
    assert!(refused::<ModelType>("f16").contains("f32 or half"));
    for bad in ["", "0", "-1", "nan", "inf", "Dynamic", "1e39"] {
        assert!(refused::<LossScaling>(bad).contains("\"dynamic\" or a finite number above 0"));
    }
}
