//! The arithmetic of loss scales: what the peers' suites assert about their scalers.

use burn_amp::{LossScale, LossScaleConfig, ScaleEvent};

fn run(scale: &mut LossScale, found_inf: bool, steps: u32) {
    for _ in 0..steps {
        scale.update(found_inf);
    }
}

/// apex tests/L0/run_amp/test_update_scale_hysteresis.py, over its whole grid.
#[test]
fn a32_hysteresis_over_the_whole_grid() {
    for init in [1f32, 1024., 65536.] {
        for growth in [1f64, 2., 4.] {
            for backoff in [0.5, 0.25] {
                for interval in [10, 100] {
                    for hysteresis in [10, 100] {
                        let config = LossScaleConfig::apex_hysteresis()
                            .with_init(init)
                            .with_growth_factor(growth)
                            .with_backoff_factor(backoff)
                            .with_growth_interval(interval)
                            .with_hysteresis(hysteresis);
                        apex_hysteresis_case(config);
                    }
                }
            }
        }
    }
}

fn apex_hysteresis_case(config: LossScaleConfig) {
    let (init, interval, hysteresis) = (config.init, config.growth_interval, config.hysteresis);
    for extra in [0, 1, 7, 999] {
        let mut scale = config.init().unwrap();

        run(&mut scale, true, hysteresis - 1);
        assert_eq!(
            scale.scale(),
            init,
            "overflows within the budget change nothing"
        );

        run(&mut scale, false, interval - 1);
        assert_eq!(
            scale.scale(),
            init,
            "one clean step too few changes nothing"
        );

        // The clean steps refilled the budget, so all of it is there again. Once it is used up,
        // that overflow and each further one back off, down to 0 as there is no floor.
        run(&mut scale, true, hysteresis + extra);
        let lowered = init * (config.backoff_factor as f32).powi(1 + extra as i32);
        assert_eq!(scale.scale(), lowered);

        // Each full interval grows, and a growth that would be infinite is refused.
        run(&mut scale, false, interval + extra);
        let grown = (0..1 + extra / interval).fold(lowered, |scale, _| {
            let grown = scale * config.growth_factor as f32;
            if grown.is_finite() { grown } else { scale }
        });
        assert_eq!(scale.scale(), grown);
    }
}

/// torch: growth 2, backoff 0.25, interval 2, start 4; a clean, a clean and an overflowing step.
#[test]
fn g04_the_update_rule() {
    let config = LossScaleConfig::torch()
        .with_init(4.0)
        .with_backoff_factor(0.25)
        .with_growth_interval(2);
    let mut scale = config.init().unwrap();
    let mut step = |found_inf| (scale.update(found_inf).after, scale.state().growth_tracker);

    assert_eq!(step(false), (4.0, 1));
    assert_eq!(step(false), (8.0, 0));
    assert_eq!(step(true), (2.0, 0));
}

/// torch: a scale of 1e38 with growth 16 stays finite.
#[test]
fn g16_the_scale_never_overflows() {
    let config = LossScaleConfig::torch()
        .with_init(1e38)
        .with_growth_factor(16.0)
        .with_growth_interval(1);
    let mut scale = config.init().unwrap();
    run(&mut scale, false, 16);
    assert_eq!(scale.scale(), 1e38);
    assert_eq!(scale.update(false).event, ScaleEvent::AtCap);
}

/// torch's `update(new_scale)` sets the scale and keeps the tracker.
#[test]
fn g23_an_update_may_bring_a_new_scale() {
    let mut scale = LossScaleConfig::torch()
        .with_growth_interval(2)
        .init()
        .unwrap();
    scale.update(false);
    scale.set(3.0).unwrap();
    assert_eq!(scale.scale(), 3.0);
    assert_eq!((scale.state().growth_tracker, scale.state().steps), (1, 1));
    assert_eq!(scale.update(false).after, 6.0);
}

/// jmp test_no_op_loss_scale, test_static_loss_scale: scaling and unscaling return the input.
#[test]
fn b01_scaling_and_unscaling_return_the_input() {
    let configs = [1f32, 2., 3., 4.].map(LossScaleConfig::fixed);
    let dynamic = [2f32, 3., 4.].map(|init| LossScaleConfig::jmp().with_init(init));
    for config in configs.into_iter().chain(dynamic) {
        let scale = config.init().unwrap();
        assert_eq!(1.0 * scale.scale() * scale.inv_scale(), 1.0);
    }
    let none = LossScaleConfig::none().init().unwrap();
    assert_eq!((none.scale(), none.inv_scale()), (1.0, 1.0));
}

