//! Reductions and scans across the lanes of a SIMD group or quad. Only kernels of text have them.

use super::groups::FnGroup;
use super::lanes::BLOCK;
use super::level::{SimdLevel, multiversion};
use crate::ir::{Group, ReduceOp, Scalar};
use crate::math::op::{Fold, Op2, Visit2};
use crate::math::{ops, scalar};

#[inline(always)]
unsafe fn masked<T: Copy>(a: *const u8, mask: *const u8, identity: u64) -> [T; BLOCK] {
    // SAFETY: T is a plain number of at most 8 bytes; a block and its mask are readable.
    unsafe {
        let id = (&raw const identity).cast::<T>().read_unaligned();
        let mut x = a.cast::<[T; BLOCK]>().read_unaligned();
        let m = mask.cast::<[u8; BLOCK]>().read_unaligned();
        for i in 0..BLOCK {
            x[i] = if m[i] != 0 { x[i] } else { id };
        }
        x
    }
}

#[inline(always)]
fn butterfly<O: Op2<A = T, B = T, R = T>, T: Copy, const S: usize>(v: [T; BLOCK]) -> [T; BLOCK] {
    // Plain loops: closures passed to library functions are not compiled for the SIMD level.
    let mut r = v;
    for i in 0..BLOCK {
        r[i] = O::full(v[i], v[i ^ S]);
    }
    r
}

#[inline(always)]
unsafe fn reduce_body<O: Fold>(
    d: *mut u8,
    a: *const u8,
    sa: usize,
    mask: *const u8,
    identity: u64,
    group: Group,
    blocks: usize,
) {
    for k in 0..blocks {
        // SAFETY: block k of the operands.
        unsafe {
            let mut v: [O::A; BLOCK] = masked(a.add(k * sa), mask.add(k * BLOCK), identity);
            if group == Group::Simd {
                v = butterfly::<O, _, 16>(v);
                v = butterfly::<O, _, 8>(v);
                v = butterfly::<O, _, 4>(v);
            }
            v = butterfly::<O, _, 2>(v);
            v = butterfly::<O, _, 1>(v);
            d.cast::<[O::A; BLOCK]>().add(k).write_unaligned(v);
        }
    }
}

#[inline(always)]
fn step<O: Op2<A = T, B = T, R = T>, T: Copy>(v: [T; BLOCK], s: usize, width: usize) -> [T; BLOCK] {
    let mut r = v;
    for i in 0..BLOCK {
        r[i] = if i % width >= s { O::full(v[i - s], v[i]) } else { v[i] };
    }
    r
}

#[inline(always)]
unsafe fn scan_body<O: Fold, const INCLUSIVE: bool>(
    d: *mut u8,
    a: *const u8,
    sa: usize,
    mask: *const u8,
    identity: u64,
    group: Group,
    blocks: usize,
) {
    let width = group.width() as usize;
    for k in 0..blocks {
        // SAFETY: block k of the operands.
        unsafe {
            let mut v: [O::A; BLOCK] = masked(a.add(k * sa), mask.add(k * BLOCK), identity);
            let mut s = 1;
            while s < width {
                v = step::<O, _>(v, s, width);
                s *= 2;
            }
            if !INCLUSIVE {
                let id = (&raw const identity).cast::<O::A>().read_unaligned();
                for i in (0..BLOCK).rev() {
                    v[i] = if i % width == 0 { id } else { v[i - 1] };
                }
            }
            d.cast::<[O::A; BLOCK]>().add(k).write_unaligned(v);
        }
    }
}

multiversion! {
    /// A reduction at a level.
    pick_reduce<O: Fold>(
        d: *mut u8, a: *const u8, sa: usize, mask: *const u8, identity: u64, group: Group, blocks: usize
    ) -> FnGroup = reduce_body::<O>
}
multiversion! {
    /// An inclusive scan at a level.
    pick_inclusive<O: Fold>(
        d: *mut u8, a: *const u8, sa: usize, mask: *const u8, identity: u64, group: Group, blocks: usize
    ) -> FnGroup = scan_body::<O, true>
}

/// Whether a fold is a reduction or a scan.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum FoldKind {
    All,
    Inclusive,
    Exclusive,
}

/// Picks the kernel of a reduction or scan for a level. Narrow integers and exclusive scans are rare: one
/// kernel serves all levels.
struct PickFold(FoldKind, SimdLevel);

impl Visit2 for PickFold {
    type Out = Option<FnGroup>;
    fn visit<O: Fold>(self) -> Option<FnGroup> {
        Some(match self.0 {
            FoldKind::All => pick_reduce::<O>(self.1),
            FoldKind::Inclusive => pick_inclusive::<O>(self.1),
            FoldKind::Exclusive => scan_body::<O, false>,
        })
    }
    fn narrow<O: Fold>(self) -> Option<FnGroup> {
        Some(match self.0 {
            FoldKind::All => reduce_body::<O>,
            FoldKind::Inclusive => scan_body::<O, true>,
            FoldKind::Exclusive => scan_body::<O, false>,
        })
    }
    fn mixed<O: Op2>(self) -> Option<FnGroup> {
        None
    }
}

/// The kernel of a reduction or scan.
pub(super) fn fold(over: FoldKind, op: ReduceOp, s: Scalar, level: SimdLevel) -> Option<FnGroup> {
    ops::binary::visit_reduce(op, s, PickFold(over, level))?
}

/// The bits that inactive lanes hold.
pub(super) fn identity(op: ReduceOp, s: Scalar) -> u64 {
    scalar::to_lane(s, scalar::identity(op, s))
}
