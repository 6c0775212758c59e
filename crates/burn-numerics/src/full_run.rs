use std::collections::HashMap;
use std::sync::Arc;

use burn_backend::Shape;
use burn_mixed_precision::observe::{Call, Observer, Phase, Role, Sight, Source};

use crate::{Histogram, NumericsRecorder};

/// The calls of one run in f32, in their order, with the numbers they saw.
#[derive(Debug, Default)]
pub(crate) struct FullRun {
    pub(crate) calls: Vec<FullCall>,
    /// Where a call stands in `calls`.
    positions: HashMap<u64, usize>,
}

#[derive(Debug)]
pub(crate) struct FullCall {
    pub(crate) call: Arc<Call>,
    pub(crate) inputs: Vec<FullInput>,
    /// None of an operation without a float output.
    pub(crate) output: Option<Histogram>,
    /// Gradients by the tensor they are of, the loss not being scaled.
    pub(crate) gradients: HashMap<Role, Histogram>,
}

#[derive(Debug)]
pub(crate) struct FullInput {
    pub(crate) source: Source,
    pub(crate) shape: Shape,
    pub(crate) values: Histogram,
}

impl Observer for FullRun {
    fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>) {
        let values = Histogram::of(&sight.values.sample(NumericsRecorder::DEFAULT_SAMPLE));
        let calls = &mut self.calls;
        let position = *self.positions.entry(call.id).or_insert_with(|| {
            calls.push(FullCall {
                call: call.clone(),
                inputs: Vec::new(),
                output: None,
                gradients: HashMap::new(),
            });
            calls.len() - 1
        });
        let seen = &mut self.calls[position];
        match (sight.phase, sight.role) {
            (Phase::Backward, role) => {
                seen.gradients.insert(role, values);
            }
            (Phase::Forward, Role::Output) => seen.output = Some(values),
            (Phase::Forward, Role::Input(_)) => seen.inputs.push(FullInput {
                source: sight.source.clone(),
                shape: sight.shape.clone(),
                values,
            }),
        }
    }
}
