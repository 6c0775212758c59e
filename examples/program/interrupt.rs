//! Ctrl-C.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// 128 and the number of SIGINT.
pub const EXIT_CODE: u8 = 130;

/// Whether someone pressed Ctrl-C: a training asks it between two steps.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. The first Ctrl-C asks the program to end, the second one ends it.
    pub fn listen() -> Result<Self, ctrlc::Error> {
        let interrupt = Interrupt::default();
        let asked = interrupt.clone();
        on_ctrl_c(move || asked.ask())?;
        Ok(interrupt)
    }

    /// Asks the program to end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the program should end.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `ask` at the first Ctrl-C; the second one ends the process.
pub fn on_ctrl_c(mut ask: impl FnMut() + Send + 'static) -> Result<(), ctrlc::Error> {
    let mut asked = false;
    ctrlc::set_handler(move || {
        if asked {
            process::exit(EXIT_CODE.into());
        }
        asked = true;
        ask();
    })
}
