//! Examples as processes.
//!
//! Cargo tells tests where binaries are, but not where examples are: they are built here (no work when
//! they are fresh), since exit codes and streams are what is promised.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of an example of this profile, which is built if need be.
pub fn example(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let (profile, folder) = match cfg!(debug_assertions) {
        true => ("dev", "debug"),
        false => ("release", "release"),
    };
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--example", name, "--profile", profile])
        // The features of this test, or every dependency would be built again for others.
        .args(cfg!(feature = "train").then_some("--features=train"))
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(status.success(), "the example {name} does not build");
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    target.join(folder).join("examples").join(file)
}
