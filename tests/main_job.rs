//! The program that people run first does its job at every level, and refuses bad input with a
//! message that helps.
#![cfg(feature = "flex")]

#[path = "support/example.rs"]
mod example;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use example::example;

static TRAIN: LazyLock<PathBuf> = LazyLock::new(|| example("train"));

fn train(args: &[&str]) -> Output {
    Command::new(&*TRAIN).args(args).output().unwrap()
}

/// The summary of a training that ran.
#[track_caller]
fn summary(args: &[&str]) -> String {
    let output = train(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// A line of a summary without its title.
#[track_caller]
fn line<'a>(summary: &'a str, title: &str) -> &'a str {
    let line = summary.lines().find_map(|line| line.strip_prefix(title));
    line.unwrap_or_else(|| panic!("no {title:?} in:\n{summary}"))
        .trim_start()
}

/// The numbers of a line, units and words left out.
fn numbers(line: &str) -> Vec<f64> {
    line.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let output = train(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?} wrote a summary");
    assert!(
        stderr.starts_with("error: ") && stderr.lines().count() == 1,
        "{args:?}: {stderr}"
    );
    for part in parts {
        assert!(stderr.contains(part), "{args:?}: {stderr}");
    }
}

/// Two epochs: enough to be far from chance, short enough for a debug build.
fn short(level: &str, half: &str) -> String {
    summary(&[
        "--fp16",
        "--fp16-opt-level",
        level,
        "--half",
        half,
        "--epochs",
        "2",
    ])
}

#[track_caller]
fn learned(summary: &str) {
    let loss = numbers(line(summary, "training loss"));
    let [first, _, last, _] = loss[..] else {
        panic!("not a loss line: {loss:?}");
    };
    assert!(last < 0.7 * first, "{summary}");
    // Chance is 10%.
    assert!(
        numbers(line(summary, "test accuracy"))[0] > 70.0,
        "{summary}"
    );
}

#[track_caller]
fn dtypes(summary: &str, weights: &str, activations: &str, gradients: &str) {
    assert_eq!(line(summary, "weights"), weights);
    assert_eq!(line(summary, "activations"), activations);
    assert_eq!(line(summary, "gradients"), gradients);
}

#[test]
fn without_fp16_everything_is_f32() {
    let summary = summary(&["--epochs", "2"]);
    learned(&summary);
    dtypes(&summary, "f32", "f32", "f32");
    assert_eq!(line(&summary, "opt level"), "O0");
    assert_eq!(line(&summary, "casts"), "0 made, 0 saved");
    assert_eq!(line(&summary, "backend"), "mixed-precision<autodiff<flex>>");
}

#[test]
fn o1_computes_in_half_on_f32_weights() {
    for half in ["f16", "bf16"] {
        let summary = short("O1", half);
        learned(&summary);
        let activations = format!("{half} (conv1, norm1, conv2, norm2, linear), f32 (loss)");
        dtypes(&summary, "f32", &activations, "f32");
        assert!(numbers(line(&summary, "casts"))[0] > 0.0, "{summary}");
        assert_eq!(line(&summary, "half dtype"), half);
    }
}

#[test]
fn o2_keeps_only_norm_layers_in_f32() {
    for half in ["f16", "bf16"] {
        let summary = short("O2", half);
        learned(&summary);
        let weights = format!("{half} (conv1, conv2, linear), f32 (norm1, norm2)");
        let activations = format!("{half} (conv1, norm1, conv2, norm2, linear), f32 (loss)");
        assert_eq!(line(&summary, "weights"), weights);
        assert_eq!(line(&summary, "activations"), activations);
    }
}

/// How well it learns is not promised: f16 without loss scale and masters is known to be poor.
#[test]
fn o3_is_all_half_but_for_running_statistics_and_ends_orderly() {
    for half in ["f16", "bf16"] {
        let summary = short("O3", half);
        let layers = format!("{half} (conv1, norm1, conv2, norm2, linear)");
        let weights = format!("{layers}, f32 (norm1, norm2)");
        let activations = format!("{layers}, f32 (loss)");
        dtypes(&summary, &weights, &activations, "f32");
    }
}

/// f16 weights without masters leave its range at this learning rate.
#[test]
fn a_training_that_diverges_says_so_and_is_no_error() {
    let args = [
        "--fp16",
        "--fp16-opt-level",
        "O3",
        "--lr",
        "1",
        "--epochs",
        "3",
    ];
    assert!(summary(&args).contains("diverged: "));
}

#[test]
fn a_seed_gives_the_same_training_again() {
    let train = |seed| {
        let summary = summary(&[
            "--fp16",
            "--fp16_opt_level=O1",
            "--epochs",
            "1",
            "--seed",
            seed,
        ]);
        line(&summary, "training loss").to_string()
    };
    assert_eq!(train("5"), train("5"));
    assert_ne!(train("5"), train("6"));
}

#[test]
fn help_goes_to_stdout() {
    let help = summary(&["--help"]);
    assert!(help.contains("--fp16-opt-level"), "{help}");
}

#[test]
fn bad_flags_are_refused() {
    refused(
        &["--fp16", "--fp16-opt-level", "01"],
        &["--fp16-opt-level", "\"01\"", "letter O"],
    );
    refused(
        &["--fp16_opt_level", "O1"],
        &["--fp16-opt-level", "without --fp16"],
    );
    refused(&["--epochs", "0"], &["--epochs", "\"0\"", "1 to 10000"]);
    refused(&["--turbo"], &["--turbo", "--help"]);
}

