//! Activations rounded to 8 bits in blocks of 32, times 4-bit and 8-bit codes as integers.
//!
//! A block has its scale in `f32`, so the error of an activation is at most half a step, 1/254 of the largest in
//! its block. Sums of products are exact integers; scales are applied to each block's sum in `f32`.

use super::{QuantFormat, QuantMat};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch_dot};

/// Activations that share a scale.
pub(super) const BLOCK: usize = 32;
/// Rows of activations multiplied while a vector of codes is in registers.
const TILE: usize = 4;

/// Whether the format can be multiplied as integers.
pub(super) fn fits(w: &QuantMat<'_>) -> bool {
    matches!(w.format, QuantFormat::Affine { bits: 4 | 8, .. })
}

/// `y = x w^T`.
pub(super) fn run(par: &dyn Par, x: MatRef<'_, f32>, w: &QuantMat<'_>, y: &MatMut<'_, f32>) {
    let simd = par.simd();
    let bits = w.format.bits();
    let ready = dispatch_dot(
        simd,
        Prepare { x, order: if bits == 4 { Order::EvenOdd } else { Order::Bytes }, group: w.format.group() },
    );
    let ready = &ready;
    let chunk = grain(par, w.rows, (16384 / w.cols.max(1) / x.rows).max(1));
    chunks(par, w.rows, chunk, |j0, j1| {
        if bits == 4 {
            dispatch_dot(simd, Int8Rows::<4> { w, x: ready, y, j0, j1 });
        } else {
            dispatch_dot(simd, Int8Rows::<8> { w, x: ready, y, j0, j1 });
        }
    });
}

/// Rounded activations: bytes in the order of the codes, the scale of every lane, and sums of groups.
pub(super) struct PackedActivations {
    pub rows: usize,
    /// Bytes of a row, padded to whole vectors.
    pub padded: usize,
    pub bytes: Scratch<i8>,
    /// Lanes of a row: one per word of codes.
    pub lanes: usize,
    pub scales: Scratch<f32>,
    /// Groups of a row, padded to whole vectors.
    pub groups: usize,
    pub sums: Scratch<f32>,
}

// SAFETY: read-only once prepared.
unsafe impl Sync for PackedActivations {}

/// The order of codes in their words, which activations follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Bytes in order.
    Bytes,
    /// Nibbles in order: even ones low, odd ones high.
    EvenOdd,
    /// Nibbles in blocks of 32: the first sixteen low, the others high.
    Halves,
}

/// Rounds the rows of `x`; the partners of low and high nibbles of a vector are separate.
pub(super) struct Prepare<'a> {
    pub x: MatRef<'a, f32>,
    pub order: Order,
    pub group: usize,
}

impl Kernel for Prepare<'_> {
    type Out = PackedActivations;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> PackedActivations {
        let Self { x, order, group } = self;
        let (m, k) = (x.rows, x.cols);
        let per_word = if order == Order::Bytes { 4 } else { 8 };
        let padded = k.next_multiple_of(8 * S::LANES);
        let lanes = padded / per_word;
        let groups = (k / group).next_multiple_of(S::LANES);
        let r = PackedActivations {
            rows: m,
            padded,
            bytes: Scratch::new(m * padded),
            lanes,
            scales: Scratch::new(m * lanes),
            groups,
            sums: Scratch::new(m * groups),
        };
        for i in 0..m {
            let (bytes, scales, sums) = (
                r.bytes.ptr().wrapping_add(i * padded),
                r.scales.ptr().wrapping_add(i * lanes),
                r.sums.ptr().wrapping_add(i * groups),
            );
            // SAFETY: every index stays in its buffer, and in the view where `at < k`.
            unsafe {
                for g in 0..groups {
                    *sums.add(g) = 0.0;
                }
                for b in 0..padded / BLOCK {
                    let mut v = [0.0f32; BLOCK];
                    for (e, v) in v.iter_mut().enumerate() {
                        let at = b * BLOCK + e;
                        *v = if at < k { *x.at(i, at) } else { 0.0 };
                    }
                    let top = v.iter().fold(0.0f32, |t, v| t.max(v.abs()));
                    let (step, inverse) = (top / 127.0, if top > 0.0 { 127.0 / top } else { 0.0 });
                    let mut sum = 0i32;
                    for (e, v) in v.into_iter().enumerate() {
                        let q = (v * inverse).round_ties_even() as i8;
                        sum += i32::from(q);
                        *bytes.add(place::<S>(b * BLOCK + e, order)) = q;
                    }
                    for l in 0..BLOCK / per_word {
                        *scales.add(b * BLOCK / per_word + l) = step;
                    }
                    if b * BLOCK < k {
                        *sums.add(b * BLOCK / group) += step * sum as f32;
                    }
                }
            }
        }
        r
    }
}

