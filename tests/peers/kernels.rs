//! Scaling, adding up, looking at and measuring gradients: Apex's multi-tensor kernels, and torch's
//! tests of `unscale_`.

use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use burn_amp::{
    AmpConfig, AmpOptimizer, GradScaler, LossScaleConfig, LossScaling, OptLevel, StepStatus,
    UnscaledGradients,
};

use crate::support::Plain;
use crate::support::gradients::gradients;
use crate::{Dot, F32_AND_F16, leaf};

fn fixed(scale: f32) -> GradScaler {
    GradScaler::new(LossScaleConfig::fixed(scale)).unwrap()
}

/// Several weights of a dtype each.
#[derive(Module, Debug)]
struct List<B: Backend> {
    weights: Vec<Param<Tensor<B, 1>>>,
}

impl List<Plain> {
    fn new(sizes: &[usize], dtype: DType) -> Self {
        let weight = |size: &usize| Tensor::ones([*size], (&Default::default(), dtype));
        List {
            weights: sizes
                .iter()
                .map(|s| Param::from_tensor(weight(s)))
                .collect(),
        }
    }

    /// Gradients as given, whatever the weights.
    fn scaled(&self, scaler: &GradScaler, gradient: impl Fn(usize) -> TensorData) -> Gradients {
        let parts = self.weights.iter().enumerate().map(|(n, weight)| {
            let weight = weight.val();
            let dtype = weight.dtype();
            let gradient =
                Tensor::from_data(gradient(n).convert_dtype(dtype), (&weight.device(), dtype));
            (weight * gradient).cast(FloatDType::F32).sum()
        });
        let loss = parts.reduce(|a, b| a + b).unwrap();
        scaler.scale(loss).backward(self)
    }
}

type Gradients = burn_amp::ScaledGradients<Plain>;

fn values(list: &List<Plain>, grads: &mut UnscaledGradients<Plain>) -> Vec<Vec<f32>> {
    gradients::<Plain, _>(list, grads.gradients().expect("finite"))
        .into_iter()
        .map(|data| data.unwrap().to_vec().unwrap())
        .collect()
}

fn full(size: usize, value: f32) -> TensorData {
    TensorData::full([size], value)
}

