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
Trains a small convolutional network on handwritten digits, in mixed precision.

Usage: cargo run --release --example train -- [FLAGS]

",
    precision_help!(),
    "\nTraining
  --data DIR               train on the IDX files in DIR (MNIST: train-images-idx3-ubyte,
                           train-labels-idx1-ubyte, t10k-images-idx3-ubyte,
                           t10k-labels-idx1-ubyte; also with .idx in place of -idx)
                           [default: the embedded 1797 UCI digits, a fifth of them for testing]
  --backend NAME           flex, cuda or wgpu, of those compiled in [default: a GPU, if compiled in]
  --epochs N               passes over the training samples, 1 to 10000 [default: 15]
  --batch-size N           samples in a step, at least 1 [default: 64]
  --lr RATE                peak of Adam's learning rate, which falls to 0 along a half cosine;
                           above 0, at most 1 [default: 0.003]
  --seed N                 seed of the weights and of the order of samples [default: 1]

",
    checkpoint_help!(),
    "\n  --help, -h               show this text

Progress goes to stderr, the summary to stdout. Exit codes: 0 when the training ran, even if it
diverged; 2 for flags or data that cannot be used; 130 after Ctrl-C.
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
    /// At least 1.
    pub batch_size: usize,
    /// In (0, 1].
    pub lr: f64,
    pub seed: u64,
    pub checkpoint: CheckpointFlags,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            precision: Precision::full(),
            data: None,
            backend: Compiled::default(),
            epochs: 15,
            batch_size: 64,
            lr: 3e-3,
            seed: 1,
            checkpoint: CheckpointFlags::default(),
        }
    }
}

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command<Options>, FlagError> {
    let mut options = Options::default();
    let mut precision = PrecisionFlags::default();
    let read = flags::read(args, |flag| {
        match flag.name() {
            "data" => options.data = Some(flag.path()?),
            "backend" => options.backend = flag.one_of(Compiled::ALL)?,
            "epochs" => options.epochs = flag.epochs()?,
            "batch-size" => options.batch_size = flag.count()?,
            "lr" => options.lr = flag.learning_rate()?,
            "seed" => options.seed = flag.seed()?,
            _ => return Ok(precision.take(flag)? || options.checkpoint.take(flag)?),
        }
        Ok(true)
    })?;
    if read.is_none() {
        return Ok(Command::Help);
    }
    options.precision = precision.finish()?;
    options.checkpoint = options.checkpoint.finish()?;
    Ok(Command::Run(options))
}

#[cfg(test)]
mod tests {
    use burn_amp::{HalfDType, LossScaling, OptLevel};
    use proptest::prelude::*;

    use super::*;

    fn parse_line(line: &str) -> Result<Command<Options>, FlagError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(line: &str) -> Options {
        match parse_line(line).unwrap() {
            Command::Run(options) => options,
            Command::Help => panic!("help was not asked for"),
        }
    }

    fn message(line: &str) -> String {
        parse_line(line).unwrap_err().to_string()
    }

    #[test]
    fn plain_f32_is_the_default_and_fp16_alone_is_o1() {
        assert_eq!(options(""), Options::default());
        assert_eq!(options("").precision.level, OptLevel::O0);
        assert_eq!(options("--fp16").precision.level, OptLevel::O1);
    }

    #[test]
    fn the_level_has_two_spellings() {
        for level in OptLevel::ALL {
            let expected = Options {
                precision: Precision::new(level, HalfDType::Bf16),
                ..Options::default()
            };
            for flag in [
                "--fp16-opt-level ",
                "--fp16_opt_level ",
                "--fp16_opt_level=",
            ] {
                let line = format!("--half bf16 {flag}{level} --fp16");
                assert_eq!(options(&line), expected, "{line}");
            }
        }
    }

