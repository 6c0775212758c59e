//! Both orders of the decorators train, and the numbers of `MixedPrecision`'s `# Order` table hold.

#[path = "support/models.rs"]
mod models;
mod support;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor, TensorData};
use burn_amp::{HalfDType, MixedPrecision, OptLevel, measure, scope};
use models::{Cnn, Mlp, Reader, Trainable, Transformer, wave};
use std::sync::Mutex;
use support::{Bare, HALVES, Inside, Mixed, amp};

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
        model = scope::disabled(|| optimizer.step(1e-2, model, grads));
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

/// What the `# Order` table describes: a linear layer followed by `log_softmax`, f16 at O1.
struct Order {
    output: DType,
    gradient: DType,
    casts_of_a_weight_used_twice: u64,
    loss_scale_reaches_backward: bool,
}

fn order<B: AutodiffBackend>() -> Order {
    let amp = amp(OptLevel::O1, HalfDType::F16);
    amp.loss_scales().attach();
    amp.loss_scales().set(0, 4.0);
    amp.scope(|| {
        let weight = Tensor::<B, 2>::ones([4, 4], &Default::default()).require_grad();
        let x = || wave::<B, 2>([3, 4], 0).cast(DType::F16);
        let (_, casts) = measure(|| {
            let _ = x().matmul(weight.clone());
            x().matmul(weight.clone())
        });
        let output = log_softmax(x().matmul(weight.clone()), 1);
        let dtype = output.dtype();
        let gradient = |loss: Tensor<B, 1>| weight.grad(&loss.backward()).unwrap();
        let grad = gradient(output.slice([0..3, 0..1]).sum());
        // The gradient of a sum: 1, or 4 where the scale was applied and not taken out again.
        let scaled = format!("{:?}", std::any::type_name::<B::Gradients>());
        Order {
            output: dtype,
            gradient: grad.dtype(),
            casts_of_a_weight_used_twice: casts.made,
            loss_scale_reaches_backward: scaled.contains("MixedGradients"),
        }
    })
}

#[test]
fn the_order_table_holds() {
    let outside = order::<Mixed>();
    assert_eq!(outside.output, DType::F32, "log_softmax is seen whole");
    assert_eq!(outside.gradient, DType::F32, "that of the weight");
    assert_eq!(outside.casts_of_a_weight_used_twice, 1);
    assert!(outside.loss_scale_reaches_backward);

    let inside = order::<Inside>();
    println!(
        "inside: output {:?}, gradient {:?}",
        inside.output, inside.gradient
    );
    assert_eq!(inside.gradient, DType::F16, "that of the product");
    assert_eq!(inside.casts_of_a_weight_used_twice, 2);
    assert!(!inside.loss_scale_reaches_backward);
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
