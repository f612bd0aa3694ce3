//! Operations across the lanes of a SIMD group or quad: reductions, scans, shuffles, votes, and
//! the 8x8 matrix product. A block of lanes is a SIMD group.

use super::lanes::BLOCK;
use super::level::{SimdLevel, multiversion};
use crate::ir::{Group, ReduceOp, Scalar, ShuffleKind, matrix_position};
use crate::math::op::{Bf16, F16, Fold, Native, Op2, RoundTo, Visit2};
use crate::math::{ops, scalar};

/// Destination, operand and its step, mask of active lanes (a byte each), identity, group,
/// number of blocks. Contract as for the lane kernels; the destination overlaps no operand.
pub(super) type FnGroup = unsafe fn(*mut u8, *const u8, usize, *const u8, u64, Group, usize);
/// Destination, operand and step, `I32` argument and step, mask, kind, group, blocks.
pub(super) type FnShuffle =
    unsafe fn(*mut u8, *const u8, usize, *const u8, usize, *const u8, ShuffleKind, Group, usize);
/// Destinations, `a`, `b`, `c` (two registers each, as whole vectors), mask, blocks.
pub(super) type FnMatrix =
    unsafe fn([*mut u8; 2], [*const u8; 2], [*const u8; 2], [*const u8; 2], *const u8, usize);

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

#[inline(always)]
unsafe fn shuffle_body<T: Native>(
    d: *mut u8,
    a: *const u8,
    sa: usize,
    arg: *const u8,
    sarg: usize,
    mask: *const u8,
    kind: ShuffleKind,
    group: Group,
    blocks: usize,
) {
    let w = group.width();
    for k in 0..blocks {
        // SAFETY: block k of the operands; every source lane is in the block.
        unsafe {
            let v = a.add(k * sa).cast::<[T; BLOCK]>().read_unaligned();
            let n = arg.add(k * sarg).cast::<[u32; BLOCK]>().read_unaligned();
            let m = mask.add(k * BLOCK).cast::<[u8; BLOCK]>().read_unaligned();
            let mut r = v;
            for i in 0..BLOCK {
                let lane = i as u32 % w;
                let base = i as u32 - lane;
                let from = (base + source_lane(kind, lane, n[i], w)) as usize % BLOCK;
                r[i] = if m[from] != 0 { v[from] } else { v[i] };
            }
            d.cast::<[T; BLOCK]>().add(k).write_unaligned(r);
        }
    }
}

/// The lane that `lane` reads from; `arg` is an `I32`.
#[inline(always)]
fn source_lane(kind: ShuffleKind, lane: u32, arg: u32, w: u32) -> u32 {
    // Distances wrap at 32 bits, far outside any group.
    let inside = |x: u32| if x < w { x } else { lane };
    match kind {
        ShuffleKind::Lane => arg % w,
        ShuffleKind::Up => inside(lane.wrapping_sub(arg)),
        ShuffleKind::Down => inside(lane.wrapping_add(arg)),
        ShuffleKind::Xor => (lane ^ arg) % w,
        ShuffleKind::RotateUp => lane.wrapping_sub(arg) % w,
        ShuffleKind::RotateDown => lane.wrapping_add(arg) % w,
    }
}

multiversion! {
    /// A shuffle at a level.
    pick_shuffle<T: Native>(
        d: *mut u8, a: *const u8, sa: usize, arg: *const u8, sarg: usize, mask: *const u8,
        kind: ShuffleKind, group: Group, blocks: usize
    ) -> FnShuffle = shuffle_body::<T>
}

#[inline(always)]
unsafe fn first_body<T: Native>(
    d: *mut u8,
    a: *const u8,
    sa: usize,
    _arg: *const u8,
    _sarg: usize,
    mask: *const u8,
    _kind: ShuffleKind,
    group: Group,
    blocks: usize,
) {
    let w = group.width() as usize;
    for k in 0..blocks {
        // SAFETY: block k of the operands.
        unsafe {
            let v = a.add(k * sa).cast::<[T; BLOCK]>().read_unaligned();
            let m = mask.add(k * BLOCK).cast::<[u8; BLOCK]>().read_unaligned();
            let mut r = v;
            for base in (0..BLOCK).step_by(w) {
                let first = (base..base + w).find(|&i| m[i] != 0).unwrap_or(base);
                r[base..base + w].fill(v[first]);
            }
            d.cast::<[T; BLOCK]>().add(k).write_unaligned(r);
        }
    }
}

