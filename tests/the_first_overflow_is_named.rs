//! The overflow tracer names the operation and the module at which the first infinity or NaN was made,
//! tells forward from backward, and leaves a healthy run alone.

#[path = "support/models.rs"]
mod models;
mod support;

use std::cell::RefCell;
use std::sync::Once;

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::activation::softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, ElementConversion, Tensor};
use burn_amp::observe::{self, Phase, Role};
use burn_amp::{
    Amp, AmpBackend, AmpConfig, AmpOptimizer, Cause, HalfDType, LossScaling, OptLevel, Trace,
    TraceMode, scope,
};

use models::{Cnn, Mlp, Reader, Trainable, Transformer, wave};
use support::{Bare, amp};

type B = AmpBackend<Bare>;
type Checkpointed = AmpBackend<Bare, BalancedCheckpointing>;

/// Attention by hand, with linear layers whose weights are one number.
#[derive(Module, Debug)]
struct Attention<B: Backend> {
    query: Linear<B>,
    key: Linear<B>,
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    embed: Linear<B>,
    attention: Attention<B>,
}

impl Net<B> {
    /// Every weight is `gain`.
    fn new(gain: f32) -> Self {
        let linear = || {
            let layer: Linear<B> = LinearConfig::new(8, 8)
                .with_bias(false)
                .init(&Default::default());
            Linear {
                weight: layer
                    .weight
                    .map(|w| w.zeros_like().add_scalar(gain).detach().require_grad()),
                bias: None,
            }
        };
        Net {
            embed: linear(),
            attention: Attention {
                query: linear(),
                key: linear(),
            },
        }
    }

    fn scores(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        observe::name_parameters(self);
        let x = self.embed.forward(x);
        let query = self.attention.query.forward(x.clone());
        let key = self.attention.key.forward(x);
        query.matmul(key.transpose())
    }
}

fn ones() -> Tensor<B, 3> {
    Tensor::ones([1, 4, 8], &Default::default())
}

fn o1() -> Amp {
    amp(OptLevel::O1, HalfDType::F16)
}

#[test]
fn an_overflow_of_attention_scores_is_named_in_its_module() {
    // 8 to 64 to 512 per element; 8 * 512 * 512 is 2.1e6.
    let (_, trace) = o1().scope(|| Trace::of(|| Net::new(1.0).scores(ones() * 8.0)));
    let fault = trace.fault().expect("an overflow");
    assert_eq!(fault.cause, Cause::Overflow, "{trace}");
    assert_eq!(
        (fault.op.as_str(), fault.phase),
        ("float_matmul", Phase::Forward)
    );
    assert_eq!(fault.place.path(), "attention");
    assert_eq!(fault.largest_given, 512.0);
    assert_eq!(fault.tensor.extremes.infinities(), 16);
    let said = fault.to_string();
    for part in [
        "forward",
        "float_matmul in attention",
        "f16",
        "16 inf of 16",
        "5.12e2",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(fault.advice().contains("scope::full"), "{}", fault.advice());
    // In bf16 the same scores are finite.
    let (_, trace) = amp(OptLevel::O1, HalfDType::Bf16)
        .scope(|| Trace::of(|| Net::new(1.0).scores(ones() * 8.0)));
    assert_eq!(trace.first(), None);
}

#[test]
fn a_layer_is_named_by_its_parameters_and_what_follows_it_by_the_layer() {
    let net = Net::new(0.1);
    let (_, trace) = o1().scope(|| {
        Trace::of(|| {
            let scores = net.scores(ones());
            softmax(burn::tensor::activation::relu(scores), 2)
        })
    });
    let places: Vec<String> = trace
        .records
        .iter()
        .map(|record| format!("{} {}", record.op, record.place))
        .collect();
    assert_eq!(
        places,
        [
            "linear embed",
            "linear attention.query",
            "linear attention.key",
            "float_matmul attention",
            "relu attention",
            "softmax attention",
        ]
    );
}

#[test]
fn a_number_that_overflows_in_its_cast_is_told_from_a_result_that_does() {
    let x = Tensor::<B, 2>::full([2, 2], 7e4, &Default::default());
    let (_, trace) =
        o1().scope(|| Trace::of(|| scope::module("head", || x.clone().matmul(x.ones_like()))));
    let fault = trace.fault().expect("7e4 is beyond 65504");
    assert_eq!(
        (&fault.cause, fault.role()),
        (&Cause::CastOverflow, Role::Input(0))
    );
    assert_eq!(fault.place.path(), "head");
    assert!(
        fault.to_string().contains("7.00e4 before its cast"),
        "{fault}"
    );
}

/// Divides by a norm and an epsilon that is a tensor, so that it has a dtype.
#[derive(Module, Debug)]
struct Normalise<B: Backend> {
    epsilon: Param<Tensor<B, 1>>,
}

impl Normalise<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let norm = x.clone().abs().max_dim(1);
        x / (norm + self.epsilon.val().unsqueeze())
    }
}

