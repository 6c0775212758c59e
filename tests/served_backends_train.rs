//! Burn's remote server runs the main job on a decorated backend.
//!
//! The server is a process of its own and speaks over loopback.

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
#[path = "support/product.rs"]
mod product;
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

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{convert, env, io, process, thread};

use burn::backend::remote::RemoteDevice;
use burn::backend::{Autodiff, Flex, RemoteBackend};
use burn::module::{AutodiffModule, Module};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Tensor};
use burn_amp::{Amp, AmpConfig, HalfDType, MixedPrecision, OptLevel};

use cli::Options;
use data_sets::{CLASSES, digits};
use model::Cnn;
use product::product;
use program::interrupt::Interrupt;
use training::{Trained, train};

/// What the server serves.
type Served = MixedPrecision<Flex>;

const PORT: &str = "SERVED_BACKENDS_PORT";
const POLICY: &str = "SERVED_BACKENDS_POLICY";

#[test]
#[ignore = "the server that the other tests start"]
fn serve() {
    let (Ok(port), Ok(policy)) = (env::var(PORT), env::var(POLICY)) else {
        return;
    };
    // The pipe closes with the process that started this one, however that ends.
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0)
    });
    let config: AmpConfig = serde_json::from_str(&policy).unwrap();
    config.init::<Served>(&Default::default()).unwrap();
    burn::server::start_websocket::<Served>(Default::default(), port.parse().unwrap());
}

/// Runs a client of a server with this policy.
///
/// A client of Burn's that finds no server waits forever: so it begins when the server takes connections,
/// and its time is limited.
#[track_caller]
fn with_server(policy: AmpConfig, client: impl FnOnce(RemoteDevice) + Send + 'static) {
    let (mut server, device) = start(policy);
    let (done, wait) = channel();
    let client = thread::spawn(move || {
        client(device.clone());
        // What it dropped last may still be on its way.
        RemoteBackend::sync(&device).unwrap();
        let _ = done.send(());
    });
    let waited = wait.recv_timeout(Duration::from_secs(180));
    let _ = server.kill();
    let _ = server.wait();
    assert_ne!(waited, Err(RecvTimeoutError::Timeout), "the client hangs");
    client.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// Runs [`serve`] in another process, until it takes connections.
fn start(policy: AmpConfig) -> (Child, RemoteDevice) {
    let port = free_port();
    let mut server = Command::new(env::current_exe().unwrap())
        .args(["serve", "--exact", "--ignored", "--nocapture"])
        .env(PORT, port.to_string())
        .env(POLICY, serde_json::to_string(&policy).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        let ended = server.try_wait().unwrap();
        assert!(ended.is_none(), "the server ended: {ended:?}");
        assert!(began.elapsed() < Duration::from_secs(60), "no server");
        thread::sleep(Duration::from_millis(10));
    }
    (server, RemoteDevice::new(&format!("ws://127.0.0.1:{port}")))
}

/// The listener that finds it is closed on return: as long as it is open, it is what [`start`] connects to.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn model<B: Backend>(device: &B::Device) -> Cnn<B> {
    Cnn::new(8, 8, CLASSES, device)
}

/// The main job, short; returns its losses and the part of the test digits that it names rightly.
fn main_job<B: AutodiffBackend>(model: Cnn<B>, amp: &Amp, device: &B::Device) -> (Vec<f32>, f64) {
    let data = digits::load().unwrap();
    let options = Options {
        epochs: 2,
        ..Options::default()
    };
    let began = Instant::now();
    let start = Trained::new(amp.cast_model(model), amp);
    let never = Interrupt::default();
    let Ok(trained) = train(start, &data.train, &options, device, &never, |_| {
        Ok::<_, convert::Infallible>(())
    });
    let model = trained.model.valid();
    let forward = |images| model.forward(images);
    let correct = classification::count_correct(forward, &data.test, device);
    let accuracy = correct as f64 / data.test.len() as f64;
    let losses = trained.progress.losses;
    let name = B::name(device);
    println!("{name}: {losses:?}, {accuracy}, {:?}", began.elapsed());
    (losses, accuracy)
}

/// The main job from weights that the server draws.
#[track_caller]
fn learns<B: AutodiffBackend>(amp: &Amp, device: &B::Device) {
    B::seed(device, 1);
    let (losses, accuracy) = main_job::<B>(model(device), amp, device);
    assert!(losses[1] < 0.7 * losses[0], "{losses:?}");
    // Chance is 10%.
    assert!(accuracy > 0.7, "{accuracy}");
}

fn o0() -> Amp {
    AmpConfig::new(OptLevel::O0).build().unwrap()
}

/// The whole of mixed precision is on the server: the client is a plain f32 program, which does not know
/// what happened to its f32 tensors.
#[test]
fn the_main_job_runs_under_the_policy_of_a_server() {
    type Client = Autodiff<RemoteBackend>;
    let bf16 = AmpConfig::new(OptLevel::O1).with_half(HalfDType::Bf16);
    with_server(bf16, |device| {
        assert_eq!(product::<Client>(&device), (90112.0, DType::F32));
        learns::<Client>(&o0(), &device);
    });
}

/// What the client calls f32 is f16: the loss scale and f32 optimizer arithmetic are out of its reach, so
/// docs/scaling.md advises against it.
#[test]
fn f16_under_the_policy_of_a_server_has_the_range_of_f16() {
    with_server(AmpConfig::new(OptLevel::O1), |device| {
        let (product, dtype) = product::<RemoteBackend>(&device);
        assert_eq!((product, dtype), (f32::INFINITY, DType::F32));
        // A cast to what it is already, the client thinks: it does not reach the server.
        let small = Tensor::<RemoteBackend, 2>::full([1, 1], 1e-3, &device);
        let small = small.clone().matmul(small).cast(FloatDType::F32);
        assert_eq!(small.mul_scalar(1e-3).into_scalar(), 0.0);
    });
}

/// The policy is on the client, which sends its casts: all that works on a local device does.
#[test]
fn the_main_job_runs_on_a_server_under_the_policy_of_the_client() {
    type Client = MixedPrecision<Autodiff<RemoteBackend>>;
    with_server(AmpConfig::new(OptLevel::O0), |device| {
        for level in [OptLevel::O1, OptLevel::O2] {
            let amp = AmpConfig::new(level).init::<Client>(&device).unwrap();
            assert_eq!(product::<Client>(&device), (f32::INFINITY, DType::F16));
            learns::<Client>(&amp, &device);
        }
    });
}

#[test]
fn a_server_at_o0_computes_what_its_backend_does() {
    type Client = Autodiff<RemoteBackend>;
    type Local = Autodiff<Flex>;
    with_server(AmpConfig::new(OptLevel::O0), |device| {
        assert_eq!(product::<Client>(&device), (90000.0, DType::F32));
        let here = Default::default();
        let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
        let weights = model::<Local>(&here).into_record();
        let weights = recorder.record(weights, ()).unwrap();
        let record = recorder.load(weights.clone(), &device).unwrap();
        let served = main_job::<Client>(model(&device).load_record(record), &o0(), &device);
        let record = recorder.load(weights, &here).unwrap();
        let local = main_job::<Local>(model(&here).load_record(record), &o0(), &here);
        assert_eq!(served, local);
    });
}
