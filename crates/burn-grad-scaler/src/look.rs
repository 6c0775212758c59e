use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;

use crate::check::{Checked, GradCheck};
use crate::{NonFinite, StepStatus};

/// One set of gradients, looked at when somebody asks for the first time, and then never again.
pub(crate) struct Look<B: AutodiffBackend> {
    pending: Option<GradCheck<B>>,
    seen: Checked,
}

impl<B: AutodiffBackend> Look<B> {
    /// Notes the gradients of a module; nothing is computed or read yet.
    pub fn new<M: AutodiffModule<B>>(module: &M, grads: &GradientsParams) -> Self {
        let mut check = GradCheck::new();
        check.add(0, module, grads);
        Look {
            pending: Some(check),
            seen: Checked {
                losses: Vec::new(),
                norm: 0.0,
            },
        }
    }

    pub fn seen(&mut self) -> &Checked {
        if let Some(check) = self.pending.take() {
            self.seen = check.read();
        }
        &self.seen
    }

    pub fn into_seen(mut self) -> Checked {
        self.seen();
        self.seen
    }

    pub fn non_finite(&mut self) -> Option<&NonFinite> {
        self.seen().losses[0].non_finite.as_ref()
    }

    /// What a step with these gradients comes to.
    pub fn status(&mut self) -> StepStatus {
        let loss = &self.seen().losses[0];
        match (&loss.non_finite, loss.gradients) {
            (Some(_), _) => StepStatus::Skipped,
            (None, 0) => StepStatus::NoGradients,
            (None, _) => StepStatus::Applied,
        }
    }
}
