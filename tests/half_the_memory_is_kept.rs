//! What forward leaves on the heap for backward, counted by the allocator: one test, since every thread's
//! bytes count.

#[path = "../examples/models/gpt.rs"]
mod gpt;
mod support;

use burn::backend::Autodiff;
use burn::nn::LayerNormConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_amp::{AmpBackend, AmpConfig, OptLevel};
use peak_alloc::PeakAlloc;
use support::{Bare, HALVES};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

type B = AmpBackend<Bare>;

/// The bytes that are on the heap while the result of a block is, and were not before.
fn added<R>(block: impl FnOnce() -> R) -> f64 {
    let before = HEAP.current_usage() as f64;
    let result = block();
    let added = HEAP.current_usage() as f64 - before;
    drop(result);
    added
}

const SIZE: usize = 256;

/// What an operation on a square tensor keeps for backward, in parts of that tensor in f32.
fn kept<B: AutodiffBackend>(op: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>) -> f64 {
    let x = Tensor::<B, 2>::ones([SIZE, SIZE], &Default::default()).require_grad();
    // A sum keeps nothing of what it adds up.
    added(|| op(x.clone()).sum()) / (4 * SIZE * SIZE) as f64
}

/// Whether a number is this one, up to a number per row and what the graph itself takes.
#[track_caller]
fn assert_about(got: f64, expected: f64) {
    assert!((got - expected).abs() < 0.03, "{got}, not {expected}");
}

/// A small language model's forward pass and loss.
fn language_model<B: AutodiffBackend>() -> f64 {
    let [batch, time, vocabulary] = [2, 128, 1024];
    let device = Default::default();
    let model = gpt::GptConfig::new(vocabulary, 64, 2, 4, time).init::<B>(&device);
    let tokens = (0..batch * time).map(|i| (i * 37 % vocabulary) as i64);
    let tokens = TensorData::new(tokens.collect::<Vec<_>>(), [batch, time]);
    let tokens = Tensor::<B, 2, Int>::from_data(tokens, &device);
    let loss = |tokens: Tensor<B, 2, Int>| {
        let logits = model.forward(tokens.clone());
        CrossEntropyLossConfig::new().init(&device).forward(
            logits.reshape([batch * time, vocabulary]),
            tokens.reshape([batch * time]),
        )
    };
    // Burn draws weights when they are first used, and each thread keeps what it computes products in.
    let mut runs: Vec<f64> = (0..7).map(|_| added(|| loss(tokens.clone()))).collect();
    runs.sort_by(f64::total_cmp);
    runs[3]
}

#[test]
fn one_half_tensor_is_kept_of_each_operation_and_a_language_model_fits_twice() {
    let full = language_model::<Autodiff<Bare>>();
    for half in HALVES {
        let config = AmpConfig::new(OptLevel::O1).with_half(half);
        let fat = config.clone().with_lean_backward(false).build().unwrap();
        let lean = config.build().unwrap();

        let norm = LayerNormConfig::new(SIZE).init::<B>(&Default::default());
        lean.scope(|| {
            assert_about(kept::<B>(|x| softmax(x, 1)), 0.5);
            assert_about(kept::<B>(|x| log_softmax(x, 1)), 0.5);
            assert_about(kept::<B>(|x| norm.forward(x)), 0.5);
        });
        let o3 = AmpConfig::new(OptLevel::O3)
            .with_half(half)
            .build()
            .unwrap();
        o3.scope(|| {
            let cast = |x: Tensor<B, 2>| x.cast(half.float_dtype());
            assert_about(kept::<B>(|x| softmax(cast(x), 1)), 0.5);
        });
        lean.scope(|| {
            let untracked = Tensor::<B, 2>::ones([SIZE, SIZE], &Default::default());
            let kept = added(|| softmax(untracked.clone(), 1).sum()) / (4 * SIZE * SIZE) as f64;
            assert_about(kept, 0.0);
        });
        fat.scope(|| {
            assert!(kept::<B>(|x| softmax(x, 1)) > 0.9);
            assert!(kept::<B>(|x| log_softmax(x, 1)) > 0.9);
            assert!(kept::<B>(|x| norm.forward(x)) > 1.9);
        });

        let (lean, fat) = (
            lean.scope(language_model::<B>),
            fat.scope(language_model::<B>),
        );
        let part = |bytes: f64| bytes / full;
        println!("{half}: {:.3} of f32, {:.3} without", part(lean), part(fat));
        assert!(part(lean) < 0.55, "{}", part(lean));
        assert!(part(fat) > 0.7, "{}", part(fat));
    }
}
