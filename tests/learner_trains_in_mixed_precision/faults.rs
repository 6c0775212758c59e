//! The dashboard names the fault that the overflow tracer found.

use burn::data::dataloader::Progress;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn::train::metric::{Metric, MetricMetadata};
use burn_amp::{AmpConfig, FaultMetric, OptLevel, TraceMode};

use crate::support::Mixed;

#[test]
fn the_metric_of_faults_shows_what_the_tracer_found_last() {
    let amp = AmpConfig::new(OptLevel::O1)
        .with_trace(TraceMode::Always)
        .build()
        .unwrap();
    let mut metric = FaultMetric::new(amp.tracer().clone());
    let progress = || Progress {
        items_processed: 1,
        items_total: 1,
    };
    let metadata = MetricMetadata {
        progress: progress(),
        global_progress: progress(),
        iteration: None,
        lr: None,
    };
    let shown = |metric: &mut FaultMetric| metric.update(&(), &metadata).formatted;
    let layer: Linear<Mixed> = LinearConfig::new(2, 2).init(&Default::default());
    let step = |value: f32| {
        amp.scope(|| {
            let x = Tensor::<Mixed, 2>::full([2, 2], value, &Default::default());
            x.clone().matmul(x)
        });
        amp.tracer().end_step(false, &layer);
    };
    assert_eq!(shown(&mut metric), "none");
    step(300.0); // 2 * 300 * 300 is beyond f16.
    let fault = shown(&mut metric);
    assert!(fault.starts_with("forward, float_matmul"), "{fault}");
    step(1.0);
    assert_eq!(shown(&mut metric), "none");
}
