//! LU, Cholesky and QR factorizations, and solvers.

use hesper_compute::Par;

use crate::Failure;
use crate::dense::{Block, Factor, Field, transpose};
use crate::matrix::{Entry, check};

/// The LU factorization with partial pivoting: the lower factor (without its unit diagonal) and the upper one
/// in one matrix. `swaps` are the rows that each row in turn was exchanged with, and `places` the final
/// position of each row.
pub fn lu<T: Entry>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    factors: &mut [T],
    swaps: &mut [u32],
    places: &mut [u32],
) -> Result<(), Failure> {
    check(rows, columns, a.len())?;
    check(rows, columns, factors.len())?;
    check(rows, 1, places.len())?;
    check(rows.min(columns), 1, swaps.len())?;
    factors.copy_from_slice(a);
    if !swaps.is_empty() {
        (T::routines().lu)(par, rows, columns, T::fields_mut(factors), swaps)?;
    }
    for (to, from) in order(rows, swaps).into_iter().enumerate() {
        places[from] = to as u32;
    }
    Ok(())
}

/// Which row each row comes from, after exchanges in order.
fn order(rows: usize, swaps: &[u32]) -> Vec<usize> {
    let mut from: Vec<usize> = (0..rows).collect();
    swaps.iter().enumerate().for_each(|(at, other)| from.swap(at, *other as usize));
    from
}

/// The LU factors of an invertible matrix, and which row each row comes from.
fn factored<T: Entry>(par: &dyn Par, n: usize, a: &[T]) -> Result<(Vec<T>, Vec<usize>), Failure> {
    let (mut factors, mut swaps) = (a.to_vec(), vec![0; n]);
    (T::routines().lu)(par, n, n, T::fields_mut(&mut factors), &mut swaps)?;
    if is_singular(n, T::fields(&factors)) { Err(Failure::Singular) } else { Ok((factors, order(n, &swaps))) }
}

/// Whether a diagonal element is zero.
fn is_singular<T: Field>(n: usize, a: &[T]) -> bool {
    a.iter().step_by(n + 1).any(|x| *x == T::ZERO)
}

/// Replaces rows, permuted like those of the matrix, by the solution.
fn solve_factored<T: Entry>(
    par: &dyn Par,
    n: usize,
    count: usize,
    factors: &[T],
    rows: &mut [T],
) -> Result<(), Failure> {
    let (matrix, rows) = (Block::rows(T::fields(factors), n), T::fields_mut(rows));
    (T::routines().solve_lower)(par, n, Factor { matrix, unit: true }, rows, count, count)?;
    (T::routines().solve_upper)(par, n, Factor { matrix, unit: false }, rows, count, count)
}

/// The inverse of a matrix.
pub fn inv<T: Entry>(par: &dyn Par, n: usize, a: &[T], out: &mut [T]) -> Result<(), Failure> {
    check(n, n, a.len())?;
    check(n, n, out.len())?;
    if n == 0 {
        return Ok(());
    }
    let (factors, from) = factored(par, n, a)?;
    let unit = T::fields_mut(out);
    unit.fill(T::Field::ZERO);
    from.into_iter().enumerate().for_each(|(row, from)| unit[row * n + from] = T::Field::ONE);
    solve_factored(par, n, n, &factors, out)
}

/// Solves `a x = b` for each of the `count` columns of `b`.
pub fn solve<T: Entry>(
    par: &dyn Par,
    n: usize,
    count: usize,
    a: &[T],
    b: &[T],
    out: &mut [T],
) -> Result<(), Failure> {
    check(n, n, a.len())?;
    check(n, count, b.len())?;
    check(n, count, out.len())?;
    if n == 0 || count == 0 {
        return Ok(());
    }
    let (factors, from) = factored(par, n, a)?;
    for (to, from) in out.chunks_exact_mut(count).zip(from) {
        to.copy_from_slice(&b[from * count..][..count]);
    }
    solve_factored(par, n, count, &factors, out)
}

/// Solves `a x = b` for a triangular `a`, of which only its triangle is read.
pub fn solve_triangular<T: Entry>(
    par: &dyn Par,
    n: usize,
    count: usize,
    a: &[T],
    b: &[T],
    upper: bool,
    out: &mut [T],
) -> Result<(), Failure> {
    check(n, n, a.len())?;
    check(n, count, b.len())?;
    check(n, count, out.len())?;
    out.copy_from_slice(b);
    solve_triangular_in_place(par, n, count, a, upper, out)
}

/// Replaces `b` by the solution for a triangular matrix.
fn solve_triangular_in_place<T: Entry>(
    par: &dyn Par,
    n: usize,
    count: usize,
    a: &[T],
    upper: bool,
    b: &mut [T],
) -> Result<(), Failure> {
    let (a, b) = (T::fields(a), T::fields_mut(b));
    if is_singular(n, a) {
        return Err(Failure::Singular);
    }
    if b.is_empty() {
        return Ok(());
    }
    let factor = Factor { matrix: Block::rows(a, n), unit: false };
    let solve = if upper { T::routines().solve_upper } else { T::routines().solve_lower };
    solve(par, n, factor, b, count, count)
}

/// The inverse of a triangular matrix, of which only its triangle is read.
pub fn tri_inv<T: Entry>(
    par: &dyn Par,
    n: usize,
    a: &[T],
    upper: bool,
    out: &mut [T],
) -> Result<(), Failure> {
    check(n, n, a.len())?;
    check(n, n, out.len())?;
    let unit = T::fields_mut(out);
    unit.fill(T::Field::ZERO);
    unit.iter_mut().step_by(n + 1).for_each(|x| *x = T::Field::ONE);
    solve_triangular_in_place(par, n, n, a, upper, out)
}

/// The Cholesky factor of a Hermitian matrix, lower or `upper`. Only that triangle of `a` is read.
pub fn cholesky<T: Entry>(
    par: &dyn Par,
    n: usize,
    a: &[T],
    upper: bool,
    out: &mut [T],
) -> Result<(), Failure> {
    check(n, n, a.len())?;
    check(n, n, out.len())?;
    if n == 0 {
        return Ok(());
    }
    let (a, out) = (T::fields(a), T::fields_mut(out));
    let clear = |matrix: &mut [T::Field]| {
        matrix.chunks_exact_mut(n).enumerate().for_each(|(row, x)| x[row + 1..].fill(T::Field::ZERO));
    };
    if !upper {
        out.copy_from_slice(a);
        (T::routines().cholesky)(par, n, out)?;
        clear(out);
        return Ok(());
    }
    let mut transposed = vec![T::Field::ZERO; n * n];
    transpose(par, (n, n), a, n, &mut transposed, n)?;
    (T::routines().cholesky)(par, n, &mut transposed)?;
    clear(&mut transposed);
    transpose(par, (n, n), &transposed, n, out, n)
}

/// The QR factorization: orthonormal columns and an upper triangular matrix.
pub fn qr<T: Entry>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    q: &mut [T],
    r: &mut [T],
) -> Result<(), Failure> {
    let size = rows.min(columns);
    check(rows, columns, a.len())?;
    check(rows, size, q.len())?;
    check(size, columns, r.len())?;
    if size == 0 {
        return Ok(());
    }
    (T::routines().qr)(par, rows, columns, T::fields(a), T::fields_mut(q), T::fields_mut(r))
}
