//! Range problems in the forward pass.

use burn::module::AutodiffModule;
use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig};
use burn::nn::loss::{BinaryCrossEntropyLossConfig, MseLoss, Reduction};
use burn::nn::{
    BatchNorm, BatchNormConfig, GroupNormConfig, InstanceNormConfig, LayerNormConfig, Linear,
    LinearConfig, RmsNormConfig,
};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::activation::{log_softmax, sigmoid, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::module::attention;
use burn::tensor::ops::{AttentionModuleOptions, PadMode};
use burn::tensor::{Bool, DType, IndexingUpdateOp, Int, Tensor, TensorPrimitive};
use burn_amp::{
    AmpOptimizer, CastRule, HalfDType, LossScaleConfig, MixedTensor, OptLevel, ScaleEvent, custom,
    scope,
};

use crate::log_capture::warnings;
use crate::one_weight::stored;
use crate::support::{HALVES, Mixed, Plain, amp};

const LEVELS: [OptLevel; 3] = [OptLevel::O1, OptLevel::O2, OptLevel::O3];

fn each_setting(check: impl Fn(OptLevel, HalfDType)) {
    for level in LEVELS {
        for half in HALVES {
            amp(level, half).scope(|| check(level, half));
        }
    }
}

fn tensor<const D: usize>(shape: [usize; D], values: &[f32], dtype: DType) -> Tensor<Mixed, D> {
    let flat = Tensor::<Mixed, 1>::from_floats(values, &Default::default());
    flat.reshape(shape).cast(dtype).detach()
}

fn vector(values: &[f32], dtype: DType) -> Tensor<Mixed, 1> {
    tensor([values.len()], values, dtype)
}

fn all_finite<const D: usize>(tensor: Tensor<Mixed, D>) -> bool {
    stored(tensor).iter().all(|value| value.is_finite())
}

#[test]
fn row_01_a_masked_score_is_finite_and_a_row_of_them_uniform() {
    each_setting(|level, half| {
        for fill in [-1e9, -1e10, -1e15, f32::MIN as f64] {
            let scores = || tensor([1, 2], &[1.0, 2.0], half.dtype()).require_grad();
            let attend = |mask: [[bool; 2]; 1]| {
                let mask = Tensor::<Mixed, 2, Bool>::from_data(mask, &Default::default());
                softmax(scores().mask_fill(mask, fill), 1)
            };
            assert_eq!(
                stored(attend([[false, true]])),
                [1.0, 0.0],
                "{level} {half} {fill}"
            );
            let masked = attend([[true, true]]);
            assert_eq!(stored(masked.clone()), [0.5, 0.5], "{level} {half} {fill}");
            let scores = scores();
            let mask = Tensor::<Mixed, 2, Bool>::from_data([[true, false]], &Default::default());
            let loss = softmax(scores.clone().mask_fill(mask, fill), 1)
                .powf_scalar(2.0)
                .sum();
            let gradient = scores.grad(&loss.cast(DType::F32).backward()).unwrap();
            assert!(
                stored(gradient).iter().all(|g| g.is_finite()),
                "{level} {half}"
            );
        }
        // Infinity is meant where it is written.
        let mask = Tensor::<Mixed, 2, Bool>::from_data([[false, true]], &Default::default());
        let scores = tensor([1, 2], &[1.0, 2.0], half.dtype()).mask_fill(mask, f32::NEG_INFINITY);
        assert_eq!(stored(scores), [1.0, f32::NEG_INFINITY]);
    });
}

/// Whatever writes a number into a half tensor, directly or through a tensor of it; but for
/// `slice_fill`, whose number Burn rounds to half on the host, before any backend sees it.
#[test]
fn row_01_a_finite_number_is_finite_wherever_it_is_written() {
    let device = Default::default();
    each_setting(|level, half| {
        let x = || tensor([2, 3], &[0.5; 6], half.dtype());
        let big = || Tensor::<Mixed, 2>::full([2, 3], -1e9, &device);
        let mask = || x().greater_elem(0.0);
        let columns = || Tensor::<Mixed, 2, Int>::from_data([[0, 1, 2], [2, 1, 0]], &device);
        let rows = || Tensor::<Mixed, 1, Int>::from_data([0, 1], &device);
        let written = [
            ("full", Tensor::full([2, 3], -1e9, (&device, half.dtype()))),
            ("full_like", x().full_like(-1e9)),
            ("mask_fill", x().mask_fill(mask(), -1e9)),
            ("mask_where", x().mask_where(mask(), big())),
            ("clamp", x().clamp(-1e9, -1e8)),
            ("clamp_max", x().clamp_max(-1e9)),
            ("clamp_min", x().clamp_min(1e9)),
            ("slice_assign", x().slice_assign([0..2, 0..3], big())),
            (
                "scatter",
                x().scatter(1, columns(), big(), IndexingUpdateOp::Add),
            ),
            (
                "select_assign",
                x().select_assign(0, rows(), big(), IndexingUpdateOp::Add),
            ),
            ("pad", x().pad((1, 1, 1, 1), PadMode::Constant(-1e9))),
            ("add_scalar", x().add_scalar(-1e9)),
            ("sub_scalar", x().sub_scalar(1e9)),
            ("mul_scalar", x().mul_scalar(-1e9)),
            ("div_scalar", x().div_scalar(1e-9)),
            ("remainder_scalar", x().remainder_scalar(1e9)),
            ("powf_scalar", x().powf_scalar(1e9)),
            ("powi_scalar", x().powi_scalar(100_000)),
            ("triu", x().triu(0)),
            ("tril", x().tril(0)),
            (
                "one_hot",
                rows()
                    .float()
                    .cast(half.dtype())
                    .one_hot_fill(3, 1e9, -1e9, -1),
            ),
        ];
        for (name, result) in written {
            assert!(
                all_finite(result.clone()),
                "{name} at {level}, {half}: {result}"
            );
        }
    });
}

/// A padding mask of one sequence has the shape of a channel vector, which would stay in half.
#[test]
fn row_01_an_additive_mask_of_a_single_sequence_is_finite() {
    each_setting(|level, half| {
        for (row, expected) in [
            ([0.0, -1e9, 0.0], [0.5, 0.0, 0.5]),
            ([-1e9; 3], [1.0 / 3.0; 3]),
        ] {
            let scores = tensor([1, 2, 4, 3], &[1.0; 24], half.dtype());
            let mask = tensor([1, 1, 1, 3], &row, DType::F32);
            let attended = softmax(scores.clone() + mask.clone(), 3);
            for row in stored(attended).chunks(3) {
                for (weight, expected) in row.iter().zip(expected) {
                    // One rounding, to half at O2.
                    assert!(
                        (weight - expected).abs() <= 2f32.powi(-9),
                        "{level} {half} {row:?}"
                    );
                }
            }
            assert!(all_finite(mask - scores), "and the other way round");
        }
    });
}

#[test]
fn row_02_a_masked_score_does_not_fall_below_the_lowest_number() {
    // The raw fact: f16 has no -65604, and no number between -65504 and -inf.
    assert_eq!(HalfDType::F16.lowest(), -65504.0);
    assert_eq!(HalfDType::F16.round(-65504.0 + -100.0), f64::NEG_INFINITY);
    each_setting(|level, half| {
        let lowest = half.lowest();
        let scores = tensor([1, 4, 1, 2], &[-100.0; 8], half.dtype());
        // A boolean mask replaces.
        let mask = scores.clone().lower_elem(0.0);
        let filled = scores.clone().mask_fill(mask, lowest);
        assert_eq!(filled.dtype(), half.dtype());
        assert!(
            stored(filled).iter().all(|score| *score as f64 == lowest),
            "{level} {half}"
        );
        // An additive mask in f32 adds in f32.
        let added = scores + tensor([1, 1, 1, 2], &[lowest as f32 * 0.999; 2], DType::F32);
        assert!(all_finite(softmax(added, 3)), "{level} {half}");
    });
}

/// Queries and keys of 112 in a head of 64 have the score 64 * 112 * 112 = 802816, of which f16 has
/// no number, nor of an eighth of it, 100352. The first key is the queries' own, the second three
/// quarters of it, so the softmax is [1, 0] (their scores differ by 25088) and attention the first
/// value.
#[test]
fn row_03_attention_scores_beyond_the_range_are_no_nan() {
    each_setting(|level, half| {
        let query = Tensor::<Mixed, 4>::full([1, 1, 1, 64], 112.0, &Default::default())
            .cast(half.dtype())
            .detach()
            .require_grad();
        let key = query.clone().detach();
        let key = Tensor::cat(vec![key.clone(), key.mul_scalar(0.75)], 2);
        let value = tensor([1, 1, 2, 1], &[3.0, 5.0], half.dtype());
        let options = AttentionModuleOptions::default();
        let attended = attention(query.clone(), key, value, None, None, options);
        let gradient = query.grad(&attended.clone().cast(DType::F32).sum().backward());
        assert_eq!(stored(attended), [3.0], "{level} {half}");
        assert!(
            stored(gradient.unwrap()).iter().all(|g| *g == 0.0),
            "{level} {half}"
        );
    });
}

/// burn-nn's own attention is made of a plain product and a division, so its scores are half: the remedies
/// are a block in f32 and bf16. Weights of 112 / 64 make queries and keys of 112 out of ones.
#[test]
fn row_03_multi_head_attention_with_large_scores_runs_in_a_full_block_and_in_bf16() {
    let attended = |half, full: bool| {
        amp(OptLevel::O1, half).scope(|| {
            let config = MultiHeadAttentionConfig::new(64, 1).with_dropout(0.0);
            let mut layer = config.init::<Mixed>(&Default::default());
            for linear in [&mut layer.query, &mut layer.key] {
                linear.weight = linear.weight.clone().map(|weight| weight.full_like(1.75));
                linear.bias = None;
            }
            let x = Tensor::<Mixed, 3>::ones([1, 2, 64], &Default::default());
            let forward = || layer.forward(MhaInput::self_attn(x)).context;
            all_finite(match full {
                true => scope::full(forward),
                false => forward(),
            })
        })
    };
    assert!(!attended(HalfDType::F16, false), "802816 is not in f16");
    assert!(attended(HalfDType::F16, true));
    assert!(attended(HalfDType::Bf16, false));
}

#[test]
fn row_04_a_floor_holds_the_scale_and_it_recovers() {
    let rule = LossScaleConfig::default()
        .with_floor(128.0)
        .with_growth_interval(10);
    let mut scale = rule.init().unwrap();
    for _ in 0..40 {
        scale.update(true);
    }
    assert_eq!(scale.scale(), 128.0, "not 65536 / 2^40");
    let events: Vec<_> = (0..10).map(|_| scale.update(false).event).collect();
    assert_eq!(events[9], ScaleEvent::Grew);
    assert_eq!(scale.scale(), 256.0);
}

/// log_softmax of [a, 0] with a large is [-log(1 + e^-a), -a - log(1 + e^-a)] = [-e^-a, -a] up to
/// e^-2a: for a = 1000 [0, -1000] in any precision, where e^1000 is infinite even in f64.
#[test]
fn row_05_log_softmax_of_large_logits_is_exact() {
    each_setting(|level, half| {
        let logits = tensor([1, 2], &[1000.0, 0.0], half.dtype()).require_grad();
        let output = log_softmax(logits.clone(), 1);
        assert_eq!(output.dtype(), DType::F32, "{level}");
        // d/dx of the second is [-softmax_0, 1 - softmax_1] = [-1, 1].
        let grads = output.clone().slice([0..1, 1..2]).sum().backward();
        assert_eq!(stored(output), [0.0, -1000.0], "{level} {half}");
        assert_eq!(
            stored(logits.grad(&grads).unwrap()),
            [-1.0, 1.0],
            "{level} {half}"
        );
    });
}

#[test]
fn row_06_a_model_beyond_f16_runs_in_bf16_and_f16_says_so() {
    let run = |half| {
        let amp = amp(OptLevel::O1, half);
        amp.scope(|| {
            let layer = LinearConfig::new(1, 1).with_bias(false);
            let mut layer = layer.init::<Mixed>(&Default::default());
            layer.weight = layer
                .weight
                .map(|weight| weight.full_like(256.0).require_grad());
            let sgd = SgdConfig::new().init::<Mixed, Linear<Mixed>>();
            let rule = LossScaleConfig::default().with_init(1.0);
            let mut optim = AmpOptimizer::new(sgd, &amp).with_loss_scale(rule).unwrap();
            let output = layer.forward(tensor([1, 1], &[512.0], DType::F32));
            let loss = output.clone().powi_scalar(2).sum();
            let said = warnings(|| {
                let grads = GradientsParams::from_grads(loss.backward(), &layer);
                optim.step(1e-9, layer, grads);
            });
            (stored(output)[0], said)
        })
    };
    // 256 * 512 = 131072 = 2^17.
    assert_eq!(run(HalfDType::Bf16), (131_072.0, vec![]));
    let (output, said) = run(HalfDType::F16);
    assert_eq!((output, said.len()), (f32::INFINITY, 1));
    for part in ["weight", "forward", "bf16", "scope::full"] {
        assert!(said[0].contains(part), "{part} in {said:?}");
    }
}

/// log(1 + e^12) = 12.000006144: the loss of a logit 12 for a target 0.
#[test]
fn row_07_binary_cross_entropy_is_right_from_logits_and_finite_from_probabilities() {
    assert_eq!(
        HalfDType::F16.round(1.0 / (1.0 + (-12f64).exp())),
        1.0,
        "so log(1 - p) is -inf"
    );
    for level in [OptLevel::O1, OptLevel::O2] {
        for half in HALVES {
            amp(level, half).scope(|| {
                let logits = tensor([1, 1], &[12.0], half.dtype()).require_grad();
                let target = Tensor::<Mixed, 2, Int>::zeros([1, 1], &Default::default());
                let loss = |with_logits, input| {
                    BinaryCrossEntropyLossConfig::new()
                        .with_logits(with_logits)
                        .init(&Default::default())
                        .forward(input, target.clone())
                };
                let from_logits = loss(true, logits.clone());
                let error = stored(from_logits.clone())[0] - 12.000006;
                assert!(
                    error.abs() <= 12.0 * 2f32.powi(-23),
                    "{level} {half}: {error}"
                );
                // d/dx log(1 + e^x) = sigmoid(12) = 0.999994.
                let gradient = stored(logits.grad(&from_logits.backward()).unwrap())[0];
                assert!(
                    (gradient - 0.999_994).abs() <= 2f32.powi(-8),
                    "{level} {half}: {gradient}"
                );
                let from_probabilities = loss(false, sigmoid(logits.clone()));
                assert!(all_finite(from_probabilities), "{level} {half}");
            });
        }
    }
}

#[test]
fn row_08_sums_and_means_of_losses_do_not_overflow() {
    for level in [OptLevel::O1, OptLevel::O2] {
        for half in HALVES {
            amp(level, half).scope(|| {
                let device = Default::default();
                let ones = Tensor::<Mixed, 1>::ones([262_144], &device).cast(half.dtype());
                assert_eq!(stored(ones.sum()), [262_144.0], "{level} {half}");
                let fours = Tensor::<Mixed, 1>::full([16_384], 4.0, &device).cast(half.dtype());
                assert_eq!(stored(fours.mean()), [4.0], "the sum is 65536");
                let twos = Tensor::<Mixed, 2>::full([128, 128], 2.0, &device).cast(half.dtype());
                let loss =
                    |reduction| MseLoss::new().forward(twos.clone(), twos.zeros_like(), reduction);
                assert_eq!(stored(loss(Reduction::Mean)), [4.0], "{level} {half}");
                assert_eq!(stored(loss(Reduction::Sum)), [65_536.0], "{level} {half}");
            });
        }
    }
}

/// Of [512, -512, 512, -512]: the mean is 0 and the squares 262144 each, beyond f16, so the variance is
/// 262144 (over n - 1 four thirds of it, 349525.33) and the norm 1024. Of four times 57344 the mean is
/// 57344; their sum, 229376, is not in f16.
#[test]
fn row_09_mean_variance_and_norm_are_computed_in_f32() {
    for level in [OptLevel::O1, OptLevel::O2] {
        for half in HALVES {
            amp(level, half).scope(|| {
                let x = tensor([1, 4], &[512.0, -512.0, 512.0, -512.0], half.dtype());
                assert_eq!(stored(x.clone().var_bias(1)), [262_144.0], "{level} {half}");
                let unbiased = stored(x.clone().var(1))[0];
                assert!(
                    (unbiased / 349_525.34 - 1.0).abs() < 2f32.powi(-22),
                    "{unbiased}"
                );
                let norm = x.powf_scalar(2.0).sum_dim(1).sqrt();
                assert_eq!(stored(norm), [1024.0], "{level} {half}");
                let large = tensor([1, 4], &[57_344.0; 4], half.dtype());
                assert_eq!(stored(large.mean_dim(1)), [57_344.0], "{level} {half}");
            });
        }
    }
}

/// [-57344, 57344] has the variance 3.3e9 and the root mean square 57344, so every norm gives [-1, 1]
/// (the epsilon is 3e-15 of the variance). With an infinite variance it would be [0, 0].
#[test]
fn row_10_norms_of_large_activations_are_one() {
    let device = Default::default();
    for level in [OptLevel::O1, OptLevel::O2] {
        for half in HALVES {
            amp(level, half).scope(|| {
                let large = [-57_344.0, 57_344.0];
                let row = || tensor([1, 2], &large, half.dtype());
                let column = || tensor([2, 1], &large, half.dtype());
                let image = || tensor([1, 1, 4], &[large, large].concat(), half.dtype());
                let results = [
                    (
                        "LayerNorm",
                        stored(LayerNormConfig::new(2).init(&device).forward(row())),
                    ),
                    (
                        "RmsNorm",
                        stored(RmsNormConfig::new(2).init(&device).forward(row())),
                    ),
                    (
                        "BatchNorm",
                        stored(BatchNormConfig::new(1).init(&device).forward(column())),
                    ),
                    (
                        "GroupNorm",
                        stored(GroupNormConfig::new(1, 1).init(&device).forward(image())),
                    ),
                    (
                        "InstanceNorm",
                        stored(InstanceNormConfig::new(1).init(&device).forward(image())),
                    ),
                ];
                for (name, result) in results {
                    let ones = result.chunks(2).all(|pair| pair == [-1.0, 1.0]);
                    assert!(ones, "{name} at {level}, {half}: {result:?}");
                }
            });
        }
    }
}

#[test]
fn row_11_an_epsilon_that_half_has_not_still_guards() {
    assert_eq!(HalfDType::F16.round(1e-8), 0.0);
    for level in LEVELS {
        amp(level, HalfDType::F16).scope(|| {
            let zero = || vector(&[0.0], DType::F16);
            // ln(1e-8) = -18.420681, 1/1e-8 = 1e8, sqrt(1e-8) = 1e-4; two roundings of f32 each.
            let guarded = [
                (zero().add_scalar(1e-8).log(), -18.420_681),
                (zero().sub_scalar(-1e-8).log(), -18.420_681),
                (zero().clamp_min(1e-8).log(), -18.420_681),
                (zero().clamp(1e-8, 1.0).log(), -18.420_681),
                (
                    zero().mask_fill(zero().lower_elem(1e-8), 1e-8).log(),
                    -18.420_681,
                ),
                (zero().add_scalar(1e-8).recip(), 1e8),
                (zero().add_scalar(1e-8).sqrt(), 1e-4),
                (zero().add_scalar(1.0).div_scalar(1e-8), 1e8),
                (zero().add_scalar(1.0).mul_scalar(1e-8), 1e-8),
                (zero() + zero().div(zero().add_scalar(1e-8)), 0.0),
            ];
            for (i, (result, expected)) in guarded.into_iter().enumerate() {
                let value = stored(result)[0];
                let bound = f32::abs(expected) * 2f32.powi(-22);
                assert!(
                    (value - expected).abs() <= bound,
                    "{level} guard {i}: {value}"
                );
            }
        });
    }
}

#[test]
fn row_11_a_tensor_that_is_created_of_an_epsilon_in_half_warns() {
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        let said = warnings(|| {
            for _ in 0..2 {
                let full = Tensor::<Mixed, 1>::full([1], 1e-8, (&Default::default(), DType::F16));
                assert_eq!(stored(full), [0.0], "the dtype was asked for");
            }
        });
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("1e-8") && said[0].contains("f16"),
            "{said:?}"
        );
    });
}

