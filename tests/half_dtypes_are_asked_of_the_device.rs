//! A device that cannot compute in a half dtype is refused or trains in f32, as the configuration says.
//!
//! On the CPU backend every half dtype is there; Vulkan has no arithmetic in bf16 (run with
//! `--features wgpu`), so both answers are those of a real device.

mod support;

use burn::tensor::{DType, Tensor};
use burn_amp::{AmpConfig, AmpError, Capability, OptLevel};
use support::{HALVES, Mixed, computes_in};

#[test]
fn a_missing_half_dtype_is_an_error_or_f32() {
    let device = Default::default();
    for (level, half) in OptLevel::ALL
        .into_iter()
        .flat_map(|level| HALVES.map(|half| (level, half)))
    {
        let config = AmpConfig::new(level).with_half(half);
        let can = level == OptLevel::O0 || computes_in(half.dtype());
        println!("{device:?}, {level} in {half}: {can}");

        match config.clone().init::<Mixed>(&device) {
            Ok(_) => assert!(can, "{level} in {half} was accepted"),
            Err(error) => {
                assert!(!can && matches!(error, AmpError::UnsupportedHalf { .. }));
                let message = error.to_string();
                assert!(message.contains(&half.to_string()), "{message}");
            }
        }

        let fallback = config.with_capability(Capability::Fallback);
        let amp = fallback.init::<Mixed>(&device).unwrap();
        let expected = if can { level } else { OptLevel::O0 };
        assert_eq!(amp.config().opt_level(), expected);
        let ones = Tensor::<Mixed, 2>::ones([8, 8], &device);
        let product = ones.clone().matmul(ones);
        let dtype = match expected {
            OptLevel::O0 => DType::F32,
            _ => half.dtype(),
        };
        assert_eq!(product.dtype(), dtype);
        let sum = product.cast(DType::F32).sum().into_scalar();
        assert_eq!(sum, 512.0);
    }
}
