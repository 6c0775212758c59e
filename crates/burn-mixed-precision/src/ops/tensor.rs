use core::future::Future;

use burn_backend::ops::{FloatTensorOps, GridSampleOptions};
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{
    Backend, BoolDType, DType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape,
    Slice, TensorData, TensorMetadata,
};

use super::created::created;
use super::host_read::{reads_full, widen};
use crate::cast::{Plan, arithmetic, binary, compare, compare_scalar, read, unary, with_scalars};
use crate::tensor::MixedTensor;
use crate::{MixedPrecision, Op, counter, observe};

impl<B: Backend> FloatTensorOps<Self> for MixedPrecision<B> {
    fn float_from_data(data: TensorData, device: &Device<Self>) -> FloatTensor<Self> {
        MixedTensor::new(B::float_from_data(data, device))
    }

    fn float_random(
        shape: Shape,
        distribution: Distribution,
        device: &Device<Self>,
        dtype: FloatDType,
    ) -> FloatTensor<Self> {
        MixedTensor::new(B::float_random(shape, distribution, device, dtype))
    }

    fn float_zeros(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        MixedTensor::new(B::float_zeros(shape, device, dtype))
    }

    fn float_ones(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        MixedTensor::new(B::float_ones(shape, device, dtype))
    }

    fn float_full(
        shape: Shape,
        fill_value: Scalar,
        device: &Device<Self>,
        dtype: FloatDType,
    ) -> FloatTensor<Self> {
        let fill_value = created(fill_value, device, dtype);
        MixedTensor::new(B::float_full(shape, fill_value, device, dtype))
    }

