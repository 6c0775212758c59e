//! Ctrl-C ends a training in its own time: exit code 130, the last checkpoint whole, and the way on
//! named.
#![cfg(all(unix, feature = "flex"))]

#[path = "support/example.rs"]
mod example;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use example::example;

/// Presses Ctrl-C once a file exists.
fn interrupted(mut program: Command, file: &Path) -> Output {
    let program: Child = program
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !file.exists() {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{}",
            file.display()
        );
        sleep(Duration::from_millis(10));
    }
    let pid = program.id().to_string();
    let status = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(status.success());
    program.wait_with_output().unwrap()
}

fn new_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[track_caller]
fn check(output: &Output, parts: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{stderr}");
    }
}

/// The lines of a summary that say how well it learned.
fn outcome(output: Output) -> Vec<String> {
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    let titles = ["training loss", "test accuracy", "steps", "loss scale"];
    let lines = stdout
        .lines()
        .filter(|line| titles.iter().any(|title| line.starts_with(title)));
    lines.map(str::to_string).collect()
}

#[test]
fn train_goes_on_to_the_end_it_would_have_had() {
    let dir = new_dir("ctrl-c-train");
    let command = |args: &[&str]| {
        let mut command = Command::new(example("train"));
        command
            .args(["--fp16", "--epochs", "4"])
            .args(args)
            .current_dir(&dir);
        command
    };
    let output = interrupted(
        command(&["--save", "kept"]),
        &dir.join("kept/progress.json"),
    );
    check(
        &output,
        &[
            "interrupted in epoch ",
            "kept keeps the checkpoint of epoch ",
            "--resume",
        ],
    );
    assert!(
        output.stdout.is_empty(),
        "a training that was interrupted has no summary"
    );
    let resumed = command(&["--save", "kept", "--resume"]).output().unwrap();
    let straight = command(&[]).output().unwrap();
    assert_eq!(outcome(resumed), outcome(straight));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_language_model_keeps_its_checkpoint() {
    let dir = new_dir("ctrl-c-language-model");
    let mut command = Command::new(example("language_model"));
    command
        .args(["--quick", "--epochs", "500", "--save", "kept"])
        .current_dir(&dir);
    let output = interrupted(command, &dir.join("kept/progress.json"));
    check(
        &output,
        &[
            "interrupted in epoch ",
            "kept keeps the checkpoint of epoch ",
        ],
    );
    assert!(dir.join("kept/progress.json").is_file());
    fs::remove_dir_all(&dir).unwrap();
}

#[cfg(feature = "train")]
#[test]
fn the_learner_keeps_its_checkpoints() {
    let dir = new_dir("ctrl-c-learner");
    let mut command = Command::new(example("learner"));
    command
        .args(["--epochs", "500", "--patience", "500"])
        .current_dir(&dir);
    let output = interrupted(command, &dir.join("artifacts/checkpoint/scheduler-2.mpk"));
    check(
        &output,
        &["interrupted: artifacts keeps the checkpoint of epoch "],
    );
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_comparison_that_was_interrupted_writes_no_report() {
    let dir = new_dir("ctrl-c-compare");
    let mut command = Command::new(example("compare"));
    command.args(["--epochs", "500"]).current_dir(&dir);
    let mut program = command.stderr(Stdio::piped()).spawn().unwrap();
    // Until it says what it runs, it may not listen yet.
    let mut first = [0; 1];
    std::io::Read::read_exact(program.stderr.as_mut().unwrap(), &mut first).unwrap();
    let pid = program.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    check(
        &program.wait_with_output().unwrap(),
        &["no report was written"],
    );
    assert!(!dir.join("report.html").exists());
    fs::remove_dir_all(&dir).unwrap();
}
