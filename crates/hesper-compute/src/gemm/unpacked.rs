//! Small products: operands in the caches are read in place, without packing.
//!
//! A task packs its columns of the right operand only if they are not contiguous, or so far apart that they
//! compete for the same cache sets. Sums are bit-identical to those of [`driver`](super::driver).

use std::marker::PhantomData;

use super::Problem;
use super::precision::Precision;
use crate::par::Par;
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch};

/// Longest K: up to here all paths split sums alike.
const MAX_K: usize = 256;
/// Most multiply-adds.
const MAX_WORK: usize = 256 * 256 * 256;
/// Multiply-adds below which starting other threads costs more than it saves.
const SERIAL_WORK: usize = 1 << 17;
/// Fewest columns for which panels are packed.
const PACK_FROM_COLUMNS: usize = 112;
/// Rows of a tile.
const TILE_ROWS: usize = 8;
/// Fewest rows for which packing a panel pays.
const PACK_FROM_ROWS: usize = 32;
/// Most columns.
const MAX_COLUMNS: usize = 512;

/// Runs the product if it is small. Returns whether it did.
pub(super) fn run<P: Precision<In = <P as Precision>::Out>>(par: &dyn Par, p: &Problem<'_, P>) -> bool {
    let work = p.m.saturating_mul(p.n).saturating_mul(p.k);
    let most = if p.m <= super::gemv::MAX_ROWS {
        SERIAL_WORK / 4
    } else if p.m < PACK_FROM_ROWS {
        2 * SERIAL_WORK
    } else {
        MAX_WORK
    };
    let fits = P::OUT_IS_ACC && p.k <= MAX_K && p.n <= MAX_COLUMNS && work <= most;
    if !fits || p.c.col_stride != 1 {
        return false;
    }
    let simd = par.simd();
    let threads = if work < SERIAL_WORK { 1 } else { par.threads() };
    let (lanes, widest) = dispatch(simd, PanelSize::<P>(PhantomData));
    let vectors = p.n.div_ceil(lanes);
    if threads == 1 {
        let panels = vectors.div_ceil(widest);
        dispatch(simd, Block { p, vectors, panels, from: 0, until: panels, rows: [0, p.m] });
        return true;
    }
    // Equally many panels per thread, and parts of the rows if there are few panels.
    let panels = vectors.div_ceil(widest).next_multiple_of(threads).min(vectors);
    let parts = (2 * threads).div_ceil(panels).min(p.m.div_ceil(PACK_FROM_ROWS));
    par.run(panels * parts, &|t| {
        let (panel, part) = (t / parts, t % parts);
        let row = |part: usize| (part * p.m / parts).next_multiple_of(TILE_ROWS).min(p.m);
        let rows = [row(part), row(part + 1)];
        dispatch(simd, Block { p, vectors, panels, from: panel, until: panel + 1, rows });
    });
    true
}

/// The lanes of a vector, and the vectors of a panel.
struct PanelSize<P>(PhantomData<P>);

impl<P: Precision> Kernel for PanelSize<P> {
    type Out = (usize, usize);
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> (usize, usize) {
        (P::lanes::<S>(), S::NV)
    }
}

/// Some panels of columns and some rows of the result.
struct Block<'a, 'b, P: Precision> {
    p: &'a Problem<'b, P>,
    /// Vectors of a result row, and the panels that they are divided into.
    vectors: usize,
    panels: usize,
    from: usize,
    until: usize,
    rows: [usize; 2],
}

