//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::program::backend::Compiled;
use crate::program::flags::{self, Command, FlagError};

/// The answer to `--help`.
pub const HELP: &str = "\
Runs one trained model in f32, at O1 and converted to half (O3), and compares its answers.

Usage: cargo run --release --example inference -- [FLAGS]

  --record FILE            the f32 record of a model on the embedded digits: epoch-N/model in a
                           directory that the example train has saved, without the ending .mpk
                           [default: one is trained first]
  --keep FILE              where a record that was trained here goes [default: digits-cnn]
  --backend NAME           flex, cuda or wgpu, of those compiled in [default: a GPU, if compiled in]
  --batch-size N           samples in a batch, at least 1 [default: 64]
  --epochs N               of the training, if there is one, 1 to 10000 [default: 8]
  --quick                  2 epochs; flags after it count
  --help, -h               show this text

Exit codes: 0; 2 for flags or a record that cannot be used; 130 after Ctrl-C.
";

/// Every choice there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub record: Option<PathBuf>,
    pub keep: PathBuf,
    pub backend: Compiled,
    /// At least 1.
    pub batch_size: usize,
    /// At least 1.
    pub epochs: usize,
}

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command<Options>, FlagError> {
    let mut options = Options {
        record: None,
        keep: PathBuf::from("digits-cnn"),
        backend: Compiled::default(),
        batch_size: 64,
        epochs: 8,
    };
    let read = flags::read(args, |flag| {
        match flag.name() {
            "record" => options.record = Some(flag.path()?),
            "keep" => options.keep = flag.path()?,
            "backend" => options.backend = flag.one_of(Compiled::ALL)?,
            "batch-size" => options.batch_size = flag.count()?,
            "epochs" => options.epochs = flag.epochs()?,
            "quick" => options.epochs = 2,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(match read {
        Some(()) => Command::Run(options),
        None => Command::Help,
    })
}
