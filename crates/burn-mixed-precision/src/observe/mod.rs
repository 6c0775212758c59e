//! Looking on while a program runs: every operation that the policy rules over, with its tensors.
//!
//! The ground that the [tracer](crate::Tracer), and the reports of `burn-numerics`, stand on. An
//! [`Observer`] is shown each float input and output of each call, and with
//! [`FastBackward`](crate::FastBackward) inside autodiff the gradients of each as well. Where nobody
//! looks, an operation pays for one test of a flag.
//!
//! # Numerics
//!
//! A forward pass that is looked at computes the same bits. Where a value has three uses or more, its
//! gradients may add up in another order, since marks lengthen the paths of the graph: they differ as
//! sums do whose terms change places.
//!
//! # Example: which operations ran, and in which dtype
//!
//! ```
//! use std::sync::Arc;
//!
//! use burn::backend::Flex;
//! use burn::tensor::Tensor;
//! use burn_mixed_precision::observe::{self, Call, Observer, Role, Sight};
//! use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};
//!
//! #[derive(Default)]
//! struct Names(Vec<String>);
//!
//! impl Observer for Names {
//!     fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>) {
//!         if sight.role == Role::Output {
//!             self.0.push(format!("{} {:?}", call.name(), sight.dtype));
//!         }
//!     }
//! }
//!
//! type B = MixedPrecision<Flex>;
//! let amp = AmpConfig::new(OptLevel::O1).build()?;
//! let x = Tensor::<B, 2>::ones([2, 2], &Default::default());
//! let (_, Names(seen)) = amp.scope(|| {
//!     observe::run(Names::default(), || x.clone().matmul(x).exp())
//! });
//! assert_eq!(seen, ["float_matmul F16", "float_exp F32"]);
//! # Ok::<(), burn_mixed_precision::AmpError>(())
//! ```

mod call;
mod mark;
mod names;
mod values;

use core::any::TypeId;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::module::Module;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, DeviceOps, TensorMetadata};

pub use call::{Call, Casting, Phase, Place, Role, Sight, Source};
pub(crate) use mark::of as mark;
pub(crate) use names::{Names, name};
pub use values::{Extremes, Pending, Values};

use crate::tensor::MixedTensor;
use crate::{Amp, CastCount, CastRule, Op, Policy, scope};
use values::Floats;

/// Is shown every call of an operation, on the thread or the devices that it was put on.
pub trait Observer: Send + 'static {
    /// One tensor of one call: its inputs in order, then its output; in backward the gradient of the
    /// output, then those of the inputs.
    ///
    /// Of an operation without a float output only the inputs are seen. With gradient checkpointing a
    /// tensor is computed again in backward and seen as if it were its gradient, which then follows: of
    /// several sights of the same tensor in backward the last one is the gradient.
    fn see(&mut self, call: &Arc<Call>, sight: &Sight<'_>);

    /// A backward pass begins, with the factor that its loss is multiplied by; `None` without a scaler.
    fn backward_begins(&mut self, loss_scale: Option<f32>) {
        let _ = loss_scale;
    }
}

/// Where a tensor comes from, as the tensor itself remembers while it is observed.
#[derive(Debug)]
pub(crate) enum Origin {
    Call(Arc<Call>),
    Parameter(Arc<str>),
}

/// An observer at work.
pub(crate) struct Session {
    observer: Arc<Mutex<dyn Observer>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    names: Names,
    marks: HashMap<u32, Mark>,
    /// Whether the backend of this type has somebody inside who knows marks.
    knows_marks: HashMap<TypeId, bool>,
}

/// What a mark stands for.
struct Mark {
    call: Arc<Call>,
    role: Role,
    inside: DType,
}

impl Session {
    pub(crate) fn new(observer: Arc<Mutex<dyn Observer>>) -> Arc<Self> {
        Arc::new(Session {
            observer,
            state: Mutex::default(),
        })
    }

    /// A panic in an observer leaves nothing half done that another call relies on.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn rename(&self, names: Names) {
        self.state().names = names;
    }

    fn show(&self, call: &Arc<Call>, sight: &Sight<'_>) {
        let mut observer = self.observer.lock().unwrap_or_else(|e| e.into_inner());
        observer.see(call, sight);
    }
}

/// The call that this thread is in the middle of.
struct Open {
    session: Arc<Session>,
    call: Arc<Call>,
    inputs: usize,
}

/// Sessions on devices; those of threads are counted by `WATCHED`.
static ARMED: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static PAUSED: Cell<bool> = const { Cell::new(false) };
    static IN_BACKWARD: Cell<bool> = const { Cell::new(false) };
    static SESSION: RefCell<Option<Arc<Session>>> = const { RefCell::new(None) };
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Whether anybody may be looking: all that an operation asks when nobody does.
#[inline]
pub(crate) fn is_on() -> bool {
    WATCHED.get() || ARMED.load(Ordering::Relaxed) > 0
}

