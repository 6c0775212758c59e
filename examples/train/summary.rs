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
            writeln!(
                f,
                "                diverged: the loss or a weight is not finite"
            )?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            backend: "b".to_string(),
            device: "d".to_string(),
            data: "digits".to_string(),
            level: OptLevel::O3,
            half: HalfDType::F16,
            train: 40,
            test: 8,
            correct: 7,
            losses: vec![2.0, f32::NAN],
            diverged: true,
            time: Duration::from_millis(1250),
            casts: CastCount { made: 3, saved: 4 },
            dtypes: Dtypes::default(),
        }
    }

    #[test]
    fn a_training_that_diverged_says_so() {
        let text = summary().to_string();
        assert!(
            text.contains("\n                diverged: the loss or a weight is not finite\n"),
            "{text}"
        );
        assert!(
            text.contains("2.0000 in epoch 1, NaN in epoch 2\n"),
            "{text}"
        );
        let finite = Summary {
            diverged: false,
            ..summary()
        };
        assert!(!finite.to_string().contains("diverged"));
    }

    #[test]
    fn o0_has_no_half_dtype() {
        let o0 = Summary {
            level: OptLevel::O0,
            ..summary()
        };
        assert!(o0.to_string().contains("half dtype      none\n"));
        assert!(summary().to_string().contains("half dtype      f16\n"));
        assert!(
            summary()
                .to_string()
                .contains("test accuracy   87.50% (7 of 8)\n")
        );
    }
}