/// A folder of IDX files that ends with its test.
struct IdxFolder(PathBuf);

impl IdxFolder {
    fn new(name: &str) -> Self {
        let folder = IdxFolder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        fs::create_dir_all(&folder.0).unwrap();
        for (part, count) in [("train", 50), ("t10k", 20)] {
            folder.write(&format!("{part}-images-idx3-ubyte"), &images(count));
            folder.write(&format!("{part}-labels-idx1-ubyte"), &labels(count));
        }
        folder
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    fn args(&self) -> [&str; 4] {
        ["--data", self.0.to_str().unwrap(), "--epochs", "2"]
    }
}

impl Drop for IdxFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Images of 6x5 pixels, one bright column for each label below 5.
fn images(count: u32) -> Vec<u8> {
    let header = [0x803, count, 6, 5].into_iter().flat_map(u32::to_be_bytes);
    let pixels = (0..count).flat_map(|at| (0..30).map(move |p| 255 * u8::from(p % 5 == at % 5)));
    header.chain(pixels).collect()
}

fn labels(count: u32) -> Vec<u8> {
    let header = [0x801, count].into_iter().flat_map(u32::to_be_bytes);
    header.chain((0..count).map(|at| (at % 5) as u8)).collect()
}

#[test]
fn idx_files_are_trained_on() {
    let folder = IdxFolder::new("idx-good");
    let summary = summary(&folder.args());
    assert!(
        line(&summary, "data").ends_with("50 to train, 20 to test"),
        "{summary}"
    );
}

#[test]
fn a_training_set_of_one_sample_is_no_reason_to_panic() {
    let folder = IdxFolder::new("idx-one");
    folder.write("train-images-idx3-ubyte", &images(1));
    folder.write("train-labels-idx1-ubyte", &labels(1));
    let mut args = folder.args().to_vec();
    args.push("--fp16");
    assert!(line(&summary(&args), "data").ends_with("1 to train, 20 to test"));
}

#[test]
fn bad_data_is_refused() {
    refused(
        &["--data", "no/such/folder"],
        &["no/such/folder", "not a directory"],
    );

    let folder = IdxFolder::new("idx-bad");
    let good = images(50);
    folder.write("train-images-idx3-ubyte", &good[..good.len() - 1]);
    refused(
        &folder.args(),
        &["train-images-idx3-ubyte", "byte 1515", "sample 49"],
    );
    folder.write("train-images-idx3-ubyte", &labels(50));
    refused(
        &folder.args(),
        &["train-images-idx3-ubyte", "byte 0", "0x00000801"],
    );
    folder.write("train-images-idx3-ubyte", &good);

    let mut wrong = labels(20);
    wrong[8 + 3] = 10;
    folder.write("t10k-labels-idx1-ubyte", &wrong);
    refused(
        &folder.args(),
        &["t10k-labels-idx1-ubyte", "sample 3 (byte 11)", "label 10"],
    );

    fs::remove_file(folder.0.join("t10k-labels-idx1-ubyte")).unwrap();
    refused(&folder.args(), &["t10k-labels-idx1-ubyte", "no file"]);
}

#[test]
fn a_training_that_stopped_resumes_as_if_it_never_had() {
    for level in ["O1", "O2"] {
        let dir = tempfile_dir(&format!("resume-{level}"));
        let dir_arg = dir.to_str().unwrap();
        let flags = [
            "--fp16",
            "--fp16-opt-level",
            level,
            "--epochs",
            "3",
            "--save",
            dir_arg,
        ];
        let straight = summary(&flags);
        // As if it had been stopped after the second epoch: the checkpoint of that time.
        fs::remove_dir_all(&dir).unwrap();
        let mut child = Command::new(&*TRAIN)
            .args(flags)
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while !dir.join("progress.json").exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let resumed = summary(&[&flags[..], &["--resume"]].concat());
        for title in ["training loss", "test accuracy", "loss scale", "steps"] {
            assert_eq!(
                line(&resumed, title),
                line(&straight, title),
                "{level}: {title}"
            );
        }
        refused(
            &[&flags[..], &["--resume", "--seed", "5"]].concat(),
            &["progress.json", "--seed 1", "this one has 5"],
        );
        refused(&flags, &["progress.json", "add --resume"]);
        fs::write(dir.join("progress.json"), "{").unwrap();
        refused(&[&flags[..], &["--resume"]].concat(), &["progress.json"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_training_that_diverged_resumes_to_the_same_end() {
    let dir = tempfile_dir("diverged");
    let flags = [
        "--fp16",
        "--fp16-opt-level",
        "O3",
        "--lr",
        "1",
        "--epochs",
        "4",
        "--save",
    ];
    let flags = [&flags[..], &[dir.to_str().unwrap()]].concat();
    let diverged = summary(&flags);
    let resumed = summary(&[&flags[..], &["--resume"]].concat());
    for title in ["training loss", "                diverged", "steps"] {
        assert_eq!(line(&resumed, title), line(&diverged, title), "{title}");
    }
    fs::remove_dir_all(&dir).unwrap();
}

/// A directory of this test run's own, which does not exist yet.
fn tempfile_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}
