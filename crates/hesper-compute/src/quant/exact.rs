//! A few rows of unrounded activations times a quantized matrix: bound by reading the matrix.
//!
//! Where the bits of a code divide 32, a vector of words is unpacked in place: lane `i` of step `j` is code
//! `j` of word `i`, and the activations have a matching layout. A field is masked but not shifted; the
//! activations are scaled down instead. Other codes are unpacked in order.

use super::columns::Dequant;
use super::tables::E2M1;
use super::{MAX_EXACT_ROWS, QuantFormat, QuantMat};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

/// `y = x w^T` for at most [`MAX_EXACT_ROWS`] rows, all in `f32` and contiguous.
pub(super) fn run(par: &dyn Par, x: MatRef<'_, f32>, w: &QuantMat<'_>, y: &MatMut<'_, f32>) {
    let simd = par.simd();
    let ready = dispatch(simd, Prepare { x, w });
    let (ready, m) = (&ready, x.rows);
    let chunk = grain(par, w.rows, (16384 / w.cols).max(1));
    chunks(par, w.rows, chunk, |j0, j1| match m {
        1 => dispatch(simd, ExactRows::<1> { w, x: ready, m, y, j0, j1 }),
        2 => dispatch(simd, ExactRows::<2> { w, x: ready, m, y, j0, j1 }),
        _ => dispatch(simd, ExactRows::<MAX_EXACT_ROWS> { w, x: ready, m, y, j0, j1 }),
    });
}

/// The activations in `f32`, in the layout of the codes, and their sums over each group.
struct PackedActivations {
    /// Floats of a row, padded.
    padded: usize,
    values: Scratch<f32>,
    /// Groups of a row, padded to whole vectors.
    groups: usize,
    sums: Scratch<f32>,
}

// SAFETY: read-only once prepared.
unsafe impl Sync for PackedActivations {}

/// Whether codes are unpacked from whole words.
fn by_words(format: QuantFormat) -> bool {
    matches!(format.bits(), 2 | 4 | 8) && format != QuantFormat::Mxfp8
}

struct Prepare<'a, 'b> {
    x: MatRef<'a, f32>,
    w: &'a QuantMat<'b>,
}

impl Kernel for Prepare<'_, '_> {
    type Out = PackedActivations;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> PackedActivations {
        let Self { x, w } = self;
        // Three rows are computed as four.
        let m = if x.rows == 3 { 4 } else { x.rows };
        let (k, bits) = (w.cols, w.format.bits());
        let per_word = 32 / bits;
        let block = if by_words(w.format) { S::LANES * per_word } else { S::LANES };
        let padded = k.next_multiple_of(block);
        let groups = w.row_groups().next_multiple_of(S::LANES);
        let ready = PackedActivations {
            padded,
            values: Scratch::new(m * padded),
            groups,
            sums: Scratch::new(m * groups),
        };
        let affine = matches!(w.format, QuantFormat::Affine { .. });
        for i in 0..m {
            for p in 0..padded {
                let (at, factor) = if by_words(w.format) {
                    let (b, r) = (p / block, p % block);
                    let (j, lane) = (r / S::LANES, r % S::LANES);
                    let down = if affine { f32::from_bits((127 - (bits * j) as u32) << 23) } else { 1.0 };
                    (b * block + lane * per_word + j, down)
                } else {
                    (p, 1.0)
                };
                // SAFETY: `at < k` is in the view, `p` in the buffer.
                unsafe {
                    let v = if at < k && i < x.rows { *x.at(i, at) } else { 0.0 };
                    *ready.values.ptr().add(i * padded + p) = v * factor;
                }
            }
            for g in 0..groups {
                let group = w.format.group();
                let range = g * group..((g + 1) * group).min(k);
                // SAFETY: the range is in the view, `g` in the buffer.
                unsafe {
                    let sum = if i < x.rows { range.map(|at| *x.at(i, at)).sum::<f32>() } else { 0.0 };
                    *ready.sums.ptr().add(i * groups + g) = sum;
                }
            }
        }
        ready
    }
}

struct ExactRows<'a, 'b, 'c, const M: usize> {
    w: &'a QuantMat<'b>,
    x: &'a PackedActivations,
    m: usize,
    y: &'a MatMut<'c, f32>,
    j0: usize,
    j1: usize,
}

