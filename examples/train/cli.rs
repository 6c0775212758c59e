//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use burn_amp::{AmpError, HalfDType, LossScaling, OptLevel};
use lexopt::{Arg, Parser, ValueExt};
use thiserror::Error;

/// The answer to `--help`.
pub const HELP: &str = "\
Trains a small convolutional network on handwritten digits, in mixed precision.

Usage: cargo run --release --example train -- [FLAGS]

Precision
  --fp16                   train in mixed precision; without it, plain f32 (O0)
  --fp16-opt-level LEVEL   O0: f32. O1: f32 weights, each operation in its best dtype.
                           O2: half weights, norm layers in f32. O3: all half.
                           Needs --fp16; also spelled --fp16_opt_level. [default: O1]
  --half DTYPE             the half dtype, f16 or bf16. Needs --fp16. [default: f16]
  --loss-scale SCALE       dynamic, or a number above 0. Needs --fp16.
                           [default: dynamic for O1 and O2 in f16, otherwise 1]

Training
  --data DIR               train on the IDX files in DIR (MNIST: train-images-idx3-ubyte,
                           train-labels-idx1-ubyte, t10k-images-idx3-ubyte,
                           t10k-labels-idx1-ubyte; also with .idx in place of -idx)
                           [default: the embedded 1797 UCI digits, a fifth of them for testing]
  --epochs N               passes over the training samples, 1 to 10000 [default: 15]
  --batch-size N           samples in a step, at least 1 [default: 64]
  --lr RATE                peak of Adam's learning rate, which falls to 0 along a half cosine;
                           above 0, at most 1 [default: 0.003]
  --seed N                 seed of the weights and of the order of samples [default: 1]

Checkpoints
  --save DIR               keep a checkpoint in DIR, written anew after every epoch; without
                           --resume DIR must not hold one yet
  --resume                 continue from the checkpoint in the --save directory: the result is that
                           of a training that never stopped, bit by bit

  --help, -h               show this text

Progress goes to stderr, the summary to stdout. Exit codes: 0 when the training ran, even if it
diverged; 2 for flags or data that cannot be used.
";

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Help,
    Train(Options),
}

/// Every choice that a training has.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub level: OptLevel,
    pub half: HalfDType,
    /// `None` for the level's own.
    pub loss_scale: Option<LossScaling>,
    /// A directory of IDX files; `None` for the embedded digits.
    pub data: Option<PathBuf>,
    /// At least 1.
    pub epochs: usize,
    /// At least 1.
    pub batch_size: usize,
    /// In (0, 1].
    pub lr: f64,
    pub seed: u64,
    /// The directory of the checkpoint.
    pub save: Option<PathBuf>,
    /// Needs `save`.
    pub resume: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            level: OptLevel::O0,
            half: HalfDType::F16,
            loss_scale: None,
            data: None,
            epochs: 15,
            batch_size: 64,
            lr: 3e-3,
            seed: 1,
            save: None,
            resume: false,
        }
    }
}

