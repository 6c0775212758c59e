//! Which operation runs in which dtype: Apex's `test_basic_casts` and `test_promotion`, torch's
//! `test_autocast`.

use burn::nn::loss::{BinaryCrossEntropyLossConfig, HuberLossConfig, MseLoss, Reduction};
use burn::nn::{BatchNormConfig, GroupNormConfig, LayerNormConfig, LinearConfig, Relu};
use burn::tensor::activation::{log_softmax, relu, sigmoid, softmax};
use burn::tensor::module::{conv2d, linear};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Int, Tensor};
use burn_amp::{CastRule, HalfDType, Op, OptLevel, Policy, scope};

use crate::support::{HALVES, Mixed, amp, unless_it_panics};
use crate::{F32_AND_F16, constant, floats, gradient_dtype, leaf, o1, pairs, stored, widest};

type T<const D: usize> = Tensor<Mixed, D>;

#[test]
fn a01_linear_and_conv2d_return_half_and_gradients_keep_the_inputs_dtype() {
    o1(|| {
        for dtype in F32_AND_F16 {
            let layer = LinearConfig::new(4, 3).init::<Mixed>(&Default::default());
            let x = leaf([2, 4], dtype);
            let y = layer.forward(x.clone());
            assert_eq!(y.dtype(), DType::F16);
            assert_eq!(gradient_dtype(&x, y), dtype);

            let x = leaf([1, 2, 4, 4], dtype);
            let weight = leaf([3, 2, 3, 3], DType::F32);
            let options = ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
            let y = conv2d(x.clone(), weight, None, options);
            assert_eq!(y.dtype(), DType::F16);
            assert_eq!(gradient_dtype(&x, y), dtype);
        }
    });
}

#[test]
fn a02_softmax_group_norm_and_mse_loss_return_f32() {
    o1(|| {
        for dtype in F32_AND_F16 {
            let x = leaf([2, 4], dtype);
            let y = softmax(x.clone(), 1);
            assert_eq!(y.dtype(), DType::F32);
            assert_eq!(gradient_dtype(&x, y), dtype);

            let norm = GroupNormConfig::new(2, 4).init::<Mixed>(&Default::default());
            let x = leaf([2, 4, 3, 3], dtype);
            let y = norm.forward(x.clone());
            assert_eq!(y.dtype(), DType::F32);
            assert_eq!(gradient_dtype(&x, y), dtype);

            let x = leaf([2, 4], dtype);
            let target = constant::<Mixed, 2>([2, 4], dtype) + 1.0;
            let y = MseLoss::new().forward(x.clone(), target, Reduction::Mean);
            assert_eq!(y.dtype(), DType::F32);
            assert_eq!(gradient_dtype(&x, y), dtype);
        }
    });
}

#[test]
fn a03_relu_and_batch_norm_return_the_inputs_dtype() {
    o1(|| {
        for dtype in F32_AND_F16 {
            let x = leaf([2, 4], dtype);
            let y = Relu::new().forward(x.clone());
            assert_eq!(y.dtype(), dtype);
            assert_eq!(gradient_dtype(&x, y), dtype);

            let norm = BatchNormConfig::new(2).init::<Mixed>(&Default::default());
            let x = leaf([3, 2, 4, 4], dtype);
            let y = norm.forward(x.clone());
            assert_eq!(y.dtype(), dtype, "training");
            assert_eq!(gradient_dtype(&x, y), dtype);
            let y = burn::module::AutodiffModule::valid(&norm).forward(x.inner());
            assert_eq!(y.dtype(), dtype, "evaluating");
        }
    });
}

#[test]
fn a04_binary_cross_entropy_takes_half_and_runs_in_f32() {
    o1(|| {
        let loss = BinaryCrossEntropyLossConfig::new().init::<Mixed>(&Default::default());
        let target = Tensor::<Mixed, 1, Int>::from_ints([1, 0, 1, 0], &Default::default());
        for dtype in F32_AND_F16 {
            // A sure and wrong answer: 1e-5 is a subnormal f16, and its logarithm fits easily.
            let x = Tensor::<Mixed, 1>::from_floats([0.9, 1e-5, 1e-5, 0.5], &Default::default());
            let x = scope::disabled(|| x.cast(dtype)).require_grad();
            let y = loss.forward(x.clone(), target.clone());
            assert_eq!(y.dtype(), DType::F32);
            let log = |p: f32| f64::from(p).ln();
            let p = floats(&x);
            let expected = -(log(p[0]) + log(1.0 - p[1]) + log(p[2]) + log(1.0 - p[3])) / 4.0;
            // f16 rounds 1 - 1e-5 to 1; logs and mean are f32.
            let got = f64::from(y.clone().into_scalar());
            let tolerance = match dtype {
                DType::F16 => 2f64.powi(-11),
                _ => 1e-6 * expected,
            };
            assert!((got - expected).abs() <= tolerance, "{got} {expected}");
            assert_eq!(gradient_dtype(&x, y), dtype);
        }
    });
}