impl<const M: usize> Kernel for ExactRows<'_, '_, '_, M> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { w, x, m, y, j0, j1 } = self;
        let scales = Scratch::<f32>::new(2 * x.groups + 2 * S::LANES);
        let biases = scales.ptr().wrapping_add(x.groups + S::LANES);
        let line = Scratch::<f32>::new(w.cols);
        // Scales past the last group are multiplied by zero, so they must be finite.
        for g in 0..2 * x.groups + 2 * S::LANES {
            // SAFETY: the buffer has that many elements.
            unsafe { *scales.ptr().add(g) = 0.0 };
        }
        for j in j0..j1 {
            // SAFETY: the row exists, and the buffers hold its groups, padded.
            let sums = unsafe {
                load_scales(s, w, j, scales.ptr(), biases);
                let total = match w.format {
                    QuantFormat::Affine { bits: 4, .. } => words::<S, M, 4, false>(s, w, x, j, scales.ptr()),
                    QuantFormat::Affine { bits: 8, .. } => words::<S, M, 8, false>(s, w, x, j, scales.ptr()),
                    QuantFormat::Affine { bits: 2, .. } => words::<S, M, 2, false>(s, w, x, j, scales.ptr()),
                    QuantFormat::Affine { bits: 1, .. } => ordered::<S, M, 1>(s, w, x, j, scales.ptr()),
                    QuantFormat::Affine { bits: 3, .. } => ordered::<S, M, 3>(s, w, x, j, scales.ptr()),
                    QuantFormat::Affine { bits: 5, .. } => ordered::<S, M, 5>(s, w, x, j, scales.ptr()),
                    QuantFormat::Affine { .. } => ordered::<S, M, 6>(s, w, x, j, scales.ptr()),
                    QuantFormat::Mxfp4 | QuantFormat::Nvfp4 => {
                        words::<S, M, 4, true>(s, w, x, j, scales.ptr())
                    }
                    QuantFormat::Mxfp8 => {
                        s.call(Dequant { w, row: j, from: 0, len: w.cols, dst: line.ptr() });
                        dense::<S, M>(s, x, w.cols, line.ptr())
                    }
                };
                if w.biases.is_some() { add_biases(s, x, biases, total) } else { total }
            };
            for (i, v) in sums.into_iter().enumerate().take(m) {
                // SAFETY: the element is in the result, and this task alone writes it.
                unsafe { *y.at(i, j) = s.reduce_add(v) };
            }
        }
    }
}

/// Scales and biases of a row in `f32`.
///
/// # Safety
/// Both buffers hold the groups of a row.
#[inline(always)]
unsafe fn load_scales<S: Isa>(s: S, w: &QuantMat<'_>, row: usize, scales: *mut f32, biases: *mut f32) {
    let n = w.row_groups();
    for (from, to) in [(Some(w.scales), scales), (w.biases, biases)] {
        // SAFETY: `QuantMat` checked that every row has its groups.
        unsafe {
            match from {
                Some(super::Scales::F32(v)) => widen(s, v.as_ptr().add(row * n), to, n),
                Some(super::Scales::F16(v)) => widen(s, v.as_ptr().add(row * n), to, n),
                Some(super::Scales::Bf16(v)) => widen(s, v.as_ptr().add(row * n), to, n),
                Some(bytes) => {
                    for g in 0..n {
                        *to.add(g) = bytes.get(row * n + g, w.format);
                    }
                }
                None => {}
            }
        }
    }
}

/// # Safety
/// Both hold `n` elements.
#[inline(always)]
unsafe fn widen<S: Isa, T: Float>(s: S, from: *const T, to: *mut f32, n: usize) {
    let mut i = 0;
    while i < n {
        let m = (n - i).min(S::LANES);
        // SAFETY: the caller's promise.
        unsafe { s.store_n(to.add(i), T::load_n(s, from.add(i), m), m) };
        i += m;
    }
}

