//! Triangular factors and what they solve.

use faer::Mat;
use faer::linalg::solvers::{PartialPivLu, Qr, Solve};
use faer::traits::ComplexField;

use crate::Failure;
use crate::matrix::{Entry, check, load, store};

/// Factors of a matrix with rows exchanged: the lower one (its diagonal of ones left out) and the upper one
/// in one matrix. `swaps` are the rows that each row in turn was exchanged with, and `places` where each row
/// of the matrix has gone.
pub fn lu<T: Entry>(
    rows: usize,
    columns: usize,
    a: &[T],
    factors: &mut [T],
    swaps: &mut [u32],
    places: &mut [u32],
) -> Result<(), Failure> {
    let size = rows.min(columns);
    check(rows, 1, places.len())?;
    check(size, 1, swaps.len())?;
    let matrix = load(rows, columns, a)?;
    if size == 0 {
        places.iter_mut().zip(0..).for_each(|(place, at)| *place = at);
        return check(rows, columns, factors.len());
    }
    let found = PartialPivLu::new(matrix.as_ref());
    let (from, _) = found.P().arrays();
    let (lower, upper) = (found.L(), found.U());
    let both =
        Mat::from_fn(
            rows,
            columns,
            |row, column| {
                if row > column { lower[(row, column)] } else { upper[(row, column)] }
            },
        );
    store(both.as_ref(), factors)?;
    let mut from = from.to_vec();
    // A column of zeros has no pivot to divide by; it is left as it is.
    if !factors.iter().all(|x| x.finite()) && a.iter().all(|x| x.finite()) {
        from = eliminate(rows, columns, a, factors);
    }
    // Which row is where while rows are exchanged one after the other.
    let mut now: Vec<usize> = (0..rows).collect();
    let mut at: Vec<usize> = (0..rows).collect();
    for (step, swap) in swaps.iter_mut().enumerate() {
        let other = at[from[step]];
        *swap = other as u32;
        now.swap(step, other);
        (at[now[step]], at[now[other]]) = (step, other);
    }
    for (to, from) in from.iter().enumerate() {
        places[*from] = to as u32;
    }
    Ok(())
}

/// The factors column by column, skipping those without a pivot; gives the row that each row comes from.
fn eliminate<T: Entry>(rows: usize, columns: usize, a: &[T], factors: &mut [T]) -> Vec<usize> {
    factors.copy_from_slice(a);
    let mut from: Vec<usize> = (0..rows).collect();
    for step in 0..rows.min(columns) {
        let mut pivot = step;
        for row in step + 1..rows {
            if factors[row * columns + step].size() > factors[pivot * columns + step].size() {
                pivot = row;
            }
        }
        if pivot != step {
            from.swap(step, pivot);
            (0..columns).for_each(|column| factors.swap(step * columns + column, pivot * columns + column));
        }
        let (above, below) = factors.split_at_mut((step + 1) * columns);
        let top = &above[step * columns..];
        if top[step].size() == 0.0 {
            continue;
        }
        for row in below.chunks_exact_mut(columns) {
            let factor = row[step].over(top[step]);
            row[step] = factor;
            for column in step + 1..columns {
                row[column] = row[column].less(factor, top[column]);
            }
        }
    }
    from
}

/// Whether a number on the diagonal is zero.
fn is_singular<F: ComplexField + Copy>(matrix: faer::MatRef<'_, F>) -> bool {
    (0..matrix.nrows().min(matrix.ncols())).any(|at| matrix[(at, at)] == F::zero_impl())
}

fn factored<T: Entry>(n: usize, a: &[T]) -> Result<PartialPivLu<T::Field>, Failure> {
    let found = PartialPivLu::new(load(n, n, a)?.as_ref());
    if is_singular(found.U()) { Err(Failure::Singular) } else { Ok(found) }
}

/// The inverse.
pub fn inv<T: Entry>(n: usize, a: &[T], out: &mut [T]) -> Result<(), Failure> {
    if n == 0 {
        return check(0, 0, out.len());
    }
    let found = factored(n, a)?;
    let mut result = Mat::<T::Field>::identity(n, n);
    found.solve_in_place(result.as_mut());
    store(result.as_ref(), out)
}

/// The solution of `a x = b` for each of the `count` columns of `b`.
pub fn solve<T: Entry>(n: usize, count: usize, a: &[T], b: &[T], out: &mut [T]) -> Result<(), Failure> {
    let mut result = load(n, count, b)?;
    if n > 0 {
        factored(n, a)?.solve_in_place(result.as_mut());
    }
    store(result.as_ref(), out)
}

/// The solution of `a x = b` for a triangular `a`, of which only its triangle is looked at.
pub fn solve_triangular<T: Entry>(
    n: usize,
    count: usize,
    a: &[T],
    b: &[T],
    upper: bool,
    out: &mut [T],
) -> Result<(), Failure> {
    let (matrix, mut result) = (load(n, n, a)?, load(n, count, b)?);
    if is_singular(matrix.as_ref()) {
        return Err(Failure::Singular);
    }
    if upper {
        matrix.as_ref().solve_upper_triangular_in_place(result.as_mut());
    } else {
        matrix.as_ref().solve_lower_triangular_in_place(result.as_mut());
    }
    store(result.as_ref(), out)
}

/// The inverse of a triangular matrix, of which only its triangle is looked at.
pub fn tri_inv<T: Entry>(n: usize, a: &[T], upper: bool, out: &mut [T]) -> Result<(), Failure> {
    let matrix = load(n, n, a)?;
    if is_singular(matrix.as_ref()) {
        return Err(Failure::Singular);
    }
    let mut result = Mat::<T::Field>::identity(n, n);
    if upper {
        matrix.as_ref().solve_upper_triangular_in_place(result.as_mut());
    } else {
        matrix.as_ref().solve_lower_triangular_in_place(result.as_mut());
    }
    store(result.as_ref(), out)
}

/// The triangular matrix that is, times its transpose, a symmetric one: lower, or `upper`. Only that
/// triangle of `a` is looked at.
pub fn cholesky<T: Entry>(n: usize, a: &[T], upper: bool, out: &mut [T]) -> Result<(), Failure> {
    let matrix = load(n, n, a)?;
    if n == 0 {
        return check(0, 0, out.len());
    }
    let side = if upper { faer::Side::Upper } else { faer::Side::Lower };
    let found = matrix.as_ref().llt(side).map_err(|_| Failure::NotPositive)?;
    if upper { store(found.L().transpose(), out) } else { store(found.L(), out) }
}

/// Orthonormal columns and an upper triangular matrix, whose product is the matrix.
pub fn qr<T: Entry>(rows: usize, columns: usize, a: &[T], q: &mut [T], r: &mut [T]) -> Result<(), Failure> {
    let size = rows.min(columns);
    check(rows, size, q.len())?;
    check(size, columns, r.len())?;
    let matrix = load(rows, columns, a)?;
    if size == 0 {
        return Ok(());
    }
    let found = Qr::new(matrix.as_ref());
    store(found.compute_thin_Q().as_ref(), q)?;
    store(found.thin_R(), r)
}
