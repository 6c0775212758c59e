//! Over random overflow traces and random knobs, each rule's scale equals its peer's, bit for bit.

mod support;

use burn_grad_scaler::LossScaleConfig;
use proptest::prelude::*;
use support::*;

/// Overflow traces from almost clean to almost all overflowing.
fn trace() -> impl Strategy<Value = Vec<bool>> {
    prop_oneof![Just(0.03), Just(0.3), Just(0.8)]
        .prop_flat_map(|p| prop::collection::vec(prop::bool::weighted(p), 0..60))
}

/// Knobs under which a Python float and an f32 agree: powers of two, and at most 30 growths of 4.
fn power_of_two_knobs() -> impl Strategy<Value = Knobs> {
    (-4..24i32, 1..3i32, 1..3i32, 2..6u32, 1..5u32, -6..1i32).prop_map(
        |(init, growth, backoff, interval, hysteresis, floor)| Knobs {
            init: 2f32.powi(init),
            growth: 2f64.powi(growth),
            backoff: 2f64.powi(-backoff),
            interval,
            hysteresis,
            floor: 2f32.powi(floor.min(init)),
        },
    )
}

/// Any f32 start and any factors, up to and past the end of f32.
fn any_knobs() -> impl Strategy<Value = Knobs> {
    (
        1f32..1e38,
        1f32..1e3,
        0.01f32..0.99,
        1..6u32,
        1..5u32,
        1e-3f32..1.0,
    )
        .prop_map(
            |(init, growth, backoff, interval, hysteresis, floor)| Knobs {
                init,
                // f32 values, as Megatron and Paddle keep their factors in f32.
                growth: f64::from(growth),
                backoff: f64::from(backoff),
                interval,
                hysteresis,
                floor,
            },
        )
}

/// One whole-number factor for both directions.
fn division_knobs() -> impl Strategy<Value = Knobs> {
    (any_knobs(), 2..8u32).prop_map(|(knobs, factor)| Knobs {
        growth: f64::from(factor),
        backoff: 1.0 / f64::from(factor),
        ..knobs
    })
}

fn adjust(config: LossScaleConfig, knobs: Knobs) -> LossScaleConfig {
    config
        .with_init(knobs.init)
        .with_growth_factor(knobs.growth)
        .with_backoff_factor(knobs.backoff)
        .with_growth_interval(knobs.interval)
}

