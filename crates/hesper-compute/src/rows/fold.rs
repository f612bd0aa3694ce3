//! Rows of at most one block, each reduced to one value: in 64 accumulators that are then combined in halves.
//! The tree is the same at every SIMD level and for every layout.

use super::extreme::extreme;
use super::integers::{Integer, extreme_of};
use super::reduce::{Acc, Reduction};
use crate::simd::{Float, Isa, Kernel, Simd, dispatch, dispatch_256};

/// Accumulators of a row.
pub(super) const LANES: usize = 64;

/// Accumulators for rows of `len` elements.
pub(super) fn lanes(len: usize) -> usize {
    len.next_power_of_two().clamp(8, LANES)
}

/// Rows of small integers, reduced in a wider type, and of complex doubles.
pub(super) fn widened<T: Copy + Into<A>, A: Acc>(
    level: Simd,
    op: Reduction,
    x: &[T],
    len: usize,
    out: &mut [A],
) {
    match op {
        Reduction::Sum => dispatch(level, Totals { x, len, out }),
        _ => dispatch_256(level, Each::<_, _, true> { op, x, len, out }),
    }
}

/// Rows of integers, reduced in their own type.
pub(super) fn integers<T: Acc + Integer>(level: Simd, op: Reduction, x: &[T], len: usize, out: &mut [T]) {
    match op {
        Reduction::Max | Reduction::Min => {
            dispatch_256(level, Integers { max: op == Reduction::Max, x, len, out })
        }
        Reduction::Sum => dispatch_256(level, Totals { x, len, out }),
        Reduction::Prod => dispatch_256(level, Each::<_, _, false> { op, x, len, out }),
    }
}

/// Rows of floats, reduced in `f32`.
pub(super) fn floats<T: Float>(level: Simd, op: Reduction, x: &[T], len: usize, out: &mut [f32]) {
    dispatch(level, Floats { op, x, len, out });
}

/// Rows of doubles.
pub(super) fn doubles(level: Simd, op: Reduction, x: &[f64], len: usize, out: &mut [f64]) {
    match op {
        Reduction::Sum => dispatch(level, Doubles { x, len, out }),
        _ => dispatch(level, Each::<_, _, true> { op, x, len, out }),
    }
}

/// Rows of complex numbers.
pub(super) fn pairs(level: Simd, op: Reduction, x: &[[f32; 2]], len: usize, out: &mut [[f32; 2]]) {
    match op {
        Reduction::Sum => dispatch(level, Pairs { x, len, out }),
        _ => dispatch(level, Each::<_, _, true> { op, x, len, out }),
    }
}

/// Adds four rows, or one, to results, element by element.
pub(super) fn add_each<T: Copy + Into<A>, A: Acc>(level: Simd, op: Reduction, rows: &[&[T]], acc: &mut [A]) {
    // Element by element, so the width of vectors changes no result.
    dispatch_256(level, AddEach { op, rows, acc });
}

/// [`add_each`] for floats that are added in `f32`.
pub(super) fn add_floats<T: Float>(level: Simd, op: Reduction, rows: &[&[T]], acc: &mut [f32]) {
    dispatch(level, AddFloats { op, rows, acc });
}

/// Products, and extremes if `EXTREMES`. Sums have kernels of their own.
struct Each<'a, T, A, const EXTREMES: bool> {
    op: Reduction,
    x: &'a [T],
    len: usize,
    out: &'a mut [A],
}

impl<T: Copy + Into<A>, A: Acc, const EXTREMES: bool> Kernel for Each<'_, T, A, EXTREMES> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let Each { op, x, len, out } = self;
        // Match on the operation outside of the loops, so that each loop is specialized.
        match op {
            Reduction::Min if EXTREMES => fold_rows(Reduction::Min, x, len, out),
            Reduction::Max if EXTREMES => fold_rows(Reduction::Max, x, len, out),
            _ => fold_rows(Reduction::Prod, x, len, out),
        }
    }
}

#[inline(always)]
fn fold_rows<T: Copy + Into<A>, A: Acc>(op: Reduction, x: &[T], len: usize, out: &mut [A]) {
    let rows = x.chunks_exact(len).zip(out);
    if len <= LANES {
        for (row, out) in rows {
            *out = fold_short(op, row);
        }
    } else {
        for (row, out) in rows {
            *out = fold(op, row);
        }
    }
}