#[test]
fn an_epsilon_that_half_rounds_to_zero_is_found_where_it_is_missed() {
    let o3 = amp(OptLevel::O3, HalfDType::F16);
    let (_, trace) = o3.scope(|| {
        let module = o3.cast_model(Normalise {
            epsilon: Param::from_tensor(Tensor::full([1], 1e-8, &Default::default())),
        });
        let empty_row = Tensor::<B, 2>::zeros([1, 4], &Default::default()).cast(DType::F16);
        Trace::of(|| {
            observe::name_parameters(&module);
            module.forward(empty_row)
        })
    });
    let fault = trace.fault().expect("0 / 0");
    assert_eq!(
        (&fault.cause, fault.op.as_str()),
        (&Cause::Undefined, "float_div")
    );
    assert_eq!(fault.tensor.extremes.nans, 4);
    assert!(fault.advice().contains("epsilon"), "{}", fault.advice());
}

#[test]
fn a_row_that_is_masked_whole_is_found_and_a_mask_alone_is_no_fault() {
    let scores = || Tensor::<B, 2>::ones([2, 4], &Default::default());
    let masked = |rows: usize| {
        let mask = Tensor::<B, 2, burn::tensor::Bool>::from_data(
            burn::tensor::TensorData::new(
                (0..8)
                    .map(|i| i < 4 * rows || i % 4 == 3)
                    .collect::<Vec<bool>>(),
                [2, 4],
            ),
            &Default::default(),
        );
        let work = || {
            scope::module("decoder.attention", || {
                softmax(scores().mask_fill(mask, f32::NEG_INFINITY), 1)
            })
        };
        o1().scope(|| Trace::of(work)).1
    };
    assert_eq!(masked(0).first(), None, "{}", masked(0));
    let trace = masked(1);
    let fault = trace.fault().expect("a softmax over nothing");
    assert_eq!(
        (&fault.cause, fault.op.as_str()),
        (&Cause::InfinitiesMet, "softmax")
    );
    assert_eq!(fault.place.path(), "decoder.attention");
}

#[test]
fn a_nan_in_the_batch_is_found_where_it_comes_in() {
    let batch =
        ones() * Tensor::from_floats([[[f32::NAN], [1.0], [1.0], [1.0]]], &Default::default());
    let (_, trace) = o1().scope(|| Trace::of(|| Net::new(0.1).scores(batch)));
    let fault = trace.fault().expect("the batch is broken");
    assert_eq!(
        (&fault.cause, fault.role()),
        (&Cause::GivenFromOutside, Role::Input(0))
    );
    assert_eq!((fault.op.as_str(), fault.place.path()), ("linear", "embed"));
    assert_eq!(fault.tensor.extremes.nans, 8);
    assert_eq!(
        trace.findings.len(),
        1,
        "what it leads to is no finding: {trace}"
    );
}

#[test]
fn a_broken_parameter_is_named() {
    let mut net = Net::new(0.1);
    net.attention.key.weight = net
        .attention
        .key
        .weight
        .map(|w| (w / 0.0).detach().require_grad());
    let (_, trace) = o1().scope(|| Trace::of(|| net.scores(ones())));
    let fault = trace.fault().expect("an infinite weight");
    assert_eq!(
        fault.cause,
        Cause::GivenInParameter("attention.key.weight".into())
    );
}

/// One layer whose f16 gradient is 65536 at a loss scale of 65536.
fn gradient_of_one(scaling: LossScaling, floor: f32) -> Trace {
    let amp = AmpConfig::new(OptLevel::O1)
        .with_loss_scale(scaling)
        .with_min_loss_scale(floor)
        .build()
        .unwrap();
    amp.scope(|| {
        let net = Net::new(0.5);
        let _optimizer = AmpOptimizer::<_, B>::new(SgdConfig::new().init::<B, Net<B>>(), &amp);
        amp.tracer().arm();
        amp.tracer().name_parameters(&net);
        net.embed.forward(ones()).sum().backward();
        amp.tracer().take().expect("it was armed")
    })
}

