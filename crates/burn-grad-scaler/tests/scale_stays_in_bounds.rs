//! No run of overflows or clean steps takes the scale out of its floor and cap.

use burn_grad_scaler::{
    AtFloorPolicy, HysteresisRefill, LossScale, LossScaleConfig, LossScaleError, ScaleEvent,
};
use proptest::prelude::*;

fn overflows(scale: &mut LossScale, count: usize) {
    for _ in 0..count {
        scale.update(true);
    }
}

fn clean_steps(scale: &mut LossScale, count: usize) {
    for _ in 0..count {
        scale.update(false);
    }
}

#[test]
fn forty_overflows_from_65536_stop_at_a_floor_of_128() {
    let mut scale = LossScaleConfig::default().with_floor(128.0).init().unwrap();
    overflows(&mut scale, 40);
    assert_eq!(scale.scale(), 128.0);
}

#[test]
fn a_floor_below_one_is_allowed_and_reached() {
    let floor = 2f32.powi(-10);
    let mut scale = LossScaleConfig::default()
        .with_init(1.0)
        .with_floor(floor)
        .init()
        .unwrap();
    overflows(&mut scale, 10);
    assert_eq!(scale.scale(), floor);
    overflows(&mut scale, 10);
    assert_eq!(scale.scale(), floor);
}

#[test]
fn a_backoff_that_would_pass_the_floor_lands_on_it() {
    let mut scale = LossScaleConfig::default()
        .with_init(100.0)
        .with_floor(60.0)
        .init()
        .unwrap();
    let update = scale.update(true);
    assert_eq!((update.event, update.after), (ScaleEvent::BackedOff, 60.0));
    assert_eq!(scale.update(true).event, ScaleEvent::AtFloor);
}

#[test]
fn overflowing_for_200_steps_ends_at_the_default_floor_and_says_so() {
    let mut scale = LossScaleConfig::default().init().unwrap();
    overflows(&mut scale, 199);
    let update = scale.update(true);
    assert_eq!(update.after, 1.0);
    assert_eq!(update.event, ScaleEvent::AtFloor);
    assert_eq!(update.at_floor(), Some(AtFloorPolicy::Warn));
    assert_eq!(update.consecutive_skips, 200);
    assert_eq!(
        update.to_string(),
        "gradients overflowed 200 step(s) in a row, loss scale 1 cannot be lowered further"
    );
}

#[test]
fn without_a_floor_the_scale_reaches_zero_after_166_halvings() {
    let mut scale = LossScaleConfig::torch().init().unwrap();
    // 65536 = 2^16 and the smallest f32 is 2^-149: 165 halvings reach it, one more rounds to 0.
    overflows(&mut scale, 165);
    assert_eq!(scale.scale(), f32::from_bits(1));
    assert_eq!(scale.update(true).event, ScaleEvent::BackedOff);
    assert_eq!(scale.scale(), 0.0);
    assert_eq!(scale.inv_scale(), f32::INFINITY);
    assert_eq!(scale.update(true).event, ScaleEvent::AtFloor);
}

#[test]
fn the_inverse_is_finite_down_to_2_to_the_minus_127() {
    let mut scale = LossScaleConfig::torch().init().unwrap();
    overflows(&mut scale, 143);
    assert_eq!(scale.scale(), f32::MIN_POSITIVE / 2.0); // 2^-127
    assert_eq!(scale.inv_scale(), 2f32.powi(127));
    overflows(&mut scale, 1);
    assert_eq!(scale.scale(), f32::MIN_POSITIVE / 4.0);
    assert_eq!(scale.inv_scale(), f32::INFINITY);
}

#[test]
fn growth_stops_at_the_default_cap() {
    let mut scale = LossScaleConfig::default()
        .with_growth_interval(1)
        .init()
        .unwrap();
    let events: Vec<_> = (0..10).map(|_| scale.update(false).event).collect();
    assert_eq!(events[..8], [ScaleEvent::Grew; 8]); // 2^16 to 2^24
    assert_eq!(events[8..], [ScaleEvent::AtCap; 2]);
    assert_eq!(scale.scale(), 2f32.powi(24));
}

#[test]
fn a_growth_that_would_pass_the_cap_lands_on_it() {
    // Also where the product is beyond f32.
    for (init, cap) in [(60.0, 100.0), (2f32.powi(127), f32::MAX)] {
        let config = LossScaleConfig::default().with_init(init).with_cap(cap);
        let update = config.with_growth_interval(1).init().unwrap().update(false);
        assert_eq!((update.event, update.after), (ScaleEvent::Grew, cap));
    }
}

