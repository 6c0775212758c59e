use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::module::{AutodiffModule, Module};
use burn::optim::AdamConfig;
use burn::tensor::DType;
use burn_amp::{AmpConfig, AmpOptimizer, OptLevel};

use crate::data::{batches, overflow};
use crate::launch::{Directory, Plan};
use crate::model::{Beginning, bits};
use crate::support::Mixed;
use crate::{LEVELS, by_hand, device_to_myself, dynamic};

const EPOCHS: usize = 4;
const STEPS: usize = 8;

/// The Learner's run and the one by hand are the same run, and the logs tell it number by number.
#[test]
fn the_learner_does_what_a_loop_by_hand_does_and_logs_it() {
    let _device = device_to_myself();
    for level in LEVELS {
        let items = overflow(batches(STEPS), 5);
        let schedule = || LinearLrSchedulerConfig::new(1e-2, 1e-3, 40).init().unwrap();
        let beginning = Beginning::random();

        let directory = Directory::new(&format!("single-{level}"));
        let amp = dynamic(level);
        let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        let mut plan = Plan::new(&directory, items.clone());
        plan.epochs = EPOCHS;
        let learned = plan.launch(beginning.model(&amp), optim, schedule());

        let (linear, norm) = learned.dtypes();
        let half = match level {
            OptLevel::O2 => DType::F16,
            _ => DType::F32,
        };
        assert_eq!(linear, [half; 4], "{level}");
        assert_eq!(norm, [DType::F32; 4], "{level}");

        let amp = dynamic(level);
        let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        let (model, steps) =
            by_hand::train(beginning.model(&amp), optim, schedule(), &items, EPOCHS);
        assert_eq!(bits(&learned), bits(&model.valid()), "{level}");

        let skipped = steps
            .iter()
            .filter(|step| step.outcome.was_skipped())
            .count();
        assert!(skipped >= EPOCHS, "an overflow in every epoch");
        let (mut skipped, mut norm) = (0, 0.0);
        for epoch in 1..=EPOCHS {
            let log = |metric| directory.log("train", epoch, metric, STEPS);
            let logged = [
                log("Learning_Rate"),
                log("Loss_Scale"),
                log("Grad_Norm"),
                log("Skipped_Steps"),
            ];
            for i in 0..STEPS {
                let Some(step) = steps.get((epoch - 1) * STEPS + i) else {
                    panic!("by hand there were as many steps");
                };
                skipped += u32::from(step.outcome.was_skipped());
                // A skipped step has no norm: the log repeats that of the last applied one.
                norm = step
                    .outcome
                    .grad_norm
                    .filter(|n| n.is_finite())
                    .unwrap_or(norm);
                let expected = [
                    step.lr,
                    f64::from(step.outcome.scale_after(0).unwrap()),
                    norm,
                    f64::from(skipped),
                ];
                assert_eq!(
                    logged.each_ref().map(|log| log[i]),
                    expected,
                    "{level} {epoch} {i}"
                );
            }
            let valid = directory.log("valid", epoch, "Skipped_Steps", 3);
            assert!(valid.iter().all(|logged| *logged >= f64::from(skipped)));
        }

        let loss = |epoch| directory.log("valid", epoch, "Loss", 3).iter().sum::<f64>();
        assert!(
            loss(EPOCHS) < 0.5 * loss(1),
            "{level}: {} to {}",
            loss(1),
            loss(EPOCHS)
        );
    }
}

/// What Burn shows of a model in its summary does not change.
#[test]
fn a_model_is_displayed_and_counted_as_before() {
    let _device = device_to_myself();
    let beginning = Beginning::random();
    let plain = AmpConfig::new(OptLevel::O0).build().unwrap();
    let plain = beginning.model(&plain);
    for level in LEVELS {
        let model = beginning.model(&dynamic(level));
        assert_eq!(model.to_string(), plain.to_string());
        assert_eq!(
            Module::<Mixed>::num_params(&model),
            Module::<Mixed>::num_params(&plain)
        );
    }
}
