//! One trace, every rule, worked out by hand.
//!
//! Start 8, growth 2, backoff 0.5, interval 2, floor 1 where the rule has one, hysteresis 2 where
//! it has one. In the derivations `c` counts clean steps towards growth and `h` the overflows left
//! until backoff; `+` marks a growth, `-` a backoff, `h` an overflow held by hysteresis.

use burn_grad_scaler::{LossScale, LossScaleConfig, ScaleEvent};

const FOUND_INF: [u8; 15] = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1];

fn start(rule: LossScaleConfig) -> LossScale {
    rule.with_init(8.0).with_growth_interval(2).init().unwrap()
}

fn scales(rule: LossScaleConfig) -> [f32; 15] {
    let mut scale = start(rule);
    FOUND_INF.map(|found_inf| scale.update(found_inf == 1).after)
}

//   step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
//   found_inf   0  0  1  1  0  0  0  0  1  0  1  1  1  1  1
//   c           1  0  0  0  1  0  1  0  0  1  0  0  0  0  0
//                  +  -  -     +     +  -     -  -  -  -  -
const NO_FLOOR: [f32; 15] = [
    8., 16., 8., 4., 4., 8., 8., 16., 8., 8., 4., 2., 1., 0.5, 0.25,
];

// The same until step 13 reaches the floor.
const FLOOR_1: [f32; 15] = [8., 16., 8., 4., 4., 8., 8., 16., 8., 8., 4., 2., 1., 1., 1.];

#[test]
fn rules_without_hysteresis_or_floor() {
    assert_eq!(scales(LossScaleConfig::torch()), NO_FLOOR);
    assert_eq!(scales(LossScaleConfig::keras()), NO_FLOOR);
    assert_eq!(scales(LossScaleConfig::apex()), NO_FLOOR);
}

#[test]
fn rules_without_hysteresis_with_floor_1() {
    assert_eq!(scales(LossScaleConfig::default()), FLOOR_1);
    assert_eq!(scales(LossScaleConfig::apex().with_floor(1.0)), FLOOR_1);
    assert_eq!(scales(LossScaleConfig::jmp()), FLOOR_1);
    assert_eq!(scales(LossScaleConfig::tf_keras()), FLOOR_1);
    assert_eq!(scales(LossScaleConfig::paddle()), FLOOR_1);
    // Steps since the last overflow, or since the start: 1 2 - - 1 2 3 4 - 1 - - - - -. This rule
    // grows at each multiple of 2, which are the same steps.
    assert_eq!(scales(LossScaleConfig::apex_fp16_utils()), FLOOR_1);
}

#[test]
fn apex_kernel_refills_hysteresis_at_each_clean_step() {
    //   step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
    //   found_inf   0  0  1  1  0  0  0  0  1  0  1  1  1  1  1
    //   c           1  0  0  0  1  0  1  0  0  1  0  0  0  0  0
    //   h           2  2  1  0  2  2  2  2  1  2  1  0 -1 -2 -3
    //                  +  h  -     +     +  h     h  -  -  -  -
    let expected = [
        8., 16., 16., 8., 8., 16., 16., 32., 32., 32., 32., 16., 8., 4., 2.,
    ];
    assert_eq!(scales(LossScaleConfig::apex_hysteresis()), expected);
}

#[test]
fn megatron_refills_hysteresis_at_growth_only() {
    //   step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
    //   found_inf   0  0  1  1  0  0  0  0  1  0  1  1  1  1  1
    //   c           1  0  0  0  1  0  1  0  0  1  0  0  0  0  0
    //   h           2  2  1  0  0  2  2  2  1  1  0 -1 -2 -3 -4
    //                  +  h  -     +     +  h     -  -  -  -  -
    // Step 11 is where it parts from apex's kernel: step 10 was clean, but no growth.
    let expected = [
        8., 16., 16., 8., 8., 16., 16., 32., 32., 32., 16., 8., 4., 2., 1.,
    ];
    assert_eq!(scales(LossScaleConfig::megatron()), expected);
}