    fn float_into_data(
        tensor: FloatTensor<Self>,
    ) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        counter::host_read();
        let full = reads_full(&tensor);
        async move {
            let data = B::float_into_data(tensor.inner).await?;
            Ok(if full { widen(data) } else { data })
        }
    }

    fn float_device(tensor: &FloatTensor<Self>) -> Device<Self> {
        B::float_device(&tensor.inner)
    }

    fn float_to_device(tensor: FloatTensor<Self>, device: &Device<Self>) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_to_device(tensor, device))
    }

    fn float_into_int(tensor: FloatTensor<Self>, out_dtype: IntDType) -> IntTensor<Self> {
        B::float_into_int(tensor.inner, out_dtype)
    }

    fn float_empty(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        MixedTensor::new(B::float_empty(shape, device, dtype))
    }

    fn float_repeat_dim(tensor: FloatTensor<Self>, dim: usize, times: usize) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_repeat_dim(tensor, dim, times))
    }

    fn float_add(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        arithmetic(Op::FloatAdd, lhs, rhs, B::float_add)
    }

    fn float_add_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatAddScalar, lhs, [rhs], |lhs, [rhs]| {
            B::float_add_scalar(lhs, rhs)
        })
    }

    fn float_clamp_min(tensor: FloatTensor<Self>, min: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatClampMin, tensor, [min], |tensor, [min]| {
            B::float_clamp_min(tensor, min)
        })
    }

    fn float_clamp_max(tensor: FloatTensor<Self>, max: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatClampMax, tensor, [max], |tensor, [max]| {
            B::float_clamp_max(tensor, max)
        })
    }

    fn float_clamp(tensor: FloatTensor<Self>, min: Scalar, max: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatClamp, tensor, [min, max], |tensor, [min, max]| {
            B::float_clamp(tensor, min, max)
        })
    }

    fn float_sub(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        arithmetic(Op::FloatSub, lhs, rhs, B::float_sub)
    }

    fn float_sub_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatSubScalar, lhs, [rhs], |lhs, [rhs]| {
            B::float_sub_scalar(lhs, rhs)
        })
    }

    fn float_mul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        arithmetic(Op::FloatMul, lhs, rhs, B::float_mul)
    }

    fn float_mul_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatMulScalar, lhs, [rhs], |lhs, [rhs]| {
            B::float_mul_scalar(lhs, rhs)
        })
    }

    fn float_div(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        arithmetic(Op::FloatDiv, lhs, rhs, B::float_div)
    }

    fn float_div_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatDivScalar, lhs, [rhs], |lhs, [rhs]| {
            B::float_div_scalar(lhs, rhs)
        })
    }

    fn float_remainder(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::FloatRemainder, lhs, rhs, B::float_remainder)
    }

    fn float_remainder_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatRemainderScalar, lhs, [rhs], |lhs, [rhs]| {
            B::float_remainder_scalar(lhs, rhs)
        })
    }

    fn float_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::FloatMatmul, lhs, rhs, B::float_matmul)
    }

    fn float_cross(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        dim: usize,
    ) -> FloatTensor<Self> {
        binary(Op::FloatCross, lhs, rhs, |lhs, rhs| {
            B::float_cross(lhs, rhs, dim)
        })
    }

    fn float_neg(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatNeg, tensor, B::float_neg)
    }

    fn float_recip(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatRecip, tensor, B::float_recip)
    }

    fn float_transpose(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_transpose(tensor))
    }

    fn float_swap_dims(tensor: FloatTensor<Self>, dim1: usize, dim2: usize) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_swap_dims(tensor, dim1, dim2))
    }

    fn float_permute(tensor: FloatTensor<Self>, axes: &[usize]) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_permute(tensor, axes))
    }

    fn float_flip(tensor: FloatTensor<Self>, axes: &[usize]) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_flip(tensor, axes))
    }

    fn float_reshape(tensor: FloatTensor<Self>, shape: Shape) -> FloatTensor<Self> {
        // Burn's recurrent layers read each time step, a reshaped slice, once per gate.
        let reshaped = tensor.moved(|tensor| B::float_reshape(tensor, shape));
        match reshaped.inner.dtype() {
            DType::F32 => reshaped.keeping_copies(),
            _ => reshaped,
        }
    }

    fn float_gather(
        dim: usize,
        tensor: FloatTensor<Self>,
        indices: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_gather(dim, tensor, indices))
    }

    fn float_scatter_add(
        dim: usize,
        tensor: FloatTensor<Self>,
        indices: IntTensor<Self>,
        value: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(Op::FloatScatterAdd, tensor, value, |tensor, value| {
            B::float_scatter_add(dim, tensor, indices, value)
        })
    }

    fn float_scatter_nd(
        data: FloatTensor<Self>,
        indices: IntTensor<Self>,
        values: FloatTensor<Self>,
        reduction: IndexingUpdateOp,
    ) -> FloatTensor<Self> {
        binary(Op::FloatScatterNd, data, values, |data, values| {
            B::float_scatter_nd(data, indices, values, reduction)
        })
    }

    fn float_gather_nd(data: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self> {
        data.moved(|data| B::float_gather_nd(data, indices))
    }

    fn float_select(
        tensor: FloatTensor<Self>,
        dim: usize,
        indices: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_select(tensor, dim, indices))
    }

    fn float_select_add(
        tensor: FloatTensor<Self>,
        dim: usize,
        indices: IntTensor<Self>,
        value: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(Op::FloatSelectAdd, tensor, value, |tensor, value| {
            B::float_select_add(tensor, dim, indices, value)
        })
    }

    fn float_slice(tensor: FloatTensor<Self>, slices: &[Slice]) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_slice(tensor, slices))
    }

    fn float_slice_assign(
        tensor: FloatTensor<Self>,
        slices: &[Slice],
        value: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(Op::FloatSliceAssign, tensor, value, |tensor, value| {
            B::float_slice_assign(tensor, slices, value)
        })
    }

    fn float_mask_where(
        tensor: FloatTensor<Self>,
        mask: BoolTensor<Self>,
        value: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        binary(Op::FloatMaskWhere, tensor, value, |tensor, value| {
            B::float_mask_where(tensor, mask, value)
        })
    }

    fn float_mask_fill(
        tensor: FloatTensor<Self>,
        mask: BoolTensor<Self>,
        value: Scalar,
    ) -> FloatTensor<Self> {
        with_scalars(Op::FloatMaskFill, tensor, [value], |tensor, [value]| {
            B::float_mask_fill(tensor, mask, value)
        })
    }

    fn float_equal(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare(Op::FloatEqual, lhs, rhs, |lhs, rhs| {
            B::float_equal(lhs, rhs, out_dtype)
        })
    }

    fn float_not_equal(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare(Op::FloatNotEqual, lhs, rhs, |lhs, rhs| {
            B::float_not_equal(lhs, rhs, out_dtype)
        })
    }

    fn float_equal_elem(
        lhs: FloatTensor<Self>,
        rhs: Scalar,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare_scalar(Op::FloatEqualElem, lhs, rhs, |lhs, rhs| {
            B::float_equal_elem(lhs, rhs, out_dtype)
        })
    }

    fn float_not_equal_elem(
        lhs: FloatTensor<Self>,
        rhs: Scalar,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare_scalar(Op::FloatNotEqualElem, lhs, rhs, |lhs, rhs| {
            B::float_not_equal_elem(lhs, rhs, out_dtype)
        })
    }

    fn float_greater(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare(Op::FloatGreater, lhs, rhs, |lhs, rhs| {
            B::float_greater(lhs, rhs, out_dtype)
        })
    }

    fn float_greater_elem(
        lhs: FloatTensor<Self>,
        rhs: Scalar,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare_scalar(Op::FloatGreaterElem, lhs, rhs, |lhs, rhs| {
            B::float_greater_elem(lhs, rhs, out_dtype)
        })
    }

    fn float_greater_equal(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare(Op::FloatGreaterEqual, lhs, rhs, |lhs, rhs| {
            B::float_greater_equal(lhs, rhs, out_dtype)
        })
    }

    fn float_greater_equal_elem(
        lhs: FloatTensor<Self>,
        rhs: Scalar,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare_scalar(Op::FloatGreaterEqualElem, lhs, rhs, |lhs, rhs| {
            B::float_greater_equal_elem(lhs, rhs, out_dtype)
        })
    }

    fn float_lower(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare(Op::FloatLower, lhs, rhs, |lhs, rhs| {
            B::float_lower(lhs, rhs, out_dtype)
        })
    }

    fn float_lower_elem(
        lhs: FloatTensor<Self>,
        rhs: Scalar,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare_scalar(Op::FloatLowerElem, lhs, rhs, |lhs, rhs| {
            B::float_lower_elem(lhs, rhs, out_dtype)
        })
    }

    fn float_lower_equal(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare(Op::FloatLowerEqual, lhs, rhs, |lhs, rhs| {
            B::float_lower_equal(lhs, rhs, out_dtype)
        })
    }

    fn float_lower_equal_elem(
        lhs: FloatTensor<Self>,
        rhs: Scalar,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        compare_scalar(Op::FloatLowerEqualElem, lhs, rhs, |lhs, rhs| {
            B::float_lower_equal_elem(lhs, rhs, out_dtype)
        })
    }

    fn float_detach(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        if !B::ad_enabled(&B::float_device(&tensor.inner)) {
            return tensor;
        }
        match B::float_is_require_grad(&tensor.inner) {
            // Detached, it is a new leaf.
            true => MixedTensor::new(B::float_detach(tensor.inner)).keeping_copies(),
            false => tensor.moved(B::float_detach),
        }
    }

    fn float_set_require_grad(tensor: FloatTensor<Self>, require_grad: bool) -> FloatTensor<Self> {
        // Parameters come through here: their half copy is worth keeping. A tracked leaf that stays
        // tracked is the same leaf, any other change makes a new one.
        let same = !B::ad_enabled(&B::float_device(&tensor.inner))
            || (require_grad && B::float_is_require_grad(&tensor.inner));
        if same && tensor.has_slot() {
            return tensor;
        }
        MixedTensor::new(B::float_set_require_grad(tensor.inner, require_grad)).keeping_copies()
    }

    fn float_is_require_grad(tensor: &FloatTensor<Self>) -> bool {
        observe::name(tensor);
        B::float_is_require_grad(&tensor.inner)
    }

    fn float_sum(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatSum, tensor, B::float_sum)
    }

    fn float_sum_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatSumDim, tensor, |tensor| {
            B::float_sum_dim(tensor, dim)
        })
    }

    fn float_prod(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatProd, tensor, B::float_prod)
    }

    fn float_prod_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatProdDim, tensor, |tensor| {
            B::float_prod_dim(tensor, dim)
        })
    }

    fn float_mean(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatMean, tensor, B::float_mean)
    }

    fn float_mean_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatMeanDim, tensor, |tensor| {
            B::float_mean_dim(tensor, dim)
        })
    }

    fn float_cumsum(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatCumsum, tensor, |tensor| {
            B::float_cumsum(tensor, dim)
        })
    }

    fn float_cumprod(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatCumprod, tensor, |tensor| {
            B::float_cumprod(tensor, dim)
        })
    }

    fn float_cummin(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatCummin, tensor, |tensor| {
            B::float_cummin(tensor, dim)
        })
    }

    fn float_cummax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatCummax, tensor, |tensor| {
            B::float_cummax(tensor, dim)
        })
    }

    #[expect(clippy::disallowed_methods, reason = "a cast that the user asked for")]
    fn float_cast(tensor: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_cast(tensor, dtype))
    }

    fn float_exp(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatExp, tensor, B::float_exp)
    }

    fn float_log(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatLog, tensor, B::float_log)
    }

    fn float_log1p(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatLog1p, tensor, B::float_log1p)
    }

    fn float_powf(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::FloatPowf, lhs, rhs, B::float_powf)
    }

    fn float_powi(lhs: FloatTensor<Self>, rhs: IntTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatPowi, lhs, |lhs| B::float_powi(lhs, rhs))
    }

    fn float_powi_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatPowiScalar, lhs, [rhs], |lhs, [rhs]| {
            B::float_powi_scalar(lhs, rhs)
        })
    }

    fn float_powi_scalar_impl(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatPowiScalarImpl, lhs, [rhs], |lhs, [rhs]| {
            B::float_powi_scalar_impl(lhs, rhs)
        })
    }

    fn float_powf_scalar(tensor: FloatTensor<Self>, value: Scalar) -> FloatTensor<Self> {
        with_scalars(Op::FloatPowfScalar, tensor, [value], |tensor, [value]| {
            B::float_powf_scalar(tensor, value)
        })
    }

    fn float_powf_scalar_impl(tensor: FloatTensor<Self>, value: Scalar) -> FloatTensor<Self> {
        with_scalars(
            Op::FloatPowfScalarImpl,
            tensor,
            [value],
            |tensor, [value]| B::float_powf_scalar_impl(tensor, value),
        )
    }

    fn float_sqrt(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatSqrt, tensor, B::float_sqrt)
    }

    fn float_abs(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatAbs, tensor, B::float_abs)
    }

    fn float_cos(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatCos, tensor, B::float_cos)
    }

    fn float_sin(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatSin, tensor, B::float_sin)
    }

    fn float_tan(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatTan, tensor, B::float_tan)
    }

    fn float_cosh(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatCosh, tensor, B::float_cosh)
    }

    fn float_sinh(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatSinh, tensor, B::float_sinh)
    }

    fn float_tanh(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatTanh, tensor, B::float_tanh)
    }

    fn float_acos(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatAcos, tensor, B::float_acos)
    }

    fn float_acosh(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatAcosh, tensor, B::float_acosh)
    }

    fn float_asin(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatAsin, tensor, B::float_asin)
    }

    fn float_asinh(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatAsinh, tensor, B::float_asinh)
    }

    fn float_atan(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatAtan, tensor, B::float_atan)
    }

    fn float_atanh(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatAtanh, tensor, B::float_atanh)
    }

    fn float_atan2(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        binary(Op::FloatAtan2, lhs, rhs, B::float_atan2)
    }

    fn float_round(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatRound, tensor, B::float_round)
    }

    fn float_floor(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatFloor, tensor, B::float_floor)
    }

    fn float_ceil(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatCeil, tensor, B::float_ceil)
    }

    fn float_trunc(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatTrunc, tensor, B::float_trunc)
    }

    fn float_erf(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatErf, tensor, B::float_erf)
    }

    fn float_cat(tensors: Vec<FloatTensor<Self>>, dim: usize) -> FloatTensor<Self> {
        let plan = Plan::new(Op::FloatCat, &tensors.iter().map(Some).collect::<Vec<_>>());
        let tensors = tensors
            .into_iter()
            .map(|tensor| plan.cast(tensor))
            .collect();
        plan.finish(B::float_cat(tensors, dim))
    }

    fn float_argmax(tensor: FloatTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self> {
        read(Op::FloatArgmax, tensor, |tensor| {
            B::float_argmax(tensor, dim, out_dtype)
        })
    }

    fn float_argtopk(
        tensor: FloatTensor<Self>,
        dim: usize,
        k: usize,
        out_dtype: IntDType,
    ) -> IntTensor<Self> {
        read(Op::FloatArgtopk, tensor, |tensor| {
            B::float_argtopk(tensor, dim, k, out_dtype)
        })
    }

    fn float_topk(tensor: FloatTensor<Self>, dim: usize, k: usize) -> FloatTensor<Self> {
        unary(Op::FloatTopk, tensor, |tensor| {
            B::float_topk(tensor, dim, k)
        })
    }

    fn float_argmin(tensor: FloatTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self> {
        read(Op::FloatArgmin, tensor, |tensor| {
            B::float_argmin(tensor, dim, out_dtype)
        })
    }

    fn float_max(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatMax, tensor, B::float_max)
    }

    fn float_max_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatMaxDim, tensor, |tensor| {
            B::float_max_dim(tensor, dim)
        })
    }

    fn float_max_dim_with_indices(
        tensor: FloatTensor<Self>,
        dim: usize,
        indices_dtype: IntDType,
    ) -> (FloatTensor<Self>, IntTensor<Self>) {
        let plan = Plan::new(Op::FloatMaxDimWithIndices, &[Some(&tensor)]);
        let (values, indices) =
            B::float_max_dim_with_indices(plan.cast(tensor), dim, indices_dtype);
        (plan.finish(values), indices)
    }

    fn float_min(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatMin, tensor, B::float_min)
    }

    fn float_min_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatMinDim, tensor, |tensor| {
            B::float_min_dim(tensor, dim)
        })
    }

    fn float_min_dim_with_indices(
        tensor: FloatTensor<Self>,
        dim: usize,
        indices_dtype: IntDType,
    ) -> (FloatTensor<Self>, IntTensor<Self>) {
        let plan = Plan::new(Op::FloatMinDimWithIndices, &[Some(&tensor)]);
        let (values, indices) =
            B::float_min_dim_with_indices(plan.cast(tensor), dim, indices_dtype);
        (plan.finish(values), indices)
    }

    fn float_max_abs(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatMaxAbs, tensor, B::float_max_abs)
    }

    fn float_max_abs_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        unary(Op::FloatMaxAbsDim, tensor, |tensor| {
            B::float_max_abs_dim(tensor, dim)
        })
    }

    fn float_any(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self> {
        read(Op::FloatAny, tensor, |tensor| {
            B::float_any(tensor, out_dtype)
        })
    }

    fn float_any_dim(
        tensor: FloatTensor<Self>,
        dim: usize,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        read(Op::FloatAnyDim, tensor, |tensor| {
            B::float_any_dim(tensor, dim, out_dtype)
        })
    }

    fn float_all(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self> {
        read(Op::FloatAll, tensor, |tensor| {
            B::float_all(tensor, out_dtype)
        })
    }

    fn float_all_dim(
        tensor: FloatTensor<Self>,
        dim: usize,
        out_dtype: BoolDType,
    ) -> BoolTensor<Self> {
        read(Op::FloatAllDim, tensor, |tensor| {
            B::float_all_dim(tensor, dim, out_dtype)
        })
    }

    fn float_sign(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        unary(Op::FloatSign, tensor, B::float_sign)
    }

    fn float_expand(tensor: FloatTensor<Self>, shape: Shape) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_expand(tensor, shape))
    }

    fn float_sort(tensor: FloatTensor<Self>, dim: usize, descending: bool) -> FloatTensor<Self> {
        unary(Op::FloatSort, tensor, |tensor| {
            B::float_sort(tensor, dim, descending)
        })
    }

    fn float_sort_with_indices(
        tensor: FloatTensor<Self>,
        dim: usize,
        descending: bool,
        indices_dtype: IntDType,
    ) -> (FloatTensor<Self>, IntTensor<Self>) {
        let plan = Plan::new(Op::FloatSortWithIndices, &[Some(&tensor)]);
        let (values, indices) =
            B::float_sort_with_indices(plan.cast(tensor), dim, descending, indices_dtype);
        (plan.finish(values), indices)
    }

    fn float_argsort(
        tensor: FloatTensor<Self>,
        dim: usize,
        descending: bool,
        out_dtype: IntDType,
    ) -> IntTensor<Self> {
        read(Op::FloatArgsort, tensor, |tensor| {
            B::float_argsort(tensor, dim, descending, out_dtype)
        })
    }

    fn float_grid_sample_2d(
        tensor: FloatTensor<Self>,
        grid: FloatTensor<Self>,
        options: GridSampleOptions,
    ) -> FloatTensor<Self> {
        binary(Op::FloatGridSample2d, tensor, grid, |tensor, grid| {
            B::float_grid_sample_2d(tensor, grid, options)
        })
    }

    fn float_unfold(
        tensor: FloatTensor<Self>,
        dim: usize,
        size: usize,
        step: usize,
    ) -> FloatTensor<Self> {
        tensor.moved(|tensor| B::float_unfold(tensor, dim, size, step))
    }

    fn float_is_nan(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self> {
        read(Op::FloatIsNan, tensor, |tensor| {
            B::float_is_nan(tensor, out_dtype)
        })
    }

    fn float_is_inf(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self> {
        read(Op::FloatIsInf, tensor, |tensor| {
            B::float_is_inf(tensor, out_dtype)
        })
    }
}
