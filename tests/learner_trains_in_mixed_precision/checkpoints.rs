use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::module::{AutodiffModule, Module};
use burn::optim::{AdamConfig, Optimizer};
use burn::record::{CompactRecorder, DefaultRecorder, Recorder};
use burn::tensor::TensorData;
use burn_amp::{Amp, AmpOptimizer, LossScale, OptLevel};

use crate::data::{batches, overflow};
use crate::launch::{Directory, Optim, Plan, Recording};
use crate::model::{Beginning, Net, bits};
use crate::support::Mixed;
use crate::{LEVELS, device_to_myself, dynamic};

const STEPS: usize = 6;

/// Trains up to an epoch, from the checkpoint of another one if told so.
fn train(
    beginning: &Beginning,
    level: OptLevel,
    directory: &Directory,
    recording: Recording,
    (resume, epochs): (Option<usize>, usize),
    lr: f64,
) {
    // The overflow is the last step of the epoch: the learning rate is held across the checkpoint.
    let mut plan = Plan::new(directory, overflow(batches(STEPS), STEPS - 1));
    plan.epochs = epochs;
    plan.recording = Some(recording);
    plan.resume = resume;
    let amp = dynamic(level);
    let optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
    let schedule = LinearLrSchedulerConfig::new(lr, lr / 10.0, 40)
        .init()
        .unwrap();
    plan.launch(beginning.model(&amp), optim, schedule);
}

/// What a checkpoint holds.
struct Checkpoint {
    amp: Amp,
    model: Net<Mixed>,
    optim: Optim,
}

impl Checkpoint {
    fn load(level: OptLevel, directory: &Directory, recording: Recording, epoch: usize) -> Self {
        let amp = dynamic(level);
        let device = Default::default();
        let file = |name| directory.path().join(format!("checkpoint/{name}-{epoch}"));
        let model = amp.cast_model(Net::<Mixed>::new(&device));
        let optim: Optim = AmpOptimizer::new(AdamConfig::new().init(), &amp);
        let (model, optim) = match recording {
            Recording::Full => {
                let load = DefaultRecorder::new();
                let record = Recorder::<Mixed>::load(&load, file("model"), &device).unwrap();
                let model = model.load_record(record);
                let record = Recorder::<Mixed>::load(&load, file("optim"), &device).unwrap();
                (model, optim.load_record(record))
            }
            Recording::Compact => {
                let load = CompactRecorder::new();
                let record = Recorder::<Mixed>::load(&load, file("model"), &device).unwrap();
                let model = model.load_record(record);
                let record = Recorder::<Mixed>::load(&load, file("optim"), &device).unwrap();
                (model, optim.load_record(record))
            }
        };
        Checkpoint { amp, model, optim }
    }

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
        let beginning = Beginning::random();
        let [through, resumed] =
            ["through", "resumed"].map(|name| Directory::new(&format!("{name}-{level}")));
        train(
            &beginning,
            level,
            &through,
            Recording::Full,
            (None, 4),
            1e-2,
        );
        train(
            &beginning,
            level,
            &resumed,
            Recording::Full,
            (None, 2),
            1e-2,
        );
        // From other weights, which the checkpoint replaces.
        let other = Beginning::random();
        train(&other, level, &resumed, Recording::Full, (Some(2), 4), 1e-2);

        for epoch in [4, 3, 2] {
            let [expected, got] = [&through, &resumed]
                .map(|directory| Checkpoint::load(level, directory, Recording::Full, epoch));
            assert_eq!(got.model(), expected.model(), "{level}, epoch {epoch}");
            assert_eq!(got.scale(), expected.scale(), "{level}, epoch {epoch}");
            for metric in ["Learning_Rate", "Loss_Scale", "Skipped_Steps"] {
                // Burn's logs begin at epoch 1 again when training resumes.
                let logged_as = if epoch == 3 { 1 } else { epoch };
                let got = resumed.log("train", logged_as, metric, STEPS);
                let expected = through.log("train", epoch, metric, STEPS);
                assert_eq!(got, expected, "{level}, epoch {epoch}, {metric}");
            }
        }
        // The step before the checkpoint was skipped: its learning rate comes again after it.
        let lr = |epoch| through.log("train", epoch, "Learning_Rate", STEPS);
        assert_eq!(lr(2)[STEPS - 1], lr(3)[0], "{level}");
    }
}

/// A recorder in half precision rounds the f32 parameters of the model's record, and those only: the
/// optimizer's record has their exact values, which come back at the next applied step.
#[test]
fn a_compact_recorder_rounds_only_what_the_first_forward_sees() {
    let _device = device_to_myself();
    for level in LEVELS {
        let beginning = Beginning::random();
        let [full, compact] =
            ["full", "compact"].map(|name| Directory::new(&format!("{name}-{level}")));
        train(&beginning, level, &full, Recording::Full, (None, 2), 1e-2);
        train(
            &beginning,
            level,
            &compact,
            Recording::Compact,
            (None, 2),
            1e-2,
        );

        let saved = Checkpoint::load(level, &full, Recording::Full, 2);
        let loaded = Checkpoint::load(level, &compact, Recording::Compact, 2);
        let ([model, masters], [rounded, exact]) = (saved.model(), loaded.model());
        assert_ne!(rounded, model, "{level}: f32 parameters are rounded");
        assert_eq!(exact, masters, "{level}: the masters are exact");
        assert_eq!(loaded.scale(), saved.scale(), "{level}");

        // `restore_model` puts the exact values in before the first forward.
        let restored = loaded.optim.restore_model(loaded.model.clone());
        assert_eq!(values(&restored), model, "{level}");
        assert_eq!(restored.valid().dtypes(), saved.model.valid().dtypes());
        drop(loaded.amp);

        // Steps that lead nowhere, at a rate that is 0 in f32: the exact values are back.
        train(
            &beginning,
            level,
            &compact,
            Recording::Compact,
            (Some(2), 3),
            1e-60,
        );
        let [_, after] = Checkpoint::load(level, &compact, Recording::Compact, 3).model();
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
