//! Factors of matrices, equations, and products of vectors.

pub mod factor;
pub mod root;
mod rules;

use smallvec::smallvec;

use crate::error::{Error, Result};
use crate::graph::{Array, Replay};
use crate::ops::concat::concatenate;
use crate::ops::logic::select;
use crate::ops::readers::reader;
use crate::shape::{Shape, axis, broadcast};
use crate::{Axes, Dtype};
use factor::{Work, factor};

/// Rows and columns of the matrices of an array.
fn matrices(op: &str, a: &Array) -> Result<(usize, usize)> {
    if !matches!(a.dtype().real(), Dtype::Float32 | Dtype::Float64) {
        let what = "takes float32, float64, complex64 and complex128, and was given an array".into();
        return Err(Error::Type { op: op.into(), what, dtype: a.dtype() });
    }
    let [.., rows, columns] = *a.shape() else {
        let what = format!("an array of shape {:?} has no matrices: two axes are needed", a.shape());
        return Err(Error::shape(op, what).with_shapes([a]));
    };
    Ok((rows, columns))
}

/// Rows of the square matrices of an array.
fn square(op: &str, a: &Array) -> Result<usize> {
    let (rows, columns) = matrices(op, a)?;
    if rows != columns {
        let what = format!("matrices must be square, and the array's shape is {:?}", a.shape());
        return Err(Error::shape(op, what).with_shapes([a]));
    }
    Ok(rows)
}

/// The result of work that has one.
fn single(work: Work, inputs: &[&Array], shape: Shape, dtype: Dtype) -> Result<Array> {
    let inputs = inputs.iter().map(|input| (*input).clone()).collect();
    factor(work, inputs, &[(shape, dtype)])?.pop().ok_or_else(|| Error::value("linalg", "no result"))
}

fn pair(results: Vec<Array>) -> Result<(Array, Array)> {
    match <[Array; 2]>::try_from(results) {
        Ok([first, second]) => Ok((first, second)),
        Err(_) => Err(Error::value("linalg", "no two results")),
    }
}

fn triple(results: Vec<Array>) -> Result<(Array, Array, Array)> {
    match <[Array; 3]>::try_from(results) {
        Ok([first, second, third]) => Ok((first, second, third)),
        Err(_) => Err(Error::value("linalg", "no three results")),
    }
}

/// The adjoint matrices: transposed, and conjugated if they are complex.
fn adjoint(a: &Array) -> Result<Array> {
    a.swapaxes(-1, -2)?.conjugate()
}

/// The inverses of square matrices. Evaluation fails where there is none.
///
/// ```
/// use hesper::{Array, linalg};
/// let a = Array::try_from_slice(&[2.0f32, 0.0, 0.0, 4.0], &[2, 2])?;
/// assert_eq!(linalg::inv(&a)?.to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.25]);
/// assert!(linalg::inv(&Array::zeros(&[2, 2], hesper::Dtype::Float32)?)?.eval().is_err());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn inv(a: &Array) -> Result<Array> {
    let n = square("inv", a)?;
    single(Work::Inverse, &[a], smallvec![n, n], a.dtype())
}

/// The inverses of lower or `upper` triangular matrices; the other triangle is not looked at.
///
/// ```
/// use hesper::{array, linalg};
/// let a = array![[2.0, 99.0], [0.0, 4.0]]; // above the diagonal nothing is read
/// assert_eq!(linalg::tri_inv(&a, false)?.to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.25]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn tri_inv(a: &Array, upper: bool) -> Result<Array> {
    let n = square("tri_inv", a)?;
    single(Work::TriangularInverse { upper }, &[a], smallvec![n, n], a.dtype())
}

