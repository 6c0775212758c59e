//! With the policy off, every operation and a whole training run give the bits of the bare backend.

#[path = "support/models.rs"]
mod models;
#[path = "support/op_calls.rs"]
mod op_calls;
mod support;
#[path = "support/untouched_calls.rs"]
mod untouched_calls;

use std::collections::BTreeSet;
use std::sync::Mutex;

use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn_amp::{
    AmpBackend, AmpConfig, ConvBackward, FastBackward, HalfDType, MixedPrecision, Op, OptLevel,
    scope,
};
use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::TransactionPrimitive;
use burn_backend::{Backend, DType, Distribution, FloatDType, TensorData, read_sync};
use models::{Cnn, Mlp, Trainable};
use op_calls::{Call, INT, Out, alternating, any, dims, ints};
use support::{Bare, Mixed, Plain, amp, unless_it_panics};

type Decorated = MixedPrecision<Bare>;
type Inner = FastBackward<Bare>;

const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// Burn's random numbers come from one process-wide seed.
static SEED: Mutex<()> = Mutex::new(());

/// What a call gives, `None` if the backend cannot do it in these dtypes.
fn outcome<B: Backend>(call: &Call<B>, dtype: DType) -> Option<Vec<TensorData>> {
    let dtypes = vec![dtype; call.inputs.len()];
    unless_it_panics(|| {
        (call.run)(call.inputs(&dtypes))
            .into_iter()
            .map(Out::data)
            .collect()
    })
}

