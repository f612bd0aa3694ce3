//! Real matrices: the factorizations of this crate.

use hesper_compute::Par;

use crate::Failure;
use crate::dense::{
    Block, Factor, Scalar, Tridiagonal, solve_lower, solve_upper, transpose, tridiagonal_values,
    tridiagonal_vectors,
};
pub(crate) use crate::dense::{cholesky, lu, qr, singular_values, svd};
use crate::matrix::{Entry, Side, methods};
use crate::real;

macro_rules! reals {
    ($($t:ty)*) => { $(
        impl Entry for $t {
            type Field = $t;
            type Real = $t;
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            #[inline(always)]
            fn enter(self) -> $t { self }
            #[inline(always)]
            fn leave(field: $t) -> $t { field }
            fn finite(self) -> bool { self.is_finite() }
            methods!(real);
        }
    )* };
}

reals!(f32 f64);

pub(crate) fn solve_triangular<T: Scalar>(
    par: &dyn Par,
    n: usize,
    count: usize,
    a: &[T],
    side: Side,
    b: &mut [T],
) -> Result<(), Failure> {
    let factor = Factor { matrix: Block::rows(a, n), unit: side == Side::LowerUnit };
    match side {
        Side::Upper => solve_upper(par, n, factor, b, count, count),
        Side::Lower | Side::LowerUnit => solve_lower(par, n, factor, b, count, count),
    }
}

pub(crate) fn eigh<T: Scalar>(
    par: &dyn Par,
    n: usize,
    a: &[T],
    upper: bool,
    values: &mut [T],
    vectors: Option<&mut [T]>,
) -> Result<(), Failure> {
    let reduced = Tridiagonal::new(par, n, a, upper)?;
    let scale = reduced.scale.map_or(1.0, Scalar::to_f64);
    let write = |from: Vec<f64>, to: &mut [T]| {
        to.iter_mut().zip(from).for_each(|(to, value)| *to = T::of(value / scale));
    };
    let Some(vectors) = vectors else {
        write(tridiagonal_values(par, &reduced.diagonal, &reduced.off_diagonal)?, values);
        return Ok(());
    };
    // The vectors as rows.
    let mut lines = vec![T::ZERO; n * n];
    write(tridiagonal_vectors(par, &reduced.diagonal, &reduced.off_diagonal, &mut lines)?, values);
    reduced.restore(par, &mut lines)?;
    transpose(par, (n, n), &lines, n, vectors, n)
}
