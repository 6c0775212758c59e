//! Every operation runs in the dtype that the table gives it, and gives the numbers of casts by hand.
//!
//! Also writes docs/op-table.md: `UPDATE_DOCS=1 cargo test --test casts_follow_the_op_table`.

#![expect(clippy::disallowed_methods, reason = "the controls cast by hand")]

#[path = "support/op_calls.rs"]
mod op_calls;
#[path = "support/peer_lists.rs"]
mod peer_lists;
mod support;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Int, Tensor, TensorMetadata, Transaction};
use burn_amp::{CastRule, HalfDType, MixedPrecision, Op, OptLevel, Policy, scope};
use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::FloatTensorOps;
use burn_backend::{Backend, DType, FloatDType, TensorData};
use op_calls::{Call, Input, Out, any};
use peer_lists::{peers, reason};
use support::{
    Bare, HALVES, Mixed, Plain, amp, computes_in, has_gradient_kernel, has_kernel, unless_it_panics,
};

type Decorated = MixedPrecision<Bare>;

const LEVELS: [OptLevel; 3] = [OptLevel::O1, OptLevel::O2, OptLevel::O3];

/// The float dtypes that the backend computes in.
fn dtypes() -> Vec<DType> {
    let all = [DType::F32, DType::F16, DType::BF16, DType::F64];
    all.into_iter()
        .filter(|dtype| computes_in(*dtype))
        .collect()
}

fn dtypes_up_to_f32() -> Vec<DType> {
    let mut dtypes = dtypes();
    dtypes.retain(|dtype| *dtype != DType::F64);
    dtypes
}

fn halves() -> Vec<HalfDType> {
    let computes = |half: &HalfDType| computes_in(half.dtype());
    HALVES.into_iter().filter(computes).collect()
}