/// The gradient 1 at a scale of 4 is 4, and unscaled 1 again, at every position of every size.
#[test]
fn a27_fours_times_a_quarter_are_ones() {
    for dtype in F32_AND_F16 {
        for sizes in [
            vec![555],
            vec![33_333],
            vec![7_777 * 7],
            vec![1; 55],
            vec![555, 33_333, 1],
        ] {
            let list = List::new(&sizes, dtype);
            let mut scaler = fixed(4.0);
            let scaled = list.scaled(&scaler, |n| full(sizes[n], 1.0));
            let mut grads = scaler.unscale(&list, scaled);
            assert!(grads.is_finite());
            let ones = values(&list, &mut grads);
            assert!(
                ones.iter().flatten().all(|x| *x == 1.0),
                "{dtype:?} {sizes:?}"
            );
            assert_eq!(ones.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
        }
    }
}

#[test]
fn a28_a_non_finite_element_at_either_end_or_inside_is_found() {
    let sizes = [333, 555, 33];
    for dtype in F32_AND_F16 {
        for tensor in 0..sizes.len() {
            for element in [0, sizes[tensor] / 2, sizes[tensor] - 1] {
                for bad in [f32::INFINITY, f32::NAN] {
                    let list = List::new(&sizes, dtype);
                    let mut scaler = fixed(4.0);
                    let scaled = list.scaled(&scaler, |n| {
                        let mut values = vec![1.0; sizes[n]];
                        if n == tensor {
                            values[element] = bad;
                        }
                        TensorData::new(values, [sizes[n]])
                    });
                    let mut grads = scaler.unscale(&list, scaled);
                    let found = grads.non_finite().expect("found").clone();
                    assert_eq!(found.parameters, [format!("weights.{tensor}")]);
                    assert_eq!(found.inf + found.nan, 1);
                    assert_eq!(found.nan, u64::from(bad.is_nan()));
                }
            }
        }
    }
}

/// Apex's axpby is `a x + b y`; ours adds gradients of two backward passes up, each with its scale.
#[test]
fn a29_gradients_of_two_scales_add_up_and_both_are_searched() {
    for x_dtype in F32_AND_F16 {
        let list = List::new(&[555], x_dtype);
        let sum = |x: f32, y: f32| {
            let (mut at_two, at_eight) = (fixed(2.0), fixed(8.0));
            let mut grads = list.scaled(&at_two, |_| full(555, x));
            grads.accumulate(&list, list.scaled(&at_eight, |_| full(555, y)));
            at_two.unscale(&list, grads)
        };
        let mut grads = sum(8.0, 128.0);
        assert!(values(&list, &mut grads)[0].iter().all(|g| *g == 136.0));
        assert!(!sum(f32::INFINITY, 128.0).is_finite());
        assert!(!sum(8.0, f32::NAN).is_finite());
        // Apex may be told to search one of them only; what it lets pass is infinite all the same.
        assert!(sum(8.0, 128.0).is_finite());
    }
}

#[test]
fn a30_the_norm_over_all_gradients_accumulates_in_f32() {
    let sizes = [777, 5, 70_000];
    for dtype in F32_AND_F16 {
        let list = List::new(&sizes, dtype);
        let mut scaler = fixed(1.0);
        let scaled = list.scaled(&scaler, |n| full(sizes[n], 3.0));
        let norm = scaler.unscale(&list, scaled).norm();
        let expected = (sizes.iter().sum::<usize>() as f64 * 9.0).sqrt();
        // A sum of n equal squares in f32, however it is ordered: n u at most. In f16 the sum of
        // 7000 of them is infinite already.
        let bound = *sizes.iter().max().unwrap() as f64 * 2f64.powi(-24);
        assert!((norm / expected - 1.0).abs() <= bound, "{norm} {expected}");
    }
}

#[test]
fn a31_the_norm_of_unscaled_gradients_leaves_them_as_they_are() {
    for dtype in F32_AND_F16 {
        let list = List::new(&[9, 16], dtype);
        let mut scaler = fixed(2.0);
        let scaled = list.scaled(&scaler, |n| full([9, 16][n], 3.0));
        let mut grads = scaler.unscale(&list, scaled);
        assert_eq!(grads.norm(), 15.0, "9 + 16 times 3 squared");
        assert!(
            values(&list, &mut grads)
                .iter()
                .flatten()
                .all(|g| *g == 3.0)
        );
        assert_eq!(grads.norm(), 15.0);
    }
}

/// A weight that the loss sees in another layout, so that its gradient comes back in that layout.
#[derive(Module, Debug)]
struct Matrix<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

#[test]
fn g01_unscaling_takes_gradients_of_any_layout() {
    let layouts: [fn(Tensor<Plain, 2>) -> Tensor<Plain, 2>; 3] = [
        |w| w,
        |w| w.transpose(),
        |w| {
            Tensor::cat(
                vec![w.clone().slice([0..2, 0..4]), w.slice([2..4, 0..4])],
                1,
            )
        },
    ];
    for dtype in F32_AND_F16 {
        for layout in layouts {
            let model = Matrix {
                weight: Param::from_tensor(leaf::<Plain, 2>([4, 4], dtype)),
            };
            let mut scaler = fixed(4.0);
            let loss = layout(model.weight.val()).cast(FloatDType::F32).sum();
            let scaled = scaler.scale(loss).backward(&model);
            let mut grads = scaler.unscale(&model, scaled);
            let grads = gradients::<Plain, _>(&model, grads.gradients().unwrap());
            let ones = TensorData::full([4, 4], 1f32);
            assert_eq!(grads, [Some(ones)], "{dtype:?}");
        }
    }
}

#[test]
fn g02_a_non_finite_element_anywhere_is_remembered_until_the_update() {
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let (rows, columns) = (4, 4);
        let list = List::new(&[rows * columns], DType::F32);
        let mut scaler = GradScaler::new(LossScaleConfig::torch().with_init(4.0)).unwrap();
        let looked_at = |scaler: &mut GradScaler, bad: Option<f32>| {
            let scaled = list.scaled(scaler, |_| {
                let mut values = vec![1.0; rows * columns];
                if let Some(bad) = bad {
                    values[2 * columns + 2] = bad;
                }
                TensorData::new(values, [rows * columns])
            });
            scaler.unscale(&list, scaled).is_finite()
        };
        assert!(looked_at(&mut scaler, None));
        assert!(!looked_at(&mut scaler, Some(bad)));
        assert!(looked_at(&mut scaler, None), "later ones are clean");
        assert!(
            scaler.update().unwrap().found_inf,
            "and the flag still stands"
        );
        assert!(looked_at(&mut scaler, None));
        assert!(!scaler.update().unwrap().found_inf);
    }
}

