//! Every layer and loss of burn-nn is as accurate, forward and backward, as the roundings on its path
//! let it be.

#[path = "support/models.rs"]
mod models;
#[path = "support/module_cases.rs"]
mod module_cases;
mod support;

use burn::tensor::DType;
use burn_amp::{HalfDType, OptLevel};
use module_cases::{Accuracy, Case, Given, Setup, activations, layers, losses};
use support::{HALVES, amp, unit_roundoff};

/// What sums of a few f32 terms in another order may differ by.
const F32_NOISE: f64 = 16.0 / (1u64 << 24) as f64;

/// How far n roundings may take a result in the norm, in unit roundoffs: n if all line up. They are
/// nearly independent, with a root mean square of 0.4 each; four times what is then to be expected.
fn together(n: f64) -> f64 {
    n.min(4.0 * 0.4 * n.sqrt())
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

fn length(values: &[f32]) -> f64 {
    norm(values.iter().map(|value| *value as f64))
}

/// The difference from the exact values, in the Euclidean norm.
fn difference(ours: &[f32], exact: &[f32]) -> f64 {
    assert_eq!(ours.len(), exact.len());
    norm(ours.iter().zip(exact).map(|(a, b)| *a as f64 - *b as f64))
}

fn error(ours: &[f32], exact: &[f32]) -> f64 {
    difference(ours, exact) / length(exact)
}

/// The largest error of a gradient, each relative to itself; one in which most cancels (that of
/// attention's key bias is zero) relative to a tenth of all of them.
fn gradient_error(ours: &[Vec<f32>], exact: &[Vec<f32>]) -> f64 {
    assert_eq!(ours.len(), exact.len());
    let tenth = length(&exact.concat()) / 10.0;
    let errors = ours
        .iter()
        .zip(exact)
        .map(|(ours, exact)| difference(ours, exact) / length(exact).max(tenth));
    // A NaN once met stays.
    errors.fold(0.0, |largest, error| {
        match error > largest || error.is_nan() {
            true => error,
            false => largest,
        }
    })
}

/// Errors of the outputs in training and evaluation, and of the gradients, in unit roundoffs.
fn errors(case: &Case, level: OptLevel, half: HalfDType, input: DType) -> [f64; 3] {
    let run = |level, input| {
        (case.run)(&Setup {
            amp: &amp(level, half),
            input,
            weights: None,
        })
    };
    let [train, valid] = run(level, Given::exactly(input));
    let reference = Given {
        dtype: DType::F32,
        values_of: input,
    };
    let [train_in_f32, valid_in_f32] = run(OptLevel::O0, reference);
    let u = unit_roundoff(half);
    [
        error(&train.output, &train_in_f32.output) / u,
        error(&valid.output, &valid_in_f32.output) / u,
        gradient_error(&train.gradients, &train_in_f32.gradients) / u,
    ]
}

fn check(cases: Vec<Case>) {
    let mut failures = Vec::new();
    for case in cases {
        for half in HALVES {
            let mut largest = [0f64; 3];
            for (level, input) in [OptLevel::O1, OptLevel::O2, OptLevel::O3]
                .into_iter()
                .flat_map(|level| [DType::F32, half.dtype()].map(|dtype| (level, dtype)))
            {
                let noise = F32_NOISE / unit_roundoff(half);
                let errors = errors(&case, level, half, input);
                let bounds = match case.accuracy {
                    Accuracy::Random => [f64::INFINITY, 0.0, f64::INFINITY],
                    Accuracy::Rounds(o1, o3) => {
                        let n = if level == OptLevel::O3 { o3 } else { o1 } as f64;
                        let output = together(n) + noise;
                        [output, output, together(3.0 * n + 4.0) + noise]
                    }
                };
                for (largest, error) in largest.iter_mut().zip(errors) {
                    *largest = largest.max(error);
                }
                // Not `>`: a NaN fails too.
                if !errors
                    .iter()
                    .zip(bounds)
                    .all(|(error, bound)| *error <= bound)
                {
                    failures.push(format!(
                        "{} at {level}, {half}, of {input:?}: {errors:.2?} u, allowed {bounds:.2?}",
                        case.name
                    ));
                }
            }
            println!("{:40} {half:4} {largest:.1?}", case.name);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
