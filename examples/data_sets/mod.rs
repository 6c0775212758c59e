//! The data sets that the examples train on.

pub mod cifar10;
pub mod digits;
mod error;
pub mod idx;
mod samples;

pub use error::DataError;
pub use samples::Samples;

/// Number of classes of every data set here: the digits 0 to 9, or CIFAR's ten things.
pub const CLASSES: usize = 10;

/// Smallest height and width of an image: enough for two layers of 2x2 pooling.
pub const MIN_SIDE: usize = 4;

/// What a model learns from, and what it is judged by.
#[derive(Debug)]
pub struct TrainTest {
    /// Where the samples come from, for people.
    pub name: String,
    /// Never empty.
    pub train: Samples,
    /// Never empty, and of the same image size as `train`.
    pub test: Samples,
}