#[test]
fn an_overflow_of_scaled_gradients_is_no_fault_while_the_scale_can_go_down() {
    let trace = gradient_of_one(LossScaling::Dynamic, 1.0);
    assert_eq!(trace.fault(), None, "{trace}");
    let first = trace.first().expect("an infinite gradient");
    assert_eq!(
        (&first.cause, first.phase),
        (&Cause::LossScale, Phase::Backward)
    );
    assert_eq!(
        (first.op.as_str(), first.loss_scale),
        ("linear", Some(65536.0))
    );
    assert_eq!(first.place.path(), "embed");
    assert!(
        trace
            .to_string()
            .contains("no fault: backward, linear in embed"),
        "{trace}"
    );
}

#[test]
fn an_overflow_of_gradients_at_the_floor_of_the_scale_is_a_fault() {
    let trace = gradient_of_one(LossScaling::Dynamic, 65536.0);
    let fault = trace.fault().expect("the scale cannot go down");
    assert_eq!(
        (&fault.cause, fault.phase),
        (&Cause::Overflow, Phase::Backward)
    );
}

#[test]
fn an_infinite_derivative_is_told_from_a_scale_that_is_too_high() {
    let amp = o1();
    let (_, trace) = amp.scope(|| {
        let x = Tensor::<B, 1>::zeros([4], &Default::default()).require_grad();
        Trace::of(|| scope::module("norm", || x.sqrt().sum().backward()))
    });
    let fault = trace.fault().expect("1 / 0");
    assert_eq!(
        (&fault.cause, fault.op.as_str()),
        (&Cause::SingularDerivative, "float_sqrt")
    );
    assert_eq!((fault.place.path(), fault.phase), ("norm", Phase::Backward));
}

/// The losses of some steps, the gradients of the first one, and the traces of all.
fn trained<A: AutodiffBackend, M: Trainable<A> + AutodiffModule<A>>(
    amp: &Amp,
    steps: usize,
    traced: bool,
) -> (Vec<f32>, Vec<f64>, Vec<Trace>) {
    amp.scope(|| {
        let mut model = support::net::fixed(amp.cast_model(M::new()));
        let mut optimizer = AmpOptimizer::<_, A>::new(SgdConfig::new().init(), amp);
        let (mut losses, mut first, mut traces) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..steps {
            let pass = || {
                observe::name_parameters(&model);
                let loss = model.loss(step);
                let value: f32 = loss.clone().inner().into_scalar().elem();
                (value, GradientsParams::from_grads(loss.backward(), &model))
            };
            let (value, grads) = match traced {
                true => {
                    let (result, trace) = Trace::of(pass);
                    traces.push(trace);
                    result
                }
                false => pass(),
            };
            if step == 0 {
                model.visit(&mut Collect(&grads, &mut first));
            }
            losses.push(value);
            model = optimizer.step(0.05, model, grads);
        }
        (losses, first, traces)
    })
}

/// Puts the gradients of a model's parameters behind one another.
struct Collect<'a>(&'a GradientsParams, &'a mut Vec<f64>);

impl<A: AutodiffBackend> ModuleVisitor<A> for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<A, D>>) {
        if let Some(gradient) = self.0.get::<A::InnerBackend, D>(param.id) {
            self.1.extend(gradient.into_data().iter::<f64>());
        }
    }
}

/// Trains as without the tracer. The forward pass is the same bit by bit, and so is all the rest of a
/// model in which no value is used more than twice: marks change the order in which the gradients of
/// several uses add up.
fn a_healthy_run<A: AutodiffBackend, M: Trainable<A> + AutodiffModule<A>>(uses: i32) {
    for level in [OptLevel::O1, OptLevel::O2] {
        for half in support::HALVES {
            let amp = amp(level, half);
            let (losses, gradients, _) = trained::<A, M>(&amp, 6, false);
            let (traced, seen, traces) = trained::<A, M>(&amp, 6, true);
            assert_eq!(losses[0].to_bits(), traced[0].to_bits(), "{level} {half}");
            let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
            let difference = square(&mut gradients.iter().zip(&seen).map(|(a, b)| a - b)).sqrt();
            let norm = square(&mut gradients.iter().copied()).sqrt();
            // A sum of n terms in another order differs by at most n - 1 roundings of its terms.
            let bound = f64::from(uses - 2).max(0.0) * support::unit_roundoff(half) * norm;
            assert!(
                norm > 0.0 && difference <= bound,
                "{level} {half}: {difference} of {norm}"
            );
            for trace in traces {
                assert_eq!(trace.fault(), None, "{level} {half}: {trace}");
                assert!(trace.saw_gradients);
                assert!(trace.records.len() > 10, "{}", trace.records.len());
            }
        }
    }
}

