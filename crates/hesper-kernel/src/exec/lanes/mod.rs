//! The lane kernels: one tight loop per operation and type, over blocks of 32 lanes, compiled
//! once per SIMD level.
//!
//! A kernel reads operands and writes its result in whole blocks of [`BLOCK`] lanes. An operand
//! whose byte step is 0 is *uniform*: its one block, all lanes equal, is read for every block,
//! so that mixed uniform and varying operands need no second version of a kernel. Results
//! never depend on the level: every level vectorises the same scalar function.
//!
//! Half-precision values live in f32 registers, always rounded to their type.

pub(super) mod convert;
pub(super) mod half;
pub(super) mod select;
pub(super) mod slices;

use std::mem::MaybeUninit;

use super::level::{SimdLevel, multiversion};
use crate::ir::{BinaryOp, CmpOp, Scalar, TernaryOp, UnaryOp};
use crate::math::op::{Fold, Op1, Op2, Op3, Visit1, Visit2, Visit3};
use crate::math::ops;

/// Lanes of a block: a SIMD group.
pub(super) const BLOCK: usize = 32;

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
        let mut again = !O::QUICK;
        if O::QUICK {
            for (i, r) in r.iter_mut().enumerate() {
                // SAFETY: lane i of a readable block.
                let (y, unsure) = O::quick(unsafe { a.cast::<O::A>().add(i).read_unaligned() });
                r.write(y);
                again |= unsure;
            }
            // SAFETY: a readable block.
            let x = unsafe { a.cast::<[O::A; BLOCK]>().read_unaligned() };
            again |= x.iter().fold(false, |any, &x| any | O::is_left_out(x));
        }
        if again {
            for (i, r) in r.iter_mut().enumerate() {
                // SAFETY: lane i of a readable block.
                let x = unsafe { a.cast::<O::A>().add(i).read_unaligned() };
                r.write(O::core(x));
            }
        }
        if O::RARE && again {
            // SAFETY: a readable block.
            let x = unsafe { a.cast::<[O::A; BLOCK]>().read_unaligned() };
            let rare = x.iter().fold(false, |any, &x| any | O::is_rare(x));
            if rare {
                for (x, r) in x.into_iter().zip(&mut r).filter(|(x, _)| O::is_rare(*x)) {
                    r.write(O::full(x));
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
        // SAFETY: lane i of readable blocks.
        let lane = |i| unsafe {
            (a.cast::<O::A>().add(i).read_unaligned(), b.cast::<O::B>().add(i).read_unaligned())
        };
        // SAFETY: readable blocks.
        let block = || unsafe {
            (a.cast::<[O::A; BLOCK]>().read_unaligned(), b.cast::<[O::B; BLOCK]>().read_unaligned())
        };
        let mut again = !O::QUICK;
        if O::QUICK {
            for (i, r) in r.iter_mut().enumerate() {
                let (x, y) = lane(i);
                let (z, unsure) = O::quick(x, y);
                r.write(z);
                again |= unsure;
            }
            let (x, y) = block();
            for i in 0..BLOCK {
                again |= O::is_left_out(x[i], y[i]);
            }
        }
        if again {
            for (i, r) in r.iter_mut().enumerate() {
                let (x, y) = lane(i);
                r.write(O::core(x, y));
            }
        }
        if O::RARE && again {
            let (x, y) = block();
            let mut rare = false;
            for i in 0..BLOCK {
                rare |= O::is_rare(x[i], y[i]);
            }
            if rare {
                for i in (0..BLOCK).filter(|&i| O::is_rare(x[i], y[i])) {
                    r[i].write(O::full(x[i], y[i]));
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
            r.write(O::full(x, y, z));
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

/// Picks the kernel of an op for a level. Narrow integers are rare: one kernel serves all levels.
struct Pick(SimdLevel);

impl Visit1 for Pick {
    type Out = Fn1;
    fn visit<O: Op1>(self) -> Fn1 {
        pick1::<O>(self.0)
    }
    fn narrow<O: Op1>(self) -> Fn1 {
        body1::<O>
    }
}

impl Visit2 for Pick {
    type Out = Fn2;
    fn visit<O: Fold>(self) -> Fn2 {
        pick2::<O>(self.0)
    }
    fn narrow<O: Fold>(self) -> Fn2 {
        body2::<O>
    }
    fn mixed<O: Op2>(self) -> Fn2 {
        pick2::<O>(self.0)
    }
}

impl Visit3 for Pick {
    type Out = Fn3;
    fn visit<O: Op3>(self) -> Fn3 {
        pick3::<O>(self.0)
    }
    fn narrow<O: Op3>(self) -> Fn3 {
        body3::<O>
    }
}

/// The kernel of an op of one operand, and whether its result still has to be rounded to a 16-bit float type.
/// `None` if the op does not take the type.
pub(super) fn unary(op: UnaryOp, s: Scalar, level: SimdLevel) -> Option<(Fn1, bool)> {
    Some((ops::unary::visit(op, s, Pick(level))?, s.is_half() && ops::unary::rounds_half(op)))
}

/// The kernel of an op of two operands, and whether its result still has to be rounded to a 16-bit float
/// type. `None` if the op does not take the type.
pub(super) fn binary(op: BinaryOp, s: Scalar, level: SimdLevel) -> Option<(Fn2, bool)> {
    Some((ops::binary::visit(op, s, Pick(level))?, s.is_half() && ops::binary::rounds_half(op)))
}

/// The kernel of an op of three operands; it rounds to the type. `None` if the op does not take the type.
pub(super) fn ternary(op: TernaryOp, s: Scalar, level: SimdLevel) -> Option<Fn3> {
    ops::ternary::visit(op, s, Pick(level))
}

/// The kernel of a comparison; `Bool` lanes are 0 or 1.
pub(super) fn compare(op: CmpOp, s: Scalar, level: SimdLevel) -> Fn2 {
    ops::compare::visit(op, s, Pick(level))
}
