use core::fmt;
use std::time::Duration;

use burn_amp::{CastCount, HalfDType, OptLevel};

use crate::dtypes::Dtypes;

/// What a training came to.
#[derive(Debug)]
pub struct Summary {
    pub backend: String,
    pub device: String,
    pub data: String,
    pub level: OptLevel,
    pub half: HalfDType,
    /// Numbers of samples.
    pub train: usize,
    pub test: usize,
    /// Number of test samples that the model names rightly.
    pub correct: usize,
    /// The mean loss of each epoch, never empty.
    pub losses: Vec<f32>,
    pub diverged: bool,
    /// Of training and test, without reading the data.
    pub time: Duration,
    /// Of training and test.
    pub casts: CastCount,
    pub dtypes: Dtypes,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epochs, first, last) = (
            self.losses.len(),
            self.losses[0],
            self.losses[self.losses.len() - 1],
        );
        let half = match self.level {
            OptLevel::O0 => "none".to_string(),
            _ => self.half.to_string(),
        };
        let accuracy = 100.0 * self.correct as f64 / self.test as f64;
        writeln!(f, "backend         {}", self.backend)?;
        writeln!(f, "device          {}", self.device)?;
        writeln!(
            f,
            "data            {}: {} to train, {} to test",
            self.data, self.train, self.test
        )?;
        writeln!(f, "opt level       {}", self.level)?;
        writeln!(f, "half dtype      {half}")?;
        writeln!(
            f,
            "training loss   {first:.4} in epoch 1, {last:.4} in epoch {epochs}"
        )?;
        if self.diverged {
            writeln!(f, "                diverged: the last loss is not finite")?;
        }
        writeln!(
            f,
            "test accuracy   {accuracy:.2}% ({} of {})",
            self.correct, self.test
        )?;
        writeln!(f, "time            {:.1} s", self.time.as_secs_f64())?;
        writeln!(
            f,
            "casts           {} made, {} saved",
            self.casts.made, self.casts.saved
        )?;
        writeln!(f, "weights         {}", self.dtypes.weights)?;
        writeln!(f, "activations     {}", self.dtypes.activations)?;
        writeln!(f, "gradients       {}", self.dtypes.gradients)
    }
}
