//! Data-parallel training with an optimizer per device, as Burn's `ddp` strategy does it, on the CPU.

use std::sync::{Barrier, Mutex};
use std::thread;

use burn::data::dataloader::Progress;
use burn::data::dataloader::split::split_dataloader;
use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use burn::train::{
    EventProcessorTraining, Learner, LearnerEvent, LearningComponentsTypes,
    SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainingBackend,
    TrainingComponents, TrainingItem, TrainingModel, ValidLoader,
};
use burn_amp::{AmpOptimizer, LocalRanks, OptLevel, scope};

use crate::data::{batches, overflow};
use crate::launch::{Directory, Inner, Optim, Plan, Recording, Several};
use crate::model::{Beginning, Net, bits};
use crate::several_devices::by_hand;
use crate::support::Mixed;
use crate::{Device, LEVELS, constant, device_to_myself, dynamic};

/// Burn's own strategy needs a backend with collective operations, which no CPU backend is. This one
/// does the same: a thread with a clone of the learner per device, gradients summed after backward.
pub struct DataParallel {
    devices: Vec<Device>,
}

impl DataParallel {
    pub fn new(devices: Vec<Device>) -> Self {
        DataParallel { devices }
    }
}

impl<LC> SupervisedLearningStrategy<LC> for DataParallel
where
    LC: LearningComponentsTypes<Backend = Mixed> + Send + 'static,
{
    fn fit(
        &self,
        mut components: TrainingComponents<LC>,
        learner: Learner<LC>,
        train: TrainLoader<LC>,
        _valid: ValidLoader<LC>,
        starting_epoch: usize,
    ) -> (TrainingModel<LC>, SupervisedTrainingEventProcessor<LC>) {
        let sum = Sum::new(self.devices.len());
        let (sum, devices) = (&sum, &self.devices);
        let epochs = starting_epoch..=components.num_epochs;
        thread::scope(|threads| {
            let mut others = Vec::new();
            let mut loaders = split_dataloader(train, devices).into_iter().enumerate();
            let (_, main_loader) = loaders.next().unwrap();
            for (rank, loader) in loaders {
                let (mut learner, epochs) = (learner.clone(), epochs.clone());
                others.push(threads.spawn(move || {
                    learner.fork(&devices[rank]);
                    for _ in epochs {
                        train_epoch(&mut learner, &loader, sum, rank, |_, _, _| ());
                    }
                }));
            }
            let mut learner = learner.clone();
            learner.fork(&devices[0]);
            for epoch in epochs {
                let processor = &mut components.event_processor;
                let whole = Progress::new(epoch, components.num_epochs);
                train_epoch(&mut learner, &main_loader, sum, 0, |item, progress, lr| {
                    let item = TrainingItem::new(item, progress, whole.clone(), None, Some(lr));
                    processor.process_train(LearnerEvent::ProcessedItem(item));
                });
                processor.process_train(LearnerEvent::EndEpoch(epoch));
                if let Some(checkpointer) = &mut components.checkpointer {
                    checkpointer.checkpoint(&learner, epoch, &components.event_store);
                }
            }
            for other in others {
                other.join().unwrap();
            }
            (learner.model(), components.event_processor)
        })
    }
}

type Output<LC> = <TrainingModel<LC> as burn::train::TrainStep>::Output;

fn train_epoch<LC: LearningComponentsTypes<Backend = Mixed>>(
    learner: &mut Learner<LC>,
    loader: &TrainLoader<LC>,
    sum: &Sum,
    rank: usize,
    mut report: impl FnMut(Output<LC>, Progress, f64),
) {
    let mut batches = loader.iter();
    while let Some(batch) = batches.next() {
        learner.lr_step();
        let output = learner.train_step(batch);
        let grads = sum.of_all::<TrainingBackend<LC>, _>(rank, &learner.model(), output.grads);
        learner.optimizer_step(grads);
        report(output.item, batches.progress(), learner.lr_current());
    }
}

/// Adds the gradients of all ranks up, on each in the same order.
struct Sum {
    parts: Mutex<Vec<Vec<(ParamId, TensorData)>>>,
    all_here: Barrier,
}

impl Sum {
    fn new(ranks: usize) -> Self {
        Sum {
            parts: Mutex::new(vec![Vec::new(); ranks]),
            all_here: Barrier::new(ranks),
        }
    }

    fn of_all<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        rank: usize,
        model: &M,
        mut grads: GradientsParams,
    ) -> GradientsParams {
        let mut take = Take {
            grads: &mut grads,
            taken: Vec::new(),
        };
        scope::disabled(|| model.visit(&mut take));
        self.parts.lock().unwrap()[rank] = take.taken;
        self.all_here.wait();
        let parts = self.parts.lock().unwrap().clone();
        self.all_here.wait();
        scope::disabled(|| {
            model.visit(&mut Put {
                parts: &parts,
                grads: &mut grads,
            })
        });
        grads
    }
}

struct Take<'a> {
    grads: &'a mut GradientsParams,
    taken: Vec<(ParamId, TensorData)>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(grad) = self.grads.remove::<B::InnerBackend, D>(param.id) {
            self.taken.push((param.id, grad.into_data()));
        }
    }
}

