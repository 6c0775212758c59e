use core::fmt;
use core::marker::PhantomData;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use burn_mixed_precision::scope;

use crate::rescale;

/// A loss multiplied by the scale: what [`GradScaler::scale`](crate::GradScaler::scale) returns.
///
/// It has no arithmetic. All it can do is run backward.
#[derive(Debug, Clone)]
#[must_use = "a scaled loss does nothing until `backward` is called"]
pub struct ScaledLoss<B: AutodiffBackend> {
    pub(crate) loss: Tensor<B, 1>,
    /// `None` from a disabled scaler.
    pub(crate) scale: Option<f32>,
}

impl<B: AutodiffBackend> ScaledLoss<B> {
    /// The factor in this loss; 1 from a disabled scaler.
    pub fn scale(&self) -> f32 {
        self.scale.unwrap_or(1.0)
    }

    /// The scaled value, in f32 unless the loss was f64; one device-to-host read.
    pub fn to_data(&self) -> TensorData {
        self.loss.to_data()
    }

    /// Runs backward and takes the gradients of one model.
    pub fn backward<M: AutodiffModule<B>>(self, model: &M) -> ScaledGradients<B> {
        self.backward_shared().of(model)
    }

    /// Runs backward for a loss that several models with optimizers of their own contribute to.
    ///
    /// # Example: two models, one loss
    ///
    /// ```
    /// # use burn::{backend::{Autodiff, Flex}, nn::{Linear, LinearConfig}, tensor::Tensor};
    /// # use burn_grad_scaler::{GradScaler, LossScaleConfig};
    /// # let device = Default::default();
    /// # let scaler = GradScaler::new(LossScaleConfig::torch())?;
    /// type B = Autodiff<Flex>;
    ///
    /// let first: Linear<B> = LinearConfig::new(4, 3).init(&device);
    /// let second: Linear<B> = LinearConfig::new(3, 1).init(&device);
    /// let loss = second.forward(first.forward(Tensor::<B, 2>::ones([2, 4], &device))).mean();
    ///
    /// let mut grads = scaler.scale(loss).backward_shared();
    /// let (of_first, of_second) = (grads.of(&first), grads.of(&second));
    /// assert_eq!((of_first.len(), of_second.len()), (2, 2));
    /// # Ok::<(), burn_grad_scaler::LossScaleError>(())
    /// ```
    pub fn backward_shared(self) -> ScaledBackward<B> {
        ScaledBackward {
            grads: match self.scale {
                // This scaler has scaled already: one attached to the device must not do it again.
                Some(scale) => scope::scaled_by_hand(scale, || self.loss.backward()),
                None => self.loss.backward(),
            },
            scale: self.scale,
        }
    }
}

/// A backward pass whose gradients are not yet divided among models.
pub struct ScaledBackward<B: AutodiffBackend> {
    grads: B::Gradients,
    scale: Option<f32>,
}

impl<B: AutodiffBackend> ScaledBackward<B> {
    /// Takes the gradients of one model out of the pass.
    pub fn of<M: AutodiffModule<B>>(&mut self, model: &M) -> ScaledGradients<B> {
        ScaledGradients {
            grads: GradientsParams::from_module(&mut self.grads, model),
            scale: self.scale,
            backend: PhantomData,
        }
    }
}

/// Gradients that are too large by the scale they remember.
///
/// No optimizer of Burn takes them, so they cannot be stepped by mistake:
///
/// ```compile_fail
/// # use burn::{backend::{Autodiff, Flex}, nn::{Linear, LinearConfig}, tensor::Tensor};
/// # use burn::optim::{Optimizer, SgdConfig};
/// # use burn_grad_scaler::{GradScaler, LossScaleConfig};
/// # type B = Autodiff<Flex>;
/// # let device = Default::default();
/// # let scaler = GradScaler::new(LossScaleConfig::torch()).unwrap();
/// # let model: Linear<B> = LinearConfig::new(4, 1).init(&device);
/// # let mut optim = SgdConfig::new().init::<B, Linear<B>>();
/// # let loss = model.forward(Tensor::<B, 2>::ones([2, 4], &device)).mean();
/// let grads = scaler.scale(loss).backward(&model);
/// let model = optim.step(1e-3, model, grads); // not a GradientsParams
/// ```
#[must_use = "gradients do nothing until they are stepped"]
pub struct ScaledGradients<B: AutodiffBackend> {
    pub(crate) grads: GradientsParams,
    /// `None` from a disabled scaler.
    pub(crate) scale: Option<f32>,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ScaledGradients<B> {
    /// The factor in these gradients; 1 from a disabled scaler.
    pub fn scale(&self) -> f32 {
        self.scale.unwrap_or(1.0)
    }

    /// The number of parameters that have a gradient.
    pub fn len(&self) -> usize {
        self.grads.len()
    }

    /// Whether no parameter has a gradient.
    pub fn is_empty(&self) -> bool {
        self.grads.is_empty()
    }

    /// Adds the gradients of a further backward pass: one more micro-batch or one more loss.
    ///
    /// The scales may differ, as they do when the window was open across an update, or for losses
    /// with a scaler each.
    ///
    /// # Numerics
    ///
    /// Summed in f32, whatever the dtypes: two half gradients that are finite can have an infinite
    /// half sum. Under different scales the added gradients are first brought to the scale of these;
    /// with powers of two that is exact.
    pub fn accumulate<M: AutodiffModule<B>>(&mut self, model: &M, other: ScaledGradients<B>) {
        let mut mine = core::mem::take(&mut self.grads);
        let mut others = other.grads;
        if self.scale.is_some() || other.scale.is_some() {
            let (to, from) = (self.scale.unwrap_or(1.0), other.scale.unwrap_or(1.0));
            mine = rescale::widen::<B, M>(mine, model, 1.0);
            others = rescale::widen::<B, M>(others, model, f64::from(to) / f64::from(from));
            self.scale = Some(to);
        }
        self.grads = rescale::sum::<B, M>(mine, others, model);
    }
}

impl<B: AutodiffBackend> fmt::Debug for ScaledGradients<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScaledGradients")
            .field("len", &self.len())
            .field("scale", &self.scale)
            .finish()
    }
}
