use core::fmt;
use std::time::Duration;

use burn_amp::CastCount;

use crate::dtypes::Dtypes;
use crate::program::precision::Precision;
use crate::training::Progress;

/// What a training came to.
#[derive(Debug)]
pub struct Summary {
    pub backend: String,
    pub device: String,
    pub data: String,
    pub precision: Precision,
    /// Numbers of samples.
    pub train: usize,
    pub test: usize,
    /// Number of test samples that the model names rightly.
    pub correct: usize,
    /// With at least one epoch.
    pub progress: Progress,
    /// Whether the loss scale was dynamic.
    pub dynamic: bool,
    /// Optimizer steps.
    pub applied: u64,
    pub skipped: u64,
    /// Of training and test, without reading the data.
    pub time: Duration,
    /// Of training and test.
    pub casts: CastCount,
    pub dtypes: Dtypes,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epochs, first, last) = (
            self.progress.losses.len(),
            self.progress.losses[0],
            self.progress.losses[self.progress.losses.len() - 1],
        );
        let half = self.precision.half_dtype();
        let accuracy = 100.0 * self.correct as f64 / self.test as f64;
        writeln!(f, "backend         {}", self.backend)?;
        writeln!(f, "device          {}", self.device)?;
        writeln!(
            f,
            "data            {}: {} to train, {} to test",
            self.data, self.train, self.test
        )?;
        writeln!(f, "opt level       {}", self.precision.level)?;
        writeln!(f, "half dtype      {half}")?;
        writeln!(
            f,
            "training loss   {first:.4} in epoch 1, {last:.4} in epoch {epochs}"
        )?;
        if self.progress.diverged {
            writeln!(
                f,
                "                diverged: the loss or a weight is not finite"
            )?;
        }
        let kind = if self.dynamic { "dynamic" } else { "static" };
        writeln!(
            f,
            "loss scale      {kind}: {}",
            course(&self.progress.scales)
        )?;
        writeln!(
            f,
            "steps           {} applied, {} skipped",
            self.applied, self.skipped
        )?;
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

/// The course of a loss scale: where it was at first, at last, and at up to four points between.
fn course(scales: &[(usize, f32)]) -> String {
    const SHOWN: usize = 6;
    let point = |(step, scale): &(usize, f32)| match step {
        0 => format!("{scale}"),
        _ => format!("{scale} from step {step}"),
    };
    let mut points: Vec<String> = scales.iter().map(point).collect();
    if points.len() > SHOWN {
        let hidden = points.len() - SHOWN;
        points.splice(
            SHOWN / 2..SHOWN / 2 + hidden,
            [format!("({hidden} more changes)")],
        );
    }
    points.join(", ")
}

#[cfg(test)]
mod tests {
    use burn_amp::{HalfDType, OptLevel};

    use super::*;

    fn summary() -> Summary {
        Summary {
            backend: "b".to_string(),
            device: "d".to_string(),
            data: "digits".to_string(),
            precision: Precision::new(OptLevel::O3, HalfDType::F16),
            train: 40,
            test: 8,
            correct: 7,
            progress: Progress {
                losses: vec![2.0, f32::NAN],
                scales: vec![(0, 65536.0), (3, 32768.0)],
                diverged: true,
            },
            dynamic: true,
            applied: 5,
            skipped: 1,
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
        let mut finite = summary();
        finite.progress.diverged = false;
        assert!(!finite.to_string().contains("diverged"));
    }

    #[test]
    fn the_course_of_the_scale_and_the_skips_are_told() {
        let text = summary().to_string();
        assert!(
            text.contains("loss scale      dynamic: 65536, 32768 from step 3\n"),
            "{text}"
        );
        assert!(
            text.contains("steps           5 applied, 1 skipped\n"),
            "{text}"
        );
        let long: Vec<(usize, f32)> = (0..20).map(|i| (i, i as f32 + 1.0)).collect();
        assert_eq!(
            course(&long),
            "1, 2 from step 1, 3 from step 2, (14 more changes), 18 from step 17, \
             19 from step 18, 20 from step 19"
        );
    }

    #[test]
    fn o0_has_no_half_dtype() {
        let o0 = Summary {
            precision: Precision::full(),
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