/// A row of at most [`LANES`] elements: one function for all lengths, because one for each number of
/// accumulators would be most of the code.
#[inline(always)]
fn fold_short<T: Copy + Into<A>, A: Acc>(op: Reduction, x: &[T]) -> A {
    let mut acc = [A::start(op); LANES];
    for (a, x) in acc.iter_mut().zip(x) {
        *a = A::join(op, *a, (*x).into());
    }
    let mut n = lanes(x.len()) / 2;
    while n > 0 {
        let (low, high) = acc.split_at_mut(n);
        for (a, b) in low.iter_mut().zip(high) {
            *a = A::join(op, *a, *b);
        }
        n /= 2;
    }
    acc[0]
}

#[inline(always)]
fn fold<T: Copy + Into<A>, A: Acc>(op: Reduction, x: &[T]) -> A {
    let mut acc = [A::start(op); LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for c in chunks {
        for i in 0..LANES {
            acc[i] = A::join(op, acc[i], c[i].into());
        }
    }
    for (a, x) in acc.iter_mut().zip(tail) {
        *a = A::join(op, *a, (*x).into());
    }
    halves(op, &mut acc)
}

#[inline(always)]
pub(super) fn halves<A: Acc, const N: usize>(op: Reduction, acc: &mut [A; N]) -> A {
    let mut n = N / 2;
    while n > 0 {
        for i in 0..n {
            acc[i] = A::join(op, acc[i], acc[i + n]);
        }
        n /= 2;
    }
    acc[0]
}

/// Sums of integers, which do not depend on the order. Sums of complex doubles use it too; their order is not
/// that of [`fold`].
struct Totals<'a, T, A> {
    x: &'a [T],
    len: usize,
    out: &'a mut [A],
}

impl<T: Copy + Into<A>, A: Acc> Kernel for Totals<'_, T, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for (x, out) in self.x.chunks_exact(self.len).zip(self.out) {
            *out = match x.len() {
                64.. => total::<T, A, 64>(x),
                16.. => total::<T, A, 16>(x),
                8.. => total::<T, A, 8>(x),
                _ => {
                    let mut sum = A::start(Reduction::Sum);
                    for v in x {
                        sum = A::join(Reduction::Sum, sum, (*v).into());
                    }
                    sum
                }
            };
        }
    }
}

/// The sum of at least `N` elements. The last vector overlaps the one before; lanes that were already added
/// are masked.
#[inline(always)]
fn total<T: Copy + Into<A>, A: Acc, const N: usize>(x: &[T]) -> A {
    const SUM: Reduction = Reduction::Sum;
    let none = A::start(SUM);
    let mut acc = [none; N];
    let (whole, rest) = x.as_chunks::<N>();
    for c in whole {
        for i in 0..N {
            acc[i] = A::join(SUM, acc[i], c[i].into());
        }
    }
    if let Some(last) = x.last_chunk::<N>() {
        let old = N - rest.len();
        for i in 0..N {
            acc[i] = A::join(SUM, acc[i], if i < old { none } else { last[i].into() });
        }
    }
    halves(SUM, &mut acc)
}

struct Integers<'a, T> {
    max: bool,
    x: &'a [T],
    len: usize,
    out: &'a mut [T],
}

impl<T: Acc + Integer> Kernel for Integers<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let rows = self.x.chunks_exact(self.len).zip(self.out);
        if self.max {
            for (x, out) in rows {
                *out = extreme_of::<T, true>(x);
            }
        } else {
            for (x, out) in rows {
                *out = extreme_of::<T, false>(x);
            }
        }
    }
}

struct Floats<'a, T> {
    op: Reduction,
    x: &'a [T],
    len: usize,
    out: &'a mut [f32],
}

impl<T: Float> Kernel for Floats<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let rows = self.x.chunks_exact(self.len).zip(self.out);
        match self.op {
            Reduction::Sum => {
                for (x, out) in rows {
                    *out = combined::<S, T, false>(s, x);
                }
            }
            Reduction::Prod => {
                for (x, out) in rows {
                    *out = combined::<S, T, true>(s, x);
                }
            }
            Reduction::Max => {
                for (x, out) in rows {
                    let (value, nan) = extreme::<S, T, true>(s, x);
                    *out = if nan { f32::NAN } else { value };
                }
            }
            Reduction::Min => {
                for (x, out) in rows {
                    let (value, nan) = extreme::<S, T, false>(s, x);
                    *out = if nan { f32::NAN } else { value };
                }
            }
        }
    }
}

