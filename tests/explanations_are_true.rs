//! What `Policy::explain` says of an operation is what happens: the dtype it computes in, as an observer
//! sees it, and the dtype of what it gives.

#[path = "support/op_calls.rs"]
mod op_calls;
mod support;

use std::sync::Arc;

use burn_amp::observe::{self, Call, Observer, Role, Sight};
use burn_amp::{
    CastRule, DecidedBy, HalfDType, MixedPrecision, Op, OptLevel, Policy, Reason, scope,
};
use burn_backend::{DType, Shape};
use op_calls::Out;
use support::{Bare, HALVES, computes_in, has_kernel, unless_it_panics};

type Decorated = MixedPrecision<Bare>;

/// The dtypes in which the inputs of one operation were given to the backend.
struct Insides {
    op: Op,
    seen: Vec<DType>,
}

impl Observer for Insides {
    fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>) {
        if call.op == Some(self.op) && sight.role != Role::Output {
            self.seen.push(sight.inside);
        }
    }
}

fn tuples(dtypes: &[DType], count: usize) -> Vec<Vec<DType>> {
    (0..count).fold(vec![vec![]], |tuples, _| {
        let longer = |tuple: &Vec<DType>| {
            let tuple = tuple.clone();
            dtypes.iter().map(move |d| [&tuple[..], &[*d]].concat())
        };
        tuples.iter().flat_map(longer).collect()
    })
}

/// Compares explanation and reality for every operation and every mixture of these dtypes; says how
/// many calls there were.
fn check(policies: impl Fn(Op) -> Vec<Policy>, dtypes: &[DType]) -> usize {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for call in op_calls::ruled::<Decorated>() {
        let op: Op = call.name.parse().unwrap();
        for policy in policies(op) {
            for tuple in tuples(dtypes, call.inputs.len()) {
                let inputs: Vec<(DType, Shape)> = call
                    .inputs
                    .iter()
                    .zip(&tuple)
                    .filter(|(input, _)| input.cast)
                    .map(|(input, dtype)| (*dtype, Shape::from(input.shape.to_vec())))
                    .collect();
                let explained = policy.explain_shapes(op, &inputs);
                // The documented limit: without a policy it is the backend that decides.
                let mixed = inputs.iter().any(|(dtype, _)| *dtype != inputs[0].0);
                if !policy.is_enabled() && mixed || !has_kernel(call.name, explained.inside) {
                    continue;
                }
                let insides = Insides {
                    op,
                    seen: Vec::new(),
                };
                let real = unless_it_panics(|| {
                    scope::with_policy(policy.clone(), || {
                        observe::run(insides, || (call.run)(call.inputs(&tuple)))
                    })
                });
                let Some((outputs, insides)) = real else {
                    continue;
                };
                checked += 1;
                let outputs: Vec<DType> = outputs.iter().filter_map(Out::float_dtype).collect();
                let agrees = outputs.iter().all(|dtype| *dtype == explained.output)
                    && !insides.seen.is_empty()
                    && insides.seen.iter().all(|dtype| *dtype == explained.inside);
                if !agrees {
                    wrong.push(format!(
                        "{explained} {inputs:?}: really in {:?}, giving {outputs:?}",
                        insides.seen
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {checked}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    checked
}

fn dtypes(all: &[DType]) -> Vec<DType> {
    all.iter().copied().filter(|d| computes_in(*d)).collect()
}

#[test]
fn every_operation_runs_as_explained_at_every_level() {
    let all = dtypes(&[DType::F32, DType::F16, DType::BF16, DType::F64]);
    let policies = |_| {
        let halves = HALVES.into_iter().filter(|half| computes_in(half.dtype()));
        halves
            .flat_map(|half| {
                [OptLevel::O1, OptLevel::O2, OptLevel::O3].map(|l| Policy::new(l, half))
            })
            .collect()
    };
    let checked = check(policies, &all);
    println!("{checked} calls");
    assert!(checked > 1000, "{checked}");
}

#[test]
fn every_operation_runs_as_explained_under_every_override() {
    let all = dtypes(&[DType::F32, DType::F16]);
    let policies = |op| {
        let base = Policy::new(OptLevel::O1, HalfDType::F16);
        let overridden = CastRule::ALL.map(|rule| base.clone().with_rule(op, rule));
        let others = [
            Policy::full(),
            Policy::off(),
            base.clone().with_channel_vectors(false),
        ];
        overridden.into_iter().chain(others).collect()
    };
    let checked = check(policies, &all);
    println!("{checked} calls");
    assert!(checked > 1000, "{checked}");
}

#[test]
fn an_explanation_says_where_its_rule_comes_from() {
    let table = Policy::new(OptLevel::O1, HalfDType::F16);
    let f32 = [DType::F32, DType::F32];
    let why = table.explain(Op::FloatMatmul, &f32);
    assert_eq!(why.decided_by, DecidedBy::Level(OptLevel::O1));
    assert_eq!((why.inside, why.reason), (DType::F16, Reason::Rule));
    assert!(
        why.to_string().contains("in the table of O1 is lower"),
        "{why}"
    );
    let why = table
        .with_rule(Op::FloatMatmul, CastRule::Full)
        .explain(Op::FloatMatmul, &f32);
    assert_eq!(why.decided_by, DecidedBy::Override(OptLevel::O1));
    assert_eq!(why.inside, DType::F32);
    assert!(why.to_string().contains("override"), "{why}");
    let why = Policy::off().explain(Op::FloatMatmul, &f32);
    assert_eq!((why.inside, why.reason), (DType::F32, Reason::Off));
    let why = Policy::full().explain(Op::FloatExp, &[DType::F16]);
    assert_eq!((why.inside, why.decided_by), (DType::F32, DecidedBy::Full));
}

#[test]
fn a_channel_vector_and_a_mixture_are_explained_as_such() {
    let policy = Policy::new(OptLevel::O1, HalfDType::F16);
    let half = (DType::F16, Shape::new([2, 3, 4, 4]));
    let vector = (DType::F32, Shape::new([1, 3, 1, 1]));
    let why = policy.explain_shapes(Op::FloatAdd, &[half.clone(), vector.clone()]);
    assert_eq!(
        (why.reason, why.output),
        (Reason::ChannelVector, DType::F16)
    );
    let why = policy.explain_shapes(Op::FloatMul, &[vector, half.clone()]);
    assert_eq!(
        (why.reason, why.inside),
        (Reason::ChannelVector, DType::F16)
    );
    let full = (DType::F32, Shape::new([2, 3, 4, 4]));
    let why = policy.explain_shapes(Op::FloatAdd, &[half, full]);
    assert_eq!((why.reason, why.output), (Reason::Mixed, DType::F32));
}
