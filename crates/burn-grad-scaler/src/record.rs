use burn::module::ParamId;
use burn::record::{FullPrecisionSettings, PrecisionSettings, Record};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, TensorData};
use burn_mixed_precision::{HalfDType, OptLevel};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{LossScale, LossScaleError};

/// What an [`AmpOptimizer`](crate::AmpOptimizer) saves: the inner optimizer's record, loss scales
/// and the f32 value of every parameter.
///
/// Saved in full precision whatever the recorder's settings are: a resumed run continues bit by
/// bit. Independent of the model's record, which a project without this crate can load.
///
/// # Checkpoints of Burn's Learner
///
/// With a recorder in full precision, such as `DefaultRecorder`, a resumed training is the one that
/// was never interrupted, bit by bit. `CompactRecorder` rounds the model's record to f16: the first
/// forward after a resume sees rounded parameters, and their exact values are back with the first
/// applied step. BatchNorm's running statistics go on from the rounded ones. Outside of the Learner
/// [`AmpOptimizer::restore_model`](crate::AmpOptimizer::restore_model) avoids both.
#[derive(Debug, Clone)]
pub struct AmpRecord<R> {
    pub(crate) state: AmpState,
    pub(crate) inner: R,
}

impl<R> AmpRecord<R> {
    /// The opt level that was in force.
    pub fn opt_level(&self) -> OptLevel {
        self.state.opt_level
    }

    /// The half dtype that was in force.
    pub fn half(&self) -> HalfDType {
        self.state.half
    }

    /// The scale of each loss with its counters.
    pub fn loss_scales(&self) -> &[LossScale] {
        &self.state.scales
    }

    /// The wrapped optimizer's own record, to go on without mixed precision.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// A record around one that the inner optimizer saved without mixed precision.
    ///
    /// Loss scales start anew and masters are taken from the model.
    pub fn from_inner(inner: R) -> Self {
        AmpRecord {
            state: AmpState {
                opt_level: OptLevel::O0,
                half: HalfDType::F16,
                scales: Vec::new(),
                weights: Vec::new(),
                applied: 0,
                skipped: 0,
            },
            inner,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AmpState {
    pub opt_level: OptLevel,
    pub half: HalfDType,
    pub scales: Vec<LossScale>,
    #[serde(with = "by_id")]
    pub weights: Vec<(ParamId, TensorData)>,
    pub applied: u64,
    pub skipped: u64,
}

/// Parameter ids as numbers: `ParamId` itself serialises through a text form.
mod by_id {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        weights: &[(ParamId, TensorData)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(weights.iter().map(|(id, data)| (id.val(), data)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(ParamId, TensorData)>, D::Error> {
        let weights = Vec::<(u64, TensorData)>::deserialize(deserializer)?;
        weights
            .into_iter()
            .map(|(id, data)| match check(&data) {
                Ok(()) => Ok((ParamId::from(id), data)),
                Err(error) => Err(serde::de::Error::custom(format!("parameter {id}: {error}"))),
            })
            .collect()
    }

    /// A value that was damaged would be noticed at the first step only, by a panic.
    fn check(data: &TensorData) -> Result<(), String> {
        let TensorData {
            bytes,
            shape,
            dtype,
        } = data;
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(format!("dtype {dtype:?}: allowed are F32 and F64"));
        }
        let size = |size: usize, dim: &usize| size.checked_mul(*dim);
        if shape.iter().try_fold(dtype.size(), size) != Some(bytes.len()) {
            let bytes = bytes.len();
            return Err(format!(
                "{bytes} bytes do not fill shape {shape} of {dtype:?}"
            ));
        }
        Ok(())
    }
}

/// The saved form of an [`AmpRecord`], versioned: a record of a version that this one does not know
/// is an error of the recorder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AmpRecordItem<I> {
    /// Version 1.
    V1(AmpRecordItemV1<I>),
}

/// Version 1 of the saved form.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AmpRecordItemV1<I> {
    state: AmpState,
    inner: I,
}

impl<B: Backend, R: Record<B>> Record<B> for AmpRecord<R> {
    /// In full precision, whatever `S` is: half moments would not resume exactly.
    type Item<S: PrecisionSettings> = AmpRecordItem<R::Item<FullPrecisionSettings>>;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        AmpRecordItem::V1(AmpRecordItemV1 {
            state: self.state,
            inner: self.inner.into_item(),
        })
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
        let AmpRecordItem::V1(item) = item;
        AmpRecord {
            state: item.state,
            inner: R::from_item(item.inner, device),
        }
    }
}

/// A record that does not fit the optimizer it is loaded into.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A saved loss scale that the present rule cannot reach.
    #[error("the record's loss scale does not fit the present settings: {0}")]
    LossScale(#[from] LossScaleError),
}
