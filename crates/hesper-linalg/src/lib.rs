//! Dense linear algebra on matrices in memory.
//!
//! Each function takes one row-major matrix as a slice, writes its results the same way, and runs on the
//! given executor; a batch is one call per matrix. Matrices are factored in blocks whose products run on all
//! cores; the QR algorithm for eigenvalues of nonsymmetric ones runs on the calling thread. Results do not
//! depend on the number of threads. A matrix without a result (singular, not finite) gives a [`Failure`].

mod dense;
mod matrix;
mod solve;
mod spectrum;

pub use matrix::Entry;
pub use solve::{cholesky, inv, lu, qr, solve, solve_triangular, tri_inv};
pub use spectrum::{General, eig, eigh, singular_values, svd};

/// Why a matrix could not be factored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It has no inverse.
    #[error("the matrix is singular")]
    Singular,
    /// It has an eigenvalue that is not positive.
    #[error("the matrix is not positive definite")]
    NotPositive,
    /// An iteration did not converge.
    #[error("the iteration did not converge")]
    NoConvergence,
    /// It has an infinite or NaN element.
    #[error("the matrix has elements that are infinite or NaN")]
    NotFinite,
    /// A slice does not have the size of its matrix.
    #[error("a matrix of {rows} x {columns} was given {given} elements")]
    Size {
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
        /// Elements of the slice.
        given: usize,
    },
    /// The operands of a product do not fit.
    #[error(transparent)]
    Operands(#[from] hesper_compute::Mismatch),
}
