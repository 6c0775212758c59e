//! What the larger programs have around their training: flags, a first line, progress with the time
//! that is left, an end by Ctrl-C, checkpoints.

pub mod backend;
pub mod checkpoint;
pub mod flags;
pub mod interrupt;
pub mod precision;
pub mod progress;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use flags::{Command, FlagError};

/// How a program that did not fail came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    /// By Ctrl-C.
    Interrupted,
}

/// Runs a program with the arguments of this process.
///
/// The exit code is 0 when it is done, 2 for flags or data that cannot be used, and 130, as shells
/// have it, after Ctrl-C.
pub fn main<O>(
    help: &str,
    parse: impl FnOnce(Vec<OsString>) -> Result<Command<O>, FlagError>,
    run: impl FnOnce(O) -> Result<End, Box<dyn Error>>,
) -> ExitCode {
    let end = match parse(std::env::args_os().skip(1).collect()) {
        Ok(Command::Help) => io::stdout()
            .write_all(help.as_bytes())
            .map(|()| End::Done)
            .map_err(Into::into),
        Ok(Command::Run(options)) => run(options),
        Err(error) => Err(error.into()),
    };
    match end {
        Ok(End::Done) => ExitCode::SUCCESS,
        Ok(End::Interrupted) => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => {
            // A closed stderr is no reason to panic.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}
