//! A saved scale, loaded, goes on as if it had never stopped.

use burn_grad_scaler::{
    AtFloorPolicy, HysteresisRefill, LossScale, LossScaleConfig, LossScaleState,
};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};

fn round_trip<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

/// Every field differs from its default.
fn unusual_config() -> LossScaleConfig {
    LossScaleConfig::default()
        .with_init(1000.1)
        .with_growth_factor(1.7)
        .with_backoff_factor(1.0 / 3.0)
        .with_growth_interval(3)
        .with_growth_delay(2)
        .with_hysteresis(4)
        .with_hysteresis_refill(HysteresisRefill::AtGrowth)
        .with_floor(0.3)
        .with_cap(1e7)
        .with_finite_guard(false)
        .with_at_floor(AtFloorPolicy::Error)
}

fn unusual_state() -> LossScaleState {
    LossScaleState {
        scale: 77.7,
        growth_tracker: 1,
        hysteresis_tracker: 3,
        steps: 90,
        skipped: 40,
        consecutive_skips: 2,
    }
}

#[test]
fn a_configuration_survives_with_every_field() {
    assert_eq!(round_trip(&unusual_config()), unusual_config());
    let fixed = LossScaleConfig::fixed(0.25);
    assert_eq!(round_trip(&fixed), fixed);
    let uncapped = LossScaleConfig::paddle();
    assert_eq!(round_trip(&uncapped), uncapped);
}

#[test]
fn a_scale_survives_with_every_field() {
    let scale = LossScale::resume(unusual_config(), unusual_state()).unwrap();
    let loaded = round_trip(&scale);
    assert_eq!(loaded.config(), &unusual_config());
    assert_eq!(loaded.state(), &unusual_state());
}

#[test]
fn the_saved_form_is_stable() {
    let scale = LossScale::resume(unusual_config(), unusual_state()).unwrap();
    let expected = r#"{"config":{"dynamic":true,"init":1000.1,"growth_factor":1.7,"backoff_factor":0.3333333333333333,"growth_interval":3,"growth_delay":2,"hysteresis":4,"hysteresis_refill":"at_growth","floor":0.3,"cap":10000000.0,"finite_guard":false,"at_floor":"error"},"state":{"scale":77.7,"growth_tracker":1,"hysteresis_tracker":3,"steps":90,"skipped":40,"consecutive_skips":2}}"#;
    assert_eq!(serde_json::to_string(&scale).unwrap(), expected);
}

#[test]
fn options_left_out_of_a_file_take_their_default() {
    let config: LossScaleConfig =
        serde_json::from_str(r#"{"init": 1024, "hysteresis": 2}"#).unwrap();
    assert_eq!(
        config,
        LossScaleConfig::default()
            .with_init(1024.0)
            .with_hysteresis(2)
    );

    let fixed: LossScaleConfig =
        serde_json::from_str(r#"{"dynamic": false, "init": 128}"#).unwrap();
    assert_eq!(fixed, LossScaleConfig::fixed(128.0));
    assert_eq!(fixed.init().unwrap().scale(), 128.0);
}

#[test]
fn unknown_options_are_refused_by_name() {
    let error = serde_json::from_str::<LossScaleConfig>(r#"{"init_scale": 1024}"#).unwrap_err();
    assert!(
        error.to_string().contains("unknown field `init_scale`"),
        "{error}"
    );
    let error = serde_json::from_str::<LossScaleConfig>(r#"{"at_floor": "stop"}"#).unwrap_err();
    assert!(
        error.to_string().contains("unknown variant `stop`"),
        "{error}"
    );
}

#[test]
fn a_saved_scale_that_its_configuration_cannot_reach_is_refused() {
    let load = |scale: f32| {
        LossScale::resume(
            unusual_config(),
            LossScaleState {
                scale,
                ..unusual_state()
            },
        )
    };
    for bad in [f32::NAN, f32::INFINITY, -1.0, 0.0, -0.0, 0.29, 1.1e7] {
        let error = load(bad).unwrap_err().to_string();
        assert!(
            error.starts_with("loss scale option `scale` is "),
            "{error}"
        );
    }
    assert!(load(0.3).is_ok() && load(1e7).is_ok());

    let saved = serde_json::to_string(&load(77.7).unwrap()).unwrap();
    let error = serde_json::from_str::<LossScale>(&saved.replace("77.7", "0.1")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("allowed is a number from 0.3 to 10000000.0"),
        "{error}"
    );
    let error = serde_json::from_str::<LossScale>(&saved.replace("1.7", "0.5")).unwrap_err();
    assert!(error.to_string().contains("growth_factor"), "{error}");
}

#[test]
fn a_scale_that_underflowed_or_overflowed_resumes_where_its_rule_allows_it() {
    let resume = |config, scale| {
        LossScale::resume(
            config,
            LossScaleState {
                scale,
                ..unusual_state()
            },
        )
        .is_ok()
    };
    assert!(resume(LossScaleConfig::keras(), 0.0));
    assert!(resume(LossScaleConfig::keras(), f32::INFINITY));
    assert!(resume(LossScaleConfig::torch(), f32::from_bits(1)));
    assert!(!resume(LossScaleConfig::torch(), f32::INFINITY));
    assert!(!resume(LossScaleConfig::none(), 0.0));
}

#[test]
fn a_shorter_interval_on_resume_grows_at_the_next_clean_step() {
    let mut scale = LossScaleConfig::torch().init().unwrap();
    for _ in 0..100 {
        scale.update(false);
    }
    let shorter = scale.config().with_growth_interval(10);
    let mut scale = LossScale::resume(shorter, *scale.state()).unwrap();
    assert_eq!(scale.update(false).after, 131072.0);
}

#[test]
fn counters_saturate() {
    let state = LossScaleState {
        growth_tracker: u32::MAX,
        steps: u64::MAX,
        skipped: u64::MAX,
        consecutive_skips: u64::MAX,
        ..unusual_state()
    };
    let never = LossScaleConfig::default()
        .with_growth_interval(u32::MAX)
        .with_growth_delay(9);
    let mut scale = LossScale::resume(never, state).unwrap();
    assert_eq!(scale.update(false).consecutive_skips, 0);

    let mut scale = LossScale::resume(LossScaleConfig::fixed(2.0), state).unwrap();
    scale.update(true);
    let counts = scale.state();
    assert_eq!(
        (counts.steps, counts.skipped, counts.consecutive_skips),
        (u64::MAX, u64::MAX, u64::MAX)
    );
}

proptest! {
    #[test]
    fn a_trace_saved_anywhere_continues_as_its_twin(
        before in prop::collection::vec(any::<bool>(), 0..30),
        after in prop::collection::vec(any::<bool>(), 0..30),
        rule in prop::sample::select(vec![
            unusual_config(),
            LossScaleConfig::default(),
            LossScaleConfig::megatron().with_growth_interval(2),
            LossScaleConfig::deepspeed().with_growth_interval(2),
            LossScaleConfig::apex_hysteresis().with_growth_factor(1.1).with_growth_interval(2),
            LossScaleConfig::paddle().with_hysteresis(3).with_growth_interval(1),
        ]),
    ) {
        let mut twin = rule.init().unwrap();
        for found_inf in before {
            twin.update(found_inf);
        }
        let mut loaded = round_trip(&twin);
        prop_assert_eq!(loaded, twin);
        for found_inf in after {
            prop_assert_eq!(loaded.update(found_inf), twin.update(found_inf));
            prop_assert_eq!(loaded, twin);
        }
    }
}