#[test]
fn a05_method_function_and_operator_forms_agree() {
    o1(|| {
        for (a, b) in pairs() {
            let (x, y) = (leaf([4, 4], a), leaf([4, 4], b));
            let method = T::<2>::matmul(x.clone(), y.clone());
            let function = linear(x.clone(), y.clone(), None);
            assert_eq!([method.dtype(), function.dtype()], [DType::F16; 2]);
            assert_eq!(stored(&method), stored(&function));
        }
        for dtype in F32_AND_F16 {
            let x = leaf::<Mixed, 1>([4], dtype).abs() + 0.5;
            let two = x.ones_like() * 2.0;
            let forms = [
                x.clone().powf(two.clone()),
                x.clone().powf_scalar(2.0),
                x.clone().powi_scalar(2),
                x.clone().square(),
                // The reflected operator: 2 ^ x.
                two.powf(x),
            ];
            assert_eq!(forms.map(|y| y.dtype()), [DType::F32; 5]);
        }
        let x = leaf::<Mixed, 1>([4], DType::F16);
        let (method, operator) = (x.clone().mul(x.clone()), x.clone() * x.clone());
        assert_eq!(stored(&method), stored(&operator));
        assert_eq!(stored(&(x.clone() * 2.0)), stored(&(x.mul_scalar(2.0))));
    });
}

#[test]
fn a06_half_is_read_as_f32_and_sums_are_f32() {
    o1(|| {
        let x = leaf::<Mixed, 2>([2, 4], DType::F16);
        assert_eq!(x.to_data().dtype, DType::F32, "Apex's .cpu()");
        assert_eq!(x.to_data().to_vec::<f32>().unwrap(), floats(&x));
        assert_eq!(x.clone().sum().dtype(), DType::F32);
        assert_eq!(x.sum_dim(1).dtype(), DType::F32);
    });
}

#[test]
fn a07_binary_operations_meet_in_the_widest_dtype() {
    o1(|| {
        for (a, b) in pairs() {
            let wide = widest(a, b);
            let run: [fn(T<2>, T<2>) -> T<2>; 3] =
                [|x, y| x.atan2(y), |x, y| x * y, |x, y| x.mul(y)];
            for run in run {
                let (x, y) = (leaf([2, 4], a), leaf([2, 4], b));
                let z = run(x.clone(), y.clone() + 2.0);
                assert_eq!(z.dtype(), wide);
                let grads = z.sum().backward();
                assert_eq!(x.grad(&grads).unwrap().dtype(), a);
                assert_eq!(y.grad(&grads).unwrap().dtype(), b);
            }
            let x = leaf::<Mixed, 2>([2, 4], a);
            assert_eq!(
                (x.clone() * 3.0).dtype(),
                a,
                "a number has no dtype of its own"
            );
            assert_eq!((3.0f32 * x).dtype(), a);
        }
    });
}

#[test]
fn a08_cat_meets_in_the_widest_dtype() {
    o1(|| {
        for (a, b) in pairs() {
            let (x, y) = (leaf([2, 4], a), leaf([2, 4], b));
            let z: T<2> = Tensor::cat(vec![x.clone(), y.clone(), x.clone()], 0);
            assert_eq!(z.dtype(), widest(a, b));
            let grads = z.sum().backward();
            assert_eq!(x.grad(&grads).unwrap().dtype(), a);
            assert_eq!(y.grad(&grads).unwrap().dtype(), b);
        }
    });
}

#[test]
fn t01_the_policy_is_off_before_a_region_on_inside_and_off_after() {
    let device = Default::default();
    let enabled = || scope::current_policy::<burn::tensor::Device<Mixed>>(&device).is_enabled();
    let matmul = || {
        leaf::<Mixed, 2>([2, 2], DType::F32)
            .matmul(leaf([2, 2], DType::F32))
            .dtype()
    };
    assert_eq!((enabled(), matmul()), (false, DType::F32));
    assert_eq!(o1(|| (enabled(), matmul())), (true, DType::F16));
    assert_eq!((enabled(), matmul()), (false, DType::F32));
}