fn same_trace(
    config: LossScaleConfig,
    mut peer: impl Peer,
    trace: &[bool],
) -> Result<(), TestCaseError> {
    let mut ours = config.init().unwrap();
    for (step, &found_inf) in trace.iter().enumerate() {
        let raises = !peer.step(found_inf);
        let update = ours.update(found_inf);
        prop_assert_eq!(update.check().is_err(), raises, "step {}", step);
        prop_assert_eq!(
            update.after.to_bits(),
            peer.scale().to_bits(),
            "step {}",
            step
        );
        if raises {
            break;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn torch(knobs in any_knobs(), growth in 1.0..1e3f64, backoff in 0.01..0.99f64, trace in trace()) {
        let knobs = Knobs { growth, backoff, ..knobs };
        let peer = Torch { knobs, scale: knobs.init, tracker: 0 };
        same_trace(adjust(LossScaleConfig::torch(), knobs), peer, &trace)?;
    }

    #[test]
    fn apex(knobs in power_of_two_knobs(), has_floor: bool, cap in 24..28i32, trace in trace()) {
        let floor = if has_floor { knobs.floor } else { 0.0 };
        let knobs = Knobs { growth: 2.0, backoff: 0.5, floor, ..knobs };
        let peer = ApexAmp { knobs, scale: knobs.init.into(), cap: 2f64.powi(cap), unskipped: 0 };
        let config = LossScaleConfig::apex().with_floor(knobs.floor).with_cap(2f32.powi(cap));
        same_trace(adjust(config, knobs), peer, &trace)?;
    }

    #[test]
    fn apex_fp16_utils(knobs in power_of_two_knobs(), trace in trace()) {
        let init = knobs.init.max(1.0);
        let knobs = Knobs { init, backoff: 1.0 / knobs.growth, ..knobs };
        let peer = Fp16Utils { knobs, scale: init.into(), iter: 0, last_overflow: -1 };
        same_trace(adjust(LossScaleConfig::apex_fp16_utils(), knobs), peer, &trace)?;
    }

    #[test]
    fn apex_hysteresis(knobs in any_knobs(), trace in trace()) {
        let peer = ApexKernel {
            knobs,
            scale: knobs.init,
            growth_tracker: 0,
            hysteresis_tracker: knobs.hysteresis as i32,
        };
        let config = LossScaleConfig::apex_hysteresis().with_hysteresis(knobs.hysteresis);
        same_trace(adjust(config, knobs), peer, &trace)?;
    }

    #[test]
    fn megatron(knobs in any_knobs(), trace in trace()) {
        let peer = Megatron {
            knobs,
            scale: knobs.init,
            growth_tracker: 0,
            hysteresis_tracker: knobs.hysteresis as i32,
        };
        let config = LossScaleConfig::megatron()
            .with_hysteresis(knobs.hysteresis)
            .with_floor(knobs.floor);
        same_trace(adjust(config, knobs), peer, &trace)?;
    }

    #[test]
    fn deepspeed(
        knobs in power_of_two_knobs(),
        interval in 1..5u32,
        consecutive: bool,
        trace in trace(),
    ) {
        let knobs = Knobs { growth: 2.0, backoff: 0.5, interval, ..knobs };
        let peer = DeepSpeed {
            knobs,
            scale: knobs.init.into(),
            hysteresis: knobs.hysteresis,
            consecutive,
            iter: 0,
            last_overflow: -1,
        };
        let config = if consecutive {
            LossScaleConfig::deepspeed_consecutive()
        } else {
            LossScaleConfig::deepspeed()
        };
        let config = config.with_hysteresis(knobs.hysteresis).with_floor(knobs.floor);
        same_trace(adjust(config, knobs), peer, &trace)?;
    }

    #[test]
    fn deepspeed_fused(knobs in power_of_two_knobs(), interval in 1..5u32, trace in trace()) {
        let knobs = Knobs { growth: 2.0, backoff: 0.5, interval, ..knobs };
        let peer = DeepSpeedFused { knobs, scale: knobs.init.into(), iter: 0, last_overflow: -1 };
        let config = LossScaleConfig::deepspeed_fused().with_floor(knobs.floor);
        same_trace(adjust(config, knobs), peer, &trace)?;
    }

    #[test]
    fn jmp(knobs in division_knobs(), trace in trace()) {
        let peer = Jmp { knobs, scale: knobs.init, counter: 0 };
        let config = LossScaleConfig::jmp().with_floor(knobs.floor);
        same_trace(adjust(config, knobs), peer, &trace)?;
    }

    #[test]
    fn keras(knobs in any_knobs(), trace in trace()) {
        let knobs = Knobs { growth: 2.0, backoff: 0.5, ..knobs };
        let peer = Keras { knobs, scale: knobs.init, step_counter: 0 };
        same_trace(adjust(LossScaleConfig::keras(), knobs), peer, &trace)?;
    }

    #[test]
    fn tf_keras(knobs in division_knobs(), trace in trace()) {
        let peer = TfKeras { knobs, scale: knobs.init, good_steps: 0 };
        same_trace(adjust(LossScaleConfig::tf_keras(), knobs), peer, &trace)?;
    }

    #[test]
    fn paddle(knobs in any_knobs(), trace in trace()) {
        let peer = Paddle { knobs, scale: knobs.init, good: 0, bad: 0 };
        let config = LossScaleConfig::paddle().with_hysteresis(knobs.hysteresis);
        same_trace(adjust(config, knobs), peer, &trace)?;
    }
}
