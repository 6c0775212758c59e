//! Gradients and losses in mixed precision are those of f32, up to the bound derived in
//! docs/numerics.md.

#[path = "support/models.rs"]
mod models;
mod support;

use burn::module::{ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn_amp::{HalfDType, OptLevel, scope};
use models::{Cnn, Mlp, Reader, Trainable, Transformer};
use support::{HALVES, Mixed, amp, unit_roundoff};

/// A parameter's path in the model, and its gradient.
type Gradients = Vec<(String, Vec<f32>)>;

struct Collect<'a> {
    path: Vec<String>,
    grads: &'a <Mixed as AutodiffBackend>::Gradients,
    found: Gradients,
}

impl ModuleVisitor<Mixed> for Collect<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Mixed, D>>) {
        if let Some(grad) = param.val().grad(self.grads) {
            let values = grad.into_data().convert::<f32>().to_vec().unwrap();
            self.found.push((self.path.join("."), values));
        }
    }
}

fn loss_and_gradients<M: Trainable<Mixed>>(model: &M) -> (f32, Gradients) {
    let loss = model.loss(0);
    let value = loss.to_data().convert::<f32>().to_vec().unwrap()[0];
    let grads = loss.backward();
    let mut collect = Collect {
        path: Vec::new(),
        grads: &grads,
        found: Vec::new(),
    };
    model.visit(&mut collect);
    (value, collect.found)
}

fn largest(values: &[f32]) -> f64 {
    values
        .iter()
        .fold(0.0, |max, x| f64::from(x.abs()).max(max))
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

fn differences<'a>(a: &'a [f32], b: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b))
}

/// The roundings on the longest path: forward, and with backward. From docs/numerics.md.
#[derive(Clone, Copy)]
struct Roundings {
    forward: f64,
    all: f64,
}

const MLP: Roundings = Roundings {
    forward: 6.0,
    all: 10.0,
};
const CNN: Roundings = Roundings {
    forward: 21.0,
    all: 39.0,
};
const LSTM: Roundings = Roundings {
    forward: 27.0,
    all: 50.0,
};
const TRANSFORMER: Roundings = Roundings {
    forward: 41.0,
    all: 67.0,
};

/// Prints the errors of a model and compares them with the bound.
fn assert_close(
    name: &str,
    level: OptLevel,
    half: HalfDType,
    roundings: Roundings,
    full: (f32, Gradients),
    mixed: (f32, Gradients),
) {
    let bound = roundings.all * unit_roundoff(half);
    let loss_bound = roundings.forward * unit_roundoff(half);
    let loss = f64::from((mixed.0 - full.0).abs() / full.0.abs());
    assert_eq!(
        full.1.len(),
        mixed.1.len(),
        "every parameter has a gradient"
    );
    let (mut worst_element, mut worst_norm, mut failures) = (0f64, 0f64, Vec::new());
    for (at, (path, g32)) in full.1.iter().enumerate() {
        let g = &mixed.1[at].1;
        assert!(g.iter().all(|x| x.is_finite()), "{name}: {path}");
        if path.ends_with("key.bias") {
            // Zero in exact arithmetic: measured against the weight's gradient.
            let weight = path.replace("bias", "weight");
            let weight = full.1.iter().find(|(path, _)| *path == weight).unwrap();
            let scale = largest(&weight.1);
            assert!(largest(g32) < 1e-5 * scale, "{path} is not zero in f32");
            if largest(g) > bound * scale {
                failures.push(format!(
                    "{path}: {:.2e} of the weight's",
                    largest(g) / scale
                ));
            }
            continue;
        }
        let element = differences(g, g32).fold(0.0, |max: f64, d| max.max(d.abs())) / largest(g32);
        let normwise = norm(differences(g, g32)) / norm(g32.iter().map(|x| f64::from(*x)));
        if element > bound || normwise > bound {
            failures.push(format!(
                "{path}: element {element:.2e}, norm {normwise:.2e}"
            ));
        }
        worst_element = worst_element.max(element);
        worst_norm = worst_norm.max(normwise);
    }
    println!(
        "| {name} | {level} | {half} | {loss:.1e} | {worst_element:.1e} | {worst_norm:.1e} | {bound:.1e} |"
    );
    assert!(
        failures.is_empty(),
        "{name}, {level}, {half}: {failures:#?}"
    );
    assert!(
        loss <= loss_bound,
        "{name}, {level}, {half}: loss {loss:.2e} > {loss_bound:.2e}"
    );
}

fn check_o1<M: Trainable<Mixed>>(name: &str, roundings: Roundings) {
    for half in HALVES {
        let model = M::new();
        let full = scope::disabled(|| loss_and_gradients(&model));
        let mixed = amp(OptLevel::O1, half).scope(|| loss_and_gradients(&model));
        assert_close(name, OptLevel::O1, half, roundings, full, mixed);
    }
}

struct ToFull;

impl ModuleMapper<Mixed> for ToFull {
    fn map_float<const D: usize>(
        &mut self,
        param: Param<Tensor<Mixed, D>>,
    ) -> Param<Tensor<Mixed, D>> {
        param.map(|tensor| {
            tensor
                .detach()
                .cast(burn::tensor::DType::F32)
                .require_grad()
        })
    }
}

fn check_o2<M: Trainable<Mixed>>(name: &str, roundings: Roundings) {
    for half in HALVES {
        let amp = amp(OptLevel::O2, half);
        let model = amp.cast_model::<Mixed, _>(M::new());
        let rounded = model.clone().map(&mut ToFull);
        let full = scope::disabled(|| loss_and_gradients(&rounded));
        let mixed = amp.scope(|| loss_and_gradients(&model));
        assert_close(name, OptLevel::O2, half, roundings, full, mixed);
    }
}

#[test]
fn an_mlp_with_layer_norm() {
    check_o1::<Mlp<Mixed>>("MLP", MLP);
    check_o2::<Mlp<Mixed>>("MLP", MLP);
}

#[test]
fn a_cnn_with_batch_norm() {
    check_o1::<Cnn<Mixed>>("CNN", CNN);
    check_o2::<Cnn<Mixed>>("CNN", CNN);
}

#[test]
fn an_lstm() {
    check_o1::<Reader<Mixed>>("LSTM", LSTM);
    check_o2::<Reader<Mixed>>("LSTM", LSTM);
}

#[test]
fn a_transformer_of_two_layers() {
    check_o1::<Transformer<Mixed>>("transformer", TRANSFORMER);
    check_o2::<Transformer<Mixed>>("transformer", TRANSFORMER);
}
