use burn::module::AutodiffModule;
use burn::optim::{AdamConfig, GradientsAccumulator, Optimizer};
use burn::tensor::TensorData;
use burn::train::TrainStep;
use burn_amp::AmpOptimizer;

use crate::data::{Item, batches, in_order, overflow, without};
use crate::launch::{Directory, Inner, Optim, Plan};
use crate::model::{Beginning, Net, bits};
use crate::{LEVELS, constant, device_to_myself};

const WINDOW: usize = 3;
const LR: f64 = 1e-2;

/// By the Learner's own setting; also the number of steps it skipped.
fn learn(beginning: &Beginning, level: burn_amp::OptLevel, items: Vec<Item>) -> (Net<Inner>, u64) {
    let amp = constant(level);
    let directory = Directory::new("accumulation");
    let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    let monitor = optim.monitor();
    let mut plan = Plan::new(&directory, items);
    plan.accumulation = Some(WINDOW);
    let model = plan.launch(beginning.model(&amp), optim, LR);
    (model, monitor.skipped())
}

#[test]
fn the_learner_accumulates_true_gradients() {
    let _device = device_to_myself();
    for level in LEVELS {
        let beginning = Beginning::random();
        let items = batches(4 * WINDOW);
        let (learned, _) = learn(&beginning, level, items.clone());

        let amp = constant(level);
        let mut optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        let mut model = beginning.model(&amp);
        for window in in_order(&items, &Default::default()).chunks(WINDOW) {
            let mut accumulator = GradientsAccumulator::new();
            for batch in window {
                let grads = TrainStep::step(&model, batch.clone()).grads;
                accumulator.accumulate(&model, grads);
            }
            model = optim.step(LR, model, accumulator.grads());
        }
        assert_eq!(bits(&learned), bits(&model.valid()), "{level}");
    }
}

#[test]
fn an_overflow_in_one_micro_batch_leaves_its_window_out_and_no_other() {
    let _device = device_to_myself();
    for level in LEVELS {
        for micro_batch in 0..4 * WINDOW {
            let beginning = Beginning::random();
            let window = micro_batch / WINDOW;
            let items = overflow(batches(4 * WINDOW), micro_batch);
            let window_out: Vec<usize> = (window * WINDOW..(window + 1) * WINDOW).collect();

            let (expected, none) = learn(&beginning, level, without(&items, &window_out));
            let (got, one) = learn(&beginning, level, items);
            assert_eq!((none, one), (0, 1), "{level}, micro-batch {micro_batch}");
            let (got, expected) = (kept(&got, window), kept(&expected, window));
            assert_eq!(got, expected, "{level}, micro-batch {micro_batch}");
        }
    }
}

/// What is the same without the window.
///
/// BatchNorm's running statistics are, except when the first window is skipped: no applied step
/// before it has told the optimizer what they were, and the other micro-batches have changed them.
/// Then they are finite.
fn kept(model: &Net<Inner>, window: usize) -> Vec<TensorData> {
    let trained = model.trained();
    let mut kept = Vec::new();
    for (id, data) in bits(model) {
        assert!(data.iter::<f32>().all(f32::is_finite));
        if window > 0 || trained.contains(&id) {
            kept.push(data);
        }
    }
    kept
}