/// The sum or product of a row, with the tree of [`fold`].
#[inline(always)]
fn combined<S: Isa, T: Float, const PROD: bool>(s: S, x: &[T]) -> f32 {
    const MAX_VECTORS: usize = 8;
    const { assert!(LANES / S::LANES <= MAX_VECTORS) };
    let start = s.splat(if PROD { 1.0 } else { 0.0 });
    let vectors = LANES / S::LANES;
    let mut acc = [start; MAX_VECTORS];
    let whole = x.len() / LANES;
    for i in 0..whole {
        for (j, acc) in acc.iter_mut().enumerate().take(vectors) {
            // SAFETY: a whole vector of the row.
            let v = unsafe { T::load(s, x.as_ptr().add(i * LANES + j * S::LANES)) };
            *acc = if PROD { s.mul(*acc, v) } else { s.add(*acc, v) };
        }
    }
    let mut at = whole * LANES;
    let mut j = 0;
    while at < x.len() {
        let n = S::LANES.min(x.len() - at);
        // SAFETY: the row has `n` elements from `at` on.
        let mut v = unsafe { T::load_n(s, x.as_ptr().add(at), n) };
        if PROD && n < S::LANES {
            // SAFETY: `FILL` has 32 elements, and a vector at most sixteen. The lanes of the row add -0, the
            // others one.
            v = s.add(v, unsafe { s.load(FILL.as_ptr().add(16 - n)) });
        }
        acc[j] = if PROD { s.mul(acc[j], v) } else { s.add(acc[j], v) };
        at += n;
        j += 1;
    }
    let mut n = vectors / 2;
    while n > 0 {
        for j in 0..n {
            acc[j] = if PROD { s.mul(acc[j], acc[j + n]) } else { s.add(acc[j], acc[j + n]) };
        }
        n /= 2;
    }
    let mut last = [0.0; 16];
    // SAFETY: a vector has at most sixteen lanes.
    unsafe { s.store(last.as_mut_ptr(), acc[0]) };
    let mut n = S::LANES / 2;
    while n > 0 {
        for i in 0..n {
            last[i] = if PROD { last[i] * last[i + n] } else { last[i] + last[i + n] };
        }
        n /= 2;
    }
    last[0]
}

struct Doubles<'a> {
    x: &'a [f64],
    len: usize,
    out: &'a mut [f64],
}

impl Kernel for Doubles<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        /// The most vectors for 64 accumulators.
        const MAX_VECTORS: usize = 16;
        const { assert!(LANES / (S::LANES / 2) <= MAX_VECTORS) };
        let step = S::LANES / 2;
        let vectors = LANES / step;
        for (x, out) in self.x.chunks_exact(self.len).zip(self.out) {
            let mut acc = [s.d_splat(0.0); MAX_VECTORS];
            let (whole, tail) = x.as_chunks::<LANES>();
            for c in whole {
                for (j, acc) in acc.iter_mut().enumerate().take(vectors) {
                    // SAFETY: a whole vector of the chunk.
                    *acc = s.d_add(*acc, unsafe { s.d_load(c.as_ptr().add(j * step)) });
                }
            }
            let mut at = 0;
            while at < tail.len() {
                let n = step.min(tail.len() - at);
                // SAFETY: the row has `n` more elements.
                let v = unsafe { s.d_load_n(tail.as_ptr().add(at), n) };
                acc[at / step] = s.d_add(acc[at / step], v);
                at += step;
            }
            let mut n = vectors / 2;
            while n > 0 {
                for j in 0..n {
                    acc[j] = s.d_add(acc[j], acc[j + n]);
                }
                n /= 2;
            }
            let mut last = [0.0; 8];
            // SAFETY: a vector has at most eight doubles.
            unsafe { s.d_store(last.as_mut_ptr(), acc[0]) };
            let mut n = step / 2;
            while n > 0 {
                for i in 0..n {
                    last[i] += last[i + n];
                }
                n /= 2;
            }
            *out = last[0];
        }
    }
}

struct Pairs<'a> {
    x: &'a [[f32; 2]],
    len: usize,
    out: &'a mut [[f32; 2]],
}

impl Kernel for Pairs<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        /// The most vectors for 64 accumulators.
        const MAX_VECTORS: usize = 16;
        const { assert!(2 * LANES / S::LANES <= MAX_VECTORS) };
        let vectors = 2 * LANES / S::LANES;
        for (x, out) in self.x.chunks_exact(self.len).zip(self.out) {
            let mut acc = [s.zero(); MAX_VECTORS];
            let (whole, tail) = x.as_chunks::<LANES>();
            for c in whole {
                for (j, acc) in acc.iter_mut().enumerate().take(vectors) {
                    // SAFETY: a whole vector of the chunk.
                    *acc = s.add(*acc, unsafe { s.load(c.as_flattened().as_ptr().add(j * S::LANES)) });
                }
            }
            let tail = tail.as_flattened();
            let mut at = 0;
            while at < tail.len() {
                let n = S::LANES.min(tail.len() - at);
                // SAFETY: the row has `n` more elements.
                let v = unsafe { s.load_n(tail.as_ptr().add(at), n) };
                acc[at / S::LANES] = s.add(acc[at / S::LANES], v);
                at += S::LANES;
            }
            let mut n = vectors / 2;
            while n > 0 {
                for j in 0..n {
                    acc[j] = s.add(acc[j], acc[j + n]);
                }
                n /= 2;
            }
            let mut last = [0.0; 16];
            // SAFETY: a vector has at most sixteen lanes.
            unsafe { s.store(last.as_mut_ptr(), acc[0]) };
            let mut n = S::LANES / 2;
            while n > 1 {
                for i in 0..n {
                    last[i] += last[i + n];
                }
                n /= 2;
            }
            *out = [last[0], last[1]];
        }
    }
}

