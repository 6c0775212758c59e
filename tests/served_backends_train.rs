//! Burn's remote server and its router run the main job on a decorated backend.
//!
//! The server is a process of its own and speaks over loopback: in one process with its client it waits
//! for locks of Burn's that the client holds while it waits for the server.

#[path = "../examples/classification/mod.rs"]
mod classification;
#[path = "../examples/train/cli.rs"]
#[allow(dead_code, reason = "shared with the example")]
mod cli;
#[path = "../examples/data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with the example")]
mod data_sets;
#[path = "../examples/train/model.rs"]
#[allow(dead_code, reason = "shared with the example")]
mod model;
#[path = "../examples/program/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with the example"
)]
mod program;
#[path = "../examples/train/training.rs"]
mod training;

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{convert, env, thread};

use burn::backend::remote::RemoteDevice;
use burn::backend::router::duo::MultiDevice;
use burn::backend::{Autodiff, Flex, RemoteBackend, Router};
use burn::module::AutodiffModule;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, ElementConversion, FloatDType, Tensor};
use burn_amp::{Amp, AmpConfig, HalfDType, MixedPrecision, OptLevel};

use cli::Options;
use data_sets::{CLASSES, Samples, digits};
use model::Cnn;
use program::interrupt::Interrupt;
use training::{Trained, train};

/// What the server serves.
type Served = MixedPrecision<Flex>;

/// A server with a policy, which ends with its test.
struct Server {
    process: Child,
    device: RemoteDevice,
}

impl Server {
    /// Runs [`serve`] in another process, on a free port.
    fn start(config: AmpConfig) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = port.local_addr().unwrap().port();
        let process = Command::new(env::current_exe().unwrap())
            .args(["serve", "--exact", "--ignored", "--nocapture"])
            .env(PORT, port.to_string())
            .env(POLICY, serde_json::to_string(&config).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Server {
            process,
            device: RemoteDevice::new(&format!("ws://127.0.0.1:{port}")),
        };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.process.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            assert!(began.elapsed() < Duration::from_secs(60), "no server");
            thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const PORT: &str = "SERVED_BACKENDS_PORT";
const POLICY: &str = "SERVED_BACKENDS_POLICY";

#[test]
#[ignore = "the server that the other tests start"]
fn serve() {
    let (Ok(port), Ok(policy)) = (env::var(PORT), env::var(POLICY)) else {
        return;
    };
    let config: AmpConfig = serde_json::from_str(&policy).unwrap();
    config.init::<Served>(&Default::default()).unwrap();
    burn::server::start_websocket::<Served>(Default::default(), port.parse().unwrap());
}

/// The main job, short; returns its losses and how many of the test digits it names rightly.
fn main_job<B: AutodiffBackend>(device: &B::Device, amp: &Amp) -> (Vec<f32>, f64) {
    let data = digits::load().unwrap();
    let options = Options {
        epochs: 2,
        ..Options::default()
    };
    B::seed(device, options.seed);
    let began = Instant::now();
    let samples: &Samples = &data.train;
    let model = Cnn::<B>::new(samples.height, samples.width, CLASSES, device);
    let start = Trained::new(amp.cast_model(model), amp);
    let never = Interrupt::default();
    let done = train(start, samples, &options, device, &never, |_| {
        Ok::<_, convert::Infallible>(())
    });
    let Ok(trained) = done;
    let model = trained.model.valid();
    let forward = |images| model.forward(images);
    let correct = classification::count_correct(forward, &data.test, device);
    let losses = trained.progress.losses;
    println!(
        "{}: {losses:?}, {correct} of {}, {:?}",
        B::name(device),
        data.test.len(),
        began.elapsed()
    );
    (losses, correct as f64 / data.test.len() as f64)
}

#[track_caller]
fn learned((losses, accuracy): (Vec<f32>, f64)) {
    assert!(losses[1] < 0.7 * losses[0], "{losses:?}");
    assert!(accuracy > 0.7, "{accuracy}");
}

fn o0() -> Amp {
    AmpConfig::new(OptLevel::O0).build().unwrap()
}

/// A product that f16 cannot hold: which dtype it was computed in shows in its value.
fn product<B: Backend>(device: &B::Device) -> (f32, DType) {
    let x = Tensor::<B, 2>::full([1, 1], 300.0, device);
    let product = x.clone().matmul(x);
    let dtype = product.dtype();
    (product.into_scalar().elem(), dtype)
}

/// The whole of mixed precision is on the server: the client is a plain f32 program, which does not know
/// what happened to its f32 tensors.
#[test]
fn the_main_job_runs_under_the_policy_of_a_server() {
    type Client = Autodiff<RemoteBackend>;
    let server = Server::start(AmpConfig::new(OptLevel::O1).with_half(HalfDType::Bf16));
    let device = server.device.clone();
    assert_eq!(product::<Client>(&device), (90112.0, DType::F32));
    learned(main_job::<Client>(&device, &o0()));
}

/// What the client calls f32 is f16: the loss scale and f32 optimizer arithmetic are out of its reach, so
/// docs/scaling.md advises against it.
#[test]
fn f16_under_the_policy_of_a_server_has_the_range_of_f16() {
    let server = Server::start(AmpConfig::new(OptLevel::O1));
    let device = server.device.clone();
    let (product, dtype) = product::<RemoteBackend>(&device);
    assert_eq!((product, dtype), (f32::INFINITY, DType::F32));
    // A cast to what it is already, the client thinks: it does not reach the server.
    let small = Tensor::<RemoteBackend, 2>::full([1, 1], 1e-3, &device);
    let small = small.clone().matmul(small).cast(FloatDType::F32);
    assert_eq!(small.mul_scalar(1e-3).into_scalar(), 0.0);
}

/// The policy is on the client, which sends its casts: all that works on a local device does.
#[test]
fn the_main_job_runs_on_a_server_under_the_policy_of_the_client() {
    type Client = MixedPrecision<Autodiff<RemoteBackend>>;
    let server = Server::start(AmpConfig::new(OptLevel::O0));
    let device = server.device.clone();
    for level in [OptLevel::O1, OptLevel::O2] {
        let amp = AmpConfig::new(level).init::<Client>(&device).unwrap();
        assert_eq!(product::<Client>(&device), (f32::INFINITY, DType::F16));
        learned(main_job::<Client>(&device, &amp));
    }
}

#[test]
fn a_server_at_o0_computes_what_its_backend_does() {
    let server = Server::start(AmpConfig::new(OptLevel::O0));
    let device = server.device.clone();
    assert_eq!(product::<RemoteBackend>(&device), (90000.0, DType::F32));
    let served = main_job::<Autodiff<RemoteBackend>>(&device, &o0());
    let local = main_job::<Autodiff<Flex>>(&Default::default(), &o0());
    assert_eq!(served, local);
}

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