/// The pseudo-inverses of Moore and Penrose, singular values below ten times the larger side times the
/// precision times the largest taken as zero.
///
/// ```
/// use hesper::{Array, Dtype, Tolerance, array, linalg};
/// let a = array![[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]];
/// let inverse = linalg::pinv(&a)?;
/// assert_eq!(inverse.shape(), [2, 3]);
/// let identity = Array::identity(2, Dtype::Float32)?;
/// assert!(inverse.matmul(&a)?.allclose(&identity, Tolerance::default())?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn pinv(a: &Array) -> Result<Array> {
    let (m, n) = matrices("pinv", a)?;
    if m == 0 || n == 0 {
        let shape: Shape = a.shape()[..a.ndim() - 2].iter().copied().chain([n, m]).collect();
        return Array::zeros(&shape, a.dtype());
    }
    let (u, s, vt) = svd(a)?;
    let (k, rank) = (m.min(n) as isize, a.ndim());
    let u = u.slice_axis(rank - 1, 0, k, 1)?;
    let v = adjoint(&vt.slice_axis(rank - 2, 0, k, 1)?)?;
    let precision = if a.dtype().real() == Dtype::Float64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let limit = s.max(Axes::from(-1).keepdims())?.multiply(10.0 * m.max(n) as f64 * precision)?;
    let zero = s.zeros_like()?;
    let counts = s.greater(&limit)?;
    let inverse = select(&counts, &select(&counts, &s, &s.ones_like()?)?.reciprocal()?, &zero)?;
    v.multiply(&inverse.expand_dims(-2)?)?.matmul(&adjoint(&u)?)
}

/// Matrices of orthonormal columns and upper triangular ones, whose products are the given ones.
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let a = array![[3.0, 1.0], [4.0, 2.0]];
/// let (q, r) = linalg::qr(&a)?;
/// let near = Tolerance { absolute: 1e-5, ..Tolerance::default() };
/// assert!(q.matmul(&r)?.allclose(&a, near)?.to_bools()?[0]);
/// assert!((r.to_vec::<f32>()?[0].abs() - 5.0).abs() < 1e-5); // the length of the first column
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn qr(a: &Array) -> Result<(Array, Array)> {
    let (m, n) = matrices("qr", a)?;
    let k = m.min(n);
    let outputs = [(smallvec![m, k], a.dtype()), (smallvec![k, n], a.dtype())];
    pair(factor(Work::Qr, smallvec![a.clone()], &outputs)?)
}

/// Left singular vectors as columns, singular values from the largest on, right singular vectors as rows.
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let a = array![[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]];
/// let (u, s, vt) = linalg::svd(&a)?;
/// assert_eq!((u.shape(), vt.shape()), (&[3, 3][..], &[2, 2][..]));
/// assert!(s.allclose(&array![4.0, 3.0], Tolerance::default())?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn svd(a: &Array) -> Result<(Array, Array, Array)> {
    let (m, n) = matrices("svd", a)?;
    let outputs =
        [(smallvec![m, m], a.dtype()), (smallvec![m.min(n)], a.dtype().real()), (smallvec![n, n], a.dtype())];
    triple(factor(Work::Svd, smallvec![a.clone()], &outputs)?)
}

/// Singular values alone.
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let s = linalg::singular_values(&array![[0.0, 2.0], [1.0, 0.0]])?;
/// assert!(s.allclose(&array![2.0, 1.0], Tolerance::default())?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn singular_values(a: &Array) -> Result<Array> {
    let (m, n) = matrices("svd", a)?;
    single(Work::SingularValues, &[a], smallvec![m.min(n)], a.dtype().real())
}

/// Eigenvalues, from the smallest on, and eigenvectors as columns, of matrices that are their own adjoints.
/// Only the lower or `upper` triangle is looked at.
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let a = array![[2.0, 1.0], [1.0, 2.0]];
/// let (values, vectors) = linalg::eigh(&a, false)?;
/// assert!(values.allclose(&array![1.0, 3.0], Tolerance::default())?.to_bools()?[0]);
/// let near = Tolerance { absolute: 1e-5, ..Tolerance::default() };
/// assert!(a.matmul(&vectors)?.allclose(&vectors.multiply(&values)?, near)?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn eigh(a: &Array, upper: bool) -> Result<(Array, Array)> {
    let n = square("eigh", a)?;
    let outputs = [(smallvec![n], a.dtype().real()), (smallvec![n, n], a.dtype())];
    pair(factor(Work::Eigh { upper, vectors: true }, smallvec![a.clone()], &outputs)?)
}

