//! The training loop that the Learner's runs are held against.

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::train::TrainStep;
use burn_amp::{AmpScheduler, StepOutcome};

use crate::data::{Item, in_order};
use crate::launch::Optim;
use crate::model::Net;
use crate::support::Mixed;

/// One step: its learning rate and what became of it.
pub struct Step {
    pub lr: f64,
    pub outcome: StepOutcome,
}

/// Trains for some epochs, a step per batch.
pub fn train<S: LrScheduler>(
    mut model: Net<Mixed>,
    mut optim: Optim,
    schedule: S,
    items: &[Item],
    epochs: usize,
) -> (Net<Mixed>, Vec<Step>) {
    let mut schedule = AmpScheduler::new(schedule, optim.monitor());
    let mut steps = Vec::new();
    for _ in 0..epochs {
        for batch in in_order(items, &Default::default()) {
            let lr = schedule.step();
            let grads = TrainStep::step(&model, batch).grads;
            model = optim.step(lr, model, grads);
            let outcome = optim.last_step().unwrap();
            steps.push(Step { lr, outcome });
        }
    }
    (model, steps)
}
