use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::module::Module;
use burn::optim::{AdamConfig, Optimizer};
use burn::record::{CompactRecorder, DefaultRecorder, FileRecorder};
use burn::tensor::TensorData;
use burn_amp::{AmpOptimizer, LossScale, OptLevel};

use crate::data::{batches, overflow};
use crate::launch::{Directory, Optim, Plan, Recording};
use crate::model::{Beginning, Net, bits};
use crate::support::Mixed;
use crate::{LEVELS, device_to_myself, dynamic};

const STEPS: usize = 6;

/// A run that stops and goes on at checkpoints.
struct Training<'a> {
    level: OptLevel,
    directory: &'a Directory,
    recording: Recording,
    /// The step of each epoch that overflows.
    overflow_at: usize,
}

impl Training<'_> {
    /// Trains up to an epoch, from the checkpoint of another one if told so.
    fn run(&self, beginning: &Beginning, resume: Option<usize>, epochs: usize, lr: f64) {
        let mut plan = Plan::new(self.directory, overflow(batches(STEPS), self.overflow_at));
        plan.epochs = epochs;
        plan.recording = Some(self.recording);
        plan.resume = resume;
        let amp = dynamic(self.level);
        let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        let schedule = LinearLrSchedulerConfig::new(lr, lr / 10.0, 40)
            .init()
            .unwrap();
        plan.launch(beginning.model(&amp), optim, schedule);
    }

    fn checkpoint(&self, epoch: usize) -> Checkpoint {
        match self.recording {
            Recording::Full => self.load(DefaultRecorder::new(), epoch),
            Recording::Compact => self.load(CompactRecorder::new(), epoch),
        }
    }

    fn load<R: FileRecorder<Mixed>>(&self, recorder: R, epoch: usize) -> Checkpoint {
        let device = Default::default();
        let file = |name| {
            let directory = self.directory.path();
            directory.join(format!("checkpoint/{name}-{epoch}"))
        };
        let amp = dynamic(self.level);
        let model = amp.cast_model(Net::<Mixed>::new(&device));
        let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        Checkpoint {
            model: model.load_record(recorder.load(file("model"), &device).unwrap()),
            optim: optim.load_record(recorder.load(file("optim"), &device).unwrap()),
        }
    }
}

/// What a checkpoint holds.
struct Checkpoint {
    model: Net<Mixed>,
    optim: Optim,
}

impl Checkpoint {
    /// The model as saved, and in full precision.
    fn model(&self) -> [Vec<TensorData>; 2] {
        [
            self.model.clone(),
            self.optim.full_model(self.model.clone()),
        ]
        .map(|m| values(&m))
    }

    fn scale(&self) -> (LossScale, u64, u64) {
        let monitor = self.optim.monitor();
        (
            self.optim.loss_scale(),
            monitor.applied(),
            monitor.skipped(),
        )
    }
}

fn values(model: &Net<Mixed>) -> Vec<TensorData> {
    let bits = bits(model).into_iter();
    bits.map(|(_, data)| data).collect()
}

#[test]
fn two_and_two_epochs_are_four_epochs_bit_by_bit() {
    let _device = device_to_myself();
    for level in LEVELS {
        let [through, resumed] =
            ["through", "resumed"].map(|name| Directory::new(&format!("{name}-{level}")));
        let [through, resumed] = [&through, &resumed].map(|directory| Training {
            level,
            directory,
            recording: Recording::Full,
            // The last step before the checkpoint: the learning rate is held across it.
            overflow_at: STEPS - 1,
        });
        let beginning = Beginning::random();
        through.run(&beginning, None, 4, 1e-2);
        resumed.run(&beginning, None, 2, 1e-2);
        // From other weights, which the checkpoint replaces.
        resumed.run(&Beginning::random(), Some(2), 4, 1e-2);

        for epoch in [4, 3, 2] {
            let [expected, got] = [&through, &resumed].map(|run| run.checkpoint(epoch));
            assert_eq!(got.model(), expected.model(), "{level}, epoch {epoch}");
            assert_eq!(got.scale(), expected.scale(), "{level}, epoch {epoch}");
            for metric in ["Learning_Rate", "Loss_Scale", "Skipped_Steps"] {
                // Burn's logs begin at epoch 1 again when training resumes.
                let logged_as = if epoch == 3 { 1 } else { epoch };
                let got = resumed.directory.log("train", logged_as, metric, STEPS);
                let expected = through.directory.log("train", epoch, metric, STEPS);
                assert_eq!(got, expected, "{level}, epoch {epoch}, {metric}");
            }
        }
        let lr = |epoch| {
            through
                .directory
                .log("train", epoch, "Learning_Rate", STEPS)
        };
        assert_eq!(lr(2)[STEPS - 1], lr(3)[0], "{level}: held");
    }
}

/// A recorder in half precision rounds the f32 parameters of the model's record, and those only: the
/// optimizer's record has their exact values, which come back at the next applied step.
#[test]
fn a_compact_recorder_rounds_only_what_the_first_forward_sees() {
    let _device = device_to_myself();
    for level in LEVELS {
        let [full, compact] =
            ["full", "compact"].map(|name| Directory::new(&format!("{name}-{level}")));
        let [full, compact] = [(&full, Recording::Full), (&compact, Recording::Compact)].map(
            |(directory, recording)| Training {
                level,
                directory,
                recording,
                // The first step after the checkpoint: the exact values wait for the next one.
                overflow_at: 0,
            },
        );
        let beginning = Beginning::random();
        full.run(&beginning, None, 2, 1e-2);
        compact.run(&beginning, None, 2, 1e-2);

        let (saved, loaded) = (full.checkpoint(2), compact.checkpoint(2));
        let ([model, masters], [rounded, exact]) = (saved.model(), loaded.model());
        assert_ne!(rounded, model, "{level}: f32 parameters are rounded");
        assert_eq!(exact, masters, "{level}: the masters are exact");
        assert_eq!(loaded.scale(), saved.scale(), "{level}");

        // `restore_model` puts the exact values in before the first forward.
        let restored = loaded.optim.restore_model(loaded.model.clone());
        assert_eq!(values(&restored), model, "{level}");

        // Steps that lead nowhere, at a rate that is 0 in f32: the exact values are back.
        compact.run(&beginning, Some(2), 3, 1e-60);
        let [_, after] = compact.checkpoint(3).model();
        for i in trained(&saved.model) {
            assert_eq!(after[i], masters[i], "{level}, parameter {i}");
        }
    }
}

/// The places of the parameters that are trained among a model's float tensors.
fn trained(model: &Net<Mixed>) -> Vec<usize> {
    let trained = model.trained();
    let ids = bits(model).into_iter().map(|(id, _)| id).enumerate();
    let places = ids.filter(|(_, id)| trained.contains(id));
    places.map(|(place, _)| place).collect()
}
