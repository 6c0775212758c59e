//! A training on disk, to go on from.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder, Record, Recorder, RecorderError};
use burn::tensor::backend::Backend;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::flags::{Flag, FlagError};

/// A checkpoint that cannot be written or continued.
#[derive(Debug, Error)]
pub enum CheckpointError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Progress {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{}: {source}", path.display())]
    Record {
        path: PathBuf,
        source: RecorderError,
    },
    #[error("{}: {source}", path.display())]
    Optimizer {
        path: PathBuf,
        source: burn_amp::RecordError,
    },
    #[error(
        "{}: holds the checkpoint of a training: add --resume to continue it, or take another --save \
         directory",
        path.display()
    )]
    Occupied { path: PathBuf },
    #[error(
        "{}: its training had {flag} {was}, this one has {now}: take the same to continue it",
        path.display()
    )]
    Other {
        path: PathBuf,
        flag: &'static str,
        was: String,
        now: String,
    },
}

/// `--save DIR` and `--resume`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckpointFlags {
    /// The directory of the checkpoint.
    pub save: Option<PathBuf>,
    /// Needs `save`.
    pub resume: bool,
}

/// The lines of `--help`.
macro_rules! checkpoint_help {
    () => {
        "\
Checkpoints
  --save DIR               keep a checkpoint in DIR, written anew after every epoch; without
                           --resume DIR must not hold one yet
  --resume                 continue from the checkpoint in the --save directory: the result is that
                           of a training that never stopped, bit by bit

Ctrl-C ends the training after its step; the checkpoint of the last whole epoch stays.
"
    };
}
pub(crate) use checkpoint_help;

impl CheckpointFlags {
    /// Whether the flag was one of these.
    pub fn take(&mut self, flag: &mut Flag) -> Result<bool, FlagError> {
        match flag.name() {
            "save" => self.save = Some(flag.path()?),
            "resume" => self.resume = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses to resume from nowhere.
    pub fn finish(self) -> Result<Self, FlagError> {
        match self.resume && self.save.is_none() {
            true => Err(FlagError::ResumeNeedsSave),
            false => Ok(self),
        }
    }

    /// What Ctrl-C in an epoch, counted from 1, leaves behind.
    pub fn left_by_interrupt(&self, epoch: usize) -> String {
        match &self.save {
            Some(_) if epoch == 1 => {
                "interrupted in epoch 1, before the first checkpoint".to_string()
            }
            Some(dir) => format!(
                "interrupted in epoch {epoch}: {} keeps the checkpoint of epoch {}, --resume goes on \
                 from it",
                dir.display(),
                epoch - 1
            ),
            None => format!("interrupted in epoch {epoch}; --save DIR would keep a checkpoint"),
        }
    }
}

/// The checkpoint of one training: a directory.
///
/// `progress.json` names the epoch whose folder holds model and optimizer, and is replaced last. So
/// whenever the program is stopped, the directory holds one whole checkpoint.
pub struct Checkpoint {
    dir: PathBuf,
    /// What must be the same for a resumed training to be the one that never stopped: flags, or
    /// other names, with their values.
    training: Vec<(&'static str, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<P> {
    training: BTreeMap<String, String>,
    /// Counts from 1.
    epoch: usize,
    progress: P,
}

/// What a checkpoint holds.
pub struct Loaded<M, O, P> {
    pub model: M,
    pub optimizer: O,
    pub progress: P,
}

impl Checkpoint {
    /// The checkpoint of a training in this directory, which need not exist.
    pub fn new(dir: &Path, training: Vec<(&'static str, String)>) -> Self {
        Checkpoint {
            dir: dir.to_path_buf(),
            training,
        }
    }

    /// Refuses a directory with a checkpoint, which a training from the start would overwrite.
    pub fn require_empty(&self) -> Result<(), CheckpointError> {
        let path = self.progress_file();
        match path.exists() {
            true => Err(CheckpointError::Occupied { path }),
            false => Ok(()),
        }
    }

    fn progress_file(&self) -> PathBuf {
        self.dir.join("progress.json")
    }

    fn epoch_dir(&self, epoch: usize) -> PathBuf {
        self.dir.join(format!("epoch-{epoch}"))
    }

    /// Writes a training that has finished this epoch, and removes the one before.
    pub fn save<B: Backend>(
        &self,
        epoch: usize,
        model: impl Record<B>,
        optimizer: impl Record<B>,
        progress: &impl Serialize,
    ) -> Result<(), CheckpointError> {
        let epoch_dir = self.epoch_dir(epoch);
        fs::create_dir_all(&epoch_dir).map_err(at(&epoch_dir))?;
        write(model, epoch_dir.join("model"))?;
        write(optimizer, epoch_dir.join("optimizer"))?;

        let named = |(name, value): &(&str, String)| (name.to_string(), value.clone());
        let saved = Saved {
            training: self.training.iter().map(named).collect(),
            epoch,
            progress,
        };
        let new = self.dir.join("progress.json.new");
        let text = serde_json::to_string_pretty(&saved).expect("numbers and text");
        fs::write(&new, text).map_err(at(&new))?;
        let progress_file = self.progress_file();
        fs::rename(&new, &progress_file).map_err(at(&progress_file))?;
        if epoch > 1 {
            // A leftover costs disk, not correctness.
            let _ = fs::remove_dir_all(self.epoch_dir(epoch - 1));
        }
        Ok(())
    }

    /// Reads what was saved last.
    pub fn load<B: Backend, M: Record<B>, O: Record<B>, P: DeserializeOwned>(
        &self,
        device: &B::Device,
    ) -> Result<Loaded<M, O, P>, CheckpointError> {
        let path = self.progress_file();
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let saved: Saved<P> =
            serde_json::from_str(&text).map_err(|source| CheckpointError::Progress {
                path: path.clone(),
                source,
            })?;
        self.check_same(&saved.training, path)?;
        let epoch_dir = self.epoch_dir(saved.epoch);
        Ok(Loaded {
            model: read(epoch_dir.join("model"), device)?,
            optimizer: read(epoch_dir.join("optimizer"), device)?,
            progress: saved.progress,
        })
    }

    /// The error of an optimizer that refused what [`load`](Checkpoint::load) read for it.
    pub fn refused(&self, source: burn_amp::RecordError) -> CheckpointError {
        CheckpointError::Optimizer {
            path: self.dir.clone(),
            source,
        }
    }

    fn check_same(
        &self,
        saved: &BTreeMap<String, String>,
        path: PathBuf,
    ) -> Result<(), CheckpointError> {
        for (flag, now) in &self.training {
            let was = saved.get(*flag).map_or("nothing", String::as_str);
            if was != now {
                return Err(CheckpointError::Other {
                    path,
                    flag,
                    was: was.to_string(),
                    now: now.clone(),
                });
            }
        }
        Ok(())
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_path_buf();
    |source| CheckpointError::File { path, source }
}

fn recorder() -> NamedMpkFileRecorder<FullPrecisionSettings> {
    NamedMpkFileRecorder::new()
}

fn write<B: Backend>(record: impl Record<B>, path: PathBuf) -> Result<(), CheckpointError> {
    recorder()
        .record(record, path.clone())
        .map_err(|source| CheckpointError::Record { path, source })
}

fn read<B: Backend, R: Record<B>>(path: PathBuf, device: &B::Device) -> Result<R, CheckpointError> {
    recorder()
        .load(path.clone(), device)
        .map_err(|source| CheckpointError::Record { path, source })
}
