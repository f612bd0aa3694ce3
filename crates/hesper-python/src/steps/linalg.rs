//! Norms, determinants, pseudo-inverses and triangular systems.

use hesper::linalg as algebra;
use hesper::{Array, Category, Dtype, Split, axes, concatenate, select};

use super::movement;

/// A triangular system is a product with the inverse.
pub fn solve_triangular(a: &Array, b: &Array, upper: bool) -> hesper::Result<Array> {
    algebra::tri_inv(a, upper)?.matmul(b)
}

/// The Euclidean norm of all elements, which are flattened first.
pub fn norm_of_all(x: &Array, kept: bool) -> hesper::Result<Option<Array>> {
    if x.ndim() < 2 || !x.dtype().is(Category::Floating) {
        return Ok(None);
    }
    let ones = vec![1isize; x.ndim()];
    let norm = x.flatten(0, -1)?.square()?.sum(axes(()).keepdims_if(kept))?.sqrt()?;
    if kept { norm.reshape(&ones) } else { Ok(norm) }.map(Some)
}

pub fn pinv(a: &Array) -> hesper::Result<Option<Array>> {
    let rank = a.ndim();
    if rank < 2 || a.size() == 0 || a.dtype() != Dtype::Float32 {
        return Ok(None);
    }
    let (m, n) = (a.shape()[rank - 2], a.shape()[rank - 1]);
    let k = m.min(n) as isize;
    let (u, s, vt) = algebra::svd(a)?;
    let cut = |x: &Array, axis: usize| {
        if x.shape()[axis] as isize == k { Ok(x.clone()) } else { x.slice_axis(axis, 0, k, 1) }
    };
    let v = cut(&vt, rank - 2)?.swapaxes(-1, -2)?;
    let s = s.expand_dims(-2)?;
    let limit = Array::scalar(10.0 * m.max(n) as f64 * f64::from(f32::EPSILON), Dtype::Float32)?;
    let limit = limit.multiply(s.max(axes(-1).keepdims())?)?;
    let counts = s.greater(limit)?;
    let [one, zero] = [1.0, 0.0].map(|number| Array::scalar(number, Dtype::Float32));
    let inverse = select(&counts, one?.divide(&s)?, zero?)?;
    v.multiply(inverse)?.matmul(&cut(&u, rank - 1)?.swapaxes(-1, -2)?).map(Some)
}

/// Cross products of the parts of vectors.
pub fn cross(a: &Array, b: &Array, axis: isize) -> hesper::Result<Option<Array>> {
    let rank = a.ndim() as isize;
    let at = if axis < 0 { axis + rank } else { axis };
    if a.shape() != b.shape() || !(0..rank).contains(&at) || a.dtype() != b.dtype() {
        return Ok(None);
    }
    let length = a.shape()[at as usize];
    let parts = |x: &Array| movement::split(x, Split::Sections(length), at);
    let difference = |p: &Array, q: &Array, r: &Array, s: &Array| p.multiply(q)?.subtract(r.multiply(s)?);
    let found = match length {
        3 => {
            let (Some(a), Some(b)) = (parts(a)?, parts(b)?) else { return Ok(None) };
            vec![
                difference(&a[1], &b[2], &a[2], &b[1])?,
                difference(&a[2], &b[0], &a[0], &b[2])?,
                difference(&a[0], &b[1], &a[1], &b[0])?,
            ]
        }
        2 => {
            let (Some(a), Some(b)) = (parts(a)?, parts(b)?) else { return Ok(None) };
            let zeros = a[0].zeros_like()?;
            vec![zeros.clone(), zeros, difference(&a[0], &b[1], &a[1], &b[0])?]
        }
        _ => return Ok(None),
    };
    concatenate(&found, at).map(Some)
}

/// Determinants of up to three rows, by cofactors.
pub fn det(a: &Array) -> hesper::Result<Option<Array>> {
    let rank = a.ndim();
    let rows = if rank < 2 || a.dtype() != Dtype::Float32 { 0 } else { a.shape()[rank - 1] };
    if !(1..=3).contains(&rows) || a.shape()[rank - 2] != rows {
        return Ok(None);
    }
    let at = |row: isize, column: isize| {
        let (mut start, mut stop) = (vec![0; rank], Vec::from_iter(a.shape().iter().map(|n| *n as isize)));
        (start[rank - 2], stop[rank - 2]) = (row, row + 1);
        (start[rank - 1], stop[rank - 1]) = (column, column + 1);
        a.slice(&start, &stop, &vec![1; rank])?.squeeze(-1)?.squeeze(-1)
    };
    if rows == 1 {
        return a.squeeze(-1)?.squeeze(-1).map(Some);
    }
    // The determinant of two rows and two columns.
    let minor = |rows: [isize; 2], columns: [isize; 2]| {
        let (first, second) = (at(rows[0], columns[0])?, at(rows[1], columns[1])?);
        let product = first.multiply(second)?;
        product.subtract(at(rows[0], columns[1])?.multiply(at(rows[1], columns[0])?)?)
    };
    if rows == 2 {
        return minor([0, 1], [0, 1]).map(Some);
    }
    let first = at(0, 0)?.multiply(minor([1, 2], [1, 2])?)?;
    let second = at(0, 1)?.multiply(minor([1, 2], [0, 2])?)?;
    first.subtract(second)?.add(at(0, 2)?.multiply(minor([1, 2], [0, 1])?)?).map(Some)
}

pub fn slogdet(a: &Array) -> hesper::Result<Option<(Array, Array)>> {
    let Some(det) = det(a)? else { return Ok(None) };
    Ok(Some((det.sign()?, det.abs()?.log()?)))
}