impl<P: Precision<In = <P as Precision>::Out>> Kernel for Block<'_, '_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { p, vectors, panels, from, until, rows: [first, last] } = self;
        let lanes = P::lanes::<S>();
        let b = &p.b;
        let packs = b.col_stride != 1 || (p.n >= PACK_FROM_COLUMNS && last - first >= PACK_FROM_ROWS);
        let room = packs.then(|| Scratch::<P::Out>::new(S::NV * lanes * p.k));
        for panel in from..until {
            let (v0, v1) = (panel * vectors / panels, (panel + 1) * vectors / panels);
            let (j, width) = (v0 * lanes, (v1 - v0) * lanes);
            let cols = (p.n - j).min(width);
            let (b, step) = if let Some(room) = &room {
                // SAFETY: the columns exist, and the buffer has room for them; `P::Out` and `P::Acc` are one
                // type (`OUT_IS_ACC`).
                unsafe {
                    let to = room.ptr().cast();
                    P::pack(s, b.at(0, j), b.col_stride, b.row_stride, cols, width, p.k, to);
                }
                (room.ptr().cast_const(), width as isize)
            } else {
                (b.at(0, j), b.row_stride)
            };
            let mut i = first;
            while i < last {
                let rows = match last - i {
                    8.. => 8,
                    4.. => 4,
                    2.. => 2,
                    _ => 1,
                };
                let t = Tile { p, b, step, i, j, cols };
                macro_rules! of_rows {
                    ($($m:literal)*) => {
                        // SAFETY: the rows and columns exist.
                        unsafe {
                            match (rows, v1 - v0) {
                                $(($m, 3) if S::NV == 3 => tile::<S, P, $m, 3>(s, &t),
                                  ($m, 2) => tile::<S, P, $m, 2>(s, &t),
                                  ($m, 1) => tile::<S, P, $m, 1>(s, &t),)*
                                _ => {}
                            }
                        }
                    };
                }
                of_rows!(8 4 2 1);
                i += rows;
            }
        }
    }
}

/// Rows from `i` on and `cols` columns from `j` on.
struct Tile<'a, 'b, P: Precision> {
    p: &'a Problem<'b, P>,
    b: *const P::Out,
    step: isize,
    i: usize,
    j: usize,
    cols: usize,
}

/// # Safety
/// `M` rows and the columns exist, in `V` vectors.
#[inline(always)]
unsafe fn tile<S: Isa, P: Precision<In = <P as Precision>::Out>, const M: usize, const V: usize>(
    s: S,
    t: &Tile<'_, '_, P>,
) {
    let Tile { p, b, step, i, j, cols } = *t;
    let lanes = P::lanes::<S>();
    let last = cols - (V - 1) * lanes;
    let (a, down, across) = (p.a.0.at(i, 0), p.a.0.row_stride, p.a.0.col_stride);
    let mut acc = [[P::splat(s, P::ZERO); V]; M];
    // SAFETY: the caller's promise.
    unsafe {
        if last == lanes {
            for k in 0..p.k as isize {
                let mut bv = [P::splat(s, P::ZERO); V];
                for (v, x) in bv.iter_mut().enumerate() {
                    *x = P::load_in(s, b.offset(k * step).add(v * lanes));
                }
                add::<S, P, M, V>(s, &mut acc, a.offset(k * across), down, bv);
            }
        } else {
            for k in 0..p.k as isize {
                let mut bv = [P::splat(s, P::ZERO); V];
                for (v, x) in bv.iter_mut().enumerate().take(V - 1) {
                    *x = P::load_in(s, b.offset(k * step).add(v * lanes));
                }
                bv[V - 1] = P::load_in_n(s, b.offset(k * step).add((V - 1) * lanes), last);
                add::<S, P, M, V>(s, &mut acc, a.offset(k * across), down, bv);
            }
        }
        let e = &p.epilogue;
        let (alpha, beta) = (P::splat(s, e.alpha), P::splat(s, e.beta));
        let plain = e.alpha == P::ONE && e.beta == P::ZERO;
        for (m, row) in acc.into_iter().enumerate() {
            for (v, mut sum) in row.into_iter().enumerate() {
                let to = p.c.at(i + m, j + v * lanes);
                let n = if v + 1 == V { last } else { lanes };
                if !plain {
                    if e.alpha != P::ONE {
                        sum = P::axpy(s, alpha, sum, P::splat(s, P::ZERO));
                    }
                    if e.beta != P::ZERO {
                        sum = P::axpy(s, beta, P::load_out(s, to, n), sum);
                    }
                }
                P::store_out(s, to, sum, n);
            }
        }
    }
}

/// One step along K.
///
/// # Safety
/// `M` elements of the left operand, `down` apart, are readable.
#[inline(always)]
unsafe fn add<S: Isa, P: Precision, const M: usize, const V: usize>(
    s: S,
    acc: &mut [[P::V<S>; V]; M],
    a: *const P::In,
    down: isize,
    b: [P::V<S>; V],
) {
    for (m, row) in acc.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let x = P::splat(s, P::from_in(unsafe { *a.offset(m as isize * down) }));
        for (sum, b) in row.iter_mut().zip(b) {
            *sum = P::mul_add(s, x, b, *sum);
        }
    }
}
