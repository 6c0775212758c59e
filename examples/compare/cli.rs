//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::program::flags::{self, Command, FlagError};

/// The answer to `--help`.
pub const HELP: &str = "\
Trains a small convolutional network on handwritten digits at every opt level and half dtype, from
one seed, and shows what differs: a table on stdout, and a page with plots.

Usage: cargo run --release --example compare -- [FLAGS]

  --report FILE            the page to write [default: report.html]
  --data DIR               train on the IDX files in DIR, as the example train has them
                           [default: the embedded 1797 UCI digits, a fifth of them for testing]
  --epochs N               passes over the training samples, 1 to 10000 [default: 10]
  --batch-size N           samples in a step, at least 1 [default: 64]
  --lr RATE                Adam's learning rate, above 0, at most 1 [default: 0.003]
  --growth-interval N      steps without overflow before the dynamic loss scale doubles, at least 1;
                           the library has 2000, a short training shows little then [default: 15]
  --seed N                 seed of the weights and of the order of samples [default: 1]
  --quick                  2 epochs, unless --epochs says otherwise
  --help, -h               show this text

Progress goes to stderr. Ctrl-C ends it without a report. Exit codes: 0; 2 for flags or data that
cannot be used; 130 after Ctrl-C.
";

/// Every choice that a comparison has.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub report: PathBuf,
    /// A directory of IDX files; `None` for the embedded digits.
    pub data: Option<PathBuf>,
    /// At least 1.
    pub epochs: usize,
    /// At least 1.
    pub batch_size: usize,
    /// In (0, 1].
    pub lr: f64,
    /// In steps, at least 1.
    pub growth_interval: u32,
    pub seed: u64,
}

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command<Options>, FlagError> {
    let mut options = Options {
        report: PathBuf::from("report.html"),
        data: None,
        epochs: 10,
        batch_size: 64,
        lr: 3e-3,
        growth_interval: 15,
        seed: 1,
    };
    let (mut quick, mut epochs) = (false, None);
    let read = flags::read(args, |flag| {
        match flag.name() {
            "report" => options.report = flag.path()?,
            "data" => options.data = Some(flag.path()?),
            "epochs" => epochs = Some(flag.epochs()?),
            "batch-size" => options.batch_size = flag.count()?,
            "lr" => options.lr = flag.learning_rate()?,
            "growth-interval" => {
                options.growth_interval = flag.number("a whole number above 0", |n| *n >= 1)?;
            }
            "seed" => options.seed = flag.seed()?,
            "quick" => quick = true,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if quick {
        options.epochs = 2;
    }
    options.epochs = epochs.unwrap_or(options.epochs);
    Ok(match read {
        Some(()) => Command::Run(options),
        None => Command::Help,
    })
}