#[test]
fn a_healthy_mlp_gives_no_finding_and_trains_bit_by_bit_as_without_the_tracer() {
    a_healthy_run::<B, Mlp<B>>(2);
}

#[test]
fn a_healthy_cnn_gives_no_finding_and_trains_bit_by_bit_as_without_the_tracer() {
    a_healthy_run::<B, Cnn<B>>(2);
}

#[test]
fn a_healthy_lstm_gives_no_finding_and_trains_as_without_the_tracer() {
    // Ten time steps use each weight.
    a_healthy_run::<B, Reader<B>>(10);
}

#[test]
fn a_healthy_transformer_gives_no_finding_and_trains_as_without_the_tracer() {
    // Query, key, value and the residual use one value.
    a_healthy_run::<B, Transformer<B>>(4);
}

#[test]
fn with_gradient_checkpointing_gradients_are_still_gradients() {
    a_healthy_run::<Checkpointed, Transformer<Checkpointed>>(4);
    let amp = o1();
    let gradients = |traces: Vec<Trace>| -> Vec<(String, Vec<_>)> {
        let records = traces.into_iter().flat_map(|t| t.records);
        let mut seen: Vec<(u64, String, Vec<_>)> = records
            .filter(|record| record.phase == Phase::Backward)
            .map(|record| {
                let mut tensors: Vec<_> = record
                    .tensors
                    .iter()
                    .map(|t| (t.role, t.extremes.largest.to_bits()))
                    .collect();
                tensors.sort();
                (record.call, record.op, tensors)
            })
            .collect();
        seen.sort_by_key(|(call, ..)| *call);
        seen.into_iter()
            .map(|(_, op, tensors)| (op, tensors))
            .collect()
    };
    let plain = gradients(trained::<B, Transformer<B>>(&amp, 1, true).2);
    let checkpointed =
        gradients(trained::<Checkpointed, Transformer<Checkpointed>>(&amp, 1, true).2);
    assert!(plain.len() > 20, "{}", plain.len());
    assert_eq!(plain, checkpointed);
}

#[test]
fn without_the_inner_position_forward_is_traced_and_it_is_said_that_backward_is_not() {
    let amp = o1();
    let x = Tensor::<support::Mixed, 1>::zeros([4], &Default::default()).require_grad();
    let (grads, trace) = amp.scope(|| Trace::of(|| x.clone().sqrt().sum().backward()));
    assert!(
        x.grad(&grads)
            .is_some_and(|g| g.into_data().iter::<f32>().all(f32::is_infinite))
    );
    assert!(!trace.saw_gradients);
    assert_eq!(trace.records.len(), 2);
    let attached = AmpOptimizer::<_, support::Mixed>::new(
        SgdConfig::new().init::<support::Mixed, Linear<support::Mixed>>(),
        &amp,
    );
    let (_, trace) = amp.scope(|| Trace::of(|| x.clone().sqrt().sum().backward()));
    drop(attached);
    assert!(trace.to_string().contains("AmpBackend"), "{trace}");
}

#[test]
fn the_ring_is_bounded_and_what_left_it_was_judged() {
    let x = Tensor::<B, 2>::full([2, 2], 300.0, &Default::default());
    let (_, trace) = o1().scope(|| {
        Trace::with_capacity(4, || {
            let mut y = scope::module("early", || x.clone().matmul(x));
            for _ in 0..20 {
                y = y.clamp(0.0, 1.0);
            }
            y
        })
    });
    assert_eq!((trace.records.len(), trace.dropped), (4, 17));
    let fault = trace.fault().expect("the first of 21 calls overflowed");
    assert_eq!(fault.place.path(), "early");
}

#[test]
fn a_thread_that_is_not_watched_is_not_seen() {
    let (_, trace) = o1().scope(|| {
        Trace::of(|| {
            std::thread::spawn(|| ones().exp()).join().unwrap();
            observe::paused(|| ones().exp());
            ones().log()
        })
    });
    let ops: Vec<&str> = trace.records.iter().map(|r| r.op.as_str()).collect();
    assert_eq!(ops, ["float_log"]);
}

thread_local! {
    static EVENTS: RefCell<Vec<(log::Level, String)>> = RefCell::default();
}

struct Events;

impl log::Log for Events {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.target() == "burn_amp::trace"
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            EVENTS.with_borrow_mut(|e| e.push((record.level(), record.args().to_string())));
        }
    }

    fn flush(&self) {}
}

