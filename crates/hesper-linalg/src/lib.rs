//! Dense linear algebra on matrices in memory.
//!
//! Each function takes one matrix as a slice, row by row, and writes its results the same way, on the executor
//! it is given; who has many matrices calls it for each. Real matrices are factored here, in blocks whose
//! products run on all cores; complex ones, and matrices without symmetry whose eigenvalues are asked for, by
//! faer on the calling thread. Results do not depend on the number of threads. What has no answer (a singular matrix,
//! numbers that are not finite) is a [`Failure`], never a wrong number.

mod complex;
mod dense;
mod matrix;
mod real;
mod solve;
mod spectrum;

pub use matrix::Entry;
pub use solve::{cholesky, inv, lu, qr, solve, solve_triangular, tri_inv};
pub use spectrum::{General, eig, eigh, singular_values, svd};

/// Why a matrix has no such factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It has no inverse.
    #[error("the matrix is singular")]
    Singular,
    /// It has an eigenvalue that is not positive.
    #[error("the matrix is not positive definite")]
    NotPositive,
    /// An iteration did not come to an end.
    #[error("the iteration did not converge")]
    NoConvergence,
    /// It has infinite elements, or NaN.
    #[error("the matrix has elements that are infinite or NaN")]
    NotFinite,
    /// A slice has not the size of its matrix.
    #[error("a matrix of {rows} x {columns} was given {given} elements")]
    Size {
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
        /// Elements of the slice.
        given: usize,
    },
}

impl From<hesper_compute::Mismatch> for Failure {
    fn from(mismatch: hesper_compute::Mismatch) -> Self {
        Self::Size { rows: mismatch.expected, columns: 1, given: mismatch.given }
    }
}
