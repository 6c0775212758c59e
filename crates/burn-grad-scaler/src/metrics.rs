//! Loss scale, gradient norm, skipped steps and traced faults in Burn's dashboard and logs.

use std::sync::Arc;

use burn::train::metric::state::{FormatOptions, NumericMetricState};
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use burn_mixed_precision::Tracer;

use crate::{StepMonitor, StepOutcome};

/// Writes a metric that reads one number of each optimizer step.
///
/// The Learner updates its metrics in a thread that runs behind training: a training item takes the
/// next step that no item took, not the latest. With gradient accumulation, or with several devices,
/// there are more items than steps and the later items repeat the step before them. Validation has
/// no steps: its items take the latest.
macro_rules! step_metric {
    ($(#[$doc:meta])* $metric:ident, $name:literal, $better:literal, $digits:literal, $first:literal, $read:expr) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $metric {
            monitor: StepMonitor,
            /// The number of the step whose value is shown.
            seen: u64,
            value: f64,
            name: MetricName,
            state: NumericMetricState,
        }

        impl $metric {
            /// Follows the steps of an optimizer: [`AmpOptimizer::monitor`](crate::AmpOptimizer::monitor).
            pub fn new(monitor: StepMonitor) -> Self {
                Self {
                    seen: monitor.recorded(),
                    monitor,
                    value: $first,
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

            fn update(&mut self, _item: &(), metadata: &MetricMetadata) -> SerializedEntry {
                let read: fn(StepOutcome, u64) -> Option<f64> = $read;
                // Only training items have a learning rate.
                let validates = metadata.lr.is_none();
                while let Some((step, skipped)) = self.monitor.follow(&mut self.seen) {
                    self.value = read(step, skipped).unwrap_or(self.value);
                    if !validates {
                        break;
                    }
                }
                let format = FormatOptions::new(self.name()).precision($digits);
                self.state.update(self.value, 1, format)
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
    /// The loss scale of loss 0 after each step, a factor; 1 before the first step.
    LossScaleMetric, "Loss Scale", true, 0, 1.0,
    |step, _| step.scale_after(0).map(f64::from)
);

step_metric!(
    /// The 2-norm of the true gradients at the last applied step, before clipping; 0 before the first
    /// one and where nobody looks at the gradients.
    ///
    /// The norm of a skipped step, which is infinite or NaN, is not shown: it would stay in the
    /// epoch's mean and in the bounds of the plot.
    GradNormMetric, "Grad Norm", false, 4, 0.0,
    |step, _| step.grad_norm.filter(|_| step.was_applied())
);

step_metric!(
    /// The number of steps skipped since training began.
    SkippedStepsMetric, "Skipped Steps", false, 0, 0.0,
    |_, skipped| Some(skipped as f64)
);

/// The fault that the overflow tracer found last: phase, operation and module in words, or `none`.
///
/// Text, in the dashboard and in its logs. It needs [`AmpConfig::with_trace`], and stays until the next
/// step is traced: with [`TraceMode::OnSkip`] that is the one after the next skipped step.
///
/// [`AmpConfig::with_trace`]: burn_mixed_precision::AmpConfig::with_trace
/// [`TraceMode::OnSkip`]: burn_mixed_precision::TraceMode::OnSkip
#[derive(Clone)]
pub struct FaultMetric {
    tracer: Tracer,
    name: MetricName,
}

impl FaultMetric {
    /// Follows a tracer: [`Amp::tracer`](burn_mixed_precision::Amp::tracer).
    pub fn new(tracer: Tracer) -> Self {
        Self {
            tracer,
            name: Arc::new("Fault".to_string()),
        }
    }
}

impl Metric for FaultMetric {
    type Input = ();

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn update(&mut self, _item: &(), _metadata: &MetricMetadata) -> SerializedEntry {
        let fault = match self.tracer.last_fault() {
            Some(fault) => format!("{}, {} {}", fault.phase, fault.op, fault.place),
            None => "none".to_string(),
        };
        SerializedEntry {
            formatted: fault.clone(),
            serialized: fault,
        }
    }

    fn clear(&mut self) {}
}
