//! Settings given to a device hold on every thread; a device without any runs in f32 and says so.
//!
//! One test in a file of its own, so in a process of its own: there is one CPU device to a process.

mod support;

use std::sync::Mutex;

use burn::tensor::{DType, Tensor};
use burn_amp::{AmpConfig, AmpError, HalfDType, LossScaling, OptLevel, Policy, scope, uninstall};
use support::{Bare, Mixed};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collect;

impl log::Log for Collect {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            WARNINGS.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

fn matmul() -> DType {
    let x = Tensor::<Mixed, 2>::ones([2, 2], &Default::default());
    x.clone().matmul(x).dtype()
}

fn on_another_thread() -> DType {
    std::thread::spawn(matmul).join().unwrap()
}

#[test]
fn a_device_is_initialised_once_for_all_threads() {
    log::set_logger(&Collect).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let device = burn::tensor::Device::<Bare>::default();

    // Never initialised: plain f32, one warning, however many operations and threads.
    assert_eq!([matmul(), matmul(), on_another_thread()], [DType::F32; 3]);
    assert_eq!(scope::current_policy(&device), Policy::off());
    let warnings = WARNINGS.lock().unwrap().clone();
    let [warning] = &warnings[..] else {
        panic!("one warning, not {warnings:?}");
    };
    assert!(
        warning.contains("Cpu") && warning.contains("AmpConfig::init"),
        "{warning}"
    );

    // A configuration that is refused changes nothing.
    let refused = AmpConfig::new(OptLevel::O1)
        .with_loss_scale(LossScaling::Static(f32::NAN))
        .init::<Mixed>(&device);
    assert!(matches!(
        refused,
        Err(AmpError::InvalidOption {
            option: "loss scale",
            ..
        })
    ));
    assert_eq!(matmul(), DType::F32);

    // Initialised: here, on a thread that has seen the device before, and on a new one.
    let amp = AmpConfig::new(OptLevel::O1).init::<Mixed>(&device).unwrap();
    assert_eq!([matmul(), on_another_thread()], [DType::F16; 2]);
    assert_eq!(scope::current_policy(&device), *amp.policy());

    // A region overrides the device, and loss scales are shared by all holders of the settings.
    scope::disabled(|| assert_eq!(matmul(), DType::F32));
    amp.loss_scales().attach();
    amp.loss_scales().set(0, 8.0);
    let scale = std::thread::spawn(|| {
        let weight = Tensor::<Mixed, 1>::ones([1], &Default::default()).require_grad();
        weight.sum().backward().loss_scale()
    });
    assert_eq!(scale.join().unwrap(), 8.0);

    // Initialised again: the new settings replace the old ones, with loss scales of their own.
    let again = AmpConfig::new(OptLevel::O1)
        .with_half(HalfDType::Bf16)
        .init_all::<Mixed>(&[device])
        .unwrap();
    assert_eq!([matmul(), on_another_thread()], [DType::BF16; 2]);
    assert!(!again.loss_scales().is_attached());

    // Taken away, and given back without another check.
    uninstall(&device);
    assert_eq!([matmul(), on_another_thread()], [DType::F32; 2]);
    amp.install(&device);
    assert_eq!([matmul(), on_another_thread()], [DType::F16; 2]);

    assert_eq!(WARNINGS.lock().unwrap().len(), 1, "still only the first");
}