/// Compares the two tables call by call, in every float dtype, with the policy off.
fn assert_transparent<B: Backend>(decorated: Vec<Call<B>>, bare: Vec<Call<Bare>>) {
    let mut failures = Vec::new();
    for (decorated, bare) in decorated.iter().zip(&bare) {
        assert_eq!(decorated.name, bare.name);
        let dtypes = if bare.inputs.is_empty() {
            &DTYPES[..1]
        } else {
            &DTYPES
        };
        for dtype in dtypes {
            let (ours, theirs) = (outcome(decorated, *dtype), outcome(bare, *dtype));
            if theirs.is_none() && !support::REFUSED.contains(&bare.name) {
                failures.push(format!(
                    "{} of {dtype:?}: the bare backend panics",
                    bare.name
                ));
            }
            // TensorData compares bytes, so NaN equals NaN and 0 differs from -0.
            if ours != theirs {
                failures.push(format!(
                    "{} of {dtype:?}: {ours:?} is not {theirs:?}",
                    bare.name
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Without a device's settings, at O0 and in a region without casts: three ways of off.
fn each_way_of_off(check: impl Fn()) {
    check();
    amp(OptLevel::O0, HalfDType::F16).scope(&check);
    amp(OptLevel::O1, HalfDType::F16).scope(|| scope::disabled(&check));
}

#[test]
fn float_operations_give_the_same_bits() {
    each_way_of_off(|| assert_transparent::<Decorated>(op_calls::ruled(), op_calls::ruled()));
    each_way_of_off(|| assert_transparent::<Decorated>(op_calls::moving(), op_calls::moving()));
}

#[test]
fn integer_operations_give_the_same_bits() {
    let check = || {
        assert_transparent::<Decorated>(untouched_calls::integers(), untouched_calls::integers())
    };
    each_way_of_off(check);
    amp(OptLevel::O1, HalfDType::F16).scope(check);
}

#[test]
fn boolean_operations_give_the_same_bits() {
    let check = || {
        assert_transparent::<Decorated>(untouched_calls::booleans(), untouched_calls::booleans())
    };
    each_way_of_off(check);
    amp(OptLevel::O1, HalfDType::F16).scope(check);
}

#[test]
fn quantized_operations_give_the_same_bits() {
    let check = || {
        assert_transparent::<Decorated>(
            untouched_calls::quantizeds(),
            untouched_calls::quantizeds(),
        )
    };
    each_way_of_off(check);
    amp(OptLevel::O1, HalfDType::F16).scope(check);
}

/// Inside autodiff nothing is cast at any level; only convolutions' weight gradients can differ.
#[test]
fn the_inner_decorator_gives_the_same_bits() {
    let check = || {
        assert_transparent::<Inner>(op_calls::ruled(), op_calls::ruled());
        assert_transparent::<Inner>(op_calls::moving(), op_calls::moving());
        assert_transparent::<Inner>(untouched_calls::integers(), untouched_calls::integers());
        assert_transparent::<Inner>(untouched_calls::booleans(), untouched_calls::booleans());
        assert_transparent::<Inner>(untouched_calls::quantizeds(), untouched_calls::quantizeds());
    };
    each_way_of_off(check);
    AmpConfig::new(OptLevel::O1)
        .with_conv_backward(ConvBackward::Kernel)
        .build()
        .unwrap()
        .scope(check);
}

/// The names of the methods that a file of the decorator implements.
fn methods(source: &str) -> BTreeSet<&str> {
    source
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("fn "))
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
        .collect()
}

macro_rules! methods_of {
    ($file:literal) => {
        methods(include_str!(concat!(
            "../crates/burn-mixed-precision/src/ops/",
            $file
        )))
    };
}

fn assert_all_called(methods: BTreeSet<&str>, calls: &[Vec<Call<Bare>>], elsewhere: &[&str]) {
    let called: BTreeSet<&str> = calls.iter().flatten().map(|call| call.name).collect();
    let missing: Vec<_> = methods
        .difference(&called)
        .filter(|name| !elsewhere.contains(name))
        .collect();
    assert!(missing.is_empty(), "never called: {missing:?}");
}

#[test]
fn every_operation_of_the_table_is_called() {
    let called: BTreeSet<&str> = op_calls::ruled::<Bare>().iter().map(|c| c.name).collect();
    let ruled: BTreeSet<&str> = Op::ALL.iter().map(|op| op.name()).collect();
    assert_eq!(called, ruled);
}

#[test]
fn every_method_of_every_trait_is_called() {
    let (ruled, moving) = (op_calls::ruled(), op_calls::moving());
    let float = [ruled, moving];
    assert_all_called(methods_of!("tensor.rs"), &float, &["float_random"]);
    // Reached through `linear` itself, and only with a policy.
    let not_methods = ["flat_linear<B: Backend>"];
    assert_all_called(methods_of!("module.rs"), &float, &not_methods);
    assert_all_called(methods_of!("activation.rs"), &float, &[]);
    let int = [untouched_calls::integers()];
    assert_all_called(methods_of!("int_tensor.rs"), &int, &["int_random"]);
    assert_all_called(
        methods_of!("bool_tensor.rs"),
        &[untouched_calls::booleans()],
        &[],
    );
    let not_operations = ["wrap<B: Backend>", "unwrap<B: Backend>"];
    let quantized = [untouched_calls::quantizeds()];
    assert_all_called(methods_of!("qtensor.rs"), &quantized, &not_operations);
    assert_eq!(
        methods_of!("transaction.rs"),
        BTreeSet::from(["tr_execute"])
    );
}

#[test]
fn a_transaction_reads_the_same_bits() {
    fn read<B: Backend>() -> [Vec<TensorData>; 3] {
        let floats =
            [DType::F32, DType::F16, DType::F64].map(|dtype| any(&[3]).tensor::<B>(0, dtype));
        let transaction = TransactionPrimitive::<B>::new(
            floats.to_vec(),
            vec![],
            vec![ints::<B, 1>([2], &[7, 8])],
            vec![alternating::<B>()],
        );
        let data = read_sync(B::tr_execute(transaction)).unwrap();
        [data.read_floats, data.read_ints, data.read_bools]
    }
    each_way_of_off(|| assert_eq!(read::<Decorated>(), read::<Bare>()));
    assert_eq!(read::<Inner>(), read::<Bare>());
}

#[test]
fn a_seed_gives_the_same_random_numbers() {
    fn draw<B: Backend>() -> [TensorData; 2] {
        let device = B::Device::default();
        B::seed(&device, 5);
        let uniform = Distribution::Uniform(0.0, 100.0);
        let float = B::float_random(dims(&[4]), Distribution::Default, &device, FloatDType::F16);
        let int = B::int_random(dims(&[4]), uniform, &device, INT);
        [Out::<B>::Float(float).data(), Out::<B>::Int(int).data()]
    }
    let _alone = SEED.lock();
    each_way_of_off(|| assert_eq!(draw::<Decorated>(), draw::<Bare>()));
    assert_eq!(draw::<Inner>(), draw::<Bare>());
}

#[test]
fn questions_to_the_backend_get_the_same_answers() {
    let device = Default::default();
    for dtype in DTYPES {
        assert_eq!(
            Decorated::dtype_usage(&device, dtype),
            Bare::dtype_usage(&device, dtype)
        );
        assert_eq!(
            Decorated::supports_dtype(&device, dtype),
            Bare::supports_dtype(&device, dtype)
        );
    }
    assert_eq!(Decorated::ad_enabled(&device), Bare::ad_enabled(&device));
    assert_eq!(Mixed::ad_enabled(&device), Plain::ad_enabled(&device));
    assert!(Decorated::sync(&device).is_ok());
}

/// Every parameter of a model, running statistics included, bit by bit.
#[derive(Default)]
struct Parameters(Vec<TensorData>);

impl<B: Backend> ModuleVisitor<B> for Parameters {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push(param.val().into_data());
    }
}

fn trained<B: AutodiffBackend, M: Trainable<B> + AutodiffModule<B>>(
    steps: usize,
) -> Vec<TensorData> {
    let device = B::Device::default();
    B::seed(&device, 3);
    let mut model = M::new();
    let mut optimizer = AdamConfig::new().init();
    for step in 0..steps {
        let grads = GradientsParams::from_grads(model.loss(step).backward(), &model);
        model = optimizer.step(1e-2, model, grads);
    }
    let mut parameters = Parameters::default();
    model.visit(&mut parameters);
    parameters.0
}

#[test]
fn twenty_steps_of_training_give_the_same_parameters() {
    let _alone = SEED.lock();
    each_way_of_off(|| {
        assert_eq!(
            trained::<Mixed, Mlp<Mixed>>(20),
            trained::<Plain, Mlp<Plain>>(20)
        );
        assert_eq!(
            trained::<Mixed, Cnn<Mixed>>(20),
            trained::<Plain, Cnn<Plain>>(20)
        );
        assert_eq!(
            trained::<AmpBackend<Bare>, Cnn<AmpBackend<Bare>>>(20),
            trained::<Plain, Cnn<Plain>>(20)
        );
    });
}

#[test]
fn training_with_the_policy_on_gives_others() {
    let _alone = SEED.lock();
    amp(OptLevel::O1, HalfDType::F16).scope(|| {
        assert_ne!(
            trained::<Mixed, Mlp<Mixed>>(1),
            trained::<Plain, Mlp<Plain>>(1)
        );
    });
}
