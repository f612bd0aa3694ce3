//! Singular values and eigenvalues, and their vectors.

use faer::linalg::solvers::Eigen;
use hesper_compute::Par;

use crate::Failure;
use crate::matrix::{Entry, check, check_finite, load, store};

/// Left singular vectors as columns, singular values in descending order, and right singular vectors as rows.
pub fn svd<T: Entry>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    u: &mut [T],
    s: &mut [T::Real],
    vt: &mut [T],
) -> Result<(), Failure> {
    check(rows, columns, a.len())?;
    check(rows, rows, u.len())?;
    check(columns, columns, vt.len())?;
    check(rows.min(columns), 1, s.len())?;
    check_finite(a)?;
    T::svd(par, rows, columns, a, u, s, vt)
}

/// Singular values in descending order.
pub fn singular_values<T: Entry>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    s: &mut [T::Real],
) -> Result<(), Failure> {
    check(rows, columns, a.len())?;
    check(rows.min(columns), 1, s.len())?;
    check_finite(a)?;
    if s.is_empty() { Ok(()) } else { T::singular_values(par, rows, columns, a, s) }
}

/// Eigenvalues of a Hermitian matrix in ascending order, and its eigenvectors as columns if `vectors` is
/// given. Only one triangle of `a` is read.
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
    if n == 0 { Ok(()) } else { T::eigh(par, n, a, upper, values, vectors) }
}

/// Eigenvalues of any square matrix, and its eigenvectors as columns of length one if `vectors` is given, on
/// the calling thread.
pub fn eig<T: General>(
    _par: &dyn Par,
    n: usize,
    a: &[T],
    values: &mut [T::Eigen],
    vectors: Option<&mut [T::Eigen]>,
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
    /// An eigenvalue.
    type Eigen: Entry;
    #[doc(hidden)]
    fn eig(
        n: usize,
        a: &[Self],
        values: &mut [Self::Eigen],
        vectors: Option<&mut [Self::Eigen]>,
    ) -> Result<(), Failure>;
}

macro_rules! general {
    ($($t:ty, $eigen:ty, $new:ident;)*) => { $(
        impl General for $t {
            type Eigen = $eigen;
            fn eig(
                n: usize,
                a: &[$t],
                values: &mut [$eigen],
                vectors: Option<&mut [$eigen]>,
            ) -> Result<(), Failure> {
                let matrix = load(n, n, a)?;
                let found = Eigen::$new(matrix.as_ref()).map_err(|_| Failure::NoConvergence)?;
                let list = found.S().column_vector();
                for (at, value) in values.iter_mut().enumerate() {
                    *value = <$eigen>::leave(list[at]);
                }
                let Some(vectors) = vectors else { return Ok(()) };
                let all = found.U();
                let scales: Vec<_> = (0..n).map(|at| 1.0 / all.col(at).norm_l2()).collect();
                let scaled = faer::Mat::from_fn(n, n, |row, column| {
                    let x = all[(row, column)];
                    [x.re * scales[column], x.im * scales[column]].enter()
                });
                store(scaled.as_ref(), vectors)
            }
        }
    )* };
}

general! {
    f32, [f32; 2], new_from_real;
    f64, [f64; 2], new_from_real;
    [f32; 2], [f32; 2], new;
    [f64; 2], [f64; 2], new;
}