/// A step that overflowed leaves the statistics where the step before it had left them: clean,
/// overflow, clean gives those of clean, clean.
#[test]
fn row_12_an_overflow_in_forward_does_not_reach_the_running_statistics() {
    let statistics = |batches: &[f32]| {
        let amp = amp(OptLevel::O1, HalfDType::F16);
        amp.scope(|| {
            let norm: BatchNorm<Mixed> = BatchNormConfig::new(2).init(&Default::default());
            let sgd = SgdConfig::new().init::<Mixed, BatchNorm<Mixed>>();
            let mut optim = AmpOptimizer::new(sgd, &amp)
                .with_loss_scale(LossScaleConfig::fixed(128.0))
                .unwrap();
            let mut norm = norm;
            for by in batches {
                let x = tensor([2, 2], &[0.5, -1.0, 1.5, 2.0], DType::F16);
                let loss = norm.forward(x.mul_scalar(*by)).powi_scalar(2).sum();
                let grads = GradientsParams::from_grads(loss.backward(), &norm);
                norm = optim.step(0.1, norm, grads);
            }
            let norm = norm.valid();
            [
                norm.running_mean.value_sync(),
                norm.running_var.value_sync(),
            ]
            .map(stored)
        })
    };
    let clean = statistics(&[1.0, 2.0]);
    assert!(clean.iter().flatten().all(|value| value.is_finite()));
    assert_eq!(statistics(&[1.0, f32::INFINITY, 2.0]), clean);
}

