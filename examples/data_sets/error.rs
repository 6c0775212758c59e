use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{CLASSES, MIN_SIDE};

/// Data that cannot be read, or is not what its format promises.
///
/// Every message names the file and the place in it. Lines and fields count from 1, bytes and
/// samples from 0.
#[derive(Debug, Error)]
pub enum DataError {
    #[error("{}: not a directory", .path.display())]
    NoDirectory { path: PathBuf },
    #[error("{}: no file {} or {} in it", .dir.display(), .names[0], .names[1])]
    NoFile { dir: PathBuf, names: [String; 2] },
    #[error("{file}: no such file")]
    MissingFile { file: String },
    #[error("{file}: cannot be read: {source}")]
    Unreadable { file: String, source: io::Error },
    #[error("{file}: no samples in it")]
    Empty { file: String },

    #[error("{file}: line {line} has {found} fields, {expected} expected")]
    Fields {
        file: String,
        line: usize,
        found: usize,
        expected: usize,
    },
    #[error(
        "{file}: line {line}, field {field} is {found:?}: a whole number from 0 to {max} expected"
    )]
    Field {
        file: String,
        line: usize,
        field: usize,
        found: String,
        max: u8,
    },

    #[error("{file}: byte 0: magic number {found:#010x}, {expected:#010x} expected")]
    Magic {
        file: String,
        found: u32,
        expected: u32,
    },
    #[error("{file}: ends at byte {len}, inside its header of {header} bytes")]
    TruncatedHeader {
        file: String,
        len: usize,
        header: usize,
    },
    #[error(
        "{file}: ends at byte {len}, inside sample {sample}: its header promises {promised} bytes"
    )]
    Truncated {
        file: String,
        len: usize,
        sample: usize,
        promised: u128,
    },
    #[error("{file}: goes on after byte {promised}, where its header ends it: it has {len} bytes")]
    Trailing {
        file: String,
        len: usize,
        promised: u128,
    },
    #[error(
        "{file}: byte 8: images of {height}x{width} pixels, at least {MIN_SIDE}x{MIN_SIDE} expected"
    )]
    TooSmall {
        file: String,
        height: usize,
        width: usize,
    },
    #[error("{file}: sample {sample} (byte {offset}): label {label}, 0 to {} expected", CLASSES - 1)]
    Label {
        file: String,
        sample: usize,
        offset: usize,
        label: u8,
    },
    #[error("{file}: {len} bytes, a multiple of {sample} expected: the size of a sample")]
    PartialSample {
        file: String,
        len: usize,
        sample: usize,
    },
    #[error("{images} has {image_count} images, but {labels} has {label_count} labels")]
    Counts {
        images: String,
        image_count: usize,
        labels: String,
        label_count: usize,
    },
    #[error(
        "{}: training images of {}x{} pixels, but test images of {}x{}",
        .dir.display(), .train[0], .train[1], .test[0], .test[1]
    )]
    Sizes {
        dir: PathBuf,
        train: [usize; 2],
        test: [usize; 2],
    },
}
