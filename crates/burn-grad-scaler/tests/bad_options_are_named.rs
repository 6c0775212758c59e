//! Every option that makes no sense is refused, with its name, its value and what is allowed.

use burn_grad_scaler::{AtFloorPolicy, HysteresisRefill, LossScaleConfig, LossScaleError};

#[track_caller]
fn refused(config: LossScaleConfig, name: &str, shown: &str) {
    match config.init().unwrap_err() {
        LossScaleError::InvalidOption { option, value, .. } => {
            assert_eq!((option, value.as_str()), (name, shown));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn factors_out_of_range() {
    let default = LossScaleConfig::default();
    for (bad, shown) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (0.99, "0.99"),
        (0.0, "0.0"),
        (-2.0, "-2.0"),
    ] {
        refused(default.with_growth_factor(bad), "growth_factor", shown);
    }
    for (bad, shown) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (-0.5, "-0.5"),
    ] {
        refused(default.with_backoff_factor(bad), "backoff_factor", shown);
    }
}

#[test]
fn counts_of_zero() {
    let default = LossScaleConfig::default();
    refused(default.with_growth_interval(0), "growth_interval", "0");
    refused(default.with_hysteresis(0), "hysteresis", "0");
}

#[test]
fn scales_that_are_no_scale() {
    let default = LossScaleConfig::default();
    for (bad, shown) in [
        (f32::NAN, "NaN"),
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
        (-1.0, "-1.0"),
        (-0.0, "-0.0"),
        (1e-40, "1e-40"),
    ] {
        refused(default.with_init(bad), "init", shown);
        refused(LossScaleConfig::torch().with_init(bad), "init", shown);
        refused(LossScaleConfig::fixed(bad), "init", shown);
        refused(default.with_floor(bad), "floor", shown);
        refused(default.with_cap(bad), "cap", shown);
    }
    refused(LossScaleConfig::torch().with_init(0.0), "init", "0.0");
    refused(LossScaleConfig::fixed(0.0), "init", "0.0");
    refused(LossScaleConfig::torch().with_cap(0.0), "cap", "0.0");
}

#[test]
fn bounds_that_contradict_each_other() {
    let default = LossScaleConfig::default();
    refused(default.with_init(0.5), "init", "0.5");
    refused(default.with_init(2f32.powi(25)), "init", "33554432.0");
    refused(default.with_floor(2.0).with_cap(1.0), "cap", "1.0");
    refused(default.with_floor(65537.0), "init", "65536.0");
    assert!(default.with_floor(65536.0).with_cap(65536.0).init().is_ok());
}

#[test]
fn options_that_a_static_scale_would_ignore() {
    let fixed = LossScaleConfig::fixed(128.0);
    assert!(fixed.init().is_ok());
    refused(fixed.with_growth_factor(4.0), "growth_factor", "4.0");
    refused(fixed.with_backoff_factor(0.25), "backoff_factor", "0.25");
    refused(fixed.with_growth_interval(5), "growth_interval", "5");
    refused(fixed.with_growth_delay(1), "growth_delay", "1");
    refused(fixed.with_hysteresis(2), "hysteresis", "2");
    let refill = HysteresisRefill::AtGrowth;
    refused(
        fixed.with_hysteresis_refill(refill),
        "hysteresis_refill",
        "AtGrowth",
    );
    refused(fixed.with_floor(2.0), "floor", "2.0");
    refused(fixed.with_cap(1024.0), "cap", "Some(1024.0)");
    refused(fixed.with_finite_guard(false), "finite_guard", "false");
    refused(
        fixed.with_at_floor(AtFloorPolicy::Error),
        "at_floor",
        "Error",
    );
}

#[test]
fn a_static_scale_may_be_outside_the_default_bounds() {
    for value in [2f32.powi(-126), 0.5, 1e9, f32::MAX] {
        assert_eq!(LossScaleConfig::fixed(value).init().unwrap().scale(), value);
    }
}

#[test]
fn a_scale_set_by_hand_is_checked_and_a_refused_one_changes_nothing() {
    let mut scale = LossScaleConfig::default().init().unwrap();
    let before = scale;
    for bad in [f32::NAN, f32::INFINITY, 0.0, -1.0, 0.5, 2f32.powi(25)] {
        assert!(scale.set(bad).is_err(), "{bad}");
    }
    assert_eq!(scale, before);
    scale.set(2f32.powi(24)).unwrap();

    let mut fixed = LossScaleConfig::fixed(2.0).init().unwrap();
    fixed.set(0.125).unwrap();
    assert_eq!(fixed.update(true).after, 0.125);
    assert!(fixed.set(0.0).is_err());
}

#[test]
fn messages_name_option_value_and_what_is_allowed() {
    let message = |config: LossScaleConfig| config.validate().unwrap_err().to_string();
    assert_eq!(
        message(LossScaleConfig::default().with_init(0.5)),
        "loss scale option `init` is 0.5, allowed is a number from 1.0 to 16777216.0"
    );
    assert_eq!(
        message(LossScaleConfig::default().with_floor(f32::NAN)),
        "loss scale option `floor` is NaN, allowed is 0 for none, or a number from 1.1754944e-38 to \
         3.4028235e38"
    );
    assert_eq!(
        message(LossScaleConfig::none().with_hysteresis(2)),
        "loss scale option `hysteresis` is 2, allowed is its default, 1, because the scale is static"
    );
}

#[test]
fn every_ready_made_rule_is_valid() {
    for rule in [
        LossScaleConfig::default(),
        LossScaleConfig::none(),
        LossScaleConfig::torch(),
        LossScaleConfig::apex(),
        LossScaleConfig::apex_fp16_utils(),
        LossScaleConfig::apex_hysteresis(),
        LossScaleConfig::megatron(),
        LossScaleConfig::deepspeed(),
        LossScaleConfig::deepspeed_consecutive(),
        LossScaleConfig::deepspeed_fused(),
        LossScaleConfig::jmp(),
        LossScaleConfig::keras(),
        LossScaleConfig::tf_keras(),
        LossScaleConfig::paddle(),
    ] {
        rule.init().unwrap();
    }
}
