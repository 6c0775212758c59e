//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::program::backend::Compiled;
use crate::program::flags::{self, Command, FlagError};
use crate::program::precision::{Precision, PrecisionFlags, precision_help};

/// The answer to `--help`.
pub const HELP: &str = concat!(
    "\
Burn's Learner trains a small convolutional network on handwritten digits, in mixed precision.

Usage: cargo run --release --features train --example learner -- [FLAGS]

",
    precision_help!(),
    "\nTraining
  --data DIR               train on the IDX files in DIR, as the example train has them
                           [default: the embedded 1797 UCI digits, a fifth of them for testing]
  --backend NAME           flex, cuda or wgpu, of those compiled in [default: a GPU, if compiled in]
  --epochs N               passes over the training samples, 1 to 10000 [default: 15]
  --patience N             epochs without a lower loss on the test samples before training stops
                           early, at least 1 [default: 4]
  --batch-size N           samples in a step, at least 1 [default: 64]
  --lr RATE                peak of Adam's learning rate, which falls to 0 along a half cosine;
                           above 0, at most 1 [default: 0.003]
  --seed N                 seed of the weights and of the order of samples [default: 1]

Files
  --artifacts DIR          where logs and checkpoints go; without --resume DIR must not hold
                           checkpoints yet [default: artifacts]
  --resume                 continue after the last whole epoch in DIR

Ctrl-C ends the training after its step; the checkpoints of whole epochs stay. The dashboard has the
keyboard to itself: there it is q, then s.

  --trace                  trace the step after a skipped one; the dashboard and its logs name the
                           operation and module where an overflow began, if the loss scale cannot
                           cure it
  --plain                  a line an epoch in place of the dashboard
  --quick                  2 epochs; flags after it count
  --help, -h               show this text

Exit codes: 0; 2 for flags or data that cannot be used; 130 after Ctrl-C.
"
);

/// Every choice that a training has.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub precision: Precision,
    /// A directory of IDX files; `None` for the embedded digits.
    pub data: Option<PathBuf>,
    pub backend: Compiled,
    /// At least 1.
    pub epochs: usize,
    /// In epochs, at least 1.
    pub patience: usize,
    /// At least 1.
    pub batch_size: usize,
    /// In (0, 1].
    pub lr: f64,
    pub seed: u64,
    pub artifacts: PathBuf,
    pub resume: bool,
    /// The overflow tracer looks at the step after a skipped one.
    pub trace: bool,
    /// No dashboard.
    pub plain: bool,
}

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command<Options>, FlagError> {
    let mut options = Options {
        precision: Precision::full(),
        data: None,
        backend: Compiled::default(),
        epochs: 15,
        patience: 4,
        batch_size: 64,
        lr: 3e-3,
        seed: 1,
        artifacts: PathBuf::from("artifacts"),
        resume: false,
        trace: false,
        plain: false,
    };
    let mut precision = PrecisionFlags::default();
    let read = flags::read(args, |flag| {
        match flag.name() {
            "data" => options.data = Some(flag.path()?),
            "backend" => options.backend = flag.one_of(Compiled::ALL)?,
            "epochs" => options.epochs = flag.epochs()?,
            "patience" => options.patience = flag.count()?,
            "batch-size" => options.batch_size = flag.count()?,
            "lr" => options.lr = flag.learning_rate()?,
            "seed" => options.seed = flag.seed()?,
            "artifacts" => options.artifacts = flag.path()?,
            "resume" => options.resume = true,
            "trace" => options.trace = true,
            "plain" => options.plain = true,
            "quick" => options.epochs = 2,
            _ => return precision.take(flag),
        }
        Ok(true)
    })?;
    if read.is_none() {
        return Ok(Command::Help);
    }
    options.precision = precision.finish()?;
    Ok(Command::Run(options))
}