pub(crate) fn arm() {
    ARMED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn disarm() {
    ARMED.fetch_sub(1, Ordering::Relaxed);
}

/// Runs a block on this thread under the eyes of an observer, and gives the observer back.
///
/// Observations nest: the inner one sees its block alone.
///
/// # Example: see the [module documentation](self)
pub fn run<O: Observer, R>(observer: O, block: impl FnOnce() -> R) -> (R, O) {
    struct Restore {
        session: Option<Arc<Session>>,
        watched: bool,
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            SESSION.set(self.session.take());
            WATCHED.set(self.watched);
            OPEN.set(None);
        }
    }
    let observer = Arc::new(Mutex::new(observer));
    let restore = Restore {
        session: SESSION.replace(Some(Session::new(observer.clone()))),
        watched: WATCHED.replace(true),
    };
    let result = block();
    drop(restore);
    let observer = Arc::into_inner(observer).expect("the session is over");
    (
        result,
        observer.into_inner().unwrap_or_else(|e| e.into_inner()),
    )
}

/// Runs a block on this thread that nobody looks at: an optimizer's step, a validation pass.
pub fn paused<R>(block: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            PAUSED.set(self.0);
        }
    }
    let _restore = Restore(PAUSED.replace(true));
    block()
}

/// Names the operations of a model by its modules, for the observation that runs on this thread.
///
/// The names hold until the parameters are updated: call it before each forward. Without an observation
/// it does nothing.
pub fn name_parameters<B: Backend, M: Module<B>>(model: &M) {
    if let Some(session) = SESSION.with_borrow(Clone::clone) {
        session.rename(Names::of(model));
    }
}

/// The session that looks at this thread's work on a device.
fn session<D: DeviceOps>(device: &D) -> Option<Arc<Session>> {
    if PAUSED.get() {
        return None;
    }
    if let Some(session) = SESSION.with_borrow(Clone::clone) {
        return Some(session);
    }
    match ARMED.load(Ordering::Relaxed) {
        0 => None,
        _ => scope::amp(device, |amp| {
            amp.and_then(|amp: &Amp| amp.tracer().session())
        }),
    }
}

/// A call begins; the answer is its number if somebody looks.
#[cold]
pub(crate) fn begin<B: Backend>(
    op: Option<Op>,
    rule: Option<CastRule>,
    inputs: &[Option<&MixedTensor<B>>],
    takes_infinity: bool,
) -> Option<u64> {
    let device = B::float_device(&inputs.iter().copied().flatten().next()?.inner);
    let session = session(&device)?;
    let rule = rule.or(op.map(|op| {
        scope::policy(
            || device.clone(),
            |policy| policy.map_or(CastRule::AsIs, |policy: &Policy| policy.rule(op)),
        )
    }));
    let call = Arc::new(Call {
        id: CALLS.fetch_add(1, Ordering::Relaxed),
        op,
        rule: rule.unwrap_or(CastRule::AsIs),
        place: place(&session, inputs),
        takes_infinity,
    });
    let id = call.id;
    OPEN.set(Some(Open {
        session,
        call,
        inputs: 0,
    }));
    Some(id)
}

/// By a parameter, else by a named block, else by where the inputs come from.
fn place<B: Backend>(session: &Session, inputs: &[Option<&MixedTensor<B>>]) -> Place {
    let origins: Vec<Arc<Origin>> = inputs
        .iter()
        .flatten()
        .filter_map(|tensor| origin_in(session, tensor))
        .collect();
    let parameter = origins.iter().find_map(|origin| match &**origin {
        Origin::Parameter(path) => Some(path),
        Origin::Call(_) => None,
    });
    if let Some(path) = parameter {
        let module = path.rsplit_once('.').map_or(&**path, |(module, _)| module);
        return Place::Module(module.into());
    }
    if let Some(block) = scope::module_path() {
        return Place::Within(block);
    }
    let mut calls: Vec<&Arc<Call>> = origins
        .iter()
        .filter_map(|origin| match &**origin {
            Origin::Call(call) => Some(call),
            Origin::Parameter(_) => None,
        })
        .collect();
    calls.sort_by_key(|call| call.id);
    let places: Vec<Place> = calls.iter().map(|call| call.place.clone()).collect();
    Place::behind(&places)
}

fn origin_in<B: Backend>(session: &Session, tensor: &MixedTensor<B>) -> Option<Arc<Origin>> {
    let known = tensor.origin().cloned();
    known.or_else(|| {
        let path = session.state().names.get(tensor)?;
        Some(Arc::new(Origin::Parameter(path)))
    })
}

/// Where a tensor comes from, as one that is made of it by moving elements inherits it.
#[cold]
pub(crate) fn origin<B: Backend>(tensor: &MixedTensor<B>) -> Option<Arc<Origin>> {
    match session(&B::float_device(&tensor.inner)) {
        Some(session) => origin_in(&session, tensor),
        None => tensor.origin().cloned(),
    }
}

