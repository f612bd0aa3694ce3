//! Products with a few rows: memory-bound, so the large operand is read once, in order, without packing.
//!
//! The right operand is contiguous along K (every result is a dot product) or along N (every row of it is
//! added to the result with a factor). Sums are split at the same positions whatever the number of threads.

use super::Problem;
use super::driver::finish_in;
use super::precision::Precision;
use crate::par::{Par, Shared, grain};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch};

/// Most rows of the left operand on this path.
pub(super) const MAX_ROWS: usize = 4;
/// Columns of a strip: its sums stay in the L1 cache.
const STRIP: usize = 2048;
/// Elements of the right operand in one range of K.
const RANGE: usize = 1 << 19;

/// Whether the product has few rows, and the right operand a layout that allows this path.
pub(super) fn fits<P: Precision>(p: &Problem<'_, P>) -> bool {
    p.m <= MAX_ROWS && (p.b.row_stride == 1 || p.b.col_stride == 1) && p.k > 0
}

/// Runs a product that [`fits`].
pub(super) fn run<P: Precision>(par: &dyn Par, p: &Problem<'_, P>) {
    let x = Scratch::<P::Acc>::new(p.m * p.k);
    for i in 0..p.m {
        for k in 0..p.k {
            // SAFETY: the buffer has `m * k` elements, and so has the view.
            unsafe { *x.ptr().add(i * p.k + k) = P::from_in(*p.a.0.at(i, k)) };
        }
    }
    let x = Shared::new(x.ptr());
    let simd = par.simd();
    if p.b.row_stride == 1 {
        let chunk = grain(par, p.n, (32768 / p.k).max(4)).next_multiple_of(4);
        par.run(p.n.div_ceil(chunk), &|t| {
            let (j0, j1) = (t * chunk, ((t + 1) * chunk).min(p.n));
            let sums = Scratch::<P::Acc>::new(p.m * (j1 - j0));
            let dots = Dots { p, x, j0, j1, sums: sums.ptr() };
            match p.m {
                1 => dispatch(simd, DotRows::<P, 1>(dots)),
                2 => dispatch(simd, DotRows::<P, 2>(dots)),
                3 => dispatch(simd, DotRows::<P, 3>(dots)),
                _ => dispatch(simd, DotRows::<P, 4>(dots)),
            }
        });
    } else {
        let ranges = (p.k.saturating_mul(p.n) / RANGE).clamp(1, 64).min(p.k);
        let strips = p.n.div_ceil(STRIP);
        let sums = Scratch::<P::Acc>::new(ranges * p.m * p.n);
        let sums = Shared::new(sums.ptr());
        par.run(ranges * strips, &|t| {
            let (r, strip) = (t / strips, t % strips);
            let (k0, k1) = (r * p.k / ranges, (r + 1) * p.k / ranges);
            let (j0, j1) = (strip * STRIP, ((strip + 1) * STRIP).min(p.n));
            let y = sums.get().wrapping_add(r * p.m * p.n + j0);
            let sum = RowSum { p, x, k0, k1, j0, j1, y };
            match p.m {
                1 => dispatch(simd, SumRows::<P, 1>(sum)),
                2 => dispatch(simd, SumRows::<P, 2>(sum)),
                3 => dispatch(simd, SumRows::<P, 3>(sum)),
                _ => dispatch(simd, SumRows::<P, 4>(sum)),
            }
        });
        let chunk = grain(par, p.n, 1024);
        par.run(p.n.div_ceil(chunk), &|t| {
            let (j0, j1) = (t * chunk, ((t + 1) * chunk).min(p.n));
            dispatch(simd, AddRanges { p, sums, ranges, j0, j1 });
        });
    }
}

struct Dots<'a, 'b, P: Precision> {
    p: &'a Problem<'b, P>,
    x: Shared<P::Acc>,
    j0: usize,
    j1: usize,
    sums: *mut P::Acc,
}

struct DotRows<'a, 'b, P: Precision, const M: usize>(Dots<'a, 'b, P>);

impl<P: Precision, const M: usize> Kernel for DotRows<'_, '_, P, M> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Dots { p, x, j0, j1, sums } = self.0;
        let width = j1 - j0;
        let mut j = j0;
        while j < j1 {
            let cols = (j1 - j).min(4);
            // SAFETY: rows `j..j + cols` of the transposed operand and all of `x` are readable.
            unsafe {
                if cols == 4 {
                    let d = dots::<S, P, M, 4>(s, p, x.get(), j);
                    for (i, row) in d.into_iter().enumerate() {
                        for (c, v) in row.into_iter().enumerate() {
                            *sums.add(i * width + j - j0 + c) = v;
                        }
                    }
                } else {
                    for c in 0..cols {
                        let d = dots::<S, P, M, 1>(s, p, x.get(), j + c);
                        for (i, row) in d.into_iter().enumerate() {
                            *sums.add(i * width + j - j0 + c) = row[0];
                        }
                    }
                }
            }
            j += cols;
        }
        finish_in(s, p, 0, M, j0, width, sums, width);
    }
}