struct Put<'a> {
    parts: &'a [Vec<(ParamId, TensorData)>],
    grads: &'a mut GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Put<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let device = param.val().device();
        let of_param = self
            .parts
            .iter()
            .flatten()
            .filter(|(id, _)| *id == param.id);
        let sum = of_param
            .map(|(_, data)| Tensor::<B::InnerBackend, D>::from_data(data.clone(), &device))
            .reduce(|sum, part| sum + part);
        if let Some(sum) = sum {
            self.grads.register::<B::InnerBackend, D>(param.id, sum);
        }
    }
}

const LR: f64 = 1e-2;

/// The parameters that are trained: running statistics are each rank's own.
fn trained(beginning: &Beginning, model: &Net<Inner>) -> Vec<(ParamId, TensorData)> {
    let trained = beginning.trained();
    let bits = bits(model).into_iter();
    bits.filter(|(id, _)| trained.contains(id)).collect()
}

#[test]
fn the_learner_trains_with_an_optimizer_per_device() {
    let _device = device_to_myself();
    for level in LEVELS {
        for ranks in [2, 4] {
            let beginning = Beginning::random();
            // On the second rank, the second step.
            let items = overflow(batches(12), 12 / ranks + 1);
            let left_out = |_, step| step == 1;
            let expected = by_hand(&beginning, level, &items, &[ranks; 2], left_out).valid();

            let amp = constant(level);
            let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp)
                .with_ranks(LocalRanks::new(ranks))
                .unwrap();
            let monitor = optim.monitor();
            let scaler = optim.scaler().clone();
            let directory = Directory::new("data-parallel");
            let mut plan = Plan::new(&directory, items);
            plan.epochs = 2;
            plan.devices = Some(Several::DataParallel(ranks));
            let learned = plan.launch(beginning.model(&amp), optim, LR);

            let case = format!("{level}, {ranks} ranks");
            let [learned, expected] = [&learned, &expected].map(|m| trained(&beginning, m));
            assert_eq!(learned, expected, "{case}");
            let steps = 12 / ranks as u64;
            assert_eq!(monitor.skipped(), 2, "{case}");
            assert_eq!(monitor.applied(), 2 * (steps - 1), "{case}");
            assert_eq!(scaler.loss_scale(0).state().steps, 2 * steps, "{case}");
            let skipped = directory.log("train", 2, "Skipped_Steps", steps as usize);
            assert_eq!(skipped.last(), Some(&2.0), "{case}");
        }
    }
}

#[test]
fn a_dynamic_scale_moves_once_for_all_devices() {
    let _device = device_to_myself();
    for ranks in [2, 4] {
        let amp = dynamic(OptLevel::O1);
        let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp)
            .with_ranks(LocalRanks::new(ranks))
            .unwrap();
        let (monitor, scaler) = (optim.monitor(), optim.scaler().clone());
        let directory = Directory::new("data-parallel-dynamic");
        let mut plan = Plan::new(&directory, overflow(batches(24), 0));
        plan.devices = Some(Several::DataParallel(ranks));
        plan.launch(Beginning::random().model(&amp), optim, LR);
        // The overflow put there, and what the first scale is too large for.
        let skips = monitor.skipped();
        let scale = 65536.0 * 0.5f32.powi(skips as i32);
        assert!((1..4).contains(&skips), "{ranks} ranks: {skips}");
        assert_eq!(
            monitor.applied() + skips,
            24 / ranks as u64,
            "{ranks} ranks"
        );
        assert_eq!(scaler.loss_scale(0).scale(), scale, "{ranks} ranks");
        assert_eq!(amp.loss_scales().get(0), scale, "{ranks} ranks");
    }
}

#[test]
fn a_checkpoint_of_two_ranks_continues_on_one_on_two_and_on_four() {
    let _device = device_to_myself();
    for level in LEVELS {
        let beginning = Beginning::random();
        let items = overflow(batches(8), 5);
        let directory = Directory::new("data-parallel-resumed");
        let run = |ranks: usize, resume: Option<usize>, epochs: usize| {
            let amp = constant(level);
            let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp)
                .with_ranks(LocalRanks::new(ranks))
                .unwrap();
            let monitor = optim.monitor();
            let mut plan = Plan::new(&directory, items.clone());
            plan.epochs = epochs;
            plan.recording = Some(Recording::Full);
            plan.resume = resume;
            plan.devices = Some(Several::DataParallel(ranks));
            let learned = plan.launch(beginning.model(&amp), optim, LR);
            (
                trained(&beginning, &learned),
                monitor.applied(),
                monitor.skipped(),
            )
        };
        run(2, None, 1);
        for ranks in [1, 2, 4] {
            // The sixth of eight batches, on 2 ranks and on as many as follow.
            let steps = 8 / ranks;
            let left_out = |epoch, step| step == [1, 5 % steps][epoch];
            let expected = by_hand(&beginning, level, &items, &[2, ranks], left_out).valid();
            let (learned, applied, skipped) = run(ranks, Some(1), 2);
            let case = format!("{level}, on {ranks}");
            assert_eq!(learned, trained(&beginning, &expected), "{case}");
            assert_eq!(applied as usize, 3 + steps - 1, "{case}");
            assert_eq!(skipped, 2, "{case}");
        }
    }
}
