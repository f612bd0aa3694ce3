//! Cholesky factorization.

use std::cmp::Ordering;

use hesper_compute::{Par, Simd};

use super::block::{Block, subtract, transpose};
use super::field::{Field, Scalar};
use super::triangular::{Factor, half_of, solve_lower};
use crate::Failure;

/// Rows of a diagonal block.
const BLOCK: usize = 128;
/// Columns of the trailing matrix updated in one product; the part above the diagonal is wasted.
const STRIP: usize = 256;
/// Rows factored without blocking.
const BASE_SIZE: usize = 32;

/// [`cholesky`] for a matrix that may be singular within rounding: its factor has columns of zeros.
pub(crate) fn semidefinite_cholesky<T: Scalar>(par: &dyn Par, n: usize, a: &mut [T]) -> Result<(), Failure> {
    let original = a.to_vec();
    match cholesky(par, n, a) {
        Err(Failure::NotPositive) => {
            a.copy_from_slice(&original);
            semidefinite(par.simd(), n, a)
        }
        done => done,
    }
}

/// Replaces the lower triangle of a matrix by its Cholesky factor. The upper triangle is overwritten with
/// unspecified values.
pub(crate) fn cholesky<T: Field>(par: &dyn Par, n: usize, a: &mut [T]) -> Result<(), Failure> {
    let mut panel = Vec::new();
    for first in (0..n).step_by(BLOCK) {
        let width = BLOCK.min(n - first);
        let (last, height) = (first + width, n - first - width);
        diagonal(par, width, &mut a[first * n + first..], n)?;
        if height == 0 {
            break;
        }
        let (above, below) = a.split_at_mut(last * n);
        let lower = Block::rows(above, n).from(first, first);
        panel.resize(width * height, T::ZERO);
        transpose(par, (height, width), &below[first..], n, &mut panel, height)?;
        T::conjugate(&mut panel);
        solve_lower(par, width, Factor { matrix: lower, unit: false }, &mut panel, height, height)?;
        transpose(par, (width, height), &panel, height, &mut below[first..], n)?;
        (0..height).for_each(|row| T::conjugate(&mut below[row * n + first..][..width]));
        let panel = Block::rows(&panel, height);
        for start in (0..height).step_by(STRIP) {
            let columns = STRIP.min(height - start);
            let right = panel.from(0, start);
            let left = right.transposed().conjugated();
            let rest = &mut below[start * n + last + start..];
            subtract(par, [height - start, width, columns], left, right, rest, n)?;
        }
    }
    Ok(())
}

/// Factors a diagonal block recursively.
fn diagonal<T: Field>(par: &dyn Par, size: usize, a: &mut [T], stride: usize) -> Result<(), Failure> {
    if size <= BASE_SIZE {
        return one_by_one(par.simd(), size, a, stride);
    }
    let half = half_of(size, BASE_SIZE);
    diagonal(par, half, a, stride)?;
    let (above, below) = a.split_at_mut(half * stride);
    let rest = size - half;
    let mut panel = vec![T::ZERO; half * rest];
    transpose(par, (rest, half), below, stride, &mut panel, rest)?;
    T::conjugate(&mut panel);
    let lower = Factor { matrix: Block::rows(above, stride), unit: false };
    solve_lower(par, half, lower, &mut panel, rest, rest)?;
    transpose(par, (half, rest), &panel, rest, below, stride)?;
    (0..rest).for_each(|row| T::conjugate(&mut below[row * stride..][..half]));
    let right = Block::rows(&panel, rest);
    let left = right.transposed().conjugated();
    subtract(par, [rest, half, rest], left, right, &mut below[half..], stride)?;
    diagonal(par, rest, &mut below[half..], stride)
}

/// Factors a matrix whose pivots may be zero within `n` roundings of the largest element of the diagonal, the
/// tolerance of LAPACK's `pstrf`. The column of such a pivot is zero.
fn semidefinite<T: Scalar>(simd: Simd, n: usize, a: &mut [T]) -> Result<(), Failure> {
    let largest = (0..n).map(|i| a[i * n + i]).fold(T::ZERO, |most, x| if x > most { x } else { most });
    let tolerance = T::EPSILON * largest * T::of(n as f64);
    if !tolerance.to_f64().is_finite() {
        return Err(Failure::NotPositive);
    }
    for i in 0..n {
        let (done, rest) = a.split_at_mut(i * n);
        let row = &mut rest[..=i];
        for j in 0..i {
            let other = &done[j * n..][..=j];
            let left = row[j] - T::dot(simd, &row[..j], &other[..j]);
            if other[j] != T::ZERO {
                row[j] = left / other[j];
            } else if left * left <= tolerance * largest {
                row[j] = T::ZERO;
            } else {
                return Err(Failure::NotPositive);
            }
        }
        let left = row[i] - T::dot(simd, &row[..i], &row[..i]);
        row[i] = if left > tolerance {
            left.sqrt()
        } else if left.abs() <= tolerance {
            T::ZERO
        } else {
            return Err(Failure::NotPositive);
        };
    }
    Ok(())
}

fn one_by_one<T: Field>(simd: Simd, size: usize, a: &mut [T], stride: usize) -> Result<(), Failure> {
    for i in 0..size {
        let (done, rest) = a.split_at_mut(i * stride);
        let row = &mut rest[..=i];
        for j in 0..i {
            let other = &done[j * stride..][..=j];
            row[j] = (row[j] - T::inner(simd, &other[..j], &row[..j])).over(other[j].re());
        }
        let left = row[i].re() - T::Real::dot(simd, T::parts(&row[..i]), T::parts(&row[..i]));
        // Also true for NaN.
        if left.partial_cmp(&T::Real::ZERO) != Some(Ordering::Greater) {
            return Err(Failure::NotPositive);
        }
        row[i] = T::from_real(left.sqrt());
    }
    Ok(())
}
