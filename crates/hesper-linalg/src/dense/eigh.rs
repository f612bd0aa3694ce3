//! The Hermitian eigenproblem: reduction to real tridiagonal form, divide and conquer, back-transformation.

use hesper_compute::Par;

use super::block::transpose;
use super::divide_and_conquer::{tridiagonal_values, tridiagonal_vectors};
use super::field::{Field, Scalar};
use super::tridiagonal::Tridiagonal;
use crate::Failure;

/// Eigenvalues in ascending order, and vectors as columns, of a matrix of which one triangle is given.
pub(crate) fn eigh<T: Field>(
    par: &dyn Par,
    n: usize,
    a: &[T],
    upper: bool,
    values: &mut [T::Real],
    vectors: Option<&mut [T]>,
) -> Result<(), Failure> {
    let reduced = Tridiagonal::new(par, n, a, upper)?;
    let scale = reduced.scale.map_or(1.0, Scalar::to_f64);
    let write = |from: Vec<f64>, to: &mut [T::Real]| {
        to.iter_mut().zip(from).for_each(|(to, value)| *to = T::Real::of(value / scale));
    };
    let Some(vectors) = vectors else {
        write(tridiagonal_values(par, &reduced.diagonal, &reduced.off_diagonal)?, values);
        return Ok(());
    };
    // The vectors as rows.
    let mut lines = vec![T::Real::ZERO; n * n];
    write(tridiagonal_vectors(par, &reduced.diagonal, &reduced.off_diagonal, &mut lines)?, values);
    let mut lines = T::from_reals(lines);
    reduced.restore(par, &mut lines)?;
    transpose(par, (n, n), &lines, n, vectors, n)
}
