//! Progress on stderr; the bar only where stderr is a terminal.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps, with the time that is left.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} steps, {eta} left  {msg}");
    ProgressBar::new(steps as u64).with_style(style.expect("the template is well-formed"))
}

/// A line above the bar, which stays.
pub fn line(bar: &ProgressBar, text: &str) {
    bar.suspend(|| say(text));
}

/// A line on stderr; a closed stderr is no reason to stop training.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