#[test]
fn row_13_a_norm_takes_half_beside_f32_in_training_and_in_evaluation() {
    each_setting(|level, half| {
        let norm: BatchNorm<Mixed> = BatchNormConfig::new(2).init(&Default::default());
        let input = || tensor([2, 2], &[0.5, -1.0, 1.5, 2.0], half.dtype()).require_grad();
        let x = input();
        let trained = norm.forward(x.clone());
        let grads = trained
            .clone()
            .cast(DType::F32)
            .powi_scalar(2)
            .sum()
            .backward();
        assert_eq!(x.grad(&grads).unwrap().dtype(), half.dtype(), "{level}");
        assert_eq!(
            norm.gamma.val().grad(&grads).unwrap().dtype(),
            DType::F32,
            "{level}"
        );
        assert!(all_finite(trained), "{level} {half}");
        let evaluated = norm.valid().forward(input().inner());
        assert!(
            stored(evaluated).iter().all(|value| value.is_finite()),
            "{level} {half}"
        );
    });
}

/// A kernel that refuses inputs of different dtypes, as third-party ones do.
fn picky_add<B: Backend>(
    inputs: [burn::tensor::ops::FloatTensor<B>; 2],
) -> burn::tensor::ops::FloatTensor<B> {
    use burn::tensor::TensorMetadata;
    let [x, y] = inputs;
    assert_eq!(x.dtype(), y.dtype(), "expected tensors of one dtype");
    B::float_add(x, y)
}

