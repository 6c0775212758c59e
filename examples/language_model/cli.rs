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
Trains a small GPT on the bytes of a text, in mixed precision, and lets it write.

Usage: cargo run --release --example language_model -- [FLAGS]

",
    precision_help!(),
    "\nTraining
  --text FILE              the text, at least a few thousand bytes; its last tenth is for testing
                           [default: six embedded chapters of Alice's Adventures in Wonderland]
  --backend NAME           flex, cuda or wgpu, of those compiled in [default: a GPU, if compiled in]
  --epochs N               passes over the text, 1 to 10000 [default: 10]
  --batch-size N           pieces of text in a step, at least 1 [default: 16]
  --lr RATE                AdamW's learning rate, above 0, at most 1 [default: 0.002]
  --seed N                 seed of weights, order and sampling [default: 1]

Model
  --length N               bytes that it looks at together, at least 2 [default: 64]
  --width N                numbers a byte is turned into, a multiple of --heads [default: 96]
  --heads N                heads of attention, at least 1 [default: 4]
  --layers N               at least 1 [default: 2]

Writing
  --prompt TEXT            what it goes on from, at least one byte [default: Alice ]
  --write N                bytes that it writes [default: 300]
  --temperature T          above 0, at most 10: lower is more sober [default: 0.7]

",
    checkpoint_help!(),
    "\n  --quick                  a short run: one layer of width 32 on a tenth of the embedded text,
                           2 epochs;
                           flags after it count
  --help, -h               show this text

Exit codes: 0; 2 for flags or a text that cannot be used; 130 after Ctrl-C.
"
);

/// Every choice there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub precision: Precision,
    pub text: Option<PathBuf>,
    /// The share of the embedded text that is used, from 0 to 1.
    pub share: f64,
    pub backend: Compiled,
    pub epochs: usize,
    pub batch_size: usize,
    pub lr: f64,
    pub seed: u64,
    pub length: usize,
    pub width: usize,
    pub heads: usize,
    pub layers: usize,
    pub prompt: String,
    pub write: usize,
    pub temperature: f64,
    pub checkpoint: CheckpointFlags,
}

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command<Options>, FlagError> {
    let mut options = Options {
        precision: Precision::full(),
        text: None,
        share: 1.0,
        backend: Compiled::default(),
        epochs: 10,
        batch_size: 16,
        lr: 2e-3,
        seed: 1,
        length: 64,
        width: 96,
        heads: 4,
        layers: 2,
        prompt: "Alice ".to_string(),
        write: 300,
        temperature: 0.7,
        checkpoint: CheckpointFlags::default(),
    };
    let mut precision = PrecisionFlags::default();
    let read = flags::read(args, |flag| {
        match flag.name() {
            "text" => options.text = Some(flag.path()?),
            "backend" => options.backend = flag.one_of(Compiled::ALL)?,
            "epochs" => options.epochs = flag.epochs()?,
            "batch-size" => options.batch_size = flag.count()?,
            "lr" => options.lr = flag.learning_rate()?,
            "seed" => options.seed = flag.seed()?,
            "length" => options.length = flag.number("a whole number above 1", |n| *n >= 2)?,
            "width" => options.width = flag.count()?,
            "heads" => options.heads = flag.count()?,
            "layers" => options.layers = flag.count()?,
            "prompt" => {
                options.prompt = flag.number("a text", |text: &String| !text.is_empty())?;
            }
            "write" => options.write = flag.count()?,
            "temperature" => {
                let allowed = "a number above 0, at most 10";
                options.temperature = flag.number(allowed, |t| *t > 0.0 && *t <= 10.0)?;
            }
            "quick" => {
                options = Options {
                    share: 0.1,
                    epochs: 2,
                    batch_size: 8,
                    width: 32,
                    layers: 1,
                    length: 32,
                    write: 60,
                    ..options.clone()
                };
            }
            _ => return Ok(precision.take(flag)? || options.checkpoint.take(flag)?),
        }
        Ok(true)
    })?;
    if read.is_none() {
        return Ok(Command::Help);
    }
    if !options.width.is_multiple_of(options.heads) {
        return Err(FlagError::Value {
            flag: "--width".to_string(),
            value: options.width.to_string(),
            allowed: format!("a multiple of --heads {}", options.heads),
        });
    }
    options.precision = precision.finish()?;
    options.checkpoint = options.checkpoint.finish()?;
    Ok(Command::Run(options))
}
