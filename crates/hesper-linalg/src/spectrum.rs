//! Singular values and eigenvalues, and their vectors.

use hesper_compute::Par;

use crate::dense::{Complex, Eigen};
use crate::matrix::{Entry, check, check_finite};
use crate::{Failure, dense};

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
    let a = T::fields(a);
    check_finite(a)?;
    (T::routines().svd)(par, rows, columns, a, T::fields_mut(u), T::Real::fields_mut(s), T::fields_mut(vt))
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
    let a = T::fields(a);
    check_finite(a)?;
    if s.is_empty() {
        return Ok(());
    }
    (T::routines().singular_values)(par, rows, columns, a, T::Real::fields_mut(s))
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
    let a = T::fields(a);
    check_finite(a)?;
    if n == 0 {
        return Ok(());
    }
    (T::routines().eigh)(par, n, a, upper, T::Real::fields_mut(values), vectors.map(T::fields_mut))
}

/// Eigenvalues of any square matrix in any order, and its eigenvectors as columns if `vectors` is given: of
/// length one, with a real largest element. Complex eigenvalues of a real matrix are neighbours of their
/// conjugates. Single precision is computed in double precision.
pub fn eig<T: General>(
    par: &dyn Par,
    n: usize,
    a: &[T],
    values: &mut [T::Eigen],
    vectors: Option<&mut [T::Eigen]>,
) -> Result<(), Failure> {
    check(n, 1, values.len())?;
    check(n, n, a.len())?;
    vectors.as_ref().map_or(Ok(()), |vectors| check(n, n, vectors.len()))?;
    check_finite(T::fields(a))?;
    if n == 0 {
        return Ok(());
    }
    let found = T::eig(par, n, a, vectors.is_some())?;
    values.iter_mut().zip(found.values).for_each(|(to, value)| *to = T::eigen(value));
    let (Some(to), Some([re, im])) = (vectors, found.vectors) else { return Ok(()) };
    for (row, to) in to.chunks_exact_mut(n).enumerate() {
        for (column, to) in to.iter_mut().enumerate() {
            *to = T::eigen([re[column * n + row], im[column * n + row]]);
        }
    }
    Ok(())
}

/// An element of a matrix with complex eigenvalues.
pub trait General: Entry {
    /// An eigenvalue.
    type Eigen: Entry;
    #[doc(hidden)]
    fn eig(par: &dyn Par, n: usize, a: &[Self], vectors: bool) -> Result<Eigen, Failure>;
    /// An eigenvalue of the given parts.
    #[doc(hidden)]
    fn eigen(parts: [f64; 2]) -> Self::Eigen;
}

macro_rules! general {
    ($($t:ident)*) => { $(
        impl General for $t {
            type Eigen = [$t; 2];
            fn eig(par: &dyn Par, n: usize, a: &[$t], vectors: bool) -> Result<Eigen, Failure> {
                dense::real_eigen(par, n, a.iter().map(|x| f64::from(*x)).collect(), vectors)
            }
            fn eigen(parts: [f64; 2]) -> [$t; 2] { parts.map(|x| x as $t) }
        }

        impl General for [$t; 2] {
            type Eigen = [$t; 2];
            fn eig(par: &dyn Par, n: usize, a: &[[$t; 2]], vectors: bool) -> Result<Eigen, Failure> {
                dense::complex_eigen(par, n, a.iter().map(|x| Complex(x.map(f64::from))).collect(), vectors)
            }
            fn eigen(parts: [f64; 2]) -> [$t; 2] { parts.map(|x| x as $t) }
        }
    )* };
}

general!(f32 f64);
