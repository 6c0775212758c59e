//! The four short programs learn what they say they learn.
#![cfg(feature = "flex")]

#[path = "support/example.rs"]
mod example;

use std::process::Command;

use example::example;

/// The lines that a program prints.
fn run(name: &str) -> Vec<String> {
    let output = Command::new(example(name)).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(str::to_string).collect()
}

/// The number behind a title.
fn number(lines: &[String], title: &str) -> f64 {
    let line = lines.iter().find_map(|line| line.strip_prefix(title));
    let line = line.unwrap_or_else(|| panic!("no {title:?} in {lines:#?}"));
    let end = line.find(|c: char| c != '.' && !c.is_ascii_digit());
    line[..end.unwrap_or(line.len())].parse().unwrap()
}

#[test]
fn every_level_says_what_runs_and_its_loss_falls() {
    for (name, level) in [("o0", "O0"), ("o1", "O1"), ("o2", "O2"), ("o3", "O3")] {
        let lines = run(name);
        assert!(
            lines[0].contains("flex") && lines[0].contains(level),
            "{lines:#?}"
        );
        let (first, last) = (
            number(&lines, "epoch 1: loss "),
            number(&lines, "epoch 6: loss "),
        );
        assert!(last < first / 2.0, "{name}: {first} to {last}");
        let accuracy = number(&lines, "test accuracy ");
        // O3 is not promised to learn well: that it is far from guessing must do.
        let least = if level == "O3" { 50.0 } else { 95.0 };
        assert!(accuracy >= least, "{name}: {accuracy}%");
        if level == "O2" {
            assert!(
                lines.contains(&"F16 in the model, F32 for export".to_string()),
                "{lines:#?}"
            );
        }
    }
}