    #[test]
    fn every_other_flag_is_read() {
        let read = options(
            "--data some/dir --backend flex --epochs 3 --batch-size=7 --lr 0.5 --seed 9 --save kept \
             --resume",
        );
        let expected = Options {
            data: Some("some/dir".into()),
            backend: Compiled::Flex,
            epochs: 3,
            batch_size: 7,
            lr: 0.5,
            seed: 9,
            checkpoint: CheckpointFlags {
                save: Some("kept".into()),
                resume: true,
            },
            ..Options::default()
        };
        assert_eq!(read, expected);
        let scaled = options("--fp16 --loss-scale 128");
        assert_eq!(
            scaled.precision.loss_scale,
            Some(LossScaling::Static(128.0))
        );
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        for (line, parts) in [
            (
                "--fp16 --fp16-opt-level 01",
                &["--fp16-opt-level", "\"01\"", "letter O"][..],
            ),
            (
                "--fp16 --fp16-opt-level O4",
                &["--fp16-opt-level", "\"O4\"", "O0, O1, O2 and O3"],
            ),
            ("--fp16 --half f8", &["--half", "\"f8\"", "bf16"]),
            (
                "--fp16-opt-level O2",
                &["--fp16-opt-level has no effect without --fp16"],
            ),
            (
                "--fp16 --loss-scale 0",
                &["--loss-scale", "\"0\"", "above 0"],
            ),
            (
                "--loss-scale dynamic",
                &["--loss-scale has no effect without --fp16"],
            ),
            ("--resume", &["--resume needs --save"]),
            ("--half bf16", &["--half has no effect without --fp16"]),
            ("--backend abacus", &["--backend", "\"abacus\"", "flex"]),
            ("--epochs 0", &["--epochs", "\"0\"", "from 1 to 10000"]),
            ("--epochs many", &["--epochs", "\"many\""]),
            ("--batch-size 0", &["--batch-size", "above 0"]),
            ("--batch-size -1", &["--batch-size", "\"-1\""]),
            ("--lr 0", &["--lr", "above 0"]),
            ("--lr nan", &["--lr", "\"nan\""]),
            ("--lr inf", &["--lr", "\"inf\""]),
            ("--seed -1", &["--seed", "\"-1\""]),
            ("--lr", &["'--lr'", "missing"]),
            ("--fp16=yes", &["'--fp16'", "\"yes\""]),
            ("--turbo", &["'--turbo'", "--help"]),
            ("mnist", &["\"mnist\"", "--help"]),
        ] {
            let message = message(line);
            for part in parts {
                assert!(message.contains(part), "{line}: {message}");
            }
        }
    }

    #[test]
    fn help_lists_every_flag_and_its_default() {
        assert_eq!(parse_line("--epochs 3 -h").unwrap(), Command::Help);
        let Options {
            epochs,
            batch_size,
            lr,
            seed,
            precision,
            ..
        } = Options::default();
        for (flag, default) in [
            ("--fp16-opt-level", OptLevel::default().to_string()),
            ("--half", precision.half.to_string()),
            (
                "--loss-scale",
                "dynamic for O1 and O2 in f16, otherwise 1".to_string(),
            ),
            (
                "--data",
                "the embedded 1797 UCI digits, a fifth of them for testing".to_string(),
            ),
            ("--backend", "a GPU, if compiled in".to_string()),
            ("--epochs", epochs.to_string()),
            ("--batch-size", batch_size.to_string()),
            ("--lr", lr.to_string()),
            ("--seed", seed.to_string()),
        ] {
            let (_, text) = HELP.split_once(&format!("\n  {flag} ")).expect(flag);
            let (_, shown) = text.split_once("[default: ").expect(flag);
            assert!(
                shown.starts_with(&format!("{default}]")),
                "{flag}: {default}"
            );
        }
        assert!(HELP.contains("\n  --fp16 ") && HELP.contains("--fp16_opt_level"));
        assert!(HELP.lines().all(|line| line.len() <= 100));
    }

    proptest! {
        #[test]
        fn random_arguments_never_panic(
            args in prop::collection::vec(
                prop_oneof![
                    any::<String>(),
                    prop::sample::select(vec!["--fp16", "--half", "--lr", "--seed", "--epochs"])
                        .prop_map(str::to_string),
                ],
                0..6,
            ),
        ) {
            let _ = parse(args.into_iter().map(OsString::from));
        }
    }
}
