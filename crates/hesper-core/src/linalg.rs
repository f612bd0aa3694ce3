//! Linear algebra. Functions of matrices take arrays of any number of axes and work on the matrices of the
//! last two; float32, float64, and complex numbers of both precisions.

pub use crate::ops::linalg::{
    cholesky, cholesky_inv, cross, det, eig, eigh, eigvals, eigvalsh, inv, lu, lu_factor, pinv, qr,
    singular_values, slogdet, solve, solve_triangular, svd, tri_inv,
};
pub use crate::ops::vector_norm::{Norm, norm};