/// jmp test_dynamic_loss_scale_adjust_increases_on_finite.
#[test]
fn b02_jmp_grows_after_period_clean_steps() {
    for (period, factor) in [(20, 2), (30, 3)] {
        let mut scale = jmp(period, factor).init().unwrap();
        for i in 1..period {
            assert_eq!(scale.update(false).after, 10.0);
            assert_eq!(scale.state().growth_tracker, i);
        }
        assert_eq!(scale.update(false).after, 10.0 * factor as f32);
        assert_eq!(scale.state().growth_tracker, 0);
    }
}

/// jmp test_dynamic_loss_scale_adjust_reduce_on_non_finite and ..._explicit_min_loss_scale.
#[test]
fn b02_jmp_divides_down_to_its_floor() {
    for (period, factor, floor) in [
        (20, 2, 1.0),
        (30, 3, 1.0),
        (20, 2, 0.3125),
        (30, 3, 0.37),
        (5, 2, 0.0),
    ] {
        let mut scale = jmp(period, factor).with_floor(floor).init().unwrap();
        for i in 1..=100 {
            let after = scale.update(true).after;
            let expected = (10.0 / f64::from(factor).powi(i)).max(floor.into()) as f32;
            assert!(
                (after - expected).abs() <= 1e-5 * expected,
                "{after} {expected}"
            );
            assert_eq!(scale.state().growth_tracker, 0);
        }
    }
}

fn jmp(period: u32, factor: u32) -> LossScaleConfig {
    LossScaleConfig::jmp()
        .with_init(10.0)
        .with_growth_interval(period)
        .with_growth_factor(factor.into())
        .with_backoff_factor(1.0 / f64::from(factor))
}

/// DeepSpeed tests/unit/runtime/half_precision/test_dynamic_loss_scale.py, test_no_overflow.
#[test]
fn b07_without_overflow_the_scale_doubles_every_window() {
    let mut scale = deepspeed_fused(8).init().unwrap();
    let mut expected = 256.0;
    for step in 1..=10 {
        // Compared before it is doubled: the window of 2 shows up at steps 3, 5, 7, 9.
        assert_eq!(scale.update(false).after, expected, "step {step}");
        if step % 2 == 0 {
            expected *= 2.0;
        }
    }
}

/// The same file, test_all_overflow, with the fused and the unfused floor.
#[test]
fn b08_overflows_halve_down_to_the_floor_and_the_fused_rule_stays() {
    for floor in [1.0, 2.0] {
        let mut scale = deepspeed_fused(4).with_floor(floor).init().unwrap();
        let mut expected = 16f32;
        for _ in 0..8 {
            expected = (expected / 2.0).max(floor);
            let update = scale.update(true);
            assert_eq!(update.after, expected);
            assert!(update.check().is_ok());
        }
    }
}

/// DeepSpeed's ZeRO scaler raises where the fused one stays.
#[test]
fn b08_the_zero_rule_raises_at_the_floor() {
    let config = LossScaleConfig::deepspeed()
        .with_init(16.0)
        .with_hysteresis(1);
    let mut scale = config.init().unwrap();
    for expected in [8.0, 4.0, 2.0, 1.0] {
        assert_eq!(scale.update(true).check().unwrap().after, expected);
    }
    assert!(scale.update(true).check().is_err());
}

/// The same file, test_some_overflow.
#[test]
fn b09_the_scale_recovers_after_window_plus_one_clean_steps() {
    let mut scale = deepspeed_fused(8).init().unwrap();
    run(&mut scale, true, 2);
    assert_eq!(scale.scale(), 64.0);
    run(&mut scale, false, 2);
    assert_eq!(scale.scale(), 64.0);
    run(&mut scale, false, 1);
    assert_eq!(scale.scale(), 128.0);
    run(&mut scale, true, 1);
    assert_eq!(scale.scale(), 64.0);
}

/// The same file, TestZeroStage0Hysteresis (051b9c8).
#[test]
fn b08_hysteresis_delays_the_fused_rule() {
    let mut scale = deepspeed_fused(8).with_hysteresis(3).init().unwrap();
    let scales = [true; 4].map(|found_inf| scale.update(found_inf).after);
    assert_eq!(scales, [256.0, 256.0, 128.0, 64.0]);

    let config = LossScaleConfig::deepspeed_consecutive().with_init(256.0);
    let mut scale = config.init().unwrap();
    for _ in 0..4 {
        scale.update(true);
        scale.update(false);
    }
    assert_eq!(scale.scale(), 256.0);
}

fn deepspeed_fused(initial_scale_power: i32) -> LossScaleConfig {
    LossScaleConfig::deepspeed_fused()
        .with_init(2f32.powi(initial_scale_power))
        .with_growth_interval(2)
}
