//! The larger programs say what runs and do what they say, in their short mode.
#![cfg(feature = "flex")]

#[path = "support/example.rs"]
mod example;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use example::example;

/// Runs a program in a directory of this test's own.
fn run(name: &str, dir: &Path, args: &[&str]) -> Output {
    Command::new(example(name))
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// The lines that a program printed that was to succeed.
#[track_caller]
fn lines(name: &str, dir: &Path, args: &[&str]) -> Vec<String> {
    let output = run(name, dir, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{name} {args:?}: {stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(str::to_string).collect()
}

#[track_caller]
fn refused(name: &str, dir: &Path, args: &[&str], parts: &[&str]) {
    let output = run(name, dir, args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{name} {args:?}: {stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{name} {args:?}: {stderr}");
    }
}

/// The number behind a text that is in exactly one line.
#[track_caller]
fn number(lines: &[String], before: &str) -> f64 {
    let found: Vec<&str> = lines
        .iter()
        .filter_map(|line| Some(line.split_once(before)?.1))
        .collect();
    let [rest] = found[..] else {
        panic!("{before:?} is in {} lines of {lines:#?}", found.len());
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && !"-.e".contains(c));
    let number = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
    number
        .parse()
        .unwrap_or_else(|_| panic!("{number:?} in {rest:?}"))
}

fn new_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn every_program_explains_its_flags() {
    let dir = new_dir("help");
    let mut programs = vec!["compare", "fp16_optimizer", "inference", "language_model"];
    if cfg!(feature = "train") {
        programs.push("learner");
    }
    for name in programs {
        let help = lines(name, &dir, &["--help"]);
        let usage = format!("--example {name} -- ");
        assert!(
            help.iter()
                .any(|line| line.starts_with("Usage: ") && line.contains(&usage)),
            "{help:#?}"
        );
        for flag in ["--quick", "--help"] {
            let shown = help.iter().any(|line| line.trim_start().starts_with(flag));
            assert!(shown, "{name} {flag}");
        }
        assert!(help.iter().all(|line| line.len() <= 100), "{help:#?}");
        refused(
            name,
            &dir,
            &["--turbo"],
            &["'--turbo'", "--help lists all flags"],
        );
        refused(
            name,
            &dir,
            &["--epochs", "0"],
            &["--epochs", "\"0\"", "1 to 10000"],
        );
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_language_model_learns_at_every_level_and_writes() {
    let dir = new_dir("language-model");
    for level in ["O0", "O1", "O2", "O3"] {
        let lines = lines(
            "language_model",
            &dir,
            &["--quick", "--fp16", "--fp16-opt-level", level],
        );
        assert!(
            lines[0].contains("flex") && lines[0].contains(level),
            "{lines:#?}"
        );
        let (first, last) = (
            number(&lines, "epoch 1: perplexity "),
            number(&lines, "epoch 2: perplexity "),
        );
        // A blind guess is 256, knowing how often each byte occurs about 22.
        assert!(last < 40.0 && last < first, "{level}: {first} to {last}");
        let written = lines.iter().position(|line| line.starts_with("Alice "));
        let written = lines[written.expect("the prompt is shown")..].join("\n");
        assert!(written.chars().count() > 40, "{written}");
    }
    refused(
        "language_model",
        &dir,
        &["--width", "30"],
        &["--width", "\"30\"", "--heads 4"],
    );
    fs::write(dir.join("short.txt"), "too short").unwrap();
    refused(
        "language_model",
        &dir,
        &["--text", "short.txt"],
        &["short.txt", "9 bytes", "at least 650"],
    );
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_language_model_that_was_saved_goes_on_to_the_same_end() {
    let dir = new_dir("language-model-resume");
    let quick = ["--quick", "--fp16", "--save", "kept"];
    let epochs = |epochs| [&quick[..], &["--epochs", epochs]].concat();
    let straight = lines(
        "language_model",
        &dir,
        &["--quick", "--fp16", "--epochs", "2"],
    );
    lines("language_model", &dir, &epochs("1"));
    refused(
        "language_model",
        &dir,
        &epochs("2"),
        &["progress.json", "--resume"],
    );
    let resumed = lines(
        "language_model",
        &dir,
        &[&epochs("2")[..], &["--resume"]].concat(),
    );
    assert_eq!(
        number(&resumed, "epoch 2: perplexity "),
        number(&straight, "epoch 2: perplexity ")
    );
    assert_eq!(resumed.last(), straight.last());
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn fp16_optimizer_trains_the_resnet() {
    let dir = new_dir("fp16-optimizer");
    let o2 = ["--quick", "--fp16", "--fp16-opt-level", "O2"];
    let lines = lines("fp16_optimizer", &dir, &o2);
    assert!(lines[0].contains("O2, half dtype f16"), "{lines:#?}");
    assert!(
        lines[1].starts_with("ResNet-18 of 11173962 parameters"),
        "{lines:#?}"
    );
    let (first, last) = (
        number(&lines, "epoch 1: loss "),
        number(&lines, "epoch 4: loss "),
    );
    assert!(last < first / 2.0, "{first} to {last}");
    refused(
        "fp16_optimizer",
        &dir,
        &["--data", "cifar"],
        &["cifar: not a directory"],
    );
    fs::create_dir(dir.join("cifar")).unwrap();
    refused(
        "fp16_optimizer",
        &dir,
        &["--data", "cifar"],
        &["data_batch_1.bin: no such file"],
    );
    fs::write(dir.join("cifar/data_batch_1.bin"), [0; 3072]).unwrap();
    refused(
        "fp16_optimizer",
        &dir,
        &["--data", "cifar"],
        &["3072 bytes", "multiple of 3073"],
    );
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn inference_agrees_with_f32() {
    let dir = new_dir("inference");
    let lines = lines("inference", &dir, &["--quick"]);
    assert!(dir.join("digits-cnn.mpk").is_file(), "the record is kept");
    let run = |name: &str| {
        let at = lines.iter().position(|line| line.contains(name)).unwrap();
        lines[at + 1..at + 2].to_vec()
    };
    let full = number(&run("O0"), "accuracy ");
    assert!(full > 90.0, "{lines:#?}");
    // Probabilities are softmax of logits; an error d in the logits moves them by at most d / 2. The
    // logits here are below 16 and have at most 10 roundings to half before them: 10 u 16 / 2.
    for (name, weights, unit) in [
        ("O1, half dtype f16", "f32", 2f64.powi(-11)),
        ("O1, half dtype bf16", "f32", 2f64.powi(-8)),
        ("O3, half dtype f16", "f16", 2f64.powi(-11)),
        ("O3, half dtype bf16", "bf16", 2f64.powi(-8)),
    ] {
        let answers = run(name);
        assert!(
            answers[0].contains(&format!("weights {weights},")),
            "{answers:?}"
        );
        assert!(
            number(&answers, "probabilities within ") < 80.0 * unit,
            "{answers:?}"
        );
        assert!(number(&answers, "a batch; ") > 98.0, "{answers:?}");
        // One answer is 0.28%.
        assert!(
            (number(&answers, "accuracy ") - full).abs() < 2.0,
            "{answers:?}"
        );
    }
    // The kept record can be given.
    let again = self::lines("inference", &dir, &["--record", "digits-cnn"]);
    assert_eq!(number(&again[1..2], "accuracy "), full);
    refused("inference", &dir, &["--record", "nothing"], &["nothing"]);
    fs::remove_dir_all(&dir).unwrap();
}

#[cfg(feature = "train")]
#[test]
fn the_learner_trains_keeps_checkpoints_and_resumes() {
    let dir = new_dir("learner");
    let quick = ["--quick", "--fp16", "--fp16-opt-level", "O2"];
    let lines = lines("learner", &dir, &quick);
    assert!(lines[0].contains("O2, half dtype f16"), "{lines:#?}");
    assert!(number(&lines, "test accuracy ") > 80.0, "{lines:#?}");
    for metric in ["Loss Scale", "Skipped Steps", "Grad Norm"] {
        assert!(lines.iter().any(|line| line.contains(metric)), "{lines:#?}");
    }
    let logged = |epoch: usize, metric: &str| -> f64 {
        let file = dir.join(format!("artifacts/train/epoch-{epoch}/{metric}.log"));
        let text = fs::read_to_string(file).unwrap();
        let values: Vec<f64> = text
            .lines()
            .map(|line| line.split(',').next().unwrap().parse().unwrap())
            .collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    assert!(logged(2, "Loss") < 0.7 * logged(1, "Loss"));
    assert_eq!(logged(1, "Loss_Scale"), 65536.0);

    refused("learner", &dir, &quick, &["artifacts", "--resume"]);
    let more = [&quick[..], &["--epochs", "3", "--resume"]].concat();
    let resumed = run("learner", &dir, &more);
    let progress = String::from_utf8(resumed.stderr).unwrap();
    assert!(
        progress.contains("epoch 3/3") && !progress.contains("epoch 1/3"),
        "{progress}"
    );
    let stdout = String::from_utf8(resumed.stdout).unwrap();
    let resumed: Vec<String> = stdout.lines().map(str::to_string).collect();
    // 23 steps an epoch, counted on from the checkpoint.
    assert_eq!(number(&resumed, "%; "), 69.0, "{resumed:#?}");
    assert!(dir.join("artifacts/checkpoint/model-3.mpk").is_file());
    refused(
        "learner",
        &dir,
        &["--artifacts", "other", "--resume"],
        &["other", "no checkpoint"],
    );
    refused(
        "learner",
        &dir,
        &["--backend", "abacus"],
        &["--backend", "\"abacus\"", "flex"],
    );
    fs::remove_dir_all(&dir).unwrap();
}

/// At a learning rate of 1 the loss soon stops falling.
#[cfg(feature = "train")]
#[test]
fn the_learner_stops_early() {
    let dir = new_dir("learner-early");
    lines(
        "learner",
        &dir,
        &["--epochs", "40", "--lr", "1", "--patience", "1"],
    );
    assert!(!dir.join("artifacts/train/epoch-40").exists());
    fs::remove_dir_all(&dir).unwrap();
}
