//! Operations across the lanes of a SIMD group or quad: shuffles, votes, and the 8x8 matrix product;
//! reductions and scans are in [`folds`](super::folds). A block of lanes is a SIMD group.

use super::lanes::BLOCK;
use super::level::{SimdLevel, multiversion};
use crate::ir::{Group, Scalar, ShuffleKind, matrix_position};
use crate::math::op::{Bf16, F16, Native, RoundTo};

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
