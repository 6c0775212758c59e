//! Casting for operations that Burn does not know: kernels of a backend extension.

use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;

use crate::cast::Plan;
use crate::tensor::MixedTensor;
use crate::{CastRule, scope};

/// Runs a custom operation with its float inputs cast as a rule says.
///
/// The hook for backend extensions. A crate that adds an operation to Burn has a trait of its own,
/// implemented for concrete backends; implement it for `MixedPrecision<B>` as well, with this
/// function around the call to `B`. The casts are part of the autodiff graph, so gradients come
/// back in the dtypes of the inputs. With the policy off the inputs arrive untouched.
///
/// Source of the idea: torch's `custom_fwd(cast_inputs=...)` and Apex's `register_half_function`.
///
/// # Example: a kernel that takes only f32
///
/// ```
/// use burn::tensor::backend::Backend;
/// use burn::tensor::ops::FloatTensor;
/// use burn_mixed_precision::{CastRule, MixedPrecision, MixedTensor, custom};
///
/// trait FusedBackend: Backend {
///     fn fused_scale_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;
/// }
///
/// impl<B: FusedBackend> FusedBackend for MixedPrecision<B> {
///     fn fused_scale_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
///         custom::run(CastRule::Full, [x, y], |[x, y]| B::fused_scale_add(x, y))
///     }
/// }
/// ```
pub fn run<B: Backend, const N: usize>(
    rule: CastRule,
    inputs: [MixedTensor<B>; N],
    operation: impl FnOnce([FloatTensor<B>; N]) -> FloatTensor<B>,
) -> MixedTensor<B> {
    let plan = match inputs.first() {
        None => Plan::UNTOUCHED,
        Some(first) => scope::policy(
            || B::float_device(&first.inner),
            |policy| Plan::under(policy, |_| rule, inputs.iter()),
        ),
    };
    let plan = plan.observed_custom(rule, &inputs.each_ref().map(Some));
    plan.finish(operation(inputs.map(|input| plan.cast(input))))
}
