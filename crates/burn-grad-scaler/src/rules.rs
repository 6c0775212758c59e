//! The loss-scale rules of other frameworks, as configurations.
//!
//! Every constructor gives the framework's own defaults. Commits are those of the sources read.

use crate::{AtFloorPolicy, HysteresisRefill, LossScaleConfig};

impl LossScaleConfig {
    /// The rule of torch's `GradScaler`.
    ///
    /// 2^16, x2 after 2000 clean steps in a row, x0.5 at each overflow. No floor, so the scale can
    /// fall below 1 and in the end to 0; no cap, but growth to infinity is refused. Also the rule of
    /// `ShardedGradScaler`, apex's `transformer.amp.GradScaler`, Lightning and accelerate.
    ///
    /// torch compares the clean steps with the interval for equality, so there an interval shortened
    /// in mid-run below the current count stops growth until the next overflow; here it grows at the
    /// next clean step.
    ///
    /// Source: pytorch `torch/amp/grad_scaler.py` (0202916) and
    /// `aten/src/ATen/native/cpu/AmpGradScalerKernels.cpp` (e402fa8), the twin of the CUDA kernel
    /// in `aten/src/ATen/native/cuda/AmpKernels.cu`, which lacked the guard in older releases.
    ///
    /// # Example: torch's rule, with a floor
    ///
    /// ```
    /// use burn_grad_scaler::LossScaleConfig;
    ///
    /// let mut scale = LossScaleConfig::torch().with_init(2.0).with_floor(1.0).init()?;
    /// assert_eq!(scale.update(true).after, 1.0);
    /// assert_eq!(scale.update(true).after, 1.0);
    /// # Ok::<(), burn_grad_scaler::LossScaleError>(())
    /// ```
    pub fn torch() -> Self {
        Self {
            floor: 0.0,
            cap: None,
            at_floor: AtFloorPolicy::Continue,
            ..Self::default()
        }
    }

    /// The rule of apex's `amp.LossScaler`, the dynamic scale of opt levels O1 and O2.
    ///
    /// 2^16, x2 after 2000 clean steps in a row, x0.5 at each overflow, cap 2^24, no floor
    /// (`min_loss_scale` unset, or 0). `max_loss_scale` is [`cap`](Self::cap), `min_loss_scale` is
    /// [`floor`](Self::floor).
    ///
    /// apex ignores its `scale_factor` argument and always uses 2; it lowers a start above the cap to
    /// the cap, where this crate reports it.
    ///
    /// Source: apex `apex/amp/scaler.py` (e13873d, the last commit with `amp`).
    pub fn apex() -> Self {
        Self {
            floor: 0.0,
            at_floor: AtFloorPolicy::Continue,
            ..Self::default()
        }
    }

    /// The rule of apex's `fp16_utils.DynamicLossScaler`, the dynamic scale of `FP16_Optimizer`.
    ///
    /// 2^32, x2 after 1000 clean steps in a row, /2 at each overflow, hard floor 1, no cap and no
    /// guard. Its one `scale_factor` is both [`growth_factor`](Self::growth_factor) and the inverse
    /// of [`backoff_factor`](Self::backoff_factor).
    ///
    /// apex grows when the steps since the last overflow are a multiple of the window, which is the
    /// same as counting clean steps and starting over at growth. Its scale is a Python float, so it
    /// grows past f32's 2^128 where this one becomes infinite.
    ///
    /// Source: apex `apex/fp16_utils/loss_scaler.py` (e13873d).
    pub fn apex_fp16_utils() -> Self {
        Self {
            init: 2f32.powi(32),
            growth_interval: 1000,
            cap: None,
            finite_guard: false,
            at_floor: AtFloorPolicy::Continue,
            ..Self::default()
        }
    }

    /// The rule of apex's `update_scale_hysteresis` kernel.
    ///
    /// torch's rule with hysteresis: the overflows before the last of `hysteresis` in a row only
    /// reset the clean steps, that one and every further one in the row back off, a clean step
    /// starts the count again. No floor: backoff may reach 0. The kernel takes every number as an
    /// argument; the ones here are torch's, and Megatron's hysteresis of 2.
    ///
    /// Source: apex `csrc/update_scale_hysteresis.cu` (6424da3).
    pub fn apex_hysteresis() -> Self {
        Self {
            hysteresis: 2,
            ..Self::torch()
        }
    }

    /// The rule of Megatron-LM's `DynamicGradScaler`.
    ///
    /// 2^32, x2 after 1000 clean steps in a row, x0.5 at an overflow once 2 have occurred since the
    /// scale last grew (not only in a row, although its docs say so), floor 1, no cap and no guard.
    /// Megatron's flags do not expose the two factors.
    ///
    /// Source: Megatron-LM `megatron/core/optimizer/grad_scaler.py` (00caa53), numbers from
    /// `megatron/core/optimizer/optimizer_config.py` (0075637).
    pub fn megatron() -> Self {
        Self {
            hysteresis: 2,
            hysteresis_refill: HysteresisRefill::AtGrowth,
            ..Self::apex_fp16_utils()
        }
    }

