//! Real matrices: our own factorisations, and faer's solution of the tridiagonal eigenvalue problem.

use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd_scratch, tridiagonal_self_adjoint_evd};
use faer::traits::RealField;
use faer::{ColMut, ColRef, MatMut, Spec};
use hesper_compute::Par;

use crate::Failure;
use crate::dense::{Block, Factor, Scalar, Tridiagonal, solve_lower, solve_upper, turn};
pub(crate) use crate::dense::{cholesky, lu, qr};
use crate::matrix::Side;

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

pub(crate) fn eigh<T: Scalar + RealField>(
    par: &dyn Par,
    n: usize,
    mut a: Vec<T>,
    values: &mut [T],
    vectors: Option<&mut [T]>,
) -> Result<(), Failure> {
    for row in 0..n {
        for column in 0..row {
            a[column * n + row] = a[row * n + column];
        }
    }
    let reduced = Tridiagonal::new(par, n, &mut a)?;
    let compute = if vectors.is_some() { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No };
    let needed = self_adjoint_evd_scratch::<T>(n, compute, faer::Par::Seq, Spec::default());
    let mut memory = faer::dyn_stack::MemBuffer::new(needed);
    // The vectors, one after the other.
    let mut lines = if vectors.is_some() { a } else { Vec::new() };
    tridiagonal_self_adjoint_evd(
        ColRef::from_slice(&reduced.diagonal).as_diagonal(),
        ColRef::from_slice(&reduced.beside).as_diagonal(),
        ColMut::from_slice_mut(values).as_diagonal_mut(),
        vectors.is_some().then(|| MatMut::from_column_major_slice_mut(&mut lines, n, n)),
        faer::Par::Seq,
        faer::dyn_stack::MemStack::new(&mut memory),
        Spec::default(),
    )
    .map_err(|_| Failure::NoConvergence)?;
    if let Some(scale) = reduced.scale {
        values.iter_mut().for_each(|value| *value = *value / scale);
    }
    let Some(vectors) = vectors else { return Ok(()) };
    reduced.restore(par, &mut lines)?;
    turn(par, (n, n), &lines, n, vectors, n)
}
