//! A training on disk, to go on from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::Optimizer;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder, Recorder, RecorderError};
use burn::tensor::backend::AutodiffBackend;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cli::Options;
use crate::data_sets::TrainTest;
use crate::model::Cnn;
use crate::training::{Adam, Progress, Trained};

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

/// The checkpoint of one training: a directory.
///
/// `progress.json` names the folder that holds model and optimizer, and is replaced last. So whenever
/// the program is stopped, the directory holds one whole checkpoint.
pub struct Checkpoint {
    dir: PathBuf,
    training: Training,
}

/// What must be the same for a resumed training to be the one that never stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Training {
    data: String,
    batch_size: usize,
    epochs: usize,
    lr: f64,
    seed: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    training: Training,
    progress: Progress,
}

impl Checkpoint {
    /// The checkpoint of a training in this directory, which need not exist.
    pub fn new(dir: &Path, options: &Options, data: &TrainTest) -> Self {
        Checkpoint {
            dir: dir.to_path_buf(),
            training: Training {
                data: data.name.clone(),
                batch_size: options.batch_size,
                epochs: options.epochs,
                lr: options.lr,
                seed: options.seed,
            },
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

    /// Writes a training that has finished an epoch, and removes the one before.
    pub fn save<B: AutodiffBackend>(&self, trained: &Trained<B>) -> Result<(), CheckpointError> {
        let epoch = trained.progress.losses.len();
        let epoch_dir = self.epoch_dir(epoch);
        fs::create_dir_all(&epoch_dir).map_err(at(&epoch_dir))?;
        write::<B, _>(trained.model.clone().into_record(), epoch_dir.join("model"))?;
        let optimizer = Optimizer::<Cnn<B>, B>::to_record(&trained.optimizer);
        write::<B, _>(optimizer, epoch_dir.join("optimizer"))?;

        let saved = Saved {
            training: self.training.clone(),
            progress: trained.progress.clone(),
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

    /// Continues from the checkpoint: `fresh` with what was saved in the place of its start.
    pub fn load<B: AutodiffBackend>(
        &self,
        fresh: Trained<B>,
        device: &B::Device,
    ) -> Result<Trained<B>, CheckpointError> {
        let path = self.progress_file();
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let saved: Saved =
            serde_json::from_str(&text).map_err(|source| CheckpointError::Progress {
                path: path.clone(),
                source,
            })?;
        self.check_same(&saved.training, path)?;
        let epoch_dir = self.epoch_dir(saved.progress.losses.len());
        let model = read::<B, _>(epoch_dir.join("model"), device)?;
        let record = read::<B, _>(epoch_dir.join("optimizer"), device)?;
        let optimizer: Adam<B> =
            fresh
                .optimizer
                .try_load_record::<Cnn<B>>(record)
                .map_err(|source| CheckpointError::Optimizer {
                    path: epoch_dir,
                    source,
                })?;
        Ok(Trained {
            model: fresh.model.load_record(model),
            optimizer,
            progress: saved.progress,
        })
    }

    fn check_same(&self, saved: &Training, path: PathBuf) -> Result<(), CheckpointError> {
        let (was, now) = (saved, &self.training);
        let pairs = [
            ("data", was.data.clone(), now.data.clone()),
            (
                "--batch-size",
                was.batch_size.to_string(),
                now.batch_size.to_string(),
            ),
            // The learning rate falls to 0 at the last epoch.
            ("--epochs", was.epochs.to_string(), now.epochs.to_string()),
            ("--lr", was.lr.to_string(), now.lr.to_string()),
            ("--seed", was.seed.to_string(), now.seed.to_string()),
        ];
        match pairs.into_iter().find(|(_, was, now)| was != now) {
            Some((flag, was, now)) => Err(CheckpointError::Other {
                path,
                flag,
                was,
                now,
            }),
            None => Ok(()),
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_path_buf();
    |source| CheckpointError::File { path, source }
}

fn recorder() -> NamedMpkFileRecorder<FullPrecisionSettings> {
    NamedMpkFileRecorder::new()
}

fn write<B: AutodiffBackend, R: burn::record::Record<B>>(
    record: R,
    path: PathBuf,
) -> Result<(), CheckpointError> {
    recorder()
        .record(record, path.clone())
        .map_err(|source| CheckpointError::Record { path, source })
}

fn read<B: AutodiffBackend, R: burn::record::Record<B>>(
    path: PathBuf,
    device: &B::Device,
) -> Result<R, CheckpointError> {
    recorder()
        .load(path.clone(), device)
        .map_err(|source| CheckpointError::Record { path, source })
}
