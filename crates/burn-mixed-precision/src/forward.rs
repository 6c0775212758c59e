use burn::tensor::{Bool, Int, Tensor};
use burn_backend::{Backend, DType, FloatDType};

use crate::{Amp, HalfDType, ModelType};

/// Values whose floating-point tensors can change their dtype: tensors, and tuples, arrays, vectors
/// and options of them.
///
/// Integer and boolean tensors and f64 ones stay as they are.
pub trait CastFloats {
    /// The same value with its f32, f16 and bf16 tensors in this dtype.
    #[must_use]
    fn cast_floats(self, dtype: FloatDType) -> Self;
}

impl<B: Backend, const D: usize> CastFloats for Tensor<B, D> {
    fn cast_floats(self, dtype: FloatDType) -> Self {
        match self.dtype() {
            DType::F64 => self,
            _ => self.cast(dtype),
        }
    }
}

impl<B: Backend, const D: usize> CastFloats for Tensor<B, D, Int> {
    fn cast_floats(self, _dtype: FloatDType) -> Self {
        self
    }
}

impl<B: Backend, const D: usize> CastFloats for Tensor<B, D, Bool> {
    fn cast_floats(self, _dtype: FloatDType) -> Self {
        self
    }
}

impl<T: CastFloats> CastFloats for Option<T> {
    fn cast_floats(self, dtype: FloatDType) -> Self {
        self.map(|value| value.cast_floats(dtype))
    }
}

impl<T: CastFloats> CastFloats for Vec<T> {
    fn cast_floats(self, dtype: FloatDType) -> Self {
        self.into_iter()
            .map(|value| value.cast_floats(dtype))
            .collect()
    }
}

impl<T: CastFloats, const N: usize> CastFloats for [T; N] {
    fn cast_floats(self, dtype: FloatDType) -> Self {
        self.map(|value| value.cast_floats(dtype))
    }
}

macro_rules! tuples {
    ($(($($value:ident),+))*) => {
        $(
            #[allow(non_snake_case, reason = "type and value share a name in the expansion")]
            impl<$($value: CastFloats),+> CastFloats for ($($value,)+) {
                fn cast_floats(self, dtype: FloatDType) -> Self {
                    let ($($value,)+) = self;
                    ($($value.cast_floats(dtype),)+)
                }
            }
        )*
    };
}

tuples! { (T0) (T0, T1) (T0, T1, T2) (T0, T1, T2, T3) (T0, T1, T2, T3, T4) (T0, T1, T2, T3, T4, T5) }

impl Amp {
    /// Runs a model with its inputs and outputs cast as the opt level says: at O2 and O3 inputs to
    /// half and outputs to f32.
    ///
    /// What Apex patches a model's `forward` to do. Optional here: operations that need f32 widen
    /// half outputs by themselves. It matters for outputs that leave the program, for losses that
    /// are not made of such operations, and at O3, where little is widened.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::backend::Flex;
    /// use burn::nn::{Linear, LinearConfig};
    /// use burn::tensor::{DType, Tensor};
    /// use burn_mixed_precision::{AmpConfig, MixedPrecision, OptLevel};
    ///
    /// type B = MixedPrecision<Flex>;
    ///
    /// let amp = AmpConfig::new(OptLevel::O2).build()?;
    /// amp.scope(|| {
    ///     let model: Linear<B> = amp.cast_model(LinearConfig::new(4, 2).init(&Default::default()));
    ///     let x = Tensor::<B, 2>::ones([1, 4], &Default::default());
    ///     assert_eq!(model.forward(x.clone()).dtype(), DType::F16);
    ///     assert_eq!(amp.forward(x, |x| model.forward(x)).dtype(), DType::F32);
    /// });
    /// # Ok::<(), burn_mixed_precision::AmpError>(())
    /// ```
    ///
    /// Source: apex/amp/_initialize.py, `patch_forward`.
    pub fn forward<I: CastFloats, O: CastFloats>(&self, input: I, model: impl FnOnce(I) -> O) -> O {
        let half: HalfDType = self.config().half();
        let input = match self.config().cast_model_type() {
            Some(ModelType::Half) => input.cast_floats(half.float_dtype()),
            _ => input,
        };
        let output = model(input);
        match self.config().cast_model_outputs() {
            Some(ModelType::F32) => output.cast_floats(FloatDType::F32),
            Some(ModelType::Half) => output.cast_floats(half.float_dtype()),
            None => output,
        }
    }
}
