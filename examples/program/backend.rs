//! The backends that were compiled in.

use core::fmt;

use burn::tensor::backend::Backend;

use super::precision::Precision;

/// The first line of every program: backend, device, level, half dtype.
pub fn opening<B: Backend>(device: &B::Device, precision: &Precision) -> String {
    format!("{}, {device:?}, {precision}", B::name(device))
}

/// A backend that was compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compiled {
    #[cfg(feature = "flex")]
    Flex,
    #[cfg(feature = "cuda")]
    Cuda,
    #[cfg(feature = "wgpu")]
    Wgpu,
}

impl Compiled {
    /// All of them; the first one is the default.
    pub const ALL: &[Compiled] = &[
        #[cfg(feature = "cuda")]
        Compiled::Cuda,
        #[cfg(feature = "wgpu")]
        Compiled::Wgpu,
        #[cfg(feature = "flex")]
        Compiled::Flex,
    ];
}

impl Default for Compiled {
    /// A GPU where there is one in the features.
    fn default() -> Self {
        Compiled::ALL[0]
    }
}

impl fmt::Display for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            #[cfg(feature = "flex")]
            Compiled::Flex => "flex",
            #[cfg(feature = "cuda")]
            Compiled::Cuda => "cuda",
            #[cfg(feature = "wgpu")]
            Compiled::Wgpu => "wgpu",
        })
    }
}

/// Evaluates an expression with a name for the decorated type of a [`Compiled`] backend: each arm is
/// the one line that a program changes for mixed precision.
macro_rules! with_backend {
    ($backend:expr, $B:ident => $run:expr) => {
        match $backend {
            #[cfg(feature = "flex")]
            $crate::program::backend::Compiled::Flex => {
                type $B = burn_amp::MixedPrecision<burn::backend::Autodiff<burn::backend::Flex>>;
                $run
            }
            #[cfg(feature = "cuda")]
            $crate::program::backend::Compiled::Cuda => {
                type $B = burn_amp::MixedPrecision<burn::backend::Autodiff<burn::backend::Cuda>>;
                $run
            }
            #[cfg(feature = "wgpu")]
            $crate::program::backend::Compiled::Wgpu => {
                type $B = burn_amp::MixedPrecision<burn::backend::Autodiff<burn::backend::Wgpu>>;
                $run
            }
        }
    };
}
pub(crate) use with_backend;