/// The index of activation `at` in this order.
#[inline(always)]
fn place<S: Isa>(at: usize, order: Order) -> usize {
    let vector = 8 * S::LANES;
    let (v, r) = (at / vector * vector, at % vector);
    match order {
        Order::Bytes => at,
        Order::EvenOdd => v + r % 2 * (vector / 2) + r / 2,
        Order::Halves => v + r / 16 % 2 * (vector / 2) + r / 32 * 16 + r % 16,
    }
}

struct Int8Rows<'a, 'b, 'c, const BITS: usize> {
    w: &'a QuantMat<'b>,
    x: &'a PackedActivations,
    y: &'a MatMut<'c, f32>,
    j0: usize,
    j1: usize,
}

impl<const BITS: usize> Kernel for Int8Rows<'_, '_, '_, BITS> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { w, x, y, j0, j1 } = self;
        let room = x.groups + S::LANES;
        let scales = Scratch::<f32>::new(2 * room);
        let biases = scales.ptr().wrapping_add(room);
        for g in 0..2 * room {
            // SAFETY: the buffer has that many elements.
            unsafe { *scales.ptr().add(g) = 0.0 };
        }
        for j in j0..j1 {
            for g in 0..w.row_groups() {
                // SAFETY: the buffers hold the groups.
                unsafe { (*scales.ptr().add(g), *biases.add(g)) = w.scale(j, g) };
            }
            let mut i = 0;
            while i < x.rows {
                let n = (x.rows - i).min(TILE);
                // SAFETY: row `j` and the rows `i..i + n` exist.
                let sums = unsafe {
                    match n {
                        4 => row::<S, BITS, 4>(s, w, x, i, j, scales.ptr(), biases),
                        3 => pad(row::<S, BITS, 3>(s, w, x, i, j, scales.ptr(), biases)),
                        2 => pad(row::<S, BITS, 2>(s, w, x, i, j, scales.ptr(), biases)),
                        _ => pad(row::<S, BITS, 1>(s, w, x, i, j, scales.ptr(), biases)),
                    }
                };
                for (m, v) in sums.into_iter().enumerate().take(n) {
                    // SAFETY: the element is in the result, and this task alone writes it.
                    unsafe { *y.at(i + m, j) = v };
                }
                i += n;
            }
        }
    }
}

#[inline(always)]
fn pad<const M: usize>(v: [f32; M]) -> [f32; TILE] {
    let mut r = [0.0; TILE];
    r[..M].copy_from_slice(&v);
    r
}

/// # Safety
/// The row of codes and the rows of activations exist; scales and biases hold the groups and a vector more.
#[inline(always)]
unsafe fn row<S: Isa, const BITS: usize, const M: usize>(
    s: S,
    w: &QuantMat<'_>,
    x: &PackedActivations,
    i: usize,
    j: usize,
    scales: *const f32,
    biases: *const f32,
) -> [f32; M] {
    let n = w.row_words();
    let per_word = 32 / BITS;
    let lanes_per_group = w.format.group() * BITS / 32;
    let times = lanes_per_group.min(S::LANES);
    let mut total = [s.zero(); M];
    let mut at = 0;
    // SAFETY: the caller's promise; the last vector of words is cut off, its activations are zero.
    unsafe {
        let p = w.packed.as_ptr().add(j * n).cast::<f32>();
        while at < n {
            let v = if at + S::LANES <= n { s.load(p.add(at)) } else { s.load_n(p.add(at), n - at) };
            let scale = s.repeat(scales.add(at / lanes_per_group), times);
            for (m, t) in total.iter_mut().enumerate() {
                let xs = x.bytes.ptr().add((i + m) * x.padded + at * per_word);
                let d = if BITS == 4 { s.dot_u4(v, xs) } else { s.dot_u8(v, 0, xs) };
                let step = s.load(x.scales.ptr().add((i + m) * x.lanes + at));
                *t = s.fma(d, s.mul(step, scale), *t);
            }
            at += S::LANES;
        }
        let mut g = 0;
        while g < x.groups {
            let b = s.load(biases.add(g));
            for (m, t) in total.iter_mut().enumerate() {
                *t = s.fma(b, s.load(x.sums.ptr().add((i + m) * x.groups + g)), *t);
            }
            g += S::LANES;
        }
    }
    let mut r = [0.0; M];
    for (r, t) in r.iter_mut().zip(total) {
        *r = s.reduce_add(t);
    }
    r
}