/// Products of the activations with a row whose codes are unpacked from whole words.
///
/// # Safety
/// The row exists; scales hold its groups and a vector more.
#[inline(always)]
unsafe fn words<S: Isa, const M: usize, const BITS: usize, const TABLE: bool>(
    s: S,
    w: &QuantMat<'_>,
    x: &PackedActivations,
    row: usize,
    scales: *const f32,
) -> [S::F; M] {
    let per_word = 32 / BITS;
    let n = w.row_words();
    let lanes_per_group = w.format.group() * BITS / 32;
    let times = lanes_per_group.min(S::LANES);
    let table = s.table(&E2M1);
    let mut total = [s.zero(); M];
    let mut at = 0;
    // SAFETY: the caller's promise; the last vector of words is loaded partially, and activations past the
    // end are zero.
    unsafe {
        let p = w.packed.as_ptr().add(row * n).cast::<f32>();
        while at < n {
            let v = if at + S::LANES <= n { s.load(p.add(at)) } else { s.load_n(p.add(at), n - at) };
            let mut acc = [s.zero(); M];
            let xs = x.values.ptr().add(at * per_word);
            for j in 0..per_word {
                let c = if TABLE {
                    s.lookup(table, v, (4 * j) as u32)
                } else {
                    s.field(v, (((1u64 << BITS) - 1) << (BITS * j)) as u32)
                };
                for (m, a) in acc.iter_mut().enumerate() {
                    *a = s.fma(c, s.load(xs.add(m * x.padded + j * S::LANES)), *a);
                }
            }
            let scale = s.repeat(scales.add(at / lanes_per_group), times);
            for m in 0..M {
                total[m] = s.fma(acc[m], scale, total[m]);
            }
            at += S::LANES;
        }
    }
    total
}

/// Products of the activations with a row whose codes are unpacked in order.
///
/// # Safety
/// The row exists; scales hold its groups.
#[inline(always)]
unsafe fn ordered<S: Isa, const M: usize, const BITS: usize>(
    s: S,
    w: &QuantMat<'_>,
    x: &PackedActivations,
    row: usize,
    scales: *const f32,
) -> [S::F; M] {
    let group = w.format.group();
    let mut total = [s.zero(); M];
    // SAFETY: the caller's promise.
    unsafe {
        let p = w.packed.as_ptr().add(row * w.row_words()).cast::<u8>();
        for g in 0..w.row_groups() {
            let mut acc = [s.zero(); M];
            let mut i = g * group;
            while i < (g + 1) * group {
                let c = s.codes::<BITS>(p.add(i * BITS / 8));
                for (m, a) in acc.iter_mut().enumerate() {
                    *a = s.fma(c, s.load(x.values.ptr().add(m * x.padded + i)), *a);
                }
                i += S::LANES;
            }
            let scale = s.splat(*scales.add(g));
            for m in 0..M {
                total[m] = s.fma(acc[m], scale, total[m]);
            }
        }
    }
    total
}

/// Products of the activations with a dequantized row.
///
/// # Safety
/// `line` holds `k` elements.
#[inline(always)]
unsafe fn dense<S: Isa, const M: usize>(
    s: S,
    x: &PackedActivations,
    k: usize,
    line: *const f32,
) -> [S::F; M] {
    let mut total = [s.zero(); M];
    let mut i = 0;
    while i < k {
        // SAFETY: `k` is a multiple of 32.
        unsafe {
            let v = s.load(line.add(i));
            for (m, t) in total.iter_mut().enumerate() {
                *t = s.fma(v, s.load(x.values.ptr().add(m * x.padded + i)), *t);
            }
        }
        i += S::LANES;
    }
    total
}

/// Adds the biases, each times the sum of its group's activations.
///
/// # Safety
/// The biases hold whole vectors.
#[inline(always)]
unsafe fn add_biases<S: Isa, const M: usize>(
    s: S,
    x: &PackedActivations,
    biases: *const f32,
    mut total: [S::F; M],
) -> [S::F; M] {
    let mut g = 0;
    while g < x.groups {
        // SAFETY: the caller's promise.
        unsafe {
            let b = s.load(biases.add(g));
            for (m, t) in total.iter_mut().enumerate() {
                *t = s.fma(b, s.load(x.sums.ptr().add(m * x.groups + g)), *t);
            }
        }
        g += S::LANES;
    }
    total
}
