use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::linear::{LinearLrScheduler, LinearLrSchedulerConfig};
use burn::optim::{AdamConfig, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, HalfPrecisionSettings, Record};
use burn::train::TrainStep;
use burn_amp::{AmpOptimizer, AmpScheduler, OptLevel};

use crate::data::{batches, in_order, overflow};
use crate::launch::{Directory, Optim, Plan};
use crate::model::Beginning;
use crate::support::Mixed;
use crate::{constant, device_to_myself};

fn linear() -> LinearLrScheduler {
    LinearLrSchedulerConfig::new(1e-2, 1e-3, 20).init().unwrap()
}

/// The first learning rates of the schedule, each so many times.
fn expected(times: &[usize]) -> Vec<f64> {
    let mut schedule = linear();
    let rates = times.iter().map(|times| vec![schedule.step(); *times]);
    rates.collect::<Vec<_>>().concat()
}

#[test]
fn the_learning_rate_holds_still_on_skipped_steps() {
    let _device = device_to_myself();
    let amp = constant(OptLevel::O1);
    let directory = Directory::new("schedule");
    let items = overflow(overflow(overflow(batches(8), 0), 3), 4);
    let plan = Plan::new(&directory, items);
    let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    plan.launch(Beginning::random().model(&amp), optim, linear());

    let rates = directory.log("train", 1, "Learning_Rate", 8);
    // Steps 0, 3 and 4 are skipped: 1, 4 and 5 come with the same rate again.
    assert_eq!(rates, expected(&[2, 1, 3, 1, 1]));
}

/// The Learner asks for a rate at every micro-batch. A skipped window holds the first one after it.
#[test]
fn with_accumulation_the_learning_rate_advances_per_micro_batch() {
    let _device = device_to_myself();
    let amp = constant(OptLevel::O1);
    let directory = Directory::new("schedule-accumulation");
    let mut plan = Plan::new(&directory, overflow(batches(9), 4));
    plan.accumulation = Some(3);
    let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    plan.launch(Beginning::random().model(&amp), optim, linear());

    let rates = directory.log("train", 1, "Learning_Rate", 9);
    assert_eq!(rates, expected(&[1, 1, 1, 1, 1, 2, 1, 1]));
    let skipped = directory.log("train", 1, "Skipped_Steps", 9);
    assert_eq!(skipped[8], 1.0);
}

/// Through a recorder of any precision, at every step, also right after a skipped one.
#[test]
fn a_schedule_resumes_from_a_record_at_every_step() {
    let _device = device_to_myself();
    let items = overflow(overflow(batches(6), 2), 3);
    for resume in 0..=6 {
        for half in [false, true] {
            let amp = constant(OptLevel::O1);
            let mut model = Beginning::random().model(&amp);
            let mut optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
            let mut schedule = AmpScheduler::new(linear(), optim.monitor());
            let mut rates = Vec::new();
            for (i, batch) in in_order(&items, &Default::default())
                .into_iter()
                .enumerate()
            {
                if i == resume {
                    let record = optim.to_record();
                    let fresh: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
                    optim = fresh.load_record(record);
                    let record = schedule.to_record::<Mixed>();
                    let record = match half {
                        false => saved_and_loaded(
                            record,
                            BinBytesRecorder::<FullPrecisionSettings>::default(),
                        ),
                        true => saved_and_loaded(
                            record,
                            BinBytesRecorder::<HalfPrecisionSettings>::default(),
                        ),
                    };
                    schedule =
                        AmpScheduler::new(linear(), optim.monitor()).load_record::<Mixed>(record);
                }
                rates.push(schedule.step());
                let grads = TrainStep::step(&model, batch).grads;
                model = optim.step(*rates.last().unwrap(), model, grads);
            }
            assert_eq!(rates, expected(&[1, 1, 3, 1]), "resumed at {resume}");
        }
    }
}

fn saved_and_loaded<R, T>(record: R, recorder: T) -> R
where
    R: Record<Mixed>,
    T: burn::record::Recorder<Mixed, RecordArgs = (), RecordOutput = Vec<u8>, LoadArgs = Vec<u8>>,
{
    let bytes = recorder.record(record, ()).unwrap();
    recorder.load(bytes, &Default::default()).unwrap()
}