/// The kernel of a shuffle of lanes of `size` bytes.
pub(super) fn shuffle(size: u8, level: SimdLevel) -> FnShuffle {
    match size {
        1 => pick_shuffle::<u8>(level),
        2 => pick_shuffle::<u16>(level),
        4 => pick_shuffle::<u32>(level),
        _ => pick_shuffle::<u64>(level),
    }
}

/// The kernel that broadcasts the value of the first active lane.
pub(super) fn first(size: u8) -> FnShuffle {
    match size {
        1 => first_body::<u8>,
        2 => first_body::<u16>,
        4 => first_body::<u32>,
        _ => first_body::<u64>,
    }
}

/// A block of the two registers as an 8x8 matrix; zeros for inactive lanes.
#[inline(always)]
unsafe fn matrix(r: [*const u8; 2], mask: &[u8; BLOCK], k: usize) -> [[f32; 8]; 8] {
    // SAFETY: block k of the registers.
    let v = r.map(|r| unsafe { r.cast::<[f32; BLOCK]>().add(k).read_unaligned() });
    let mut m = [[0f32; 8]; 8];
    for lane in 0..BLOCK {
        let (row, column) = const { positions() }[lane];
        if mask[lane] != 0 {
            m[row as usize][column as usize] = v[0][lane];
            m[row as usize][column as usize + 1] = v[1][lane];
        }
    }
    m
}

const fn positions() -> [(u8, u8); BLOCK] {
    let mut p = [(0, 0); BLOCK];
    let mut lane = 0;
    while lane < BLOCK {
        let (row, column) = matrix_position(lane as u32);
        p[lane] = (row as u8, column as u8);
        lane += 1;
    }
    p
}

#[inline(always)]
unsafe fn matrix_body<O: RoundTo>(
    d: [*mut u8; 2],
    a: [*const u8; 2],
    b: [*const u8; 2],
    c: [*const u8; 2],
    mask: *const u8,
    blocks: usize,
) {
    for k in 0..blocks {
        // SAFETY: block k of the registers and the mask.
        let (a, b, mut c) = unsafe {
            let m = mask.add(k * BLOCK).cast::<[u8; BLOCK]>().read_unaligned();
            (matrix(a, &m, k), matrix(b, &m, k), matrix(c, &m, k))
        };
        for i in 0..8 {
            for j in 0..8 {
                for x in 0..8 {
                    c[i][x] += a[i][j] * b[j][x];
                }
            }
        }
        let mut r = [[0f32; BLOCK]; 2];
        for (lane, (row, column)) in (const { positions() }).into_iter().enumerate() {
            r[0][lane] = O::round(c[row as usize][column as usize]);
            r[1][lane] = O::round(c[row as usize][column as usize + 1]);
        }
        for (d, r) in d.iter().zip(r) {
            // SAFETY: block k of the destination.
            unsafe { d.cast::<[f32; BLOCK]>().add(k).write_unaligned(r) };
        }
    }
}

multiversion! {
    /// The matrix product at a level.
    pick_matrix<O: RoundTo>(
        d: [*mut u8; 2], a: [*const u8; 2], b: [*const u8; 2], c: [*const u8; 2], mask: *const u8,
        blocks: usize
    ) -> FnMatrix = matrix_body::<O>
}

/// The kernel of the matrix product with results of this type.
pub(super) fn matmul(s: Scalar, level: SimdLevel) -> FnMatrix {
    match s {
        Scalar::F16 => pick_matrix::<F16>(level),
        Scalar::BF16 => pick_matrix::<Bf16>(level),
        _ => pick_matrix::<f32>(level),
    }
}
