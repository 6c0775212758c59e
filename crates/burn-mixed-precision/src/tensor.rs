use core::any::Any;
use std::sync::{Arc, Mutex};

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, Shape, TensorMetadata};

use crate::observe::{self, Origin};
use crate::{HalfDType, cast, counter};

/// The float tensor of [`MixedPrecision`](crate::MixedPrecision): the inner backend's tensor, and
/// for parameters and f32 results a shared slot for its half copy.
///
/// Clones share the slot, so a weight that is used many times in a step is cast once. A tensor
/// never changes, so the copy never goes stale: it dies with the tensor, and a parameter that the
/// optimizer updates is a new tensor.
#[derive(Debug, Clone)]
pub struct MixedTensor<B: Backend> {
    pub(crate) inner: FloatTensor<B>,
    slot: Option<Arc<CastSlot<B>>>,
    /// Where it comes from, while somebody [observes](crate::observe).
    origin: Option<Arc<Origin>>,
}

/// The half copies of one tensor, one per half dtype.
#[derive(Debug)]
struct CastSlot<B: Backend> {
    copies: Mutex<[Option<FloatTensor<B>>; 2]>,
}

impl<B: Backend> Default for CastSlot<B> {
    fn default() -> Self {
        CastSlot {
            copies: Mutex::new([None, None]),
        }
    }
}

impl<B: Backend> CastSlot<B> {
    /// A panic inside a cast leaves no half-written copy, so a poisoned lock is still sound.
    fn lock(&self) -> std::sync::MutexGuard<'_, [Option<FloatTensor<B>>; 2]> {
        self.copies.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<B: Backend> MixedTensor<B> {
    /// Wraps a tensor of the inner backend, without a slot: its casts are not cached.
    pub fn new(inner: FloatTensor<B>) -> Self {
        MixedTensor {
            inner,
            slot: None,
            origin: None,
        }
    }

    /// The same elements in another arrangement, by an operation that computes nothing.
    pub(crate) fn moved(self, arrange: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>) -> Self {
        let origin = match observe::is_on() {
            true => observe::origin(&self),
            false => None,
        };
        MixedTensor::new(arrange(self.inner)).coming_from(origin)
    }

    /// With a slot of its own: its half copy is worth keeping.
    pub(crate) fn keeping_copies(self) -> Self {
        MixedTensor {
            slot: Some(Arc::default()),
            ..self
        }
    }

    /// Notes where it comes from.
    pub(crate) fn coming_from(self, origin: Option<Arc<Origin>>) -> Self {
        MixedTensor { origin, ..self }
    }

    pub(crate) fn origin(&self) -> Option<&Arc<Origin>> {
        self.origin.as_ref()
    }

    /// The slot, by which clones of one tensor know each other.
    pub(crate) fn slot(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.slot.clone().map(|slot| slot as _)
    }

    /// The tensor of the inner backend, in the dtype it has.
    pub fn into_inner(self) -> FloatTensor<B> {
        self.inner
    }

    pub(crate) fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// The half copy, computed on first use.
    pub(crate) fn lowered(self, half: HalfDType) -> FloatTensor<B> {
        let Some(slot) = &self.slot else {
            return cast::to_dtype::<B>(self.inner, half.float_dtype());
        };
        let copy = &mut slot.lock()[half as usize];
        if let Some(copy) = copy {
            counter::saved();
            return copy.clone();
        }
        let lowered = lower_leaf_as_leaf::<B>(self.inner.clone(), half);
        copy.insert(lowered).clone()
    }

    /// The half copies made so far.
    pub(crate) fn copies(&self) -> Vec<FloatTensor<B>> {
        match &self.slot {
            Some(slot) => slot.lock().iter().flatten().cloned().collect(),
            None => Vec::new(),
        }
    }

    /// The same tensor on another backend, its half copies carried along.
    pub(crate) fn map<C: Backend>(
        self,
        convert: impl Fn(FloatTensor<B>) -> FloatTensor<C>,
    ) -> MixedTensor<C> {
        MixedTensor {
            slot: self.slot.map(|slot| {
                let copies = slot.lock().each_ref().map(|c| c.clone().map(&convert));
                Arc::new(CastSlot {
                    copies: Mutex::new(copies),
                })
            }),
            inner: convert(self.inner),
            origin: self.origin,
        }
    }
}

/// Casts to half so that the copy outlives the autodiff graph it is used in.
///
/// The copy of a tracked leaf becomes a tracked leaf itself. Recorded as an operation on the leaf,
/// the cast would be consumed by the first backward pass that reaches it, and a second graph that
/// shares it would silently lose the leaf's gradient. `AutodiffBackend::grad` adds the copy's
/// gradient to the leaf's. Any other tensor belongs to one graph anyway: its cast is recorded.
fn lower_leaf_as_leaf<B: Backend>(tensor: FloatTensor<B>, half: HalfDType) -> FloatTensor<B> {
    if !B::float_is_require_grad(&tensor) {
        return cast::to_dtype::<B>(tensor, half.float_dtype());
    }
    let untracked = B::float_set_require_grad(tensor, false);
    let lowered = cast::to_dtype::<B>(untracked, half.float_dtype());
    B::float_set_require_grad(lowered, true)
}

impl<B: Backend> TensorMetadata for MixedTensor<B> {
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    fn shape(&self) -> Shape {
        self.inner.shape()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }
}