/// The eigenvalues of [`eigh`] alone.
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let values = linalg::eigvalsh(&array![[2.0, 1.0], [1.0, 2.0]], false)?;
/// assert!(values.allclose(&array![1.0, 3.0], Tolerance::default())?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn eigvalsh(a: &Array, upper: bool) -> Result<Array> {
    let n = square("eigvalsh", a)?;
    single(Work::Eigh { upper, vectors: false }, &[a], smallvec![n], a.dtype().real())
}

/// Eigenvalues and eigenvectors (as columns) of any square matrices, complex numbers.
///
/// ```
/// use hesper::{Dtype, Tolerance, array, linalg};
/// let turn = array![[0.0, -1.0], [1.0, 0.0]]; // a quarter turn: no real eigenvalues
/// let (values, vectors) = linalg::eig(&turn)?;
/// let near = Tolerance { absolute: 1e-5, ..Tolerance::default() };
/// assert!(values.abs()?.allclose(&array![1.0, 1.0], near)?.to_bools()?[0]);
/// assert_eq!(vectors.dtype(), Dtype::Complex64);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn eig(a: &Array) -> Result<(Array, Array)> {
    let n = square("eig", a)?;
    let outputs = [(smallvec![n], a.dtype().complex()), (smallvec![n, n], a.dtype().complex())];
    pair(factor(Work::Eig { vectors: true }, smallvec![a.clone()], &outputs)?)
}

/// The eigenvalues of [`eig`] alone.
///
/// ```
/// use hesper::{array, linalg};
/// let values = linalg::eigvals(&array![[2.0, 1.0], [0.0, 3.0]])?;
/// assert!((values.real()?.sum(())?.item::<f32>()? - 5.0).abs() < 1e-5); // the trace
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn eigvals(a: &Array) -> Result<Array> {
    let n = square("eigvals", a)?;
    single(Work::Eig { vectors: false }, &[a], smallvec![n], a.dtype().complex())
}

/// Lower and upper factors in one matrix, row exchanges, and where each row has gone.
fn lu_parts(op: &str, a: &Array) -> Result<(Array, Array, Array)> {
    let (m, n) = matrices(op, a)?;
    let outputs =
        [(smallvec![m, n], a.dtype()), (smallvec![m.min(n)], Dtype::Uint32), (smallvec![m], Dtype::Uint32)];
    triple(factor(Work::Lu, smallvec![a.clone()], &outputs)?)
}

/// Lower and upper factors in one matrix (the lower one's diagonal of ones left out), and the rows that
/// each row in turn was exchanged with.
///
/// ```
/// use hesper::{array, linalg};
/// let (factors, swaps) = linalg::lu_factor(&array![[1.0, 2.0], [4.0, 8.5]])?;
/// assert_eq!(swaps.to_vec::<u32>()?, [1, 1]); // the row of the larger first element comes first
/// assert_eq!(factors.to_vec::<f32>()?, [4.0, 8.5, 0.25, -0.125]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn lu_factor(a: &Array) -> Result<(Array, Array)> {
    let (factors, swaps, _) = lu_parts("lu_factor", a)?;
    Ok((factors, swaps))
}