#[test]
fn row_14_a_kernel_of_ones_own_gets_its_inputs_in_one_dtype() {
    each_setting(|_, half| {
        for (rule, dtype) in [
            (CastRule::Lower, half.dtype()),
            (CastRule::Full, DType::F32),
        ] {
            let leaves =
                [DType::F32, half.dtype()].map(|dtype| vector(&[1.0, 2.0], dtype).require_grad());
            let inputs = leaves
                .each_ref()
                .map(|leaf| -> MixedTensor<_> { leaf.clone().into_primitive().tensor() });
            let sum = custom::run(rule, inputs, picky_add::<Plain>);
            let sum = Tensor::<Mixed, 1>::from_primitive(TensorPrimitive::Float(sum));
            assert_eq!(sum.dtype(), dtype);
            let grads = sum.clone().cast(DType::F32).sum().backward();
            assert_eq!(stored(sum), [2.0, 4.0]);
            for leaf in leaves {
                assert_eq!(leaf.grad(&grads).unwrap().dtype(), leaf.dtype());
            }
        }
    });
}

#[test]
fn row_15_a_scale_below_one_is_a_setting() {
    let floor = 2f32.powi(-10);
    let rule = LossScaleConfig::default().with_init(1.0).with_floor(floor);
    let mut scale = rule.init().unwrap();
    for _ in 0..20 {
        scale.update(true);
    }
    assert_eq!(scale.scale(), floor);
    let amp = burn_amp::AmpConfig::new(OptLevel::O1)
        .with_min_loss_scale(floor)
        .build();
    assert_eq!(amp.unwrap().config().min_loss_scale(), Some(floor));
}
