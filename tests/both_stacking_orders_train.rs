//! Both orders of the decorators train, and the numbers of `MixedPrecision`'s `# Order` table hold.

#[path = "support/models.rs"]
mod models;
mod support;

use std::sync::Mutex;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor, TensorData};
use burn_amp::{Amp, HalfDType, MixedPrecision, OptLevel, measure, scope};
use models::{Cnn, Mlp, Reader, Trainable, Transformer, wave};
use support::{Bare, HALVES, Inside, Mixed, amp, unless_it_panics};

type Checkpointed = MixedPrecision<Autodiff<Bare, BalancedCheckpointing>>;

/// Burn's random numbers come from one process-wide seed.
static SEED: Mutex<()> = Mutex::new(());

fn seeded<B: Backend, M: Trainable<B>>() -> M {
    let _alone = SEED.lock();
    B::seed(&Default::default(), 1);
    let model = M::new();
    model.num_params(); // Burn draws parameters on first use
    model
}

/// The loss on one batch, before each of the steps and after the last.
fn losses<B: AutodiffBackend, M: Trainable<B> + AutodiffModule<B>>(steps: usize) -> Vec<f32> {
    let mut model = seeded::<B, M>();
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = model.loss(0);
        losses.push(loss.to_data().convert::<f32>().to_vec().unwrap()[0]);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        // Inside, gradients are half: the optimizer needs a policy that accepts them.
        model = scope::full(|| optimizer.step(1e-2, model, grads));
    }
    losses
}

fn assert_falls(losses: &[f32]) {
    assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(last < 0.5 * first, "from {first} to {last}");
}

#[test]
fn the_loss_falls_in_both_orders() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            assert_falls(&losses::<Mixed, Mlp<Mixed>>(60));
            assert_falls(&losses::<Inside, Mlp<Inside>>(60));
            assert_falls(&losses::<Mixed, Cnn<Mixed>>(60));
            assert_falls(&losses::<Inside, Cnn<Inside>>(60));
        });
    }
}

fn o1() -> Amp {
    amp(OptLevel::O1, HalfDType::F16)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().to_vec().unwrap()
}

fn half_input<B: Backend>() -> Tensor<B, 2> {
    wave::<B, 2>([3, 4], 0).cast(DType::F16)
}

fn weight<B: AutodiffBackend>() -> Tensor<B, 2> {
    wave::<B, 2>([4, 4], 1).require_grad()
}

/// Whether log_softmax of a half tensor gives the very numbers of f32.
fn computes_log_softmax_in_f32<B: AutodiffBackend>() -> bool {
    let full = values(log_softmax(half_input::<Bare>().cast(DType::F32), 1));
    let output = o1().scope(|| log_softmax(half_input::<B>(), 1));
    assert_eq!(output.dtype(), DType::F32);
    values(output) == full
}

#[test]
fn outside_the_policy_sees_log_softmax_whole() {
    assert!(computes_log_softmax_in_f32::<Mixed>());
    assert!(
        !computes_log_softmax_in_f32::<Inside>(),
        "the maximum is subtracted in half"
    );
}

fn gradient_dtype<B: AutodiffBackend>() -> DType {
    o1().scope(|| {
        let weight = weight::<B>();
        let grads = half_input().matmul(weight.clone()).sum().backward();
        weight.grad(&grads).unwrap().dtype()
    })
}

#[test]
fn outside_a_gradient_has_its_weights_dtype() {
    assert_eq!(gradient_dtype::<Mixed>(), DType::F32);
    assert_eq!(
        gradient_dtype::<Inside>(),
        DType::F16,
        "that of the product"
    );
}

/// Whether a graph built at O1 can be run backward where no policy is in force.
fn runs_backward_without_a_policy<B: AutodiffBackend>() -> bool {
    let weight = weight::<B>();
    let loss = o1().scope(|| half_input().matmul(weight.clone()).sum());
    unless_it_panics(|| weight.grad(&loss.backward()).is_some()) == Some(true)
}

#[test]
fn outside_backward_runs_in_the_dtypes_of_forward() {
    assert!(runs_backward_without_a_policy::<Mixed>());
    assert!(!runs_backward_without_a_policy::<Inside>());
}

/// Whether a loss scale that overflows f16 makes gradients infinite.
fn scales_the_loss<B: AutodiffBackend>() -> bool {
    let amp = o1();
    amp.loss_scales().attach();
    amp.loss_scales().set(0, 2f32.powi(20));
    amp.scope(|| {
        let weight = weight::<B>();
        let grads = half_input().matmul(weight.clone()).sum().backward();
        !values(weight.grad(&grads).unwrap())
            .iter()
            .all(|x| x.is_finite())
    })
}

#[test]
fn outside_backward_scales_the_loss() {
    assert!(scales_the_loss::<Mixed>());
    assert!(!scales_the_loss::<Inside>(), "backward is not seen");
}

fn casts_of_a_weight_used_twice<B: AutodiffBackend>() -> u64 {
    o1().scope(|| {
        let (x, weight) = (half_input(), weight::<B>());
        let (_, casts) = measure(|| {
            let first = x.clone().matmul(weight.clone());
            (first, x.matmul(weight))
        });
        casts.made
    })
}

#[test]
fn outside_a_weight_used_twice_is_cast_once() {
    assert_eq!(casts_of_a_weight_used_twice::<Mixed>(), 1);
    assert_eq!(casts_of_a_weight_used_twice::<Inside>(), 2);
}

/// Every gradient of a model, in the order of its parameters.
struct Gradients<'a, B: AutodiffBackend> {
    grads: &'a B::Gradients,
    found: Vec<TensorData>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(grad) = param.val().grad(self.grads) {
            self.found.push(grad.into_data());
        }
    }
}

fn gradients<B: AutodiffBackend, M: Trainable<B>>() -> Vec<TensorData> {
    let model = seeded::<B, M>();
    let grads = model.loss(0).backward();
    let mut gradients = Gradients::<B> {
        grads: &grads,
        found: Vec::new(),
    };
    model.visit(&mut gradients);
    gradients.found
}

#[test]
fn checkpointing_inside_gives_the_same_gradients_bit_by_bit() {
    macro_rules! compare {
        ($($model:ident),*) => {$(
            let stored = gradients::<Mixed, $model<Mixed>>();
            let recomputed = gradients::<Checkpointed, $model<Checkpointed>>();
            assert!(!stored.is_empty());
            assert!(stored.iter().all(|grad| grad.dtype == DType::F32));
            assert_eq!(recomputed, stored, stringify!($model));
        )*};
    }
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            compare!(Mlp, Cnn, Reader, Transformer);
        });
    }
}