/// Where each row has gone, the lower factor and the upper one: row `i` of the matrix is row `p[i]` of the
/// product of the factors.
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let a = array![[1.0, 2.0], [4.0, 8.5]];
/// let (places, lower, upper) = linalg::lu(&a)?;
/// let rows = lower.matmul(&upper)?.take(&places, 0)?;
/// assert!(rows.allclose(&a, Tolerance::default())?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn lu(a: &Array) -> Result<(Array, Array, Array)> {
    let (factors, _, places) = lu_parts("lu", a)?;
    let (m, n) = matrices("lu", a)?;
    let (k, rank) = (m.min(n), a.ndim());
    let lower = factors.slice_axis(rank - 1, 0, k as isize, 1)?.tril(-1)?;
    let lower = lower.add(&Array::eye(m, k, 0, a.dtype())?)?;
    let upper = factors.slice_axis(rank - 2, 0, k as isize, 1)?.triu(0)?;
    Ok((places, lower, upper))
}

/// The triangular matrices that are, times their transposes, the given symmetric ones: lower, or `upper`.
/// Evaluation fails where a matrix is not positive definite.
///
/// ```
/// use hesper::{array, linalg};
/// let root = linalg::cholesky(&array![[4.0, 2.0], [2.0, 10.0]], false)?;
/// assert_eq!(root.to_vec::<f32>()?, [2.0, 0.0, 1.0, 3.0]);
/// assert!(linalg::cholesky(&array![[-1.0]], false)?.eval().is_err());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn cholesky(a: &Array, upper: bool) -> Result<Array> {
    let n = square("cholesky", a)?;
    single(Work::Cholesky { upper }, &[a], smallvec![n, n], a.dtype())
}

/// The inverses of matrices that are given by their factors of [`cholesky`].
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let a = array![[4.0, 2.0], [2.0, 10.0]];
/// let inverse = linalg::cholesky_inv(&linalg::cholesky(&a, false)?, false)?;
/// let near = Tolerance { absolute: 1e-5, ..Tolerance::default() };
/// assert!(inverse.allclose(&linalg::inv(&a)?, near)?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn cholesky_inv(factors: &Array, upper: bool) -> Result<Array> {
    square("cholesky_inv", factors)?;
    let inverse = tri_inv(factors, upper)?;
    let turned = adjoint(&inverse)?;
    if upper { inverse.matmul(&turned) } else { turned.matmul(&inverse) }
}

/// The solutions of `a x = b`; `b` is a vector or has matrices in its last two axes. Other axes broadcast.
///
/// ```
/// use hesper::{Tolerance, array, linalg};
/// let (a, b) = (array![[2.0, 1.0], [1.0, 3.0]], array![3.0, 5.0]);
/// let x = linalg::solve(&a, &b)?;
/// assert!(x.allclose(&array![0.8, 1.4], Tolerance::default())?.to_bools()?[0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn solve(a: &Array, b: &Array) -> Result<Array> {
    equations("solve", a, b, Work::Solve)
}

/// The solutions of `a x = b` for lower or `upper` triangular `a`; the other triangle is not looked at.
///
/// ```
/// use hesper::{array, linalg};
/// let (a, b) = (array![[2.0, 1.0], [0.0, 4.0]], array![4.0, 8.0]);
/// assert_eq!(linalg::solve_triangular(&a, &b, true)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn solve_triangular(a: &Array, b: &Array, upper: bool) -> Result<Array> {
    equations("solve_triangular", a, b, Work::SolveTriangular { upper })
}

fn equations(op: &str, a: &Array, b: &Array, work: Work) -> Result<Array> {
    square(op, a)?;
    let dtype = a.dtype().promote(b.dtype());
    let (a, b) = (a.astype(dtype)?, b.astype(dtype)?);
    let n = square(op, &a)?;
    let vector = b.ndim() == 1;
    let sides = if vector { b.expand_dims(-1)? } else { b.clone() };
    let [.., rows, count] = *sides.shape() else {
        return Err(Error::shape(op, "a number is no right side of an equation").with_shapes([&a, &b]));
    };
    if rows != n {
        let what =
            format!("right sides of shape {:?} do not fit matrices of shape {:?}", b.shape(), a.shape());
        return Err(Error::shape(op, what).with_shapes([&a, &b]));
    }
    let batch = broadcast(op, &a.shape()[..a.ndim() - 2], &sides.shape()[..sides.ndim() - 2])?;
    let stretched = |x: &Array, shape: [usize; 2]| {
        let whole: Shape = batch.iter().copied().chain(shape).collect();
        x.broadcast_to(&whole)
    };
    let (a, sides) = (stretched(&a, [n, n])?, stretched(&sides, [n, count])?);
    let solution = single(work, &[&a, &sides], smallvec![n, count], dtype)?;
    if vector { solution.squeeze(-1) } else { Ok(solution) }
}

