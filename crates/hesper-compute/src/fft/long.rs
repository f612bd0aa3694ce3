//! One long row of complex numbers, on all threads.
//!
//! A row of `down * along` elements is treated as a matrix (the four-step algorithm). Its columns are
//! transformed, one vector of columns at a time, multiplied by twiddle factors and stored as lines; then its
//! rows are. Whole cache lines are read and written, and everything else stays in the caches of a core.

use super::lines::{C, Lines, Parts, SHORTEST, root, transform};
use crate::par::{Par, Shared};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Powers with a table entry each; others are products of two entries.
const FINE: usize = 32;

/// A plan for one long row.
pub(super) struct Long {
    down: Lines,
    along: Lines,
    /// For powers `0..FINE`: the roots of every column, real parts then imaginary.
    fine: Vec<f32>,
    /// The same for multiples of [`FINE`].
    coarse: Vec<f32>,
}

impl Long {
    /// A plan for a power of two that is not below the square of [`SHORTEST`].
    pub(super) fn new(length: usize) -> Self {
        debug_assert!(length >= SHORTEST * SHORTEST);
        let down = 1usize << (length.ilog2() / 2);
        let along = length / down;
        let table = |count: usize, step: usize| {
            let mut t = Vec::with_capacity(count * 2 * along);
            for power in 0..count {
                let roots = (0..along).map(|column| root(column * power * step, length));
                let (re, im): (Vec<f32>, Vec<f32>) = roots.map(|(re, im)| (re as f32, im as f32)).unzip();
                t.extend(re);
                t.extend(im);
            }
            t
        };
        let (fine, coarse) = (table(FINE.min(down), 1), table(down.div_ceil(FINE), FINE));
        Self { down: Lines::new(down), along: Lines::new(along), fine, coarse }
    }

    fn length(&self) -> usize {
        self.down.length * self.along.length
    }

    /// Transforms a row of complex numbers, times `scale`.
    pub(super) fn run(&self, par: &dyn Par, inverse: bool, x: &[f32], out: &mut [f32], scale: f32) {
        debug_assert!(x.len() >= 2 * self.length() && out.len() == 2 * self.length());
        let (simd, lanes) = (par.simd(), lanes(par.simd()));
        let between = Scratch::<f32>::new(2 * self.length());
        let between = Shared::new(between.ptr());
        par.run(self.along.length / lanes, &|t| {
            dispatch(simd, Down { plan: self, x, column: t * lanes, between, inverse });
        });
        let to = Shared::new(out.as_mut_ptr());
        par.run(self.down.length / lanes, &|t| {
            dispatch(simd, Along { plan: self, row: t * lanes, between, inverse, to, scale });
        });
    }
}

/// Lanes of a level.
fn lanes(simd: Simd) -> usize {
    struct Lanes;
    impl Kernel for Lanes {
        type Out = usize;
        #[inline(always)]
        fn run<S: Isa>(self, _: S) -> usize {
            S::LANES
        }
    }
    dispatch(simd, Lanes)
}

/// As many columns as lanes, from `column` on.
struct Down<'a> {
    plan: &'a Long,
    x: &'a [f32],
    column: usize,
    between: Shared<f32>,
    inverse: bool,
}

impl Kernel for Down<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let (plan, lanes) = (self.plan, S::LANES);
        let (down, along) = (plan.down.length, plan.along.length);
        let parts = Parts::new::<S>(self.inverse);
        let lines = Scratch::<f32>::new(down * 2 * lanes);
        let lines = lines.ptr();
        // SAFETY: the row has `down * along` elements; the buffer holds two vectors for each element of a
        // column, and tables have an entry for each column. Of `between`, the task writes `lanes` elements of
        // each of `down` rows, which are its own.
        unsafe {
            let from = self.x.as_ptr().add(2 * self.column);
            for j in 0..down {
                let p = from.add(2 * j * along);
                let (re, im) = s.unzip(s.load(p), s.load(p.add(lanes)));
                s.store(lines.add(2 * j * lanes), re);
                s.store(lines.add((2 * j + 1) * lanes), im);
            }
            transform(s, &plan.down, lines, parts);
            for k0 in (0..down).step_by(lanes) {
                let (mut re, mut im) = ([s.zero(); 16], [s.zero(); 16]);
                for i in 0..lanes {
                    let k = k0 + i;
                    let x =
                        C::load(s, lines.add(*plan.down.order.get_unchecked(k) as usize * 2 * lanes), parts);
                    let fine = plan.fine.as_ptr().add(k % FINE * 2 * along + self.column);
                    let coarse = plan.coarse.as_ptr().add(k / FINE * 2 * along + self.column);
                    let columns = Parts { re: 0, im: along };
                    let twiddle = C::load(s, fine, columns).times(s, C::load(s, coarse, columns));
                    let x = x.times(s, twiddle);
                    (re[i], im[i]) = (x.re, x.im);
                }
                let to = self.between.get().add((k0 * along + self.column * lanes) * 2);
                s.transpose(&re, to.add(parts.re), 2 * lanes);
                s.transpose(&im, to.add(parts.im), 2 * lanes);
            }
        }
    }
}

/// As many rows as lanes, from `row` on.
struct Along<'a> {
    plan: &'a Long,
    row: usize,
    between: Shared<f32>,
    inverse: bool,
    to: Shared<f32>,
    scale: f32,
}

impl Kernel for Along<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let (plan, lanes) = (self.plan, S::LANES);
        let (down, along) = (plan.down.length, plan.along.length);
        let scale = s.splat(self.scale);
        // SAFETY: the lines of these rows were written and belong to this task, as do `lanes` elements of
        // each row of the result.
        unsafe {
            let lines = self.between.get().add(self.row * along * 2);
            transform(s, &plan.along, lines, Parts::new::<S>(self.inverse));
            for k in 0..along {
                let from = lines.add(*plan.along.order.get_unchecked(k) as usize * 2 * lanes);
                let (a, b) = s.zip(s.mul(s.load(from), scale), s.mul(s.load(from.add(lanes)), scale));
                let to = self.to.get().add((k * down + self.row) * 2);
                s.store(to, a);
                s.store(to.add(lanes), b);
            }
        }
    }
}
