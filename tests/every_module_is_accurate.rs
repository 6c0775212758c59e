//! Every layer and loss of burn-nn is as accurate, forward and backward, as the roundings on its path
//! let it be.

#[path = "support/models.rs"]
mod models;
#[path = "support/module_cases.rs"]
mod module_cases;
mod support;

use burn::tensor::DType;
use burn_amp::{HalfDType, OptLevel};
use module_cases::{Accuracy, Case, Given, Outcome, Setup, activations, layers, losses};
use support::{HALVES, amp, unit_roundoff};

/// What sums of a few f32 terms in another order may differ by.
const F32_NOISE: f64 = 16.0 / (1u64 << 24) as f64;

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// The difference from the exact values, relative to these, in the Euclidean norm.
fn error(ours: &[&Vec<f32>], exact: &[&Vec<f32>]) -> f64 {
    let flat = |all: &[&Vec<f32>]| -> Vec<f64> {
        all.iter()
            .flat_map(|values| values.iter().map(|value| *value as f64))
            .collect()
    };
    let (ours, exact) = (flat(ours), flat(exact));
    assert_eq!(ours.len(), exact.len());
    norm(ours.iter().zip(&exact).map(|(a, b)| a - b)) / norm(exact.iter().copied())
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
    let gradients = |outcome: &Outcome| outcome.gradients.clone();
    let (ours, exact) = (gradients(&train), gradients(&train_in_f32));
    let u = unit_roundoff(half);
    [
        error(&[&train.output], &[&train_in_f32.output]) / u,
        error(&[&valid.output], &[&valid_in_f32.output]) / u,
        error(
            &ours.iter().collect::<Vec<_>>(),
            &exact.iter().collect::<Vec<_>>(),
        ) / u,
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
                        [n + noise, n + noise, 3.0 * n + 2.0 + noise]
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
