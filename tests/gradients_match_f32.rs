//! Gradients and losses in mixed precision are those of f32, up to the bound derived in
//! docs/numerics.md.

#[path = "support/models.rs"]
mod models;
mod support;

use std::sync::Mutex;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor};
use burn_amp::{Amp, HalfDType, OptLevel, scope};
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

/// The norm of the difference, relative to that of `g32`.
fn relative(g: &[f32], g32: &[f32]) -> f64 {
    norm(differences(g, g32)) / norm(g32.iter().map(|x| f64::from(*x)))
}

fn differences<'a>(a: &'a [f32], b: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b))
}

/// The roundings on the longest path. From docs/numerics.md.
#[derive(Clone, Copy)]
struct Roundings {
    forward: f64,
    /// Forward and backward.
    all: f64,
    /// Before the last relu; 0 where every activation is smooth.
    before_relu: f64,
    /// What Burn's CPU backend adds in f16, where some of its convolutions add up in f16: forward,
    /// and in all.
    f16_sums: [f64; 2],
}

impl Roundings {
    const fn smooth(self) -> Self {
        Roundings {
            before_relu: 0.0,
            ..self
        }
    }

    /// The same roundings on Burn's CPU backend in this dtype.
    fn on_cpu(self, half: HalfDType) -> Self {
        let [forward, all] = match half {
            HalfDType::F16 => self.f16_sums,
            HalfDType::Bf16 => [0.0; 2],
        };
        let before_relu = match self.before_relu {
            0.0 => 0.0,
            n => n + forward,
        };
        Roundings {
            forward: self.forward + forward,
            all: self.all + all,
            before_relu,
            ..self
        }
    }

    /// The bound of the gradient's relative error: n u, and with relu the share of the gradient
    /// that belongs to activations which change sides at zero.
    fn gradient_bound(self, half: HalfDType) -> f64 {
        let u = unit_roundoff(half);
        self.all * u + (0.8 * self.before_relu * u).sqrt()
    }

    fn loss_bound(self, half: HalfDType) -> f64 {
        self.forward * unit_roundoff(half)
    }
}

const MLP: Roundings = Roundings {
    forward: 6.0,
    all: 10.0,
    before_relu: 3.0,
    f16_sums: [0.0; 2],
};
const CNN: Roundings = Roundings {
    forward: 21.0,
    all: 39.0,
    before_relu: 18.0,
    f16_sums: [5.2, 8.2],
};
const LSTM: Roundings = Roundings {
    forward: 27.0,
    all: 50.0,
    before_relu: 0.0,
    f16_sums: [0.0; 2],
};
const TRANSFORMER: Roundings = Roundings {
    forward: 41.0,
    all: 67.0,
    before_relu: 0.0,
    f16_sums: [0.0; 2],
};

/// With f16, gradients of single activations would be subnormal without it.
const LOSS_SCALE: f32 = 1024.0;

/// Prints the errors of a model and compares them with the bound.
fn assert_close(
    name: &str,
    level: OptLevel,
    half: HalfDType,
    roundings: Roundings,
    full: (f32, Gradients),
    mixed: (f32, Gradients),
) {
    let roundings = roundings.on_cpu(half);
    let (bound, loss_bound) = (roundings.gradient_bound(half), roundings.loss_bound(half));
    let loss = f64::from((mixed.0 - full.0).abs() / full.0.abs());
    assert_eq!(
        full.1.len(),
        mixed.1.len(),
        "every parameter has a gradient"
    );
    let (mut worst_element, mut worst_norm, mut failures) = (0f64, 0f64, Vec::new());
    let (mut all, mut all_f32) = (Vec::new(), Vec::new());
    for ((path, g32), (_, g)) in full.1.iter().zip(&mixed.1) {
        assert!(g.iter().all(|x| x.is_finite()), "{name}: {path}");
        all.extend(g);
        all_f32.extend(g32);
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
        let normwise = relative(g, g32);
        if roundings.before_relu == 0.0 && (normwise > bound || element > bound) {
            failures.push(format!(
                "{path}: element {element:.2e}, norm {normwise:.2e}"
            ));
        }
        worst_element = worst_element.max(element);
        worst_norm = worst_norm.max(normwise);
    }
    let together = relative(&all, &all_f32);
    if together > bound {
        failures.push(format!("all parameters together: {together:.2e}"));
    }
    println!(
        "| {name} | {level} | {half} | {loss:.1e} | {together:.1e} | {worst_norm:.1e} | \
         {worst_element:.1e} | {bound:.1e} |"
    );
    assert!(
        failures.is_empty(),
        "{name}, {level}, {half}: bound {bound:.1e}, {failures:#?}"
    );
    assert!(
        loss <= loss_bound,
        "{name}, {level}, {half}: loss {loss:.2e} > {loss_bound:.2e}"
    );
}