#[test]
fn without_a_cap_the_guard_keeps_the_scale_finite() {
    let mut scale = LossScaleConfig::torch()
        .with_growth_interval(1)
        .init()
        .unwrap();
    clean_steps(&mut scale, 200);
    assert_eq!(scale.scale(), 2f32.powi(127));
    assert_eq!(scale.update(false).event, ScaleEvent::AtCap);
}

#[test]
fn without_a_guard_the_scale_becomes_infinite_and_stays() {
    let mut scale = LossScaleConfig::keras()
        .with_growth_interval(1)
        .init()
        .unwrap();
    clean_steps(&mut scale, 200);
    assert_eq!((scale.scale(), scale.inv_scale()), (f32::INFINITY, 0.0));
    assert_eq!(scale.update(false).event, ScaleEvent::AtCap);
    assert_eq!(scale.update(true).event, ScaleEvent::AtFloor);
    assert_eq!(scale.scale(), f32::INFINITY);
}

#[test]
fn a_growth_factor_of_one_never_grows() {
    let config = LossScaleConfig::default()
        .with_growth_factor(1.0)
        .with_growth_interval(1);
    let update = config.init().unwrap().update(false);
    assert_eq!((update.event, update.after), (ScaleEvent::AtCap, 65536.0));
}

#[test]
fn only_the_error_policy_turns_the_floor_into_an_error() {
    use AtFloorPolicy::*;
    for (policy, is_error) in [(Continue, false), (Warn, false), (Error, true)] {
        let config = LossScaleConfig::default()
            .with_init(1.0)
            .with_at_floor(policy);
        let mut scale = config.init().unwrap();
        scale.update(true);
        let update = scale.update(true);
        assert_eq!(update.at_floor(), Some(policy));
        assert_eq!(update.check().is_err(), is_error, "{policy:?}");
        assert_eq!(scale.update(false).at_floor(), None);
    }

    let error = LossScaleError::AtFloor {
        scale: 1.0,
        consecutive_skips: 2,
    };
    assert_eq!(
        error.to_string(),
        "gradients overflowed 2 step(s) in a row and the loss scale cannot go below 1: look for an \
         infinity or NaN in the loss, lower `floor`, or set `at_floor` to \"warn\" or \"continue\""
    );
}

fn any_valid_config() -> impl Strategy<Value = LossScaleConfig> {
    let bounds = (
        prop_oneof![Just(0.0), 1e-30f32..1.0],
        1f32..1e38,
        0.0..1.0f32,
    );
    let refill = prop_oneof![
        Just(HysteresisRefill::AtGrowth),
        Just(HysteresisRefill::EachCleanStep),
        Just(HysteresisRefill::EachCleanStepAndBackoff),
    ];
    let steps = (1..5u32, 0..3u32, 1..5u32);
    (
        bounds,
        any::<bool>(),
        1.0..1e9f64,
        1e-9..0.999f64,
        steps,
        refill,
    )
        .prop_map(
            |(
                (floor, cap, position),
                capped,
                growth,
                backoff,
                (interval, delay, hysteresis),
                refill,
            )| {
                let config = LossScaleConfig::default()
                    .with_floor(floor)
                    .with_init((cap * position).max(floor).max(f32::MIN_POSITIVE))
                    .with_growth_factor(growth)
                    .with_backoff_factor(backoff)
                    .with_growth_interval(interval)
                    .with_growth_delay(delay)
                    .with_hysteresis(hysteresis)
                    .with_hysteresis_refill(refill);
                if capped {
                    config.with_cap(cap)
                } else {
                    config.without_cap()
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_update_stays_in_bounds_and_describes_itself(
        config in any_valid_config(),
        trace in prop::collection::vec(any::<bool>(), 0..100),
    ) {
        let mut scale = config.init().unwrap();
        for found_inf in trace {
            let before = scale.scale();
            let update = scale.update(found_inf);
            let after = scale.scale();
            prop_assert_eq!((update.before, update.after), (before, after));
            prop_assert!(config.floor <= after && after <= config.cap.unwrap_or(f32::MAX));

            use ScaleEvent::*;
            match update.event {
                Grew => prop_assert!(!found_inf && after > before),
                Unchanged | AtCap => prop_assert!(!found_inf && after == before),
                BackedOff => prop_assert!(found_inf && after < before),
                HeldByHysteresis | AtFloor => prop_assert!(found_inf && after == before),
                _ => prop_assert!(false, "unknown event"),
            }
        }
    }
}