/// Sixteen identities of the sum, then sixteen of the product.
static FILL: [f32; 32] = {
    let mut fill = [1.0; 32];
    let mut i = 0;
    while i < 16 {
        fill[i] = -0.0;
        i += 1;
    }
    fill
};

struct AddEach<'a, 'b, T, A> {
    op: Reduction,
    rows: &'a [&'b [T]],
    acc: &'a mut [A],
}

impl<T: Copy + Into<A>, A: Acc> Kernel for AddEach<'_, '_, T, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        match self.op {
            Reduction::Sum => add_rows(Reduction::Sum, self.rows, self.acc),
            Reduction::Prod => add_rows(Reduction::Prod, self.rows, self.acc),
            Reduction::Min => add_rows(Reduction::Min, self.rows, self.acc),
            Reduction::Max => add_rows(Reduction::Max, self.rows, self.acc),
        }
    }
}

#[inline(always)]
fn add_rows<T: Copy + Into<A>, A: Acc>(op: Reduction, rows: &[&[T]], acc: &mut [A]) {
    let n = acc.len();
    if let [a, b, c, d] = rows {
        let (a, b, c, d) = (&a[..n], &b[..n], &c[..n], &d[..n]);
        for j in 0..n {
            let (two, more) = (A::join(op, a[j].into(), b[j].into()), A::join(op, c[j].into(), d[j].into()));
            acc[j] = A::join(op, acc[j], A::join(op, two, more));
        }
        return;
    }
    for row in rows {
        for (a, x) in acc.iter_mut().zip(*row) {
            *a = A::join(op, *a, (*x).into());
        }
    }
}

struct AddFloats<'a, 'b, T> {
    op: Reduction,
    rows: &'a [&'b [T]],
    acc: &'a mut [f32],
}

impl<T: Float> Kernel for AddFloats<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        /// Columns converted to `f32` at a time.
        const WIDENED_COLUMNS: usize = 256;
        let AddFloats { op, rows, acc } = self;
        if let ([row], Reduction::Sum | Reduction::Prod) = (rows, op) {
            return add_vectors(s, op, row, acc);
        }
        let mut widened = [[0.0f32; WIDENED_COLUMNS]; 4];
        for j0 in (0..acc.len()).step_by(WIDENED_COLUMNS) {
            let n = WIDENED_COLUMNS.min(acc.len() - j0);
            for (row, widened) in rows.iter().zip(&mut widened) {
                let row = &row[j0..j0 + n];
                for at in (0..n).step_by(S::LANES) {
                    let m = S::LANES.min(n - at);
                    // SAFETY: the row has `m` elements from `at` on; the buffer is a whole number of vectors.
                    unsafe {
                        let from = row.as_ptr().add(at);
                        let v = if m == S::LANES { T::load(s, from) } else { T::load_n(s, from, m) };
                        s.store(widened.as_mut_ptr().add(at), v);
                    }
                }
            }
            let acc = &mut acc[j0..j0 + n];
            let [a, b, c, d] = &widened;
            let lines = [&a[..n], &b[..n], &c[..n], &d[..n]];
            AddEach { op, rows: &lines[..rows.len()], acc }.run(s);
        }
    }
}

/// Adds a row to sums, or multiplies products by it.
#[inline(always)]
fn add_vectors<S: Isa, T: Float>(s: S, op: Reduction, row: &[T], acc: &mut [f32]) {
    let n = acc.len();
    let row = &row[..n];
    for at in (0..n).step_by(S::LANES) {
        let m = S::LANES.min(n - at);
        // SAFETY: row and sums have `m` elements from `at` on.
        unsafe {
            let (from, to) = (row.as_ptr().add(at), acc.as_mut_ptr().add(at));
            let (v, a) = if m == S::LANES {
                (T::load(s, from), s.load(to))
            } else {
                (T::load_n(s, from, m), s.load_n(to, m))
            };
            let a = if op == Reduction::Prod { s.mul(a, v) } else { s.add(a, v) };
            if m == S::LANES { s.store(to, a) } else { s.store_n(to, a, m) }
        }
    }
}