/// The diagonal of the upper factors, and whether rows were exchanged an odd number of times.
fn pivots(op: &str, a: &Array) -> Result<(Array, Array)> {
    let fits = matches!(a.dtype(), Dtype::Float64 | Dtype::Complex64 | Dtype::Complex128);
    let a = if fits { a.clone() } else { a.astype(Dtype::Float32)? };
    let n = square(op, &a)?;
    let (factors, swaps) = lu_factor(&a)?;
    let places = Array::arange(0..n as i64, Some(Dtype::Uint32))?;
    let exchanged = swaps.not_equal(&places)?.astype(Dtype::Int32)?.sum(-1)?;
    let odd = exchanged.remainder(2)?.astype(Dtype::Bool)?;
    Ok((factors.diagonal(0, -2, -1)?, odd))
}

/// Floats keep their type; integers become float32.
fn float_of(dtype: Dtype) -> Dtype {
    dtype.to_inexact()
}

/// The determinants of square matrices.
///
/// ```
/// use hesper::{Array, linalg};
/// let a = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// assert!((linalg::det(&a)?.item::<f32>()? + 2.0).abs() < 1e-6);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn det(a: &Array) -> Result<Array> {
    let (diagonal, odd) = pivots("det", a)?;
    let product = diagonal.prod(-1)?;
    select(&odd, &product.negative()?, &product)?.astype(float_of(a.dtype()))
}

/// The signs of determinants, and the logarithms of their absolute values.
///
/// ```
/// use hesper::{array, linalg};
/// let (sign, size) = linalg::slogdet(&array![[0.0, 1.0], [1.0, 0.0]])?;
/// assert_eq!((sign.item::<f32>()?, size.item::<f32>()?), (-1.0, 0.0));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn slogdet(a: &Array) -> Result<(Array, Array)> {
    let (diagonal, odd) = pivots("slogdet", a)?;
    let dtype = float_of(a.dtype());
    let sign = diagonal.sign()?.prod(-1)?;
    let sign = select(&odd, &sign.negative()?, &sign)?;
    let size = diagonal.abs()?.log()?.sum(-1)?;
    Ok((sign.astype(dtype)?, size.astype(dtype.real())?))
}