#[test]
fn t02_functions_and_methods_give_the_same_bits() {
    o1(|| {
        for dtype in F32_AND_F16 {
            let x = || leaf::<Mixed, 2>([4, 4], dtype);
            assert_eq!(stored(&relu(x())), stored(&Relu::new().forward(x())));
            assert_eq!(stored(&x().matmul(x())), stored(&linear(x(), x(), None)));
            assert_eq!(stored(&(x() + x())), stored(&x().add(x())));
            assert_eq!(stored(&(x() - x())), stored(&x().sub(x())));
            assert_eq!(stored(&(x() / (x() + 2.0))), stored(&x().div(x() + 2.0)));
            assert_eq!(stored(&-x()), stored(&x().neg()));
        }
    });
}

#[test]
fn t03_results_are_those_of_casts_by_hand_bit_by_bit() {
    o1(|| {
        let x = || leaf::<Mixed, 2>([4, 4], DType::F32) * 0.3;
        let h = || x().cast(DType::F16);
        let by_hand = |run: fn(T<2>, T<2>) -> T<2>, dtype: DType| {
            let (a, b) = (x().cast(dtype), x().cast(dtype));
            scope::disabled(|| stored(&run(a, b)))
        };
        let matmul: fn(T<2>, T<2>) -> T<2> = |a, b| a.matmul(b);
        assert_eq!(stored(&matmul(x(), x())), by_hand(matmul, DType::F16));
        assert_eq!(stored(&matmul(h(), x())), by_hand(matmul, DType::F16));

        // The f32 list, on half input: the control widens first.
        let exp: fn(T<2>) -> T<2> = |a| a.exp();
        for run in [
            exp,
            |a| softmax(a, 1),
            |a| log_softmax(a, 1),
            |a| a.sum_dim(0),
        ] {
            let control = {
                let wide = h().cast(DType::F32);
                scope::disabled(|| stored(&run(wide)))
            };
            assert_eq!(stored(&run(h())), control);
        }
        // And the region is what it was: the inner one, without casts, is over.
        assert_eq!(x().matmul(x()).dtype(), DType::F16);
    });
}

#[test]
fn t04_the_half_list_runs_in_the_regions_half_dtype() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            for dtype in [DType::F32, half.dtype()] {
                let x = || leaf::<Mixed, 4>([1, 2, 4, 4], dtype);
                let options = || ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
                let weight = leaf([3, 2, 3, 3], DType::F32);
                assert_eq!(x().matmul(x()).dtype(), half.dtype());
                assert_eq!(conv2d(x(), weight, None, options()).dtype(), half.dtype());
                let weight = leaf([4, 3], DType::F32);
                let bias = leaf([3], DType::F32);
                assert_eq!(linear(x(), weight, Some(bias)).dtype(), half.dtype());
            }
        });
    }
}

#[test]
fn t05_the_f32_list_widens_half_and_an_explicit_dtype_wins() {
    o1(|| {
        let x = || leaf::<Mixed, 2>([2, 4], DType::F16).abs() + 0.5;
        let outputs = [
            x().exp(),
            x().log(),
            x().log1p(),
            x().powf_scalar(1.5),
            x().recip(),
            x().tan(),
            x().cosh(),
            x().sinh(),
            (x() * 0.5).acos(),
            (x() * 0.5).asin(),
            softmax(x(), 1),
            log_softmax(x(), 1),
            x().sum_dim(1),
            x().prod_dim(1),
            x().cumsum(1),
            x().cumprod(1),
        ];
        for (n, y) in outputs.into_iter().enumerate() {
            assert_eq!(y.dtype(), DType::F32, "output {n}");
        }
        assert_eq!(x().exp().cast(DType::F16).dtype(), DType::F16);
        assert_eq!(x().cast(DType::F64).sum().dtype(), DType::F64);
    });
}

#[test]
fn t06_the_promote_list_meets_in_f32() {
    o1(|| {
        let half = || leaf::<Mixed, 2>([2, 3], DType::F16);
        let full = || leaf::<Mixed, 2>([2, 3], DType::F32);
        let index =
            || Tensor::<Mixed, 2, Int>::from_ints([[0, 1, 1], [1, 0, 0]], &Default::default());
        let add = burn::tensor::IndexingUpdateOp::Add;
        for (a, b) in [(half(), full()), (full(), half())] {
            assert_eq!(a.clone().atan2(b.clone()).dtype(), DType::F32);
            assert_eq!(a.clone().cross(b.clone(), 1).dtype(), DType::F32);
            assert_eq!(a.scatter(0, index(), b, add).dtype(), DType::F32);
        }
    });
}