/// A command line that cannot be followed.
#[derive(Debug, Error)]
pub enum CliError {
    /// An unknown flag, a flag without its value, or a value that no flag asked for.
    #[error("{0} (--help lists all flags)")]
    Syntax(#[from] lexopt::Error),
    #[error("{flag}: {source}")]
    Precision {
        flag: &'static str,
        source: AmpError,
    },
    #[error("{flag}: {value:?} is not {allowed}")]
    Value {
        flag: &'static str,
        value: String,
        allowed: &'static str,
    },
    #[error("{flag} has no effect without --fp16: add --fp16, or leave {flag} out to train in f32")]
    NeedsFp16 { flag: &'static str },
    #[error("--resume needs --save DIR: the directory that holds the checkpoint")]
    ResumeNeedsSave,
}

const LEVEL: &str = "--fp16-opt-level";
const HALF: &str = "--half";
const LOSS_SCALE: &str = "--loss-scale";

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, CliError> {
    let mut parser = Parser::from_args(args);
    let mut options = Options::default();
    let (mut fp16, mut level, mut half) = (false, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("fp16") => fp16 = true,
            Arg::Long("fp16-opt-level" | "fp16_opt_level") => {
                level = Some(precision(&mut parser, LEVEL)?);
            }
            Arg::Long("half") => half = Some(precision(&mut parser, HALF)?),
            Arg::Long("loss-scale") => {
                options.loss_scale = Some(precision(&mut parser, LOSS_SCALE)?);
            }
            Arg::Long("save") => options.save = Some(parser.value()?.into()),
            Arg::Long("resume") => options.resume = true,
            Arg::Long("data") => options.data = Some(parser.value()?.into()),
            Arg::Long("epochs") => {
                let in_range = |epochs: &usize| (1..=10_000).contains(epochs);
                options.epochs = number(
                    &mut parser,
                    "--epochs",
                    "a whole number from 1 to 10000",
                    in_range,
                )?;
            }
            Arg::Long("batch-size") => {
                let in_range = |size: &usize| *size >= 1;
                options.batch_size = number(
                    &mut parser,
                    "--batch-size",
                    "a whole number above 0",
                    in_range,
                )?;
            }
            Arg::Long("lr") => {
                let in_range = |lr: &f64| *lr > 0.0 && *lr <= 1.0;
                options.lr = number(&mut parser, "--lr", "a number above 0, at most 1", in_range)?;
            }
            Arg::Long("seed") => {
                let allowed = "a whole number from 0 to 18446744073709551615";
                options.seed = number(&mut parser, "--seed", allowed, |_| true)?;
            }
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            _ => return Err(arg.unexpected().into()),
        }
    }
    for (flag, given) in [
        (LEVEL, level.is_some()),
        (HALF, half.is_some()),
        (LOSS_SCALE, options.loss_scale.is_some()),
    ] {
        if given && !fp16 {
            return Err(CliError::NeedsFp16 { flag });
        }
    }
    if options.resume && options.save.is_none() {
        return Err(CliError::ResumeNeedsSave);
    }
    if fp16 {
        options.level = level.unwrap_or_default();
        options.half = half.unwrap_or_default();
    }
    Ok(Command::Train(options))
}

fn precision<T: FromStr<Err = AmpError>>(
    parser: &mut Parser,
    flag: &'static str,
) -> Result<T, CliError> {
    let text = parser.value()?.string()?;
    text.parse()
        .map_err(|source| CliError::Precision { flag, source })
}

fn number<T: FromStr>(
    parser: &mut Parser,
    flag: &'static str,
    allowed: &'static str,
    in_range: impl FnOnce(&T) -> bool,
) -> Result<T, CliError> {
    let value = parser.value()?.string()?;
    match value.parse() {
        Ok(number) if in_range(&number) => Ok(number),
        _ => Err(CliError::Value {
            flag,
            value,
            allowed,
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_line(line: &str) -> Result<Command, CliError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(line: &str) -> Options {
        match parse_line(line).unwrap() {
            Command::Train(options) => options,
            Command::Help => panic!("help was not asked for"),
        }
    }

    fn message(line: &str) -> String {
        parse_line(line).unwrap_err().to_string()
    }

    #[test]
    fn plain_f32_is_the_default_and_fp16_alone_is_o1() {
        assert_eq!(options(""), Options::default());
        assert_eq!(options("").level, OptLevel::O0);
        assert_eq!(options("--fp16").level, OptLevel::O1);
    }

    #[test]
    fn the_level_has_two_spellings() {
        for level in OptLevel::ALL {
            let expected = Options {
                level,
                half: HalfDType::Bf16,
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
            "--data some/dir --epochs 3 --batch-size=7 --lr 0.5 --seed 9 --save kept --resume",
        );
        let expected = Options {
            data: Some("some/dir".into()),
            epochs: 3,
            batch_size: 7,
            lr: 0.5,
            seed: 9,
            save: Some("kept".into()),
            resume: true,
            ..Options::default()
        };
        assert_eq!(read, expected);
        let scaled = options("--fp16 --loss-scale 128");
        assert_eq!(scaled.loss_scale, Some(LossScaling::Static(128.0)));
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
            half,
            ..
        } = Options::default();
        for (flag, default) in [
            ("--fp16-opt-level", OptLevel::default().to_string()),
            ("--half", half.to_string()),
            (
                "--loss-scale",
                "dynamic for O1 and O2 in f16, otherwise 1".to_string(),
            ),
            (
                "--data",
                "the embedded 1797 UCI digits, a fifth of them for testing".to_string(),
            ),
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
