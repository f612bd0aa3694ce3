//! The innermost product: a tile of the result kept in registers while it runs along K.
//!
//! Every element is summed step by step along K, whatever its tile, so tiling does not affect the result.

use super::precision::Precision;
use crate::simd::{Isa, Local};

/// Bytes of a cache line.
const LINE: usize = 64;

/// `acc[i][j] += a[i] * b[j]` over `k` packed steps of `S::MR` elements and `V` vectors.
///
/// Prefetches the lines of the result, one at a time, and the data from `t.next` on.
///
/// # Safety
/// The packed operands are readable for `k` steps.
#[inline(always)]
unsafe fn product<S: Isa, P: Precision, const M: usize, const V: usize>(
    s: S,
    t: &Tile<P>,
) -> [[P::V<S>; V]; M] {
    let lanes = P::lanes::<S>();
    let (aks, bks) = (S::MR, V * lanes);
    let (k, mut a, mut b, mut next) = (t.k, t.a, t.b, t.next);
    let (mut c, mut column, mut lines) = (t.c.cast_const(), 0, M * V);
    let mut acc = [[P::splat(s, P::ZERO); V]; M];
    // SAFETY: the caller's promise.
    unsafe {
        for _ in 0..k / 4 {
            s.prefetch_far(next.cast());
            next = next.wrapping_add(LINE / size_of::<P::Acc>());
            if lines > 0 {
                s.prefetch(c.cast());
                c = c.wrapping_add(lanes);
                column += 1;
                if column == V {
                    column = 0;
                    c = c.wrapping_add(t.ldc).wrapping_sub(V * lanes);
                }
                lines -= 1;
            }
            // Unrolled by hand: the compiler does not unroll a body of this size.
            step::<S, P, M, V>(s, &mut acc, a, b);
            step::<S, P, M, V>(s, &mut acc, a.wrapping_add(aks), b.wrapping_add(bks));
            step::<S, P, M, V>(s, &mut acc, a.wrapping_add(2 * aks), b.wrapping_add(2 * bks));
            step::<S, P, M, V>(s, &mut acc, a.wrapping_add(3 * aks), b.wrapping_add(3 * bks));
            a = a.wrapping_add(4 * aks);
            b = b.wrapping_add(4 * bks);
        }
        for _ in 0..k % 4 {
            step::<S, P, M, V>(s, &mut acc, a, b);
            a = a.wrapping_add(aks);
            b = b.wrapping_add(bks);
        }
    }
    acc
}

/// One step along K.
///
/// # Safety
/// The step is readable in both operands.
#[inline(always)]
unsafe fn step<S: Isa, P: Precision, const M: usize, const V: usize>(
    s: S,
    acc: &mut [[P::V<S>; V]; M],
    a: *const P::Acc,
    b: *const P::Acc,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut bv = [P::splat(s, P::ZERO); V];
        for (j, v) in bv.iter_mut().enumerate() {
            *v = P::load(s, b.add(j * P::lanes::<S>()));
        }
        for (i, row) in acc.iter_mut().enumerate() {
            let av = P::splat(s, *a.add(i));
            for (c, v) in row.iter_mut().zip(bv) {
                *c = P::mul_add(s, av, v, *c);
            }
        }
    }
}

/// One tile: its operands and the destination of its sums.
pub(crate) struct Tile<P: Precision> {
    /// Packed steps along K.
    pub k: usize,
    pub a: *const P::Acc,
    pub b: *const P::Acc,
    /// The data needed next, to prefetch; may be any address.
    pub next: *const P::Acc,
    /// Sums, with their row stride.
    pub c: *mut P::Acc,
    pub ldc: usize,
    /// Columns to write, at most `S::NV` vectors. The panel has as many vectors as they take.
    pub cols: usize,
    /// Whether to add to the old sums.
    pub accumulate: bool,
}

/// Computes `M` rows and writes the first `rows`: rows of a packed panel past the last are readable.
///
/// # Safety
/// All memory that the tile describes is valid.
#[inline(always)]
unsafe fn tile_of<S: Isa, P: Precision, const M: usize, const V: usize>(s: S, t: &Tile<P>, rows: usize) {
    let lanes = P::lanes::<S>();
    // SAFETY: the caller's promise.
    unsafe {
        let acc = product::<S, P, M, V>(s, t);
        // Only the last vector of a row may be partial.
        let last = t.cols - (V - 1) * lanes;
        for (i, row) in acc.into_iter().enumerate() {
            // `continue`, not `break`: the loop is unrolled because its number of rounds is constant.
            if i >= rows {
                continue;
            }
            for (j, v) in row.into_iter().enumerate() {
                let p = t.c.add(i * t.ldc + j * lanes);
                let n = if j + 1 < V { lanes } else { last };
                if n == lanes {
                    let v = if t.accumulate { P::add(s, v, P::load(s, p)) } else { v };
                    P::store(s, p, v);
                } else {
                    let v = if t.accumulate { P::add(s, v, P::load_n(s, p, n)) } else { v };
                    P::store_n(s, p, v, n);
                }
            }
        }
    }
}

/// The rows that are computed for a tile of `rows` rows. Some sizes share the code of the next larger one,
/// because these loops take long to compile.
#[inline(always)]
fn computed(rows: usize) -> usize {
    match rows {
        7 => 8,
        5 => 6,
        other => other,
    }
}

/// A column of tiles: `rows` rows against one panel of columns.
///
/// `first` is its first tile; the others follow every `S::MR` rows, their operands `panel` elements apart.
pub(crate) struct Column<P: Precision> {
    pub first: Tile<P>,
    pub rows: usize,
    pub panel: usize,
}

impl<S: Isa, P: Precision> Local<S> for Column<P> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { first: mut t, mut rows, panel } = self;
        let vectors = t.cols.div_ceil(P::lanes::<S>());
        while rows > 0 {
            let m = rows.min(S::MR);
            macro_rules! of_rows {
                ($($m:literal)*) => {
                    // SAFETY: the column was made with valid memory.
                    unsafe {
                        match (computed(m).min(S::MR), vectors) {
                            $(($m, 3) if $m <= S::MR && S::NV == 3 => tile_of::<S, P, $m, 3>(s, &t, m),
                              ($m, 2) if $m <= S::MR => tile_of::<S, P, $m, 2>(s, &t, m),
                              ($m, 1) if $m <= S::MR => tile_of::<S, P, $m, 1>(s, &t, m),)*
                            _ => {}
                        }
                    }
                };
            }
            of_rows!(8 6 4 3 2 1);
            rows -= m;
            t.a = t.a.wrapping_add(panel);
            t.c = t.c.wrapping_add(m * t.ldc);
            t.next = t.next.wrapping_add(t.k / 4 * (LINE / size_of::<P::Acc>()));
        }
    }
}
