use std::sync::Arc;

use burn::train::metric::state::{FormatOptions, NumericMetricState};
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use crate::{NumericsMonitor, NumericsReport};

/// A number out of the latest report of a [`NumericsMonitor`], in Burn's dashboard and logs.
///
/// In percent; 0 until a step was watched, and the same until the next is. It is for training items
/// (`metric_train_numeric`).
///
/// # Example
///
/// ```
/// use burn_numerics::{NumericsMetric, NumericsMonitor};
///
/// let numerics = NumericsMonitor::every(100); // the model's step calls its `watch`
/// let flushed = NumericsMetric::flushed(&numerics);
/// let near_overflow = NumericsMetric::near_overflow(&numerics);
/// // SupervisedTraining::new(..).metric_train_numeric(flushed).metric_train_numeric(near_overflow)
/// ```
#[derive(Clone)]
pub struct NumericsMetric {
    monitor: NumericsMonitor,
    read: fn(&NumericsReport) -> f64,
    name: MetricName,
    state: NumericMetricState,
}

impl NumericsMetric {
    /// `Flushed to Zero`: the share of numbers that casts to half make zero
    /// ([`NumericsReport::flushed`]).
    pub fn flushed(monitor: &NumericsMonitor) -> Self {
        Self::new(monitor, "Flushed to Zero", NumericsReport::flushed)
    }

    /// `Near Overflow`: the share of numbers in half within a factor of 8 of its largest
    /// ([`NumericsReport::near_overflow`]).
    pub fn near_overflow(monitor: &NumericsMonitor) -> Self {
        Self::new(monitor, "Near Overflow", NumericsReport::near_overflow)
    }

    fn new(monitor: &NumericsMonitor, name: &str, read: fn(&NumericsReport) -> f64) -> Self {
        NumericsMetric {
            monitor: monitor.clone(),
            read,
            name: Arc::new(name.to_string()),
            state: NumericMetricState::new(),
        }
    }
}

impl Metric for NumericsMetric {
    type Input = ();

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        let attributes = NumericAttributes {
            unit: Some("%".to_string()),
            higher_is_better: false,
        };
        attributes.into()
    }

    fn update(&mut self, _item: &(), _metadata: &MetricMetadata) -> SerializedEntry {
        let share = self.monitor.latest().map_or(0.0, |r| (self.read)(&r));
        let format = FormatOptions::new(self.name()).unit("%").precision(4);
        self.state.update(100.0 * share, 1, format)
    }

    fn clear(&mut self) {
        self.state.reset()
    }
}

impl Numeric for NumericsMetric {
    fn value(&self) -> NumericEntry {
        self.state.current_value()
    }

    fn running_value(&self) -> NumericEntry {
        self.state.running_value()
    }
}
