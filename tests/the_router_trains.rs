//! Burn's router runs a training on a decorated backend.

#[path = "../examples/classification/mod.rs"]
#[allow(dead_code, reason = "shared with the example")]
mod classification;
#[path = "../examples/data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with the example")]
mod data_sets;
#[path = "../examples/train/model.rs"]
mod model;
#[path = "support/product.rs"]
mod product;

use burn::backend::router::duo::MultiDevice;
use burn::backend::{Autodiff, Flex, Router};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::DType;
use burn_amp::{AmpConfig, HalfDType, MixedPrecision, OptLevel};

use data_sets::{CLASSES, digits};
use model::Cnn;
use product::product;

/// What the router sends operations to.
type Served = MixedPrecision<Flex>;

/// Burn's router finds a client by its device's id, which two backends on the CPU share: the second one
/// is only named here.
///
/// It runs operations on the caller's thread. So the optimizer is Burn's own: an `AmpOptimizer` would
/// switch the policy of that thread off, under gradients that the policy has made half.
#[test]
fn the_router_runs_a_decorated_backend_under_its_policy() {
    type Client = Autodiff<Router<(Served, Flex)>>;
    let bf16 = AmpConfig::new(OptLevel::O1).with_half(HalfDType::Bf16);
    bf16.init::<Served>(&Default::default()).unwrap();
    let device = MultiDevice::B1(Default::default());
    assert_eq!(product::<Client>(&device), (90112.0, DType::F32));

    let data = digits::load().unwrap().train;
    let mut model = Cnn::<Client>::new(data.height, data.width, CLASSES, &device);
    let mut optim = AdamConfig::new().init();
    let positions: Vec<usize> = (0..64).collect();
    let mut losses = Vec::new();
    for _ in 0..10 {
        let (images, labels) = data.batch(&positions, &device);
        let loss = classification::loss(model.forward(images), labels);
        losses.push(loss.clone().into_scalar());
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(3e-3, model, grads);
    }
    assert!(losses[9] < 0.5 * losses[0], "{losses:?}");
}
