//! What the Learner leaves in its directory.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A directory that a training cannot use.
#[derive(Debug, Error)]
pub enum ArtifactsError {
    #[error(
        "{}: holds the checkpoints of a training: add --resume to continue it, or take another \
         --artifacts directory",
        path.display()
    )]
    Occupied { path: PathBuf },
    #[error("{}: holds no checkpoint of a whole epoch to continue from", path.display())]
    NoCheckpoint { path: PathBuf },
}

/// The directory of logs and checkpoints.
pub struct Artifacts {
    dir: PathBuf,
}

impl Artifacts {
    pub fn new(dir: &Path) -> Self {
        Artifacts {
            dir: dir.to_path_buf(),
        }
    }

    /// Refuses a directory with checkpoints, which a training from the start would overwrite.
    pub fn require_empty(&self) -> Result<(), ArtifactsError> {
        match self.checkpoints().max() {
            None => Ok(()),
            Some(_) => Err(ArtifactsError::Occupied {
                path: self.dir.clone(),
            }),
        }
    }

    /// The last epoch, counted from 1, that has a checkpoint.
    pub fn last_epoch(&self) -> Result<usize, ArtifactsError> {
        self.checkpoints()
            .max()
            .ok_or(ArtifactsError::NoCheckpoint {
                path: self.dir.clone(),
            })
    }

    /// What Ctrl-C leaves behind.
    pub fn left_by_interrupt(&self) -> String {
        match self.last_epoch() {
            Ok(epoch) => format!(
                "interrupted: {} keeps the checkpoint of epoch {epoch}, --resume goes on from it",
                self.dir.display()
            ),
            Err(_) => "interrupted before the first checkpoint".to_string(),
        }
    }

    /// The epochs that have a checkpoint. The Learner writes model, optimizer and scheduler side by
    /// side, so all three must be there.
    fn checkpoints(&self) -> impl Iterator<Item = usize> {
        let dir = self.dir.join("checkpoint");
        let file = move |part: &str, epoch: usize| dir.join(format!("{part}-{epoch}.mpk"));
        let names = fs::read_dir(self.dir.join("checkpoint"));
        let names = names.into_iter().flatten().flatten();
        let epochs = names.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("model-")?
                .strip_suffix(".mpk")?
                .parse()
                .ok()
        });
        epochs.filter(move |epoch| {
            ["model", "optim", "scheduler"]
                .iter()
                .all(|part| file(part, *epoch).exists())
        })
    }
}
