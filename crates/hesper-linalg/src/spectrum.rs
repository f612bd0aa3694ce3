//! Singular values and eigenvalues, and their vectors.

use faer::c32;
use faer::linalg::solvers::{Eigen, Svd};
use hesper_compute::Par;

use crate::Failure;
use crate::matrix::{Entry, check, check_finite, load, store};

/// Left vectors as columns, singular values with the largest first, and right vectors as rows.
pub fn svd<T: Entry>(
    _par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    u: &mut [T],
    s: &mut [T::Real],
    vt: &mut [T],
) -> Result<(), Failure> {
    check(rows, rows, u.len())?;
    check(columns, columns, vt.len())?;
    check(rows.min(columns), 1, s.len())?;
    check_finite(a)?;
    let matrix = load(rows, columns, a)?;
    let found = Svd::new(matrix.as_ref()).map_err(|_| Failure::NoConvergence)?;
    store(found.U(), u)?;
    store(found.V().adjoint().to_owned().as_ref(), vt)?;
    let values = found.S().column_vector();
    s.iter_mut().enumerate().for_each(|(at, s)| *s = T::real(values[at]));
    Ok(())
}

/// Singular values alone.
pub fn singular_values<T: Entry>(
    _par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    s: &mut [T::Real],
) -> Result<(), Failure> {
    check(rows.min(columns), 1, s.len())?;
    check_finite(a)?;
    let matrix = load(rows, columns, a)?;
    if s.is_empty() {
        return Ok(());
    }
    let found = matrix.as_ref().singular_values().map_err(|_| Failure::NoConvergence)?;
    s.iter_mut().zip(found).for_each(|(s, value)| *s = T::of_real(value));
    Ok(())
}

/// Eigenvalues of a matrix that is its own adjoint, the smallest first, and the vectors as columns if they
/// are wanted. Only one triangle of `a` is looked at.
pub fn eigh<T: Entry>(
    par: &dyn Par,
    n: usize,
    a: &[T],
    upper: bool,
    values: &mut [T::Real],
    vectors: Option<&mut [T]>,
) -> Result<(), Failure> {
    check(n, n, a.len())?;
    check(n, 1, values.len())?;
    vectors.as_ref().map_or(Ok(()), |vectors| check(n, n, vectors.len()))?;
    check_finite(a)?;
    if n == 0 {
        return Ok(());
    }
    let mut matrix = a.to_vec();
    if upper {
        for row in 0..n {
            (0..row).for_each(|column| matrix[row * n + column] = a[column * n + row].conjugate());
        }
    }
    T::eigh(par, n, matrix, values, vectors)
}

/// Eigenvalues of any square matrix, and the vectors as columns of length one if they are wanted.
pub fn eig<T: General>(
    _par: &dyn Par,
    n: usize,
    a: &[T],
    values: &mut [[f32; 2]],
    vectors: Option<&mut [[f32; 2]]>,
) -> Result<(), Failure> {
    check(n, 1, values.len())?;
    check(n, n, a.len())?;
    check_finite(a)?;
    if n == 0 {
        return Ok(());
    }
    T::eig(n, a, values, vectors)
}

/// An element of a matrix with complex eigenvalues.
pub trait General: Entry {
    #[doc(hidden)]
    fn eig(
        n: usize,
        a: &[Self],
        values: &mut [[f32; 2]],
        vectors: Option<&mut [[f32; 2]]>,
    ) -> Result<(), Failure>;
}

macro_rules! general {
    ($($t:ty, $new:ident;)*) => { $(
        impl General for $t {
            fn eig(
                n: usize,
                a: &[$t],
                values: &mut [[f32; 2]],
                vectors: Option<&mut [[f32; 2]]>,
            ) -> Result<(), Failure> {
                let matrix = load(n, n, a)?;
                let found = Eigen::$new(matrix.as_ref()).map_err(|_| Failure::NoConvergence)?;
                let list = found.S().column_vector();
                for (at, value) in values.iter_mut().enumerate() {
                    *value = [list[at].re as f32, list[at].im as f32];
                }
                let Some(vectors) = vectors else { return Ok(()) };
                let all = found.U();
                let scales: Vec<_> = (0..n).map(|at| 1.0 / all.col(at).norm_l2()).collect();
                let scaled = faer::Mat::from_fn(n, n, |row, column| {
                    let x = all[(row, column)];
                    c32::new((x.re * scales[column]) as f32, (x.im * scales[column]) as f32)
                });
                store(scaled.as_ref(), vectors)
            }
        }
    )* };
}

general! {
    f32, new_from_real;
    f64, new_from_real;
    [f32; 2], new;
}
