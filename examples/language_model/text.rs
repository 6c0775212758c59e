//! The text, as bytes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use thiserror::Error;

const ALICE: &[u8] = include_bytes!("../data/alice.txt");

/// A text that cannot be trained on.
#[derive(Debug, Error)]
pub enum TextError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{}: {found} bytes, at least {needed} expected, of which the last tenth is for testing",
        path.display()
    )]
    Short {
        path: PathBuf,
        found: usize,
        needed: usize,
    },
}

/// What a model learns from, and what it is judged by.
#[derive(Debug)]
pub struct Text {
    /// Where it comes from, for people.
    pub name: String,
    pub train: Vec<u8>,
    /// The last tenth.
    pub test: Vec<u8>,
}

impl Text {
    /// The embedded chapters, or a share of them from 0 to 1.
    pub fn alice(share: f64) -> Self {
        let bytes = (share * ALICE.len() as f64) as usize;
        Text::split("Alice's Adventures in Wonderland", &ALICE[..bytes])
    }

    /// Reads a file, long enough for a piece of `length` bytes to test on.
    pub fn read(path: &Path, length: usize) -> Result<Self, TextError> {
        let bytes = fs::read(path).map_err(|source| TextError::Unreadable {
            path: path.to_path_buf(),
            source,
        })?;
        let needed = 10 * (length + 1);
        match bytes.len() < needed {
            true => Err(TextError::Short {
                path: path.to_path_buf(),
                found: bytes.len(),
                needed,
            }),
            false => Ok(Text::split(&path.display().to_string(), &bytes)),
        }
    }

    fn split(name: &str, bytes: &[u8]) -> Self {
        let (train, test) = bytes.split_at(bytes.len() - bytes.len() / 10);
        Text {
            name: name.to_string(),
            train: train.to_vec(),
            test: test.to_vec(),
        }
    }
}

/// Where pieces of `length` bytes begin that do not overlap, each with a byte after it.
pub fn pieces(bytes: &[u8], length: usize) -> Vec<usize> {
    (0..bytes.len().saturating_sub(length))
        .step_by(length)
        .collect()
}

/// The pieces that begin at these places, and the byte that follows each of their bytes: both
/// `[n, length]`.
pub fn batch<B: Backend>(
    bytes: &[u8],
    starts: &[usize],
    length: usize,
    device: &B::Device,
) -> [Tensor<B, 2, Int>; 2] {
    [0, 1].map(|ahead| {
        let piece = |start: &usize| bytes[start + ahead..][..length].iter();
        let tokens: Vec<i32> = starts
            .iter()
            .flat_map(piece)
            .copied()
            .map(i32::from)
            .collect();
        Tensor::from_data(TensorData::new(tokens, [starts.len(), length]), device)
    })
}
