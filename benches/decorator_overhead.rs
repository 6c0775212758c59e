//! What the decorator adds to an operation that needs no cast: decorated against bare, 8 elements.
//!
//! The target is at most 100 ns on top of the bare backend, which itself takes about as long for so
//! few elements. One group per place where the policy may come from.

use std::hint::black_box;

use burn::backend::Flex;
use burn::tensor::{DType, Tensor, TensorPrimitive, backend::Backend};
use burn_amp::{AmpConfig, MixedPrecision, OptLevel, scope, uninstall};
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

criterion_group!(benches, overhead);
criterion_main!(benches);
