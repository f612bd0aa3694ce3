//! The lane kernels: one tight loop per operation and type, over blocks of 32 lanes, compiled
//! once per SIMD level.
//!
//! A kernel reads operands and writes its result in whole blocks of [`BLOCK`] lanes. An operand
//! whose byte step is 0 is *uniform*: its one block, all lanes equal, is read again and again,
//! so that mixed uniform and varying operands need no second version of a kernel. Results
//! never depend on the level: an operation is one scalar function, vectorised.
//!
//! Half-precision values live in f32 registers, always rounded to their type.

pub(super) mod arith;
pub(super) mod compare;
pub(super) mod convert;
pub(super) mod half;
pub(super) mod rows;
pub(super) mod unary;

use std::mem::MaybeUninit;

use super::level::{SimdLevel, multiversion};

/// Lanes of a block: a SIMD group.
pub(super) const BLOCK: usize = 32;

/// A one-operand operation on lanes.
pub(super) trait Op1 {
    /// Operand.
    type A: Copy;
    /// Result.
    type R: Copy;
    /// The operation.
    fn f(a: Self::A) -> Self::R;
    /// Whether some lanes need [`Op1::redo`].
    const RARE: bool = false;
    /// Whether `f` is not good enough for this operand.
    #[inline(always)]
    fn is_rare(_: Self::A) -> bool {
        false
    }
    /// The operation where [`Op1::is_rare`].
    #[inline(always)]
    fn redo(a: Self::A) -> Self::R {
        Self::f(a)
    }
}

/// A two-operand operation on lanes.
pub(super) trait Op2 {
    /// Left operand.
    type A: Copy;
    /// Right operand.
    type B: Copy;
    /// Result.
    type R: Copy;
    /// The operation.
    fn f(a: Self::A, b: Self::B) -> Self::R;
    /// Whether some lanes need [`Op2::redo`].
    const RARE: bool = false;
    /// Whether `f` is not good enough for these operands.
    #[inline(always)]
    fn is_rare(_: Self::A, _: Self::B) -> bool {
        false
    }
    /// The operation where [`Op2::is_rare`].
    #[inline(always)]
    fn redo(a: Self::A, b: Self::B) -> Self::R {
        Self::f(a, b)
    }
}

/// A three-operand operation on lanes.
pub(super) trait Op3 {
    /// First operand.
    type A: Copy;
    /// Second and third operand.
    type B: Copy;
    /// Result.
    type R: Copy;
    /// The operation.
    fn f(a: Self::A, b: Self::B, c: Self::B) -> Self::R;
}

/// Destination, operand and its step in bytes per block, number of blocks.
///
/// Contract of all three: every operand is readable and the destination writable for `blocks`
/// blocks (one block for an operand of step 0), at any alignment; the destination overlaps no
/// operand unless it starts at the same address with the same element size and step.
pub(super) type Fn1 = unsafe fn(*mut u8, *const u8, usize, usize);
/// As [`Fn1`] with two operands.
pub(super) type Fn2 = unsafe fn(*mut u8, *const u8, usize, *const u8, usize, usize);
/// As [`Fn1`] with three operands.
pub(super) type Fn3 = unsafe fn(*mut u8, *const u8, usize, *const u8, usize, *const u8, usize, usize);

#[inline(always)]
unsafe fn body1<O: Op1>(mut d: *mut u8, mut a: *const u8, sa: usize, blocks: usize) {
    for _ in 0..blocks {
        let mut r = [const { MaybeUninit::<O::R>::uninit() }; BLOCK];
        for (i, r) in r.iter_mut().enumerate() {
            // SAFETY: lane i of a readable block.
            let x = unsafe { a.cast::<O::A>().add(i).read_unaligned() };
            r.write(O::f(x));
        }
        if O::RARE {
            // SAFETY: a readable block.
            let x = unsafe { a.cast::<[O::A; BLOCK]>().read_unaligned() };
            let rare = x.iter().fold(false, |any, &x| any | O::is_rare(x));
            if rare {
                for (x, r) in x.into_iter().zip(&mut r).filter(|(x, _)| O::is_rare(*x)) {
                    r.write(O::redo(x));
                }
            }
        }
        // SAFETY: a writable block.
        unsafe { d.cast::<[MaybeUninit<O::R>; BLOCK]>().write_unaligned(r) };
        d = d.wrapping_add(size_of::<O::R>() * BLOCK);
        a = a.wrapping_add(sa);
    }
}

