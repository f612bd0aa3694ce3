//! Sums of elements and of their squares, in double precision, in the order of [`reduce`](super::reduce).

use std::marker::PhantomData;

use super::fold;
use super::input::{ReduceInput, Tile};
use super::reduce::{Fold, OrderedReducer, Reduction, in_order};
use super::source::Plain;
use super::tree::{Reducer, pairwise};
use crate::error::{Mismatch, same};
use crate::par::Par;
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, Simd, dispatch};

/// Elements of a tile converted at a time.
const WIDENED: usize = 1 << 14;
/// Columns whose moments are computed together in the order of rows.
const ABREAST: usize = 64;

/// A float type whose moments can be computed.
pub trait Sample: Float + Plain {
    #[doc(hidden)]
    fn run(par: &dyn Par, x: &ReduceInput<'_, Self>, out: &mut [[f64; 2]]);
}

macro_rules! samples {
    ($($t:ty)*) => {$(
        impl Sample for $t {
            fn run(par: &dyn Par, x: &ReduceInput<'_, $t>, out: &mut [[f64; 2]]) {
                in_order(par, Moments(Fold::new(Reduction::Sum), PhantomData), x, out);
            }
        }
    )*};
}

samples!(f32 half::bf16 half::f16);

/// The sum of the elements of each result, and of their squares.
pub fn moments<T: Sample>(
    par: &dyn Par,
    x: &ReduceInput<'_, T>,
    out: &mut [[f64; 2]],
) -> Result<(), Mismatch> {
    same("elements of the result", x.results(), out.len())?;
    T::run(par, x, out);
    Ok(())
}

/// Accumulates two sums of doubles.
struct Moments<T, R>(R, PhantomData<fn(T)>);

impl<T, R: Copy> Clone for Moments<T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, R: Copy> Copy for Moments<T, R> {}

impl<T: Sample, R: Reducer<In = f64, Acc = f64>> Reducer for Moments<T, R> {
    type In = T;
    type Acc = [f64; 2];
    const RANGE: usize = R::RANGE;
    const STRIP: usize = R::STRIP;

    fn empty(self) -> [f64; 2] {
        [0.0; 2]
    }

    fn rows(self, simd: Simd, x: &[T], len: usize, out: &mut [[f64; 2]]) {
        let wide = Scratch::<f64>::new(x.len());
        // SAFETY: the buffer holds as many elements, and all are written before they are read.
        let wide = unsafe { std::slice::from_raw_parts_mut(wide.ptr(), x.len()) };
        dispatch(simd, Widen { x, out: wide });
        both(simd, wide, out, |x, out| self.0.rows(simd, x, len, out));
    }

    fn columns(self, simd: Simd, tile: &Tile<'_, T>, out: &mut [[f64; 2]]) {
        let width = (WIDENED / tile.rows).max(32).min(tile.width);
        let wide = Scratch::<f64>::new(tile.rows * width);
        for (strip, out) in out.chunks_mut(width).enumerate() {
            let (first, n) = (strip * width, out.len());
            // SAFETY: as above.
            let wide = unsafe { std::slice::from_raw_parts_mut(wide.ptr(), tile.rows * n) };
            dispatch(simd, WidenTile { tile, first, width: n, out: wide });
            both(simd, wide, out, |x, out| self.0.columns(simd, &Tile::packed(x, n), out));
        }
    }

    fn join(self, _: usize, _: usize, parts: &mut [[f64; 2]]) -> [f64; 2] {
        pairwise(parts, |a, b| [a[0] + b[0], a[1] + b[1]])
    }
}

impl<T: Sample, R: OrderedReducer<In = f64, Acc = f64>> OrderedReducer for Moments<T, R> {
    type Across = MomentsAcross<T, R>;
    fn across(self) -> Self::Across {
        MomentsAcross(self)
    }
}

/// The moments of columns in the order of rows: each block has the accumulators of a row for all columns.
struct MomentsAcross<T, R>(Moments<T, R>);

impl<T, R: Copy> Clone for MomentsAcross<T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, R: Copy> Copy for MomentsAcross<T, R> {}

impl<T: Sample, R: OrderedReducer<In = f64, Acc = f64>> Reducer for MomentsAcross<T, R> {
    type In = T;
    type Acc = [f64; 2];
    const RANGE: usize = R::Across::RANGE;
    const STRIP: usize = R::Across::STRIP;

    fn empty(self) -> [f64; 2] {
        self.0.empty()
    }