#[test]
fn g03_gradients_of_mixed_dtypes_are_looked_at_together() {
    for poisoned in [None, Some(0), Some(1), Some(2)] {
        let mut list = List::new(&[4, 4, 4], DType::F32);
        for (weight, dtype) in list
            .weights
            .iter_mut()
            .zip([DType::F16, DType::F32, DType::BF16])
        {
            *weight = Param::from_tensor(Tensor::ones([4], (&Default::default(), dtype)));
        }
        let mut scaler = fixed(4.0);
        let scaled = list.scaled(&scaler, |n| match Some(n) == poisoned {
            true => full(4, f32::INFINITY),
            false => full(4, 2.0),
        });
        let mut grads = scaler.unscale(&list, scaled);
        assert_eq!(grads.is_finite(), poisoned.is_none());
        match poisoned {
            None => {
                // torch refuses f16 gradients unless told otherwise; here they widen.
                let grads = values(&list, &mut grads);
                assert!(grads.iter().flatten().all(|g| *g == 2.0));
            }
            Some(n) => {
                let found = grads.non_finite().unwrap();
                assert_eq!(found.parameters, [format!("weights.{n}")]);
            }
        }
    }
}

#[test]
fn g05_each_output_is_scaled_as_it_is() {
    // torch scales iterables of outputs; here each output is scaled by a call of its own, with the
    // same factor, since the scale moves in update only.
    let scaler = fixed(4.0);
    for dtype in F32_AND_F16 {
        let outputs = [2.0f32, 2.0, 2.0].map(|x| {
            let x = Tensor::<Plain, 1>::from_floats([x], &Default::default()).cast(dtype);
            scaler.scale(x).to_data().to_vec::<f32>().unwrap()[0]
        });
        assert_eq!(outputs, [8.0; 3]);
    }
}

#[test]
fn g15_duplicate_indices_whose_sum_overflows_are_found() {
    // Burn's gradient of an embedding is dense; the same index twice adds two rows up in the dtype of
    // the table, here f16, where 64000 + 64000 is infinite although each is not.
    let amp = AmpConfig::new(OptLevel::O3)
        .with_loss_scale(LossScaling::Static(1.0))
        .build()
        .unwrap();
    amp.scope(|| {
        type Mixed = crate::support::Mixed;
        let run = |indices: [i32; 2]| {
            let table: Embedding<Mixed> =
                amp.cast_model(EmbeddingConfig::new(4, 2).init(&Default::default()));
            let indices = Tensor::<Mixed, 2, Int>::from_ints([indices], &Default::default());
            let rows = table.forward(indices);
            assert_eq!(rows.dtype(), DType::F16);
            let loss = rows.cast(FloatDType::F32).sum() * 64_000.0;
            let grads = GradientsParams::from_grads(loss.backward(), &table);
            let mut optim = AmpOptimizer::new(SgdConfig::new().init(), &amp);
            optim.step(1e-6, table, grads);
            optim.last_step().unwrap().status
        };
        assert_eq!(run([0, 1]), StepStatus::Applied);
        assert_eq!(run([1, 1]), StepStatus::Skipped);
    });
}

#[test]
fn b03_no_gradients_are_finite_and_one_bad_leaf_is_not() {
    let empty = List::<Plain> {
        weights: Vec::new(),
    };
    let mut scaler = fixed(4.0);
    let other = Dot::<Plain>::new(&[1.0], FloatDType::F32);
    let mut backward = scaler.scale(other.loss(&[1.0])).backward_shared();
    let none = backward.of(&empty);
    assert!(none.is_empty());
    assert!(scaler.unscale(&empty, none).is_finite());
    assert!(!scaler.update().unwrap().found_inf);
    for bad in [f32::INFINITY, f32::NAN] {
        let list = List::new(&[2, 2, 2], DType::F32);
        let scaled = list.scaled(&scaler, |n| full(2, if n == 1 { bad } else { 1.0 }));
        assert!(!scaler.unscale(&list, scaled).is_finite());
    }
}