/// The cross products of vectors of two or three elements along an axis; a third that is missing is zero.
///
/// ```
/// use hesper::{Array, linalg};
/// let (x, y) = (Array::from_slice(&[1, 0, 0]), Array::from_slice(&[0, 1, 0]));
/// assert_eq!(linalg::cross(&x, &y, -1)?.to_vec::<i32>()?, [0, 0, 1]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn cross(a: &Array, b: &Array, along: isize) -> Result<Array> {
    let dtype = a.dtype().promote(b.dtype());
    for x in [a, b] {
        let at = axis("cross", along, x.ndim())?;
        if !matches!(x.shape()[at], 2 | 3) {
            let what = format!("two or three elements are needed along axis {at} of shape {:?}", x.shape());
            return Err(Error::shape("cross", what).with_shapes([a, b]));
        }
    }
    // Both get the same number of axes, then the axis is the same from the back.
    let rank = a.ndim().max(b.ndim());
    let widened = |x: &Array| -> Result<Array> {
        let shape: Vec<isize> = std::iter::repeat_n(1, rank - x.ndim())
            .chain(x.shape().iter().map(|length| *length as isize))
            .collect();
        x.astype(dtype)?.reshape(&shape)
    };
    let (a, b) = (widened(a)?, widened(b)?);
    let at = axis("cross", along, rank)?;
    // An axis that widening has added is as long as that of the other array.
    let repeated = |x: &Array, other: &Array| -> Result<Array> {
        let mut shape = x.0.shape.clone();
        if shape[at] == 1 {
            shape[at] = other.shape()[at];
        }
        x.broadcast_to(&shape)
    };
    let (a, b) = (repeated(&a, &b)?, repeated(&b, &a)?);
    let component = |x: &Array, which: isize| -> Result<Option<Array>> {
        if which as usize >= x.shape()[at] {
            return Ok(None);
        }
        x.slice_axis(at, which, which + 1, 1).map(Some)
    };
    let product = |i: isize, j: isize| -> Result<Option<Array>> {
        match (component(&a, i)?, component(&b, j)?) {
            (Some(x), Some(y)) => x.multiply(&y).map(Some),
            _ => Ok(None),
        }
    };
    let mut parts = Vec::new();
    for (i, j) in [(1, 2), (2, 0), (0, 1)] {
        parts.push(match (product(i, j)?, product(j, i)?) {
            (Some(x), Some(y)) => x.subtract(&y)?,
            (Some(x), None) => x,
            (None, Some(y)) => y.negative()?,
            (None, None) => {
                let (x, y) = (a.slice_axis(at, 0, 1, 1)?, b.slice_axis(at, 0, 1, 1)?);
                let shape = broadcast("cross", x.shape(), y.shape())?;
                Array::zeros(&shape, dtype)?
            }
        });
    }
    let parts = Array::broadcast_arrays(&parts)?;
    concatenate(&parts, at as isize)
}

reader!("inv", One(|replay| inv(replay.inputs::<1>()?[0])));
reader!("tri_inv", One(|replay| tri_inv(replay.inputs::<1>()?[0], replay.flag("upper")?)));
reader!("solve", One(|replay| sides(replay, |[a, b]| solve(a, b))));
reader!(
    "solve_triangular",
    One(|replay| {
        let upper = replay.flag("upper")?;
        sides(replay, |[a, b]| solve_triangular(a, b, upper))
    })
);
reader!("cholesky", One(|replay| cholesky(replay.inputs::<1>()?[0], replay.flag("upper")?)));
reader!("lu", Several(|replay| lu_parts("lu", replay.inputs::<1>()?[0]).map(|(a, b, c)| vec![a, b, c])));
reader!("qr", Several(|replay| qr(replay.inputs::<1>()?[0]).map(|(q, r)| vec![q, r])));
reader!("svd", Several(|replay| svd(replay.inputs::<1>()?[0]).map(|(u, s, v)| vec![u, s, v])));
reader!("singular_values", One(|replay| singular_values(replay.inputs::<1>()?[0])));
reader!(
    "eigh",
    Several(|replay| {
        eigh(replay.inputs::<1>()?[0], replay.flag("upper")?).map(|(values, vectors)| vec![values, vectors])
    })
);
reader!("eigvalsh", One(|replay| eigvalsh(replay.inputs::<1>()?[0], replay.flag("upper")?)));
reader!(
    "eig",
    Several(|replay| eig(replay.inputs::<1>()?[0]).map(|(values, vectors)| vec![values, vectors]))
);
reader!("eigvals", One(|replay| eigvals(replay.inputs::<1>()?[0])));

/// Equations whose right sides are matrices.
fn sides(replay: &Replay<'_>, f: impl FnOnce([&Array; 2]) -> Result<Array>) -> Result<Array> {
    let both = replay.inputs::<2>()?;
    if both[1].ndim() < 2 {
        return Err(replay.wrong("right sides that are no matrices"));
    }
    f(both)
}
