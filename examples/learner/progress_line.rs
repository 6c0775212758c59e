use burn::train::metric::MetricDefinition;
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use indicatif::ProgressBar;

use crate::program::progress::{bar, line};

/// Stands in for the dashboard where there is no terminal: a line an epoch on stderr, where Burn's
/// own renderer prints one for every batch.
pub struct ProgressLine {
    bar: ProgressBar,
    epoch: usize,
}

impl ProgressLine {
    pub fn new() -> Self {
        ProgressLine {
            bar: bar(0),
            epoch: 0,
        }
    }
}

impl MetricsRendererTraining for ProgressLine {
    fn update_train(&mut self, _: MetricState) {}
    fn update_valid(&mut self, _: MetricState) {}

    fn render_train(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        let (epoch, epochs) = (
            item.global_progress.items_processed,
            item.global_progress.items_total,
        );
        if self.epoch != epoch {
            self.epoch = epoch;
            line(&self.bar, &format!("epoch {epoch}/{epochs}"));
        }
        if let Some(samples) = item.progress {
            self.bar.set_length((epochs * samples.items_total) as u64);
            let done = (epoch - 1) * samples.items_total + samples.items_processed;
            self.bar.set_position(done as u64);
        }
    }

    fn render_valid(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
}

impl MetricsRendererEvaluation for ProgressLine {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for ProgressLine {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: MetricDefinition) {}
}
