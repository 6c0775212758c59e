//! The dashboard shows what casts lose, out of the numerics report of every so many steps.

use burn::lr_scheduler::constant::ConstantLr;
use burn::optim::AdamConfig;
use burn_amp::{AmpOptimizer, NumericsMonitor, OptLevel};

use crate::data::{Item, batches, faint};
use crate::launch::{Directory, Plan};
use crate::model::Beginning;
use crate::{constant, device_to_myself};

const STEPS: usize = 9;
const INTERVAL: u64 = 4; // steps 0, 4 and 8: the last one is watched

/// What was logged for the last step, in percent, and what the report of that step says.
fn last_logged(name: &str, items: Vec<Item>) -> [(f64, f64); 2] {
    let directory = Directory::new(name);
    let numerics = NumericsMonitor::every(INTERVAL);
    let amp = constant(OptLevel::O1);
    let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    let mut plan = Plan::new(&directory, items);
    plan.numerics = Some(numerics.clone());
    let model = Beginning::random().model(&amp);
    plan.launch(
        model.watched(numerics.clone()),
        optim,
        ConstantLr::from(1e-3),
    );

    let report = numerics.latest().unwrap();
    assert_eq!(report.steps, 1);
    assert_eq!(report.loss_scales, [Some(128.0)], "of one backward pass");
    let last = |metric| directory.log("train", 1, metric, STEPS)[STEPS - 1];
    [
        (last("Flushed_to_Zero"), 100.0 * report.flushed()),
        (last("Near_Overflow"), 100.0 * report.near_overflow()),
    ]
}

#[test]
fn the_metrics_log_what_the_report_of_the_last_watched_step_says() {
    let _device = device_to_myself();
    let [(flushed, reported), near] = last_logged("numerics-healthy", batches(STEPS));
    assert_eq!(flushed, reported);
    assert!(flushed < 1.0, "{flushed}% of healthy numbers");
    assert_eq!(near.0, near.1);

    // The inputs of the first layer are a good part of all that is cast, and all of them vanish.
    let [(flushed, reported), _] = last_logged("numerics-faint", faint(batches(STEPS)));
    assert_eq!(flushed, reported);
    assert!(flushed > 1.0, "{flushed}% of vanishing numbers");
}