#[test]
fn t07_the_frameworks_own_promotion_holds() {
    o1(|| {
        for (a, b) in pairs() {
            let (x, y) = (leaf::<Mixed, 2>([2, 4], a), leaf::<Mixed, 2>([2, 4], b));
            let wide = widest(a, b);
            assert_eq!((x.clone() + y.clone()).dtype(), wide);
            assert_eq!((x.clone() * y.clone()).dtype(), wide);
            assert_eq!((x.clone() / (y.clone() + 2.0)).dtype(), wide);
            assert_eq!(Tensor::cat(vec![x.clone(), y.clone()], 0).dtype(), wide);
            let stacked: T<3> = Tensor::stack(vec![x.clone(), y.clone()], 0);
            assert_eq!(stacked.dtype(), wide);
            // The values are exact in both dtypes.
            assert!(x.clone().equal(y.clone()).all().into_scalar());
            assert!(!x.clone().lower(y.clone()).any().into_scalar());
            assert!(x.greater_equal(y).all().into_scalar());
        }
    });
}

#[test]
fn t08_no_operation_is_banned() {
    // torch refuses binary_cross_entropy in a region. Here its logarithms are f32 operations, so that
    // it is as good as it is in f32, and no operation of the table has a rule that refuses.
    let rules = [
        CastRule::Lower,
        CastRule::Full,
        CastRule::FullThenLower,
        CastRule::Promote,
        CastRule::AsIs,
    ];
    for level in OptLevel::ALL {
        let policy = Policy::new(level, HalfDType::F16);
        assert!(Op::ALL.iter().all(|op| rules.contains(&policy.rule(*op))));
    }
    let refused = unless_it_panics(|| {
        o1(|| {
            let loss = BinaryCrossEntropyLossConfig::new().init::<Mixed>(&Default::default());
            let p = sigmoid(leaf::<Mixed, 1>([4], DType::F16));
            let target = Tensor::from_ints([1, 0, 1, 0], &Default::default());
            loss.forward(p, target).into_scalar()
        })
    });
    assert!(refused.is_some_and(f32::is_finite));
}

#[test]
fn t09_one_table_holds_on_every_device() {
    for half in HALVES {
        amp(OptLevel::O1, half).scope(|| {
            let x = || leaf::<Mixed, 2>([2, 4], half.dtype());
            // On torch's CPU list for half: as on its CUDA list.
            assert_eq!(x().matmul(x().transpose()).dtype(), half.dtype());
            // On its CPU list for f32.
            let huber = HuberLossConfig::new(1.0).init();
            let full = leaf::<Mixed, 2>([2, 4], DType::F32);
            assert_eq!(
                huber.forward(x(), full, Reduction::Mean).dtype(),
                DType::F32
            );
            // And on both promoted.
            let full = leaf::<Mixed, 2>([2, 4], DType::F32);
            assert_eq!(Tensor::cat(vec![x(), full], 0).dtype(), DType::F32);
        });
    }
}

#[test]
fn t10_f64_stays_f64_and_integers_pass() {
    o1(|| {
        let x = || leaf::<Mixed, 2>([4, 4], DType::F64).abs() + 0.5;
        for y in [x().matmul(x()), x().exp(), softmax(x(), 1), x().sum_dim(0)] {
            assert_eq!(y.dtype(), DType::F64);
        }
        let norm = LayerNormConfig::new(4).init::<Mixed>(&Default::default());
        assert_eq!(norm.forward(x()).dtype(), DType::F64);
        // torch refuses a product of f64 and half; here half widens, and its gradient is half.
        let half = leaf::<Mixed, 2>([4, 4], DType::F16);
        let product = x().matmul(half.clone());
        assert_eq!(product.dtype(), DType::F64);
        assert_eq!(gradient_dtype(&half, product), DType::F16);

        let ints = Tensor::<Mixed, 1, Int>::from_ints([70_001, 2], &Default::default());
        let (dtype, sum) = (ints.dtype(), ints.clone().sum());
        assert_eq!((sum.dtype(), sum.into_scalar()), (dtype, 70_003));
    });
}

#[test]
fn t11_cat_and_stack_in_a_function_called_in_a_region_promote() {
    fn joined(parts: Vec<T<2>>) -> (T<2>, T<3>) {
        (Tensor::cat(parts.clone(), 1), Tensor::stack(parts, 0))
    }
    o1(|| {
        let parts = vec![leaf([2, 4], DType::F16), leaf([2, 4], DType::F32)];
        let (cat, stack) = joined(parts);
        assert_eq!([cat.dtype(), stack.dtype()], [DType::F32; 2]);
    });
}
