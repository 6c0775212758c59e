//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::program::backend::Compiled;
use crate::program::checkpoint::{CheckpointFlags, checkpoint_help};
use crate::program::flags::{self, Command, FlagError};
use crate::program::precision::{Precision, PrecisionFlags, precision_help};

/// The answer to `--help`.
pub const HELP: &str = concat!(
    "\
Trains ResNet-18 with Adam and Fp16Optimizer, Apex's FP16_Optimizer, whose half model is level O2.

Usage: cargo run --release --example fp16_optimizer -- --fp16 --fp16-opt-level O2 [FLAGS]

",
    precision_help!(),
    "\nTraining
  --data DIR               CIFAR-10 in its binary format: data_batch_1.bin to data_batch_5.bin and
                           test_batch.bin. Meant for a GPU.
                           [default: the embedded 1797 UCI digits, enlarged from 8x8 to 16x16
                           pixels: enough to see the optimizer work, not to judge a ResNet by]
  --backend NAME           flex, cuda or wgpu, of those compiled in [default: a GPU, if compiled in]
  --samples N              use only the first N samples to train and to test [default: all]
  --epochs N               passes over the training samples, 1 to 10000
                           [default: 10 with --data, otherwise 2]
  --batch-size N           samples in a step, at least 1 [default: 128]
  --lr RATE                Adam's learning rate, above 0, at most 1 [default: 0.001]
  --seed N                 seed of the weights and of the order of samples [default: 1]

",
    checkpoint_help!(),
    "\n  --quick                  a short run: 32 samples in batches of 16, 4 epochs; flags after it count
  --help, -h               show this text

Exit codes: 0; 2 for flags or data that cannot be used; 130 after Ctrl-C.
"
);

/// Every choice that a training has.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub precision: Precision,
    /// A directory of CIFAR-10's binary files; `None` for the embedded digits.
    pub data: Option<PathBuf>,
    pub backend: Compiled,
    /// At least 1.
    pub samples: usize,
    /// At least 1.
    pub epochs: usize,
    /// At least 1.
    pub batch_size: usize,
    /// In (0, 1].
    pub lr: f64,
    pub seed: u64,
    pub checkpoint: CheckpointFlags,
}

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command<Options>, FlagError> {
    let mut options = Options {
        precision: Precision::full(),
        data: None,
        backend: Compiled::default(),
        samples: usize::MAX,
        epochs: 2,
        batch_size: 128,
        lr: 1e-3,
        seed: 1,
        checkpoint: CheckpointFlags::default(),
    };
    let mut precision = PrecisionFlags::default();
    let mut epochs = None;
    let read = flags::read(args, |flag| {
        match flag.name() {
            "data" => options.data = Some(flag.path()?),
            "backend" => options.backend = flag.one_of(Compiled::ALL)?,
            "samples" => options.samples = flag.count()?,
            "epochs" => epochs = Some(flag.epochs()?),
            "batch-size" => options.batch_size = flag.count()?,
            "lr" => options.lr = flag.learning_rate()?,
            "seed" => options.seed = flag.seed()?,
            "quick" => {
                options.samples = 32;
                options.batch_size = 16;
                epochs = Some(4);
            }
            _ => return Ok(precision.take(flag)? || options.checkpoint.take(flag)?),
        }
        Ok(true)
    })?;
    if read.is_none() {
        return Ok(Command::Help);
    }
    options.epochs = epochs.unwrap_or(if options.data.is_some() { 10 } else { 2 });
    options.precision = precision.finish()?;
    options.checkpoint = options.checkpoint.finish()?;
    Ok(Command::Run(options))
}
