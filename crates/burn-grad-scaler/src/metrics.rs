//! Loss scale, gradient norm and skipped steps in Burn's dashboard and logs.

use std::sync::Arc;

use burn::train::metric::state::{FormatOptions, NumericMetricState};
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use crate::{StepMonitor, StepOutcome};

/// Writes a metric that reads one number of the last optimizer step.
macro_rules! step_metric {
    ($(#[$doc:meta])* $metric:ident, $name:literal, $better:literal, $digits:literal, $read:expr) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $metric {
            monitor: StepMonitor,
            name: MetricName,
            state: NumericMetricState,
        }

        impl $metric {
            /// Follows the steps of an optimizer: [`AmpOptimizer::monitor`](crate::AmpOptimizer::monitor).
            pub fn new(monitor: StepMonitor) -> Self {
                Self {
                    monitor,
                    name: Arc::new($name.to_string()),
                    state: NumericMetricState::new(),
                }
            }
        }

        impl Metric for $metric {
            type Input = ();

            fn name(&self) -> MetricName {
                self.name.clone()
            }

            fn attributes(&self) -> MetricAttributes {
                let attributes = NumericAttributes {
                    unit: None,
                    higher_is_better: $better,
                };
                attributes.into()
            }

            fn update(&mut self, _item: &(), _metadata: &MetricMetadata) -> SerializedEntry {
                let read: fn(&StepMonitor, Option<StepOutcome>) -> f64 = $read;
                let value = read(&self.monitor, self.monitor.last());
                let format = FormatOptions::new(self.name()).precision($digits);
                self.state.update(value, 1, format)
            }

            fn clear(&mut self) {
                self.state.reset()
            }
        }

        impl Numeric for $metric {
            fn value(&self) -> NumericEntry {
                self.state.current_value()
            }

            fn running_value(&self) -> NumericEntry {
                self.state.running_value()
            }
        }
    };
}

step_metric!(
    /// The loss scale of loss 0 after the last step, a factor; 1 before the first step.
    LossScaleMetric, "Loss Scale", true, 0,
    |_, last| last.and_then(|step| step.scale_after(0)).map_or(1.0, f64::from)
);

step_metric!(
    /// The 2-norm of the true gradients at the last step, before clipping; infinite or NaN at a
    /// skipped step, 0 before the first one and where nobody looks at the gradients.
    GradNormMetric, "Grad Norm", false, 4,
    |_, last| last.and_then(|step| step.grad_norm).unwrap_or(0.0)
);

step_metric!(
    /// The number of steps skipped since training began.
    SkippedStepsMetric, "Skipped Steps", false, 0,
    |monitor, _| monitor.skipped() as f64
);
