//! What the decorator adds to an operation that needs no cast: decorated against bare, 8 elements.
//!
//! The target is at most 100 ns on top of the bare backend, which itself takes about as long for so
//! few elements. One group per place where the policy may come from. Then what it costs to look on: a
//! training step by itself, under the overflow tracer, and under the numerics report.

use std::hint::black_box;

use burn::backend::Flex;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{DType, Distribution, Tensor, TensorPrimitive, backend::Backend};
use burn_amp::{
    AmpBackend, AmpConfig, MixedPrecision, NumericsReport, OptLevel, Trace, scope, uninstall,
};
use criterion::{Criterion, criterion_group, criterion_main};

type Decorated = MixedPrecision<Flex>;

fn primitive<B: Backend>(dtype: DType) -> B::FloatTensorPrimitive {
    let values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];
    let tensor = Tensor::<B, 1>::from_data(values, &Default::default());
    match tensor.cast(dtype).into_primitive() {
        TensorPrimitive::Float(tensor) => tensor,
        TensorPrimitive::QFloat(_) => unreachable!("a float tensor"),
    }
}

fn operations<B: Backend>(criterion: &mut Criterion, group: &str, who: &str) {
    let mut group = criterion.benchmark_group(group);
    let full = primitive::<B>(DType::F32);
    group.bench_function(format!("add of f32, {who}"), |bencher| {
        bencher.iter(|| B::float_add(black_box(full.clone()), black_box(full.clone())));
    });
    let half = primitive::<B>(DType::F16);
    group.bench_function(format!("relu of f16, {who}"), |bencher| {
        bencher.iter(|| B::relu(black_box(half.clone())));
    });
    group.finish();
}

fn overhead(criterion: &mut Criterion) {
    operations::<Flex>(criterion, "without the decorator", "bare");

    operations::<Decorated>(criterion, "device never initialised", "decorated");

    let device = Default::default();
    let amp = AmpConfig::new(OptLevel::O1)
        .init::<Decorated>(&device)
        .unwrap();
    operations::<Decorated>(criterion, "device at O1", "decorated");
    scope::disabled(|| operations::<Decorated>(criterion, "region without casts", "decorated"));
    uninstall(&device);

    amp.scope(|| operations::<Decorated>(criterion, "region at O1", "decorated"));
}

/// Forward and backward of three layers of 512, batch 128.
fn observers(criterion: &mut Criterion) {
    type B = AmpBackend<Flex>;

    let device = Default::default();
    let layers: [Linear<B>; 3] = [(); 3].map(|()| LinearConfig::new(512, 512).init(&device));
    let batch = Tensor::<B, 2>::random([128, 512], Distribution::Default, &device);
    let step = || {
        let apply = |x, layer: &Linear<B>| relu(layer.forward(x));
        let loss = layers.iter().fold(batch.clone(), apply).mean();
        drop(loss.backward());
    };
    let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
    let mut group = criterion.benchmark_group("a training step at O1");
    group.sample_size(20);
    amp.scope(|| {
        group.bench_function("by itself", |bencher| bencher.iter(step));
        group.bench_function("traced", |bencher| bencher.iter(|| Trace::of(step).1));
        group.bench_function("with the numerics report", |bencher| {
            bencher.iter(|| NumericsReport::of(1, |_| step()).1);
        });
    });
    group.finish();
}

criterion_group!(benches, overhead, observers);
criterion_main!(benches);