/// Every way to give `count` inputs one of these dtypes each.
fn tuples(dtypes: &[DType], count: usize) -> Vec<Vec<DType>> {
    (0..count).fold(vec![vec![]], |tuples, _| {
        let longer = |tuple: &Vec<DType>| {
            let tuple = tuple.clone();
            dtypes
                .iter()
                .map(move |dtype| [&tuple[..], &[*dtype]].concat())
        };
        tuples.iter().flat_map(longer).collect()
    })
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The dtype an operation computes in, and the one its float outputs have.
#[derive(Debug, PartialEq)]
struct Expected {
    inside: DType,
    output: DType,
}

/// What the documentation of `CastRule` says, in other words than the crate's.
fn expected(policy: &Policy, op: Op, inputs: &[(Input, DType)]) -> Expected {
    let all = |dtype: DType| Expected {
        inside: dtype,
        output: dtype,
    };
    let first = inputs[0].1;
    let equal = inputs.iter().all(|(_, dtype)| *dtype == first);
    let widest = match () {
        _ if inputs.iter().any(|(_, dtype)| *dtype == DType::F64) => DType::F64,
        _ if equal => first,
        _ => DType::F32,
    };
    if widest == DType::F64 {
        return all(DType::F64);
    }
    match policy.rule(op) {
        CastRule::Lower if equal && is_half(first) => all(first),
        CastRule::Lower => all(policy.half().dtype()),
        CastRule::Full => all(DType::F32),
        CastRule::FullThenLower => Expected {
            inside: DType::F32,
            output: if is_half(first) { first } else { DType::F32 },
        },
        CastRule::AsIs => all(widest),
        CastRule::Promote => {
            let saves_operands = matches!(op, Op::FloatMul | Op::FloatDiv);
            let saves_nothing = matches!(op, Op::FloatAdd | Op::FloatSub);
            match inputs {
                [a, b] if saves_operands || saves_nothing => {
                    let mask: &[usize] = &[1, 1, 1, 5];
                    let masked = saves_nothing && (a.0.shape == mask || b.0.shape == mask);
                    let half = match (a, b) {
                        _ if !policy.keeps_channel_vectors() || masked => None,
                        ((tensor, half), (vector, DType::F32)) if is_half(*half) => {
                            channel_vector(vector, tensor).then_some(*half)
                        }
                        ((vector, DType::F32), (tensor, half)) if is_half(*half) => {
                            channel_vector(vector, tensor).then_some(*half)
                        }
                        _ => None,
                    };
                    match half {
                        Some(half) if saves_operands => all(half),
                        Some(half) => Expected {
                            inside: DType::F32,
                            output: half,
                        },
                        None => all(widest),
                    }
                }
                _ => all(widest),
            }
        }
    }
}

/// The shapes of the calls in `op_calls` for which the exception is meant.
fn channel_vector(vector: &Input, tensor: &Input) -> bool {
    match (vector.shape, tensor.shape) {
        ([1, 3], [2, 3]) | ([1, 2, 1, 1] | [1, 1, 1, 5], [2, 2, 5, 5]) => true,
        ([2, 1], [2, 3]) => false, // one number per row
        (vector, tensor) if vector == tensor => false,
        ([2, 3], [1, 3]) | ([2, 3], [2, 1]) | ([2, 2, 5, 5], [1, 2, 1, 1] | [1, 1, 1, 5]) => false,
        other => panic!("say whether {other:?} has a channel vector"),
    }
}

/// Attention in half keeps its scores in f32, which no cast of inputs and output does: its numbers
/// are tested in `attention_keeps_scores_in_f32`.
fn is_composed_anew(op: Op, expected: &Expected) -> bool {
    op == Op::Attention && is_half(expected.inside)
}

fn op_of<B: Backend>(call: &Call<B>) -> Op {
    call.name.parse().unwrap()
}

/// The dtypes after a cast by hand.
fn hand_cast<B: Backend>(
    call: &Call<B>,
    inputs: Vec<FloatTensor<B>>,
    inside: DType,
) -> Vec<FloatTensor<B>> {
    call.inputs
        .iter()
        .zip(inputs)
        .map(|(input, tensor)| match input.cast {
            true if tensor.dtype() != inside => B::float_cast(tensor, inside.into()),
            _ => tensor,
        })
        .collect()
}

/// The call on the bare backend with every cast made by hand.
fn by_hand<B: Backend>(
    call: &Call<B>,
    inputs: Vec<FloatTensor<B>>,
    expected: &Expected,
) -> Vec<Out<B>> {
    (call.run)(hand_cast(call, inputs, expected.inside))
        .into_iter()
        .map(|out| match out {
            Out::Float(tensor) if tensor.dtype() != expected.output => {
                Out::Float(B::float_cast(tensor, expected.output.into()))
            }
            other => other,
        })
        .collect()
}

fn data<B: Backend>(outputs: Vec<Out<B>>) -> Vec<TensorData> {
    outputs.into_iter().map(Out::data).collect()
}

/// One call under a policy, in these dtypes: the expected dtype, the bits of the hand-cast control.
fn check(
    decorated: &Call<Decorated>,
    bare: &Call<Bare>,
    policy: &Policy,
    dtypes: &[DType],
) -> Result<(), String> {
    let op = op_of(bare);
    let inputs: Vec<(Input, DType)> = bare
        .inputs
        .iter()
        .copied()
        .zip(dtypes.iter().copied())
        .collect();
    let cast: Vec<_> = inputs.into_iter().filter(|(input, _)| input.cast).collect();
    let expected = expected(policy, op, &cast);
    if !has_kernel(bare.name, expected.inside) {
        return Ok(());
    }
    let control = unless_it_panics(|| data(by_hand(bare, bare.inputs(dtypes), &expected)));
    let ours = unless_it_panics(|| {
        let outputs =
            scope::with_policy(policy.clone(), || (decorated.run)(decorated.inputs(dtypes)));
        let dtypes: Vec<DType> = outputs.iter().filter_map(Out::float_dtype).collect();
        (dtypes, data(outputs))
    });
    let context = || {
        format!(
            "{op} is {} at {}: {dtypes:?}",
            policy.rule(op),
            policy.half()
        )
    };
    match (ours, control) {
        (None, None) if support::REFUSED.contains(&bare.name) => Ok(()),
        (None, _) => Err(format!("{} panics", context())),
        (_, None) => Err(format!("{}: only the control panics", context())),
        (Some((outputs, _)), _) if outputs.iter().any(|dtype| *dtype != expected.output) => {
            Err(format!("{} gives {outputs:?}, not {expected:?}", context()))
        }
        (Some((_, ours)), Some(control)) if ours != control && !is_composed_anew(op, &expected) => {
            Err(format!("{} gives {ours:?}, by hand {control:?}", context()))
        }
        _ => Ok(()),
    }
}

fn check_all(policies: impl Fn(Op) -> Vec<Policy>, dtypes: &[DType]) -> usize {
    let (mut failures, mut checked) = (Vec::new(), 0);
    for (decorated, bare) in op_calls::ruled().iter().zip(&op_calls::ruled()) {
        for policy in policies(op_of(bare)) {
            for tuple in tuples(dtypes, bare.inputs.len()) {
                failures.extend(check(decorated, bare, &policy, &tuple).err());
                checked += 1;
            }
        }
    }
    let (count, some) = (
        failures.len(),
        failures.iter().take(20).cloned().collect::<Vec<_>>(),
    );
    assert_eq!(count, 0, "of {checked}:\n{}", some.join("\n"));
    checked
}

#[test]
fn every_operation_casts_as_its_level_says() {
    let policies = |_| {
        let level = |level| {
            halves()
                .into_iter()
                .map(move |half| Policy::new(level, half))
        };
        LEVELS.into_iter().flat_map(level).collect()
    };
    let checked = check_all(policies, &dtypes());
    println!("{checked} calls");
}

#[test]
fn every_operation_casts_as_an_override_says() {
    let policies = |op| {
        let rule = |rule| Policy::new(OptLevel::O1, HalfDType::F16).with_rule(op, rule);
        CastRule::ALL.map(rule).to_vec()
    };
    check_all(policies, &dtypes_up_to_f32());
}

#[test]
fn without_channel_vectors_the_widest_dtype_wins() {
    let policies = |_| {
        let policy = |half| Policy::new(OptLevel::O1, half).with_channel_vectors(false);
        halves().into_iter().map(policy).collect()
    };
    check_all(policies, &dtypes_up_to_f32());
}

#[test]
fn a_full_policy_runs_everything_in_f32() {
    check_all(|_| vec![Policy::full()], &dtypes());
}

#[test]
fn operations_that_move_data_keep_its_dtype() {
    for level in LEVELS {
        for dtype in dtypes() {
            for (decorated, bare) in op_calls::moving::<Decorated>()
                .iter()
                .zip(&op_calls::moving::<Bare>())
            {
                if bare.name == "float_into_data" {
                    continue; // half_tensors_are_read_as_f32 below
                }
                let dtypes = vec![dtype; bare.inputs.len()];
                let ours = amp(level, HalfDType::F16)
                    .scope(|| data((decorated.run)(decorated.inputs(&dtypes))));
                assert_eq!(
                    ours,
                    data((bare.run)(bare.inputs(&dtypes))),
                    "{}",
                    bare.name
                );
            }
        }
    }
}

/// A loss that weighs every element of every float output differently, outside the policy.
fn weighed<B: Backend>(outputs: Vec<Out<B>>) -> Option<FloatTensor<B>> {
    let weigh = |output: Out<B>| match output {
        Out::Float(tensor) => {
            let (shape, dtype) = (tensor.shape(), tensor.dtype());
            let count = shape.num_elements();
            let weights: Vec<f32> = (0..count).map(|i| 0.25 + 0.125 * (i % 7) as f32).collect();
            let weights = TensorData::new(weights, shape).convert_dtype(dtype);
            let weights = B::float_from_data(weights, &Default::default());
            Some(B::float_sum(B::float_mul(tensor, weights)))
        }
        _ => None,
    };
    scope::disabled(|| outputs.into_iter().filter_map(weigh).reduce(B::float_add))
}

/// The gradients of the inputs that get one.
fn gradients<B: AutodiffBackend>(
    leaves: &[FloatTensor<B>],
    loss: FloatTensor<B>,
) -> Vec<Option<TensorData>> {
    let grads = B::backward(loss);
    let grad = |leaf| B::grad(leaf, &grads).map(|grad| Out::<B::InnerBackend>::Float(grad).data());
    leaves.iter().map(grad).collect()
}

fn leaves<B: Backend>(call: &Call<B>, dtypes: &[DType]) -> Vec<FloatTensor<B>> {
    let leaf = |tensor| B::float_set_require_grad(tensor, true);
    call.inputs(dtypes).into_iter().map(leaf).collect()
}

fn has_float_output(name: &str) -> bool {
    op_calls::ruled::<Bare>()
        .iter()
        .filter(|call| call.name == name && !support::REFUSED.contains(&name))
        .any(|call| {
            let outputs = (call.run)(call.inputs(&vec![DType::F32; call.inputs.len()]));
            outputs.iter().any(|output| output.float_dtype().is_some())
        })
}

/// `None` where the outputs are not float or Burn's autodiff has no gradient.
fn hand_cast_gradients(
    call: &Call<Plain>,
    dtypes: &[DType],
    expected: &Expected,
) -> Option<Vec<Option<TensorData>>> {
    unless_it_panics(|| {
        let leaves = leaves(call, dtypes);
        weighed(by_hand(call, leaves.clone(), expected))
            .map(|loss| gradients::<Plain>(&leaves, loss))
    })
    .flatten()
}

#[test]
fn gradients_have_their_leafs_dtype_and_the_bits_of_casts_by_hand() {
    let (mut failures, mut compared, mut without) =
        (Vec::new(), 0, std::collections::BTreeSet::new());
    for (ours, plain) in op_calls::ruled::<Mixed>()
        .iter()
        .zip(&op_calls::ruled::<Plain>())
    {
        if ours.name.ends_with("_backward") || !has_gradient_kernel(ours.name) {
            continue;
        }
        let op = op_of(plain);
        for (level, half) in LEVELS
            .iter()
            .flat_map(|level| halves().into_iter().map(move |half| (*level, half)))
        {
            for dtypes in tuples(&[DType::F32, half.dtype()], plain.inputs.len()) {
                let inputs: Vec<_> = plain
                    .inputs
                    .iter()
                    .copied()
                    .zip(dtypes.iter().copied())
                    .collect();
                let policy = Policy::new(level, half);
                let expected = expected(&policy, op, &inputs);
                let Some(control) = hand_cast_gradients(plain, &dtypes, &expected) else {
                    without.insert(plain.name);
                    continue;
                };
                let result = unless_it_panics(|| {
                    let leaves = leaves(ours, &dtypes);
                    let outputs = scope::with_policy(policy, || (ours.run)(leaves.clone()));
                    gradients::<Mixed>(&leaves, weighed(outputs).unwrap())
                });
                compared += 1;
                let context = format!("{op} at {level}, {half}, of {dtypes:?}");
                let Some(result) = result else {
                    failures.push(format!("{context} panics"));
                    continue;
                };
                for (grad, dtype) in result.iter().zip(&dtypes) {
                    let Some(grad) = grad else { continue };
                    if grad.dtype != *dtype {
                        failures.push(format!("{context}: the gradient is {:?}", grad.dtype));
                    }
                    if !grad
                        .clone()
                        .convert_dtype(DType::F32)
                        .iter::<f32>()
                        .all(f32::is_finite)
                    {
                        failures.push(format!("{context}: {grad:?} is not finite"));
                    }
                }
                if result != control && !is_composed_anew(op, &expected) {
                    failures.push(format!("{context} gives {result:?}, by hand {control:?}"));
                }
            }
        }
    }
    println!("{compared} compared");
    let without: Vec<_> = without
        .into_iter()
        .filter(|name| has_float_output(name))
        .collect();
    assert_eq!(
        without,
        ["float_topk", "irfft", "rfft"],
        "Burn has no gradient of these"
    );
    let some: Vec<_> = failures.iter().take(20).cloned().collect();
    assert!(
        failures.is_empty(),
        "{} of {compared}:\n{}",
        failures.len(),
        some.join("\n")
    );
}

#[test]
fn an_explicit_cast_is_honoured() {
    for level in OptLevel::ALL {
        amp(level, HalfDType::F16).scope(|| {
            for from in dtypes() {
                for to in dtypes() {
                    let tensor = any(&[3]).tensor::<Mixed>(0, from);
                    assert_eq!(Mixed::float_cast(tensor, to.into()).dtype(), to);
                }
            }
        });
    }
}

#[test]
fn integers_and_booleans_never_change() {
    let device = Default::default();
    for level in OptLevel::ALL {
        amp(level, HalfDType::F16).scope(|| {
            let ints = Tensor::<Mixed, 1, Int>::from_data([70_001, 2, 3], &device);
            let (int, bool) = (ints.dtype(), ints.clone().equal_elem(2).dtype());
            let product = ints.clone() * ints.clone() - ints.clone();
            assert_eq!(product.dtype(), int);
            assert_eq!(ints.clone().equal_elem(2).bool_not().dtype(), bool);
            assert_eq!(
                ints.sum().into_scalar(),
                70_006,
                "beyond f16's integers and its range"
            );
        });
    }
}

#[test]
fn half_tensors_are_read_as_f32_at_o1_and_o2_and_as_stored_at_o0_and_o3() {
    for (level, half) in OptLevel::ALL
        .into_iter()
        .flat_map(|level| halves().into_iter().map(move |half| (level, half)))
    {
        let read = match level {
            OptLevel::O1 | OptLevel::O2 => DType::F32,
            OptLevel::O0 | OptLevel::O3 => half.dtype(),
        };
        amp(level, half).scope(|| {
            let dtype: FloatDType = half.float_dtype();
            let tensor = Tensor::<Mixed, 1>::from_data([0.1, 0.2], &Default::default()).cast(dtype);
            let transaction = Transaction::default().register(tensor.clone()).execute();
            for data in [tensor.to_data(), transaction.into_iter().next().unwrap()] {
                assert_eq!(data.dtype, read, "{level}");
                assert_eq!(
                    data.convert_dtype(half.dtype()),
                    scope::disabled(|| tensor.to_data())
                );
            }
            if computes_in(DType::F64) {
                assert_eq!(tensor.cast(DType::F64).to_data().dtype, DType::F64);
            }
        });
    }
}

#[test]
fn every_deviation_from_torch_has_a_reason_and_every_reason_a_deviation() {
    for op in Op::ALL.iter().copied() {
        let ours = op.default_rule(OptLevel::O1);
        let (torch, _) = peers(op);
        let keeps_vectors = matches!(
            op,
            Op::FloatAdd | Op::FloatSub | Op::FloatMul | Op::FloatDiv
        );
        let deviates = keeps_vectors || torch.rule().is_some_and(|rule| rule != ours);
        assert_eq!(
            deviates,
            reason(op).is_some(),
            "{op}: {ours} here, {} in torch.amp",
            torch.name()
        );
    }
}

fn op_table() -> String {
    let mut table = String::from(
        "# Which operation runs in which dtype\n\
         \n\
         Written by `UPDATE_DOCS=1 cargo test --test casts_follow_the_op_table`; edit the table in\n\
         `crates/burn-mixed-precision/src/policy/op.rs` instead. The rules are those of `CastRule`:\n\
         \n\
         - `lower`: inputs to half, output half;\n\
         - `full`: inputs to f32, output f32;\n\
         - `full_then_lower`: computed in f32, output in the dtype of the first input if that is half;\n\
         - `promote`: mixed inputs meet in the widest dtype;\n\
         - `as_is`: in the dtype of the input.\n\
         \n\
         \"Numbers\" is what happens to a scalar argument that half would round to zero or to infinity,\n\
         unless the rule is `full` (then it is f32) or `lower` (`ScalarRole` says more):\n\
         \n\
         - `operand`: it counts as an f32 operand, so the operation runs in f32 and stays there;\n\
         - `divisor`: the same, also for a number whose reciprocal half cannot hold;\n\
         - `constant`: computed in f32, output in the dtype of the input;\n\
         - `fill`: beyond the range it becomes the last finite number, too near zero it is an `operand`.\n\
         \n\
         As soon as one input is f64, all are, and the output too. torch.amp is its CUDA list, Apex its\n\
         O1 lists: \"half\" and \"f32\" are casts, \"widest\" is a promotion by list or by the framework,\n\
         \"as is\" means that the system does not list the operation, \"–\" that it does not have or see it.\n\
         Neither system sees gradients; here they are seen when the decorator stands inside autodiff.\n\
         \n\
         | operation | O1 | O2 | O3 | numbers | torch.amp | Apex O1 | why O1 deviates from torch.amp |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for op in Op::ALL.iter().copied() {
        let [o1, o2, o3] = LEVELS.map(|level| op.default_rule(level));
        let (torch, apex) = peers(op);
        let (torch, apex) = (torch.name(), apex.name());
        let reason = reason(op)
            .map(|reason| format!("{reason} "))
            .unwrap_or_default();
        let numbers = op.scalar_role().map(|role| format!("{} ", role.name()));
        let numbers = numbers.unwrap_or_default();
        table +=
            &format!("| `{op}` | {o1} | {o2} | {o3} | {numbers}| {torch} | {apex} | {reason}|\n");
    }
    table
}

#[test]
fn the_documented_table_is_the_one_in_force() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/op-table.md");
        return std::fs::write(path, op_table()).unwrap();
    }
    // In the binary, since a machine with a GPU may have no repository.
    assert!(
        include_str!("../docs/op-table.md") == op_table(),
        "docs/op-table.md is stale: UPDATE_DOCS=1 cargo test --test casts_follow_the_op_table"
    );
}