#[test]
fn deepspeed_waits_one_step_longer_and_raises_at_the_floor() {
    //   step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
    //   found_inf   0  0  1  1  0  0  0  0  1  0  1  1  1  1  1
    //   stable      0  1  -  -  0  1  2  3  -  0  -  -  -  -  -   (clean steps - 1; growth at 2, 4, ..)
    //   h           2  2  1  1  1  1  2  2  1  1  1  1  1  1  1
    //                     h  -        +     h     -  -  -  !  !
    let expected = [8., 8., 8., 4., 4., 4., 8., 8., 8., 8., 4., 2., 1., 1., 1.];
    assert_eq!(scales(LossScaleConfig::deepspeed()), expected);

    let mut scale = start(LossScaleConfig::deepspeed());
    let raised = FOUND_INF.map(|found_inf| u8::from(scale.update(found_inf == 1).check().is_err()));
    assert_eq!(raised, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
}

#[test]
fn deepspeed_consecutive_refills_hysteresis_at_each_clean_step() {
    //   step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
    //   found_inf   0  0  1  1  0  0  0  0  1  0  1  1  1  1  1
    //   stable      0  1  -  -  0  1  2  3  -  0  -  -  -  -  -
    //   h           2  2  1  1  2  2  2  2  1  2  1  1  1  1  1
    //                     h  -        +     h     h  -  -  -  !
    let expected = [8., 8., 8., 4., 4., 4., 8., 8., 8., 8., 8., 4., 2., 1., 1.];
    assert_eq!(scales(LossScaleConfig::deepspeed_consecutive()), expected);
}

#[test]
fn deepspeed_fused_ignores_hysteresis_and_stays_at_the_floor() {
    //   step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
    //   found_inf   0  0  1  1  0  0  0  0  1  0  1  1  1  1  1
    //   stable      0  1  -  -  0  1  2  3  -  0  -  -  -  -  -
    //                     -  -        +     -     -
    let expected = [8., 8., 4., 2., 2., 2., 4., 4., 2., 2., 1., 1., 1., 1., 1.];
    assert_eq!(scales(LossScaleConfig::deepspeed_fused()), expected);
    // The later commit that honours hysteresis: DeepSpeed's ZeRO row, without the errors.
    let later = LossScaleConfig::deepspeed_fused().with_hysteresis(2);
    assert_eq!(scales(later), scales(LossScaleConfig::deepspeed()));
}

#[test]
fn paddle_restarts_hysteresis_at_each_backoff() {
    //   step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
    //   found_inf   0  0  1  1  0  0  0  0  1  0  1  1  1  1  1
    //   good        1  0  0  0  1  0  1  0  0  1  0  0  0  0  0
    //   bad         0  0  1  0  0  0  0  0  1  0  1  0  1  0  1   (backoff at 2, then 0)
    //                  +  h  -     +     +  h     h  -  h  -  h
    let expected = [
        8., 16., 16., 8., 8., 16., 16., 32., 32., 32., 32., 16., 16., 8., 8.,
    ];
    assert_eq!(
        scales(LossScaleConfig::paddle().with_hysteresis(2)),
        expected
    );
}

#[test]
fn a_static_scale_never_changes() {
    let mut scale = LossScaleConfig::fixed(8.0).init().unwrap();
    assert_eq!(
        FOUND_INF.map(|found_inf| scale.update(found_inf == 1).after),
        [8.0; 15]
    );
    assert_eq!((scale.state().steps, scale.state().skipped), (15, 8));
}

#[test]
fn every_step_says_what_happened() {
    use ScaleEvent::*;
    let mut scale = start(LossScaleConfig::default().with_hysteresis(2).with_cap(16.0));
    let events = FOUND_INF.map(|found_inf| scale.update(found_inf == 1).event);
    let expected = [
        Unchanged,
        Grew,
        HeldByHysteresis,
        BackedOff,
        Unchanged,
        Grew,
        Unchanged,
        AtCap,
        HeldByHysteresis,
        Unchanged,
        HeldByHysteresis,
        BackedOff,
        BackedOff,
        BackedOff,
        BackedOff,
    ];
    assert_eq!(events, expected);
    assert_eq!(scale.scale(), 1.0);
    assert_eq!(scale.update(true).event, AtFloor);
}

#[test]
fn skips_are_counted_in_total_and_in_a_row() {
    let mut scale = start(LossScaleConfig::default());
    let in_a_row = FOUND_INF.map(|found_inf| scale.update(found_inf == 1).consecutive_skips);
    assert_eq!(in_a_row, [0, 0, 1, 2, 0, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5]);
    assert_eq!((scale.state().steps, scale.state().skipped), (15, 8));
}
