//! Value conversions and address arithmetic.

use std::marker::PhantomData;

use super::{Fn1, Fn3, Pick, pick3};
use crate::exec::level::SimdLevel;
use crate::ir::Scalar;
use crate::math::convert::{self, Convert};
use crate::math::op::{Native, Op1, Op3};

/// The kernel of a conversion.
pub(in crate::exec) fn convert(from: Scalar, to: Scalar, level: SimdLevel) -> Fn1 {
    convert::visit(from, to, Pick(level))
}

/// Whether a conversion leaves the register's bits as they are.
pub(in crate::exec) fn is_free(from: Scalar, to: Scalar) -> bool {
    let same_width = from.size() == to.size();
    let int = |s: Scalar| s.is_int() || s == Scalar::Bool;
    (int(from) && to.is_int() && same_width)
        || (matches!(from, Scalar::F16 | Scalar::BF16) && to == Scalar::F32)
}

/// `offset + index * stride`, the index widened to 64 bits.
struct Address<T>(PhantomData<T>);
impl<T: Native> Op3 for Address<T>
where
    Convert<T, i64>: Op1<A = T, R = i64>,
{
    type A = T;
    type B = i64;
    type R = i64;
    #[inline(always)]
    fn full(index: T, offset: i64, stride: i64) -> i64 {
        offset.wrapping_add(Convert::<T, i64>::core(index).wrapping_mul(stride))
    }
}

/// `offset + index * stride` as i64 (operands: index, offset, stride) for an index of 32 or 64
/// bits.
pub(in crate::exec) fn address(s: Scalar, level: SimdLevel) -> Option<Fn3> {
    Some(match s {
        Scalar::I32 => pick3::<Address<i32>>(level),
        Scalar::U32 => pick3::<Address<u32>>(level),
        Scalar::I64 | Scalar::U64 => pick3::<Address<i64>>(level),
        _ => return None,
    })
}
