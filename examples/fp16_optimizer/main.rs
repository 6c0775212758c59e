//! Apex's own example: ResNet-18 on CIFAR-10 with Adam and `FP16_Optimizer`, a loss line an epoch:
//! `cargo run --release --example fp16_optimizer -- --fp16 --fp16-opt-level O2 --data DIR`

#[path = "../classification/mod.rs"]
mod classification;
mod cli;
#[path = "../data_sets/mod.rs"]
#[allow(dead_code, reason = "shared with other examples")]
mod data_sets;
#[path = "../program/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with other examples"
)]
mod program;
#[path = "../models/resnet18.rs"]
mod resnet18;

use std::error::Error;
use std::process::ExitCode;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{ElementConversion, Tensor};
use burn_amp::{Amp, Fp16Optimizer, LossScaleConfig, LossScaleError, LossScaling};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use classification::{count_correct, loss};
use cli::Options;
use data_sets::{CLASSES, DataError, TrainTest, cifar10, digits};
use program::End;
use program::backend::{opening, with_backend};
use program::checkpoint::Checkpoint;
use program::interrupt::Interrupt;
use program::progress::{self, say};
use resnet18::ResNet18;

type Optim<B> = Fp16Optimizer<OptimizerAdaptor<Adam, ResNet18<B>, B>, B>;

/// Side of the digits after enlarging, in their own sides: 16 pixels. CIFAR's 32 would take four
/// times as long, and a CPU is what runs without data.
const ENLARGE: usize = 2;

fn main() -> ExitCode {
    program::main(
        cli::HELP,
        cli::parse,
        |options| with_backend!(options.backend, B => run::<B>(options)),
    )
}

fn run<B: AutodiffBackend>(options: Options) -> Result<End, Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let data = data(&options)?;
    let device = B::Device::default();
    B::seed(&device, options.seed);
    let amp = options.precision.config().init::<B>(&device)?;
    let mut model = amp.cast_model(ResNet18::<B>::new(CLASSES, &device));
    let mut optim = optimizer::<B>(&amp)?;
    let mut losses: Vec<f64> = Vec::new();
    let checkpoint = checkpoint(&options, &data);
    match &checkpoint {
        Some(checkpoint) if options.checkpoint.resume => {
            let saved = checkpoint.load::<B, _, _, _>(&device)?;
            model = model.load_record(saved.model);
            optim = optim
                .try_load_record::<ResNet18<B>>(saved.optimizer)
                .map_err(|source| checkpoint.refused(source))?;
            losses = saved.progress;
        }
        Some(checkpoint) => checkpoint.require_empty()?,
        None => {}
    }
    println!("{}", opening::<B>(&device, &options.precision));
    println!(
        "ResNet-18 of {} parameters (stem 3x3, stride 1, no pooling); {}: {} to train, {} to test, \
         {}x{} pixels",
        trained_parameters(&model),
        data.name,
        data.train.len(),
        data.test.len(),
        data.train.height,
        data.train.width
    );

    let steps_per_epoch = data.train.len().div_ceil(options.batch_size);
    let bar = progress::bar(steps_per_epoch * options.epochs);
    bar.set_position((steps_per_epoch * losses.len()) as u64);
    for epoch in losses.len() + 1..=options.epochs {
        let mut order: Vec<usize> = (0..data.train.len()).collect();
        // Of each epoch by itself, so that a resumed training sees the order it would have seen.
        order.shuffle(&mut StdRng::seed_from_u64(
            options.seed ^ (epoch as u64) << 32,
        ));
        let mut sum = 0.0;
        for positions in order.chunks(options.batch_size) {
            let (images, labels) = data.train.batch(positions, &device);
            let loss = loss(model.forward(images), labels);
            sum += loss.clone().into_scalar().elem::<f64>();
            optim.backward(loss, &model);
            model = optim.step(options.lr, model);
            bar.inc(1);
            if interrupt.asked() {
                bar.finish_and_clear();
                say(&options.checkpoint.left_by_interrupt(epoch));
                return Ok(End::Interrupted);
            }
        }
        losses.push(sum / steps_per_epoch as f64);
        if let Some(checkpoint) = &checkpoint {
            let record = optim.to_record::<ResNet18<B>>();
            checkpoint.save::<B>(epoch, model.clone().into_record(), record, &losses)?;
        }
        let (loss, scale) = (losses[epoch - 1], optim.loss_scale());
        bar.suspend(|| println!("epoch {epoch}: loss {loss:.4}, loss scale {scale}"));
    }
    bar.finish_and_clear();

    let model = model.valid();
    let correct = count_correct(|images| model.forward(images), &data.test, &device);
    let steps = optim.amp_optimizer().monitor();
    println!(
        "test accuracy {:.2}% ({correct} of {}); {} steps applied, {} skipped",
        100.0 * correct as f64 / data.test.len() as f64,
        data.test.len(),
        steps.applied(),
        steps.skipped()
    );
    Ok(End::Done)
}

/// Without running statistics, which `num_params` counts too.
fn trained_parameters<B: AutodiffBackend>(model: &ResNet18<B>) -> usize {
    struct Count(usize);

    impl<B: AutodiffBackend> ModuleVisitor<B> for Count {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let tensor = param.val();
            if tensor.is_require_grad() {
                self.0 += tensor.shape().num_elements();
            }
        }
    }

    let mut count = Count(0);
    model.visit(&mut count);
    count.0
}

/// With the loss scale that the flags ask for, or the level's own.
fn optimizer<B: AutodiffBackend>(amp: &Amp) -> Result<Optim<B>, LossScaleError> {
    let adam = AdamConfig::new().init();
    match amp.config().loss_scale() {
        // Apex begins at 2^32, which costs the first sixteen steps; too many for a short run.
        LossScaling::Dynamic => Fp16Optimizer::with_dynamic_loss_scale(
            adam,
            amp,
            LossScaleConfig::apex_fp16_utils().with_init(65536.0),
        ),
        LossScaling::Static(scale) => Fp16Optimizer::with_static_loss_scale(adam, amp, scale),
    }
}

fn data(options: &Options) -> Result<TrainTest, DataError> {
    let mut data = match &options.data {
        Some(dir) => cifar10::load(dir)?,
        None => {
            let digits = digits::load()?;
            TrainTest {
                name: format!("{}, enlarged", digits.name),
                train: digits.train.enlarged_to_colour(ENLARGE),
                test: digits.test.enlarged_to_colour(ENLARGE),
            }
        }
    };
    for samples in [&mut data.train, &mut data.test] {
        let kept: Vec<usize> = (0..samples.len().min(options.samples)).collect();
        *samples = samples.select(&kept);
    }
    Ok(data)
}

fn checkpoint(options: &Options, data: &TrainTest) -> Option<Checkpoint> {
    let dir = options.checkpoint.save.as_ref()?;
    let same = vec![
        ("data", data.name.clone()),
        ("number of samples", data.train.len().to_string()),
        ("--batch-size", options.batch_size.to_string()),
        ("--lr", options.lr.to_string()),
        ("--seed", options.seed.to_string()),
    ];
    Some(Checkpoint::new(dir, same))
}