    fn rows(self, simd: Simd, x: &[T], len: usize, out: &mut [[f64; 2]]) {
        self.0.rows(simd, x, len, out);
    }

    fn columns(self, simd: Simd, tile: &Tile<'_, T>, out: &mut [[f64; 2]]) {
        let lanes = fold::lanes(tile.rows);
        let lane = Scratch::<[[f64; ABREAST]; 2]>::new(lanes);
        // SAFETY: the buffer holds as many elements, and each strip writes all before it reads them.
        let lane = unsafe { std::slice::from_raw_parts_mut(lane.ptr(), lanes) };
        for (strip, out) in out.chunks_mut(ABREAST).enumerate() {
            dispatch(simd, LaneMoments { tile, first: strip * ABREAST, lanes: lane, out });
        }
    }

    fn join(self, result: usize, part: usize, parts: &mut [[f64; 2]]) -> [f64; 2] {
        self.0.join(result, part, parts)
    }
}

/// The moments of at most [`ABREAST`] columns of a tile, from `first` on. `lanes` are the accumulators.
struct LaneMoments<'a, 't, T> {
    tile: &'a Tile<'t, T>,
    first: usize,
    lanes: &'a mut [[[f64; ABREAST]; 2]],
    out: &'a mut [[f64; 2]],
}

impl<T: Float> Kernel for LaneMoments<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let LaneMoments { tile, first, lanes, out } = self;
        let (count, n) = (lanes.len(), out.len());
        for (at, lane) in lanes.iter_mut().enumerate() {
            let (mut sums, mut squares, mut wide) = ([0.0; ABREAST], [0.0; ABREAST], [0.0; ABREAST]);
            for k in (at..tile.rows).step_by(count) {
                widen(s, &tile.row(k)[first..first + n], &mut wide[..n]);
                for (i, x) in wide.iter().enumerate() {
                    sums[i] += x;
                    squares[i] += x * x;
                }
            }
            *lane = [sums, squares];
        }
        let mut half = count / 2;
        while half > 0 {
            let (low, high) = lanes.split_at_mut(half);
            for (low, high) in low.iter_mut().flatten().flatten().zip(high.iter().flatten().flatten()) {
                *low += high;
            }
            half /= 2;
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = [lanes[0][0][i], lanes[0][1][i]];
        }
    }
}

/// Reduces elements, then their squares.
fn both(simd: Simd, x: &mut [f64], out: &mut [[f64; 2]], reduce: impl Fn(&[f64], &mut [f64])) {
    let mut sums = vec![0.0; out.len()];
    for moment in 0..2 {
        if moment == 1 {
            dispatch(simd, Square(x));
        }
        reduce(x, &mut sums);
        out.iter_mut().zip(&sums).for_each(|(out, sum)| out[moment] = *sum);
    }
}

/// Widens contiguous elements.
struct Widen<'a, T> {
    x: &'a [T],
    out: &'a mut [f64],
}

impl<T: Float> Kernel for Widen<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        widen(s, self.x, self.out);
    }
}

/// Widens `width` columns of a tile from `first` on, row by row.
struct WidenTile<'a, 't, T> {
    tile: &'a Tile<'t, T>,
    first: usize,
    width: usize,
    out: &'a mut [f64],
}

impl<T: Float> Kernel for WidenTile<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        for (k, out) in self.out.chunks_exact_mut(self.width).enumerate() {
            widen(s, &self.tile.row(k)[self.first..self.first + self.width], out);
        }
    }
}

#[inline(always)]
fn widen<S: Isa, T: Float>(s: S, x: &[T], out: &mut [f64]) {
    let mut single = [0.0; 16];
    let (mut from, mut to) = (x.chunks_exact(S::LANES), out.chunks_exact_mut(S::LANES));
    for (x, out) in (&mut from).zip(&mut to) {
        // SAFETY: a whole vector, which has at most sixteen lanes.
        unsafe { s.store(single.as_mut_ptr(), T::load(s, x.as_ptr())) };
        for lane in 0..S::LANES {
            out[lane] = f64::from(single[lane]);
        }
    }
    let rest = from.remainder();
    // SAFETY: the remainder has fewer elements than a vector.
    unsafe { s.store(single.as_mut_ptr(), T::load_n(s, rest.as_ptr(), rest.len())) };
    for (out, x) in to.into_remainder().iter_mut().zip(single) {
        *out = f64::from(x);
    }
}

struct Square<'a>(&'a mut [f64]);

impl Kernel for Square<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        self.0.iter_mut().for_each(|x| *x *= *x);
    }
}
