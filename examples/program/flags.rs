//! Command lines of `--name value` flags, with messages that name what is allowed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use burn_amp::AmpError;
use lexopt::{Arg, Parser, ValueExt};
use thiserror::Error;

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Command<O> {
    Help,
    Run(O),
}

/// A command line that cannot be followed.
#[derive(Debug, Error)]
pub enum FlagError {
    /// An unknown flag, a flag without its value, or a value that no flag asked for.
    #[error("{0} (--help lists all flags)")]
    Syntax(#[from] lexopt::Error),
    #[error("{flag}: {source}")]
    Precision { flag: String, source: AmpError },
    #[error("{flag}: {value:?} is not {allowed}")]
    Value {
        flag: String,
        value: String,
        allowed: String,
    },
    #[error("{flag} has no effect without --fp16: add --fp16, or leave {flag} out to train in f32")]
    NeedsFp16 { flag: &'static str },
    #[error("--resume needs --save DIR: the directory that holds the checkpoint")]
    ResumeNeedsSave,
}

/// A flag that was given, and its value if someone asks for it.
pub struct Flag<'a> {
    name: String,
    parser: &'a mut Parser,
}

/// Shows each flag to `take`, which tells whether it knows it. `None` when help was asked for.
pub fn read(
    args: impl IntoIterator<Item = OsString>,
    mut take: impl FnMut(&mut Flag) -> Result<bool, FlagError>,
) -> Result<Option<()>, FlagError> {
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        let name = match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long(name) => name.to_string(),
            _ => return Err(arg.unexpected().into()),
        };
        let mut flag = Flag {
            name,
            parser: &mut parser,
        };
        if !take(&mut flag)? {
            return Err(lexopt::Error::UnexpectedOption(flag.spelled()).into());
        }
    }
    Ok(Some(()))
}

impl Flag<'_> {
    /// Without its dashes.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn spelled(&self) -> String {
        format!("--{}", self.name)
    }

    fn text(&mut self) -> Result<String, FlagError> {
        Ok(self.parser.value()?.string()?)
    }

    /// Its value as a path.
    pub fn path(&mut self) -> Result<PathBuf, FlagError> {
        Ok(self.parser.value()?.into())
    }

    /// Its value as a number; `allowed` completes "is not ...".
    pub fn number<T: FromStr>(
        &mut self,
        allowed: &str,
        in_range: impl FnOnce(&T) -> bool,
    ) -> Result<T, FlagError> {
        let value = self.text()?;
        match value.parse() {
            Ok(number) if in_range(&number) => Ok(number),
            _ => Err(FlagError::Value {
                flag: self.spelled(),
                value,
                allowed: allowed.to_string(),
            }),
        }
    }

    /// Its value as a whole number of at least 1.
    pub fn count(&mut self) -> Result<usize, FlagError> {
        self.number("a whole number above 0", |count| *count >= 1)
    }

    /// Its value as a number of epochs.
    pub fn epochs(&mut self) -> Result<usize, FlagError> {
        self.number("a whole number from 1 to 10000", |epochs| {
            (1..=10_000).contains(epochs)
        })
    }

    /// Its value as a learning rate.
    pub fn learning_rate(&mut self) -> Result<f64, FlagError> {
        self.number("a number above 0, at most 1", |lr| *lr > 0.0 && *lr <= 1.0)
    }

    /// Its value as the seed of a random generator.
    pub fn seed(&mut self) -> Result<u64, FlagError> {
        self.number("a whole number from 0 to 18446744073709551615", |_| true)
    }

    /// Its value as something of this project, under the name that its documentation has.
    pub fn option<T: FromStr<Err = AmpError>>(&mut self) -> Result<T, FlagError> {
        self.text()?.parse().map_err(|source| FlagError::Precision {
            flag: self.spelled().replace('_', "-"),
            source,
        })
    }

    /// Its value as one of a few words.
    pub fn one_of<T: Copy + std::fmt::Display>(&mut self, all: &[T]) -> Result<T, FlagError> {
        let value = self.text()?;
        let found = all.iter().find(|one| one.to_string() == value);
        found.copied().ok_or_else(|| {
            let words: Vec<String> = all.iter().map(T::to_string).collect();
            FlagError::Value {
                flag: self.spelled(),
                value,
                allowed: words.join(" or "),
            }
        })
    }
}
