//! Pages as a browser has them, or as they stand in their file where there is no browser.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A page as a browser has it.
pub struct Shown {
    pub dom: String,
    /// What the page wrote on the browser's console.
    pub console: Vec<String>,
}

/// The browser that is there: CI has one, a developer may.
pub fn program() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|program| program.is_file())
}

/// Shows a page in the browser.
pub fn show(browser: &Path, page: &Path) -> Shown {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    Shown {
        dom: String::from_utf8(output.stdout).unwrap(),
        console: stderr
            .lines()
            .filter(|line| line.contains(":CONSOLE"))
            .map(str::to_string)
            .collect(),
    }
}

/// What stands between two texts.
#[track_caller]
pub fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("{start}"));
    rest.split_once(end).unwrap_or_else(|| panic!("{end}")).0
}

/// The page as the browser of this machine has it, without a word on its console; in CI there is one.
pub fn dom(page: &Path) -> String {
    match program() {
        Some(browser) => {
            let shown = show(&browser, page);
            assert!(shown.console.is_empty(), "{:#?}", shown.console);
            shown.dom
        }
        None if env::var_os("CI").is_some() => panic!("no browser on PATH"),
        None => {
            eprintln!("no browser on PATH: the page is read, not shown");
            fs::read_to_string(page).unwrap()
        }
    }
}
