use burn_backend::{DType, FloatDType, Shape};

/// The widest of two float dtypes: f64 over f32 over the half dtypes.
///
/// f16 and bf16 meet in f32, the narrowest dtype that holds both. flex32 counts as f32.
pub(crate) fn widest(lhs: DType, rhs: DType) -> DType {
    match (lhs, rhs) {
        (a, b) if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}

/// Where two element-wise operands meet under [`CastRule::Promote`](super::CastRule::Promote).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Both run in this dtype, which is the output's too.
    Same(FloatDType),
    /// A half tensor beside an f32 channel vector: the output has this half dtype.
    ChannelVector(FloatDType),
}

/// Decides where two element-wise operands meet; `None` if they agree already.
pub(crate) fn meet(
    lhs: (DType, &Shape),
    rhs: (DType, &Shape),
    channel_vectors: bool,
) -> Option<Meeting> {
    if lhs.0 == rhs.0 {
        return None;
    }
    let is_half = |dtype| matches!(dtype, DType::F16 | DType::BF16);
    let exception = |half: (DType, &Shape), vector: (DType, &Shape)| {
        channel_vectors
            && is_half(half.0)
            && vector.0 == DType::F32
            && is_channel_vector(vector.1, half.1)
    };
    Some(if exception(lhs, rhs) {
        Meeting::ChannelVector(lhs.0.into())
    } else if exception(rhs, lhs) {
        Meeting::ChannelVector(rhs.0.into())
    } else {
        Meeting::Same(widest(lhs.0, rhs.0).into())
    })
}

/// Whether `vector` varies over exactly one dimension, not the batch, and is broadcast over `tensor`.
pub(crate) fn is_channel_vector(vector: &Shape, tensor: &Shape) -> bool {
    let mut varying = (0..vector.num_dims()).filter(|dim| vector[*dim] != 1);
    let one_channel_dim = matches!((varying.next(), varying.next()), (Some(dim), None) if dim != 0);
    one_channel_dim && vector.num_elements() < tensor.num_elements()
}

/// Whether a vector stands where attention scores have their additive masks: along the last
/// dimension of rank four or more, where Burn's norms have no channels.
pub(crate) fn is_like_a_mask(vector: &Shape) -> bool {
    let last = vector.num_dims().saturating_sub(1);
    last >= 3 && (0..last).all(|dim| vector[dim] == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

    fn dtype() -> impl Strategy<Value = DType> {
        prop::sample::select(FLOATS.to_vec())
    }

    fn shape() -> impl Strategy<Value = Shape> {
        prop::collection::vec(prop_oneof![Just(1usize), 1usize..6], 1..5).prop_map(Shape::from)
    }

    /// Significant bits and largest exponent: a dtype holds another if it has at least both.
    fn holds(outer: DType, inner: DType) -> bool {
        let format = |dtype| match dtype {
            DType::F64 => (53, 1023),
            DType::F32 => (24, 127),
            DType::F16 => (11, 15),
            DType::BF16 => (8, 127),
            other => panic!("{other:?} is not a float dtype of this test"),
        };
        let ((outer_bits, outer_exp), (inner_bits, inner_exp)) = (format(outer), format(inner));
        outer_bits >= inner_bits && outer_exp >= inner_exp
    }

    proptest! {
        #[test]
        fn the_widest_dtype_holds_both_and_no_narrower_one_does(a in dtype(), b in dtype()) {
            let wide = widest(a, b);
            prop_assert!(holds(wide, a) && holds(wide, b));
            for other in FLOATS {
                if holds(other, a) && holds(other, b) {
                    prop_assert!(holds(other, wide), "{other:?} is narrower than {wide:?}");
                }
            }
        }

        #[test]
        fn promotion_is_commutative(a in dtype(), b in dtype(), s in shape(), t in shape(), on: bool) {
            prop_assert_eq!(meet((a, &s), (b, &t), on), meet((b, &t), (a, &s), on));
        }

        #[test]
        fn promotion_is_associative(a in dtype(), b in dtype(), c in dtype()) {
            prop_assert_eq!(widest(widest(a, b), c), widest(a, widest(b, c)));
        }

        #[test]
        fn equal_dtypes_are_left_alone(a in dtype(), s in shape(), t in shape(), on: bool) {
            prop_assert_eq!(meet((a, &s), (a, &t), on), None);
        }

        #[test]
        fn only_a_half_tensor_beside_f32_stays_half(
            a in dtype(), b in dtype(), s in shape(), t in shape(),
        ) {
            if let Some(Meeting::ChannelVector(out)) = meet((a, &s), (b, &t), true) {
                let half = if b == DType::F32 { a } else { b };
                prop_assert!(matches!(half, DType::F16 | DType::BF16));
                prop_assert!(a == DType::F32 || b == DType::F32);
                prop_assert_eq!(DType::from(out), half);
            }
        }

        #[test]
        fn with_the_exception_off_the_widest_always_wins(
            a in dtype(), b in dtype(), s in shape(), t in shape(),
        ) {
            match meet((a, &s), (b, &t), false) {
                None => prop_assert_eq!(a, b),
                Some(Meeting::Same(out)) => prop_assert_eq!(DType::from(out), widest(a, b)),
                Some(Meeting::ChannelVector(_)) => prop_assert!(false, "exception is off"),
            }
        }

        #[test]
        fn a_channel_vector_never_varies_over_the_batch(s in shape(), t in shape()) {
            if is_channel_vector(&s, &t) {
                prop_assert_eq!(s[0], 1);
            }
        }
    }

    #[test]
    fn batch_norm_shapes_are_channel_vectors_and_row_statistics_are_not() {
        let of = |vector: &[usize], tensor: &[usize]| {
            is_channel_vector(&Shape::from(vector.to_vec()), &Shape::from(tensor.to_vec()))
        };
        assert!(of(&[1, 8, 1, 1], &[4, 8, 5, 5]));
        assert!(of(&[1, 1, 8], &[4, 6, 8]));
        assert!(!of(&[4, 1], &[4, 8]), "row statistics vary over the batch");
        assert!(!of(&[4], &[4]), "rank one: the only dimension is the batch");
        assert!(!of(&[1, 8, 5, 1], &[4, 8, 5, 5]), "two varying dimensions");
        assert!(
            !of(&[1, 8], &[1, 8]),
            "as large as the tensor: nothing is broadcast"
        );
        assert!(!of(&[1, 1], &[4, 8]), "a single number promotes as usual");
    }

    #[test]
    fn masks_stand_along_the_last_dimension_of_scores_and_channels_do_not() {
        let like = |shape: &[usize]| is_like_a_mask(&Shape::from(shape.to_vec()));
        assert!(like(&[1, 1, 1, 8]) && like(&[1, 1, 1, 1, 8]));
        assert!(!like(&[1, 8, 1, 1]), "channels of an image");
        assert!(!like(&[1, 1, 8]), "the bias of a sequence");
        assert!(!like(&[1, 8]) && !like(&[8]));
    }
}