/// `M` rows times `C` columns that are contiguous along K.
///
/// # Safety
/// The columns `j..j + C` exist and `x` holds `M` rows.
#[inline(always)]
unsafe fn dots<S: Isa, P: Precision, const M: usize, const C: usize>(
    s: S,
    p: &Problem<'_, P>,
    x: *const P::Acc,
    j: usize,
) -> [[P::Acc; C]; M] {
    let lanes = P::lanes::<S>();
    let zero = P::splat(s, P::ZERO);
    let mut even = [[zero; C]; M];
    let mut odd = [[zero; C]; M];
    let mut w = [p.b.ptr; C];
    for (c, w) in w.iter_mut().enumerate() {
        *w = p.b.at(0, j + c);
    }
    let k = p.k;
    let mut i = 0;
    // SAFETY: every load stays below `k`.
    unsafe {
        while i + 2 * lanes <= k {
            for c in 0..C {
                let (b0, b1) = (P::load_in(s, w[c].add(i)), P::load_in(s, w[c].add(i + lanes)));
                for m in 0..M {
                    let a = x.add(m * k + i);
                    even[m][c] = P::axpy(s, P::load(s, a), b0, even[m][c]);
                    odd[m][c] = P::axpy(s, P::load(s, a.add(lanes)), b1, odd[m][c]);
                }
            }
            i += 2 * lanes;
        }
        while i < k {
            let n = (k - i).min(lanes);
            for c in 0..C {
                let b = P::load_in_n(s, w[c].add(i), n);
                for m in 0..M {
                    even[m][c] = P::axpy(s, P::load_n(s, x.add(m * k + i), n), b, even[m][c]);
                }
            }
            i += n;
        }
    }
    let mut r = [[P::ZERO; C]; M];
    for m in 0..M {
        for c in 0..C {
            r[m][c] = P::reduce(s, P::add(s, even[m][c], odd[m][c]));
        }
    }
    r
}

struct RowSum<'a, 'b, P: Precision> {
    p: &'a Problem<'b, P>,
    x: Shared<P::Acc>,
    k0: usize,
    k1: usize,
    j0: usize,
    j1: usize,
    y: *mut P::Acc,
}

struct SumRows<'a, 'b, P: Precision, const M: usize>(RowSum<'a, 'b, P>);

impl<P: Precision, const M: usize> Kernel for SumRows<'_, '_, P, M> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let t = self.0;
        let mut k = t.k0;
        // SAFETY: the rows exist, and `y` has room for the strip in each of `M` rows.
        unsafe {
            for i in 0..M {
                for j in 0..t.j1 - t.j0 {
                    *t.y.add(i * t.p.n + j) = P::ZERO;
                }
            }
            while k + 8 <= t.k1 {
                add_rows::<S, P, M, 8>(s, &t, k);
                k += 8;
            }
            while k < t.k1 {
                add_rows::<S, P, M, 1>(s, &t, k);
                k += 1;
            }
        }
    }
}

/// `y += x[k..k + R] * b[k..k + R]` over a strip of columns.
///
/// # Safety
/// The rows exist, and `y` has room for the strip.
#[inline(always)]
unsafe fn add_rows<S: Isa, P: Precision, const M: usize, const R: usize>(
    s: S,
    t: &RowSum<'_, '_, P>,
    k: usize,
) {
    let lanes = P::lanes::<S>();
    let mut rows = [t.p.b.ptr; R];
    for (r, row) in rows.iter_mut().enumerate() {
        *row = t.p.b.at(k + r, t.j0);
    }
    let width = t.j1 - t.j0;
    let mut j = 0;
    // SAFETY: every access stays below `width`.
    unsafe {
        while j < width {
            let n = (width - j).min(lanes);
            let mut acc = [P::splat(s, P::ZERO); M];
            for (m, a) in acc.iter_mut().enumerate() {
                let y = t.y.add(m * t.p.n + j);
                *a = if n == lanes { P::load(s, y) } else { P::load_n(s, y, n) };
            }
            for (r, row) in rows.iter().enumerate() {
                let b = if n == lanes { P::load_in(s, row.add(j)) } else { P::load_in_n(s, row.add(j), n) };
                for (m, a) in acc.iter_mut().enumerate() {
                    let x = P::splat(s, *t.x.get().add(m * t.p.k + k + r));
                    *a = P::axpy(s, x, b, *a);
                }
            }
            for (m, a) in acc.into_iter().enumerate() {
                let y = t.y.add(m * t.p.n + j);
                if n == lanes { P::store(s, y, a) } else { P::store_n(s, y, a, n) }
            }
            j += n;
        }
    }
}

/// Adds the partial sums of all ranges of K and finishes the columns `j0..j1`.
struct AddRanges<'a, 'b, P: Precision> {
    p: &'a Problem<'b, P>,
    sums: Shared<P::Acc>,
    ranges: usize,
    j0: usize,
    j1: usize,
}

impl<P: Precision> Kernel for AddRanges<'_, '_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { p, sums, ranges, j0, j1 } = self;
        let lanes = P::lanes::<S>();
        for i in 0..p.m {
            for r in 1..ranges {
                let mut j = j0;
                while j < j1 {
                    let n = (j1 - j).min(lanes);
                    let to = sums.get().wrapping_add(i * p.n + j);
                    let from = to.wrapping_add(r * p.m * p.n);
                    // SAFETY: both lie in the buffer of sums; this task alone touches these columns.
                    unsafe { P::store_n(s, to, P::add(s, P::load_n(s, to, n), P::load_n(s, from, n)), n) };
                    j += n;
                }
            }
        }
        finish_in(s, p, 0, p.m, j0, j1 - j0, sums.get().wrapping_add(j0), p.n);
    }
}