#[inline(always)]
unsafe fn body2<O: Op2>(
    mut d: *mut u8,
    mut a: *const u8,
    sa: usize,
    mut b: *const u8,
    sb: usize,
    blocks: usize,
) {
    for _ in 0..blocks {
        let mut r = [const { MaybeUninit::<O::R>::uninit() }; BLOCK];
        for (i, r) in r.iter_mut().enumerate() {
            // SAFETY: lane i of readable blocks.
            let (x, y) = unsafe {
                (a.cast::<O::A>().add(i).read_unaligned(), b.cast::<O::B>().add(i).read_unaligned())
            };
            r.write(O::f(x, y));
        }
        if O::RARE {
            // SAFETY: readable blocks.
            let (x, y) = unsafe {
                (a.cast::<[O::A; BLOCK]>().read_unaligned(), b.cast::<[O::B; BLOCK]>().read_unaligned())
            };
            let mut rare = false;
            for i in 0..BLOCK {
                rare |= O::is_rare(x[i], y[i]);
            }
            if rare {
                for i in (0..BLOCK).filter(|&i| O::is_rare(x[i], y[i])) {
                    r[i].write(O::redo(x[i], y[i]));
                }
            }
        }
        // SAFETY: a writable block.
        unsafe { d.cast::<[MaybeUninit<O::R>; BLOCK]>().write_unaligned(r) };
        d = d.wrapping_add(size_of::<O::R>() * BLOCK);
        a = a.wrapping_add(sa);
        b = b.wrapping_add(sb);
    }
}

#[inline(always)]
unsafe fn body3<O: Op3>(
    mut d: *mut u8,
    mut a: *const u8,
    sa: usize,
    mut b: *const u8,
    sb: usize,
    mut c: *const u8,
    sc: usize,
    blocks: usize,
) {
    for _ in 0..blocks {
        let mut r = [const { MaybeUninit::<O::R>::uninit() }; BLOCK];
        for (i, r) in r.iter_mut().enumerate() {
            // SAFETY: lane i of readable blocks.
            let (x, y, z) = unsafe {
                (
                    a.cast::<O::A>().add(i).read_unaligned(),
                    b.cast::<O::B>().add(i).read_unaligned(),
                    c.cast::<O::B>().add(i).read_unaligned(),
                )
            };
            r.write(O::f(x, y, z));
        }
        // SAFETY: a writable block.
        unsafe { d.cast::<[MaybeUninit<O::R>; BLOCK]>().write_unaligned(r) };
        d = d.wrapping_add(size_of::<O::R>() * BLOCK);
        a = a.wrapping_add(sa);
        b = b.wrapping_add(sb);
        c = c.wrapping_add(sc);
    }
}

multiversion! {
    /// The kernel of a one-operand operation at a level.
    pick1<O: Op1>(d: *mut u8, a: *const u8, sa: usize, blocks: usize) -> Fn1 = body1::<O>
}
multiversion! {
    /// The kernel of a two-operand operation at a level.
    pick2<O: Op2>(d: *mut u8, a: *const u8, sa: usize, b: *const u8, sb: usize, blocks: usize) -> Fn2
        = body2::<O>
}
multiversion! {
    /// The kernel of a three-operand operation at a level.
    pick3<O: Op3>(
        d: *mut u8, a: *const u8, sa: usize, b: *const u8, sb: usize, c: *const u8, sc: usize,
        blocks: usize
    ) -> Fn3 = body3::<O>
}

/// The one kernel of a rare one-operand operation, for every level.
pub(super) fn only1<O: Op1>(_: SimdLevel) -> Fn1 {
    body1::<O>
}

/// The one kernel of a rare two-operand operation, for every level.
pub(super) fn only2<O: Op2>(_: SimdLevel) -> Fn2 {
    body2::<O>
}

/// The one kernel of a rare three-operand operation, for every level.
pub(super) fn only3<O: Op3>(_: SimdLevel) -> Fn3 {
    body3::<O>
}

/// Names a generic operation for each of several scalar types and picks its kernel:
/// `by_scalar!(scalar, level, Add: pick2 { I32 => i32 } only2 { U8 => u8 })`; other scalars give
/// `None`.
macro_rules! by_scalar {
    ($s:expr, $level:expr, $op:ident: $($pick:ident { $($scalar:ident => $t:ty),+ $(,)? })+) => {{
        let s: crate::ir::Scalar = $s;
        $($(if s == crate::ir::Scalar::$scalar {
            Some(crate::exec::lanes::$pick::<$op<$t>>($level))
        } else)+)+ {
            None
        }
    }};
}
pub(in crate::exec) use by_scalar;