fn scaled(level: OptLevel, half: HalfDType) -> Amp {
    let amp = amp(level, half);
    amp.loss_scales().attach();
    amp.loss_scales().set(0, LOSS_SCALE);
    amp
}

/// The same parameters in every run. Burn's random numbers come from one process-wide seed.
fn seeded<M: Module<Mixed>>(new: fn() -> M, seed: u64) -> M {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    Mixed::seed(&Default::default(), seed);
    let model = new();
    model.num_params(); // Burn draws parameters on first use: here, before another test seeds
    model
}

const SEEDS: core::ops::Range<u64> = 1..4;

fn cases() -> impl Iterator<Item = (HalfDType, u64)> {
    HALVES
        .into_iter()
        .flat_map(|half| SEEDS.map(move |seed| (half, seed)))
}

fn check_o1<M: Trainable<Mixed>>(name: &str, roundings: Roundings, new: fn() -> M) {
    for (half, seed) in cases() {
        let model = seeded(new, seed);
        let full = scope::disabled(|| loss_and_gradients(&model));
        let mixed = scaled(OptLevel::O1, half).scope(|| loss_and_gradients(&model));
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
            let untracked = tensor.detach().set_require_grad(false);
            untracked.cast(DType::F32).require_grad()
        })
    }
}

fn check_o2<M: Trainable<Mixed>>(name: &str, roundings: Roundings, new: fn() -> M) {
    for (half, seed) in cases() {
        let amp = scaled(OptLevel::O2, half);
        let model = amp.cast_model::<Mixed, _>(seeded(new, seed));
        let rounded = model.clone().map(&mut ToFull);
        let full = scope::disabled(|| loss_and_gradients(&rounded));
        let mixed = amp.scope(|| loss_and_gradients(&model));
        assert_close(name, OptLevel::O2, half, roundings, full, mixed);
    }
}

#[test]
fn an_mlp_with_layer_norm() {
    check_o1("MLP", MLP, Mlp::<Mixed>::new);
    check_o2("MLP", MLP, Mlp::<Mixed>::new);
}

#[test]
fn a_cnn_with_batch_norm() {
    check_o1("CNN", CNN, Cnn::<Mixed>::new);
    check_o2("CNN", CNN, Cnn::<Mixed>::new);
}

#[test]
fn an_mlp_with_layer_norm_and_gelu() {
    check_o1("MLP, gelu", MLP.smooth(), Mlp::<Mixed>::smooth);
    check_o2("MLP, gelu", MLP.smooth(), Mlp::<Mixed>::smooth);
}

#[test]
fn a_cnn_with_batch_norm_and_gelu() {
    check_o1("CNN, gelu", CNN.smooth(), Cnn::<Mixed>::smooth);
    check_o2("CNN, gelu", CNN.smooth(), Cnn::<Mixed>::smooth);
}

#[test]
fn an_lstm() {
    check_o1("LSTM", LSTM, Reader::<Mixed>::new);
    check_o2("LSTM", LSTM, Reader::<Mixed>::new);
}

#[test]
fn a_transformer_of_two_layers() {
    check_o1("transformer", TRANSFORMER, Transformer::<Mixed>::new);
    check_o2("transformer", TRANSFORMER, Transformer::<Mixed>::new);
}
