//! Every layer and loss of burn-nn runs at every level, forward and backward, in training and in
//! evaluation, on every mix of input and weight dtypes; its output has the dtype listed in
//! `support/module_cases.rs`.

#[path = "support/models.rs"]
mod models;
#[path = "support/module_cases.rs"]
mod module_cases;
mod support;

use burn::tensor::DType;
use burn_amp::{HalfDType, OptLevel};
use module_cases::{Case, Given, Outcome, Setup, activations, layers, losses};
use support::{HALVES, amp, unless_it_panics};

fn letter(dtype: DType, half: HalfDType) -> char {
    match dtype {
        DType::F32 => 'f',
        dtype if dtype == half.dtype() => 'h',
        _ => '?',
    }
}

/// The letter of a case's output dtypes, or what is wrong with them.
fn letter_of(outcomes: Option<[Outcome; 2]>, half: HalfDType) -> Result<char, String> {
    match outcomes {
        None => Err("panics".to_string()),
        Some(both) if both.iter().any(|outcome| !outcome.is_finite()) => {
            Err(format!("is not finite: {both:?}"))
        }
        Some([train, valid]) => match (letter(train.dtype, half), letter(valid.dtype, half)) {
            ('f', 'h') => Ok('t'),
            (train, valid) if train == valid => Ok(train),
            _ => Err(format!("is {:?}, then {:?}", train.dtype, valid.dtype)),
        },
    }
}

fn check(cases: Vec<Case>) {
    let mut failures = Vec::new();
    for case in cases {
        let run = |level, half, dtype| {
            let setup = Setup {
                amp: &amp(level, half),
                input: Given::exactly(dtype),
                weights: None,
            };
            unless_it_panics(|| (case.run)(&setup))
        };
        let control = run(OptLevel::O0, HalfDType::F16, DType::F32);
        assert_eq!(
            letter_of(control, HalfDType::F16),
            Ok('f'),
            "{} in f32",
            case.name
        );
        for half in HALVES {
            let of = |level, dtype| {
                letter_of(run(level, half, dtype), half).unwrap_or_else(|failure| {
                    failures.push(format!("{} at {level} of {dtype:?} {failure}", case.name));
                    '!'
                })
            };
            let outputs = pairs(of, half);
            println!("{:40} {half:4} {outputs}", case.name);
            if outputs != case.outputs {
                failures.push(format!(
                    "{}, {half}: {outputs}, listed is {}",
                    case.name, case.outputs
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The letters at O1, O2 and O3, of an f32 and of a half input each.
fn pairs(mut of: impl FnMut(OptLevel, DType) -> char, half: HalfDType) -> String {
    [OptLevel::O1, OptLevel::O2, OptLevel::O3]
        .map(|level| String::from_iter([DType::F32, half.dtype()].map(|dtype| of(level, dtype))))
        .join(" ")
}

#[test]
fn every_layer() {
    check(layers());
}

#[test]
fn every_activation() {
    check(activations());
}

#[test]
fn every_loss() {
    check(losses());
}

#[test]
fn every_mix_of_input_and_weight_dtypes() {
    const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
    let mut failures = Vec::new();
    let cases = [layers(), activations(), losses()];
    for (case, level, half) in cases.iter().flatten().flat_map(|case| {
        let level = move |level| HALVES.map(|half| (case, level, half));
        [OptLevel::O1, OptLevel::O2, OptLevel::O3]
            .into_iter()
            .flat_map(level)
    }) {
        for (input, weights) in DTYPES.iter().flat_map(|input| DTYPES.map(|w| (*input, w))) {
            let setup = Setup {
                amp: &amp(level, half),
                input: Given::exactly(input),
                weights: Some(weights),
            };
            // Finite, and (in the cases themselves) gradients in the dtypes of their leaves.
            let failure = match unless_it_panics(|| (case.run)(&setup)) {
                None => "panics",
                Some(both) if both.iter().any(|outcome| !outcome.is_finite()) => "is not finite",
                Some(_) => continue,
            };
            failures.push(format!(
                "{} at {level}, {half}, of {input:?} with {weights:?} weights {failure}",
                case.name
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