    /// The rule of DeepSpeed's `DynamicLossScaler`, the fp16 scale of its ZeRO optimizers.
    ///
    /// 2^16, x2, /2, hysteresis 2 over all overflows since the last growth, floor 1, and an error at
    /// an overflow on the floor. The window of 1000 is off by one: the first growth after the start
    /// or an overflow needs 1001 clean steps, further ones 1000. No cap, no guard.
    ///
    /// When DeepSpeed raises it leaves its counters alone; here the overflow still counts. Its scale
    /// is a Python float, as in [`apex_fp16_utils`](Self::apex_fp16_utils).
    ///
    /// Source: DeepSpeed `deepspeed/runtime/fp16/loss_scaler.py`, numbers from
    /// `deepspeed/runtime/precision_config.py` (both edaa722).
    pub fn deepspeed() -> Self {
        Self {
            init: 65536.0,
            growth_delay: 1,
            at_floor: AtFloorPolicy::Error,
            ..Self::megatron()
        }
    }

    /// The rule of [`deepspeed`](Self::deepspeed) with `consecutive_hysteresis` on.
    ///
    /// A clean step starts the count of overflows again, so isolated ones never lower the scale.
    ///
    /// Source: as for [`deepspeed`](Self::deepspeed).
    pub fn deepspeed_consecutive() -> Self {
        Self {
            hysteresis_refill: HysteresisRefill::EachCleanStep,
            ..Self::deepspeed()
        }
    }

    /// The rule of DeepSpeed's fused `FP16_Optimizer`, used without ZeRO.
    ///
    /// As [`deepspeed`](Self::deepspeed), but it ignores hysteresis, stays on the floor without an
    /// error, and starts at 2^32 when no configuration file is given (2^16 with one). The unfused
    /// optimizer follows the same rule from 2^16 with floor 0.25. A later commit (051b9c8) honours
    /// hysteresis here: add `with_hysteresis(2)`.
    ///
    /// Source: DeepSpeed `deepspeed/runtime/fp16/fused_optimizer.py`, numbers from
    /// `deepspeed/runtime/fp16/loss_scaler.py` (both edaa722).
    pub fn deepspeed_fused() -> Self {
        Self {
            init: 2f32.powi(32),
            hysteresis: 1,
            at_floor: AtFloorPolicy::Continue,
            ..Self::deepspeed()
        }
    }

    /// The rule of JMP's `DynamicLossScale`.
    ///
    /// x2 after 2000 clean steps in a row, /2 at each overflow, floor 1, growth to infinity refused.
    /// JMP has no default start; 2^15 is the one in its README. Its one `factor` works both ways.
    ///
    /// JMP's guard works in the dtype of its scale, so an f16 scale stops at 2^15; here the scale is
    /// f32. Rebuilding JMP's scale from a pytree loses a floor other than 1.
    ///
    /// Source: jmp `jmp/_src/loss_scale.py` (9c1cdbb).
    pub fn jmp() -> Self {
        Self {
            init: 32768.0,
            cap: None,
            at_floor: AtFloorPolicy::Continue,
            ..Self::default()
        }
    }

    /// The rule of Keras 3's `LossScaleOptimizer`.
    ///
    /// 2^15, x2 after 2000 clean steps in a row, /2 at each overflow. No floor, no cap and no guard:
    /// the scale can become 0 or infinite and then stays.
    ///
    /// Source: keras `keras/src/optimizers/loss_scale_optimizer.py` (054e295).
    pub fn keras() -> Self {
        Self {
            init: 32768.0,
            finite_guard: false,
            ..Self::torch()
        }
    }

    /// The rule of Keras 2's `LossScaleOptimizer` (tf-keras).
    ///
    /// 2^15, x2 after 2000 clean steps in a row, /2 at each overflow, floor 1, growth to infinity
    /// refused: the same as [`jmp`](Self::jmp).
    ///
    /// Source: tf-keras `tf_keras/mixed_precision/loss_scale_optimizer.py` (6add81a).
    pub fn tf_keras() -> Self {
        Self::jmp()
    }

    /// The rule of Paddle's `GradScaler`.
    ///
    /// 2^16, x2 after 2000 clean steps in a row, x0.5 at each overflow, floor 1, growth to infinity
    /// refused. `decr_every_n_nan_or_inf` is [`hysteresis`](Self::hysteresis), with a difference to
    /// apex's kernel: each backoff starts the count of overflows again.
    ///
    /// Source: Paddle `paddle/phi/kernels/impl/amp_kernel_impl.h` (20ffb9f), numbers from
    /// `python/paddle/amp/grad_scaler.py` (00816fc).
    pub fn paddle() -> Self {
        Self {
            hysteresis_refill: HysteresisRefill::EachCleanStepAndBackoff,
            cap: None,
            at_floor: AtFloorPolicy::Continue,
            ..Self::default()
        }
    }
}