fn events() -> Vec<(log::Level, String)> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        log::set_logger(&Events).expect("the only logger of this process");
        log::set_max_level(log::LevelFilter::Info);
    });
    EVENTS.take()
}

/// Steps on a batch of ones times `factor` each, and says after which steps the tracer was armed.
fn steps(amp: &Amp, factors: &[f32]) -> Vec<bool> {
    amp.scope(|| {
        let mut net = Net::new(0.1);
        let mut optimizer = AmpOptimizer::<_, B>::new(SgdConfig::new().init(), amp);
        let step = |factor: &f32| {
            let loss = net.scores(ones() * *factor).mean();
            let grads = GradientsParams::from_grads(loss.backward(), &net);
            net = optimizer.step(1e-9, net.clone(), grads);
            amp.tracer().is_armed()
        };
        factors.iter().map(step).collect()
    })
}

#[test]
fn on_skip_the_step_after_a_skipped_one_is_traced_and_told() {
    events();
    let amp = AmpConfig::new(OptLevel::O1)
        .with_trace(TraceMode::OnSkip)
        .with_loss_scale(LossScaling::Static(1.0))
        .build()
        .unwrap();
    let armed = steps(&amp, &[1.0, 1e4, 1e4, 1.0, 1.0]);
    assert_eq!(armed, [false, true, true, false, false]);
    let events = events();
    let [(level, said)] = &events[..] else {
        panic!("one event: {events:?}")
    };
    assert_eq!(*level, log::Level::Warn);
    for field in [
        "op=float_matmul",
        "module=\"attention\"",
        "phase=forward",
        "fault=true",
    ] {
        assert!(said.contains(field), "{field} in {said}");
    }
    // The last traced step was a clean one.
    assert_eq!(
        amp.tracer().last().expect("two steps were traced").first(),
        None
    );
}

#[test]
fn an_optimizer_s_own_arithmetic_is_not_traced() {
    let amp = AmpConfig::new(OptLevel::O2)
        .with_trace(TraceMode::Always)
        .build()
        .unwrap();
    steps(&amp, &[1.0, 1.0, 1.0]);
    let last = amp.tracer().last().expect("every step is traced");
    let forward: Vec<&str> = last
        .records
        .iter()
        .filter(|record| record.phase == Phase::Forward)
        .map(|record| record.op.as_str())
        .collect();
    // The batch is made in the step too: `ones() * factor`.
    assert_eq!(
        forward,
        [
            "float_mul_scalar",
            "linear",
            "linear",
            "linear",
            "float_matmul",
            "float_mean"
        ]
    );
}

#[test]
fn a_skip_at_the_floor_is_told_with_the_operation_it_begins_at() {
    let amp = AmpConfig::new(OptLevel::O1)
        .with_trace(TraceMode::OnSkip)
        .with_loss_scale(LossScaling::Static(1.0))
        .build()
        .unwrap();
    steps(&amp, &[1e4, 1e4]);
    let trace = amp.tracer().last().expect("a traced step");
    assert_eq!(
        trace.fault().map(|f| f.op.as_str()),
        Some("float_matmul"),
        "{trace}"
    );
}

#[test]
fn tracing_is_a_setting_that_is_read_from_text() {
    for mode in [TraceMode::Off, TraceMode::OnSkip, TraceMode::Always] {
        assert_eq!(mode.to_string().parse::<TraceMode>().unwrap(), mode);
    }
    let error = "sometimes".parse::<TraceMode>().unwrap_err().to_string();
    assert!(error.contains("off, on_skip or always"), "{error}");
}

#[test]
fn a_trace_is_json() {
    let (_, trace) = o1().scope(|| Trace::of(|| Net::new(1.0).scores(ones() * 8.0)));
    let json = serde_json::to_value(&trace).unwrap();
    assert_eq!(json["findings"][0]["op"], "float_matmul");
    assert_eq!(json["findings"][0]["cause"], "overflow");
    assert_eq!(json["records"][0]["tensors"][0]["dtype"], "f32");
}

#[test]
fn inputs_of_another_step_are_not_taken_for_a_batch() {
    // A state that an earlier, traced step has left infinite was made by the program, not given.
    let (state, _) = o1().scope(|| Trace::of(|| ones().sub_scalar(1.0).log()));
    let (_, trace) = o1().scope(|| Trace::of(|| wave::<B, 3>([1, 4, 8], 0) + state));
    assert_eq!(trace.first(), None, "{trace}");
}