/// An input of the open call: `cast` brings it to the dtype of the call.
#[cold]
pub(crate) fn input<B: Backend>(
    id: u64,
    tensor: MixedTensor<B>,
    cast: impl FnOnce(MixedTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    let Some((session, call, index)) = OPEN.with_borrow_mut(|open| {
        let open = open.as_mut().filter(|open| open.call.id == id)?;
        open.inputs += 1;
        Some((open.session.clone(), open.call.clone(), open.inputs - 1))
    }) else {
        return cast(tensor);
    };
    let source = match origin_in(&session, &tensor).as_deref() {
        Some(Origin::Call(call)) => Source::Call(call.id),
        Some(Origin::Parameter(path)) => Source::Parameter(path.clone()),
        None => Source::Outside,
    };
    let (before, count) = (tensor.inner.clone(), CastCount::now());
    let inner = cast(tensor);
    let count = CastCount::now() - count;
    let sight = Sight {
        phase: Phase::Forward,
        role: Role::Input(index),
        shape: before.shape(),
        dtype: before.dtype(),
        inside: inner.dtype(),
        source,
        casting: match (count.made, count.saved) {
            (0, 0) => Casting::None,
            (0, _) => Casting::Saved,
            _ => Casting::Made,
        },
        values: &Floats::<B>::new(before),
    };
    session.show(&call, &sight);
    put_mark::<B>(&session, &call, sight.role, sight.inside, inner)
}

/// The output of the open call, which the operation computed in the dtype `inside`.
#[cold]
pub(crate) fn output<B: Backend>(
    id: u64,
    inside: DType,
    output: FloatTensor<B>,
) -> (FloatTensor<B>, Option<Arc<Origin>>) {
    let Some((session, call)) = OPEN.with_borrow(|open| {
        let open = open.as_ref().filter(|open| open.call.id == id)?;
        Some((open.session.clone(), open.call.clone()))
    }) else {
        return (output, None);
    };
    let sight = Sight {
        phase: Phase::Forward,
        role: Role::Output,
        shape: output.shape(),
        dtype: output.dtype(),
        inside,
        source: Source::Outside,
        casting: Casting::None,
        values: &Floats::<B>::new(output.clone()),
    };
    session.show(&call, &sight);
    let output = put_mark::<B>(&session, &call, sight.role, inside, output);
    (output, Some(Arc::new(Origin::Call(call))))
}

/// Marks a tensor, so that its gradient is seen in backward.
fn put_mark<B: Backend>(
    session: &Session,
    call: &Arc<Call>,
    role: Role,
    inside: DType,
    tensor: FloatTensor<B>,
) -> FloatTensor<B> {
    let device = B::float_device(&tensor);
    if !B::ad_enabled(&device) {
        return tensor;
    }
    let known = session.state().knows_marks.get(&TypeId::of::<B>()).copied();
    let known = known.unwrap_or_else(|| {
        let known = mark::are_known::<B>(&device);
        session.state().knows_marks.insert(TypeId::of::<B>(), known);
        known
    });
    if !known {
        return tensor;
    }
    let mark = mark::new();
    let meaning = Mark {
        call: call.clone(),
        role,
        inside,
    };
    session.state().marks.insert(mark, meaning);
    B::float_mul_scalar(tensor, mark::factor(mark))
}

/// A marked tensor passes the inner position; in backward it is a gradient.
#[cold]
pub(crate) fn marked<B: Backend>(mark: u32, tensor: &FloatTensor<B>) {
    if !IN_BACKWARD.get() {
        return;
    }
    let Some(session) = session(&B::float_device(tensor)) else {
        return;
    };
    let state = session.state();
    let Some(Mark { call, role, inside }) = state.marks.get(&mark) else {
        return;
    };
    let (call, role, inside) = (call.clone(), *role, *inside);
    drop(state);
    let sight = Sight {
        phase: Phase::Backward,
        role,
        shape: tensor.shape(),
        dtype: tensor.dtype(),
        inside,
        source: Source::Outside,
        casting: Casting::None,
        values: &Floats::<B>::new(tensor.clone()),
    };
    session.show(&call, &sight);
}

/// Runs a backward pass, whose marked tensors are gradients.
pub(crate) fn backward<D: DeviceOps, R>(
    device: &D,
    loss_scale: Option<f32>,
    pass: impl FnOnce() -> R,
) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_BACKWARD.set(self.0);
        }
    }
    if !is_on() {
        return pass();
    }
    if let Some(session) = session(device) {
        let mut observer = session.observer.lock().unwrap_or_else(|e| e.into_inner());
        observer.backward_begins(loss_scale);
    }
    let _restore = Restore(IN_BACKWARD.replace(true));
    pass()
}
