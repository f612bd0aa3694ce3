//! Triangular factors with exchanged rows: panels of columns by halves, then the rest in one product.

use hesper_compute::{Par, Simd, axpy};

use super::Scalar;
use super::block::{Block, rows_mut, subtract, turn};
use super::triangular::{Factor, half_of, solve_lower};
use crate::Failure;

/// Columns of a panel.
const PANEL: usize = 128;
/// Columns of a panel that are eliminated one after the other.
const FEW: usize = 8;

/// Replaces a matrix by its factors, the lower one without its diagonal of ones. `swaps` are the rows that each
/// row in turn was exchanged with. A column without a pivot is left as it is.
pub(crate) fn lu<T: Scalar>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &mut [T],
    swaps: &mut [u32],
) -> Result<(), Failure> {
    let size = rows.min(columns);
    let mut panel = Vec::new();
    for first in (0..size).step_by(PANEL) {
        let width = PANEL.min(size - first);
        let (last, height) = (first + width, rows - first);
        panel.resize(width * height, T::ZERO);
        turn(par, (height, width), &a[first * columns + first..], columns, &mut panel, height)?;
        let swaps = &mut swaps[first..last];
        factor_panel(par, height, 0, &mut panel, swaps)?;
        for (at, swap) in swaps.iter_mut().enumerate() {
            swap_rows(a, columns, first + at, first + *swap as usize);
            *swap += first as u32;
        }
        turn(par, (width, height), &panel, height, &mut a[first * columns + first..], columns)?;
        if last == columns {
            continue;
        }
        let right = columns - last;
        let (above, below) = a.split_at_mut(last * columns);
        let top = &mut above[first * columns + last..];
        let lower = Block::rows(&panel, height).turned();
        solve_lower(par, width, Factor { matrix: lower, unit: true }, top, right, columns)?;
        if last < rows {
            let (left, top) = (lower.from(width, 0), Block::rows(top, columns));
            let rest = rows_mut(&mut below[last..], rows - last, right, columns)?;
            subtract(par, left.view(rows - last, width)?, top.view(width, right)?, rest)?;
        }
    }
    Ok(())
}

fn swap_rows<T>(a: &mut [T], columns: usize, one: usize, other: usize) {
    if one < other {
        let (above, below) = a.split_at_mut(other * columns);
        above[one * columns..][..columns].swap_with_slice(&mut below[..columns]);
    }
}

/// Factors columns of a panel that lie one after the other, `height` numbers each; the first has its pivot
/// in row `top` or below.
fn factor_panel<T: Scalar>(
    par: &dyn Par,
    height: usize,
    top: usize,
    columns: &mut [T],
    swaps: &mut [u32],
) -> Result<(), Failure> {
    let width = swaps.len();
    if width <= FEW {
        eliminate(par.simd(), height, top, columns, swaps);
        return Ok(());
    }
    let half = half_of(width, FEW);
    let middle = top + half;
    let (left, right) = columns.split_at_mut(half * height);
    let (first, second) = swaps.split_at_mut(half);
    factor_panel(par, height, top, left, first)?;
    // Rows of the right half: exchanged, then those of the upper factor.
    let mut factors = Vec::with_capacity((width - half) * half);
    for column in right.chunks_exact_mut(height) {
        exchange(column, top, first);
        for (at, done) in left.chunks_exact(height).enumerate() {
            let x = column[top + at];
            axpy(par.simd(), -x, &done[top + at + 1..middle], &mut column[top + at + 1..middle]);
        }
        factors.extend_from_slice(&column[top..middle]);
    }
    if middle < height {
        let factors = Block::rows(&factors, half).view(width - half, half)?;
        let lower = Block::rows(left, height).from(0, middle).view(half, height - middle)?;
        let rest = rows_mut(&mut right[middle..], width - half, height - middle, height)?;
        subtract(par, factors, lower, rest)?;
    }
    factor_panel(par, height, middle, right, second)?;
    left.chunks_exact_mut(height).for_each(|column| exchange(column, middle, second));
    Ok(())
}

fn exchange<T>(column: &mut [T], top: usize, swaps: &[u32]) {
    swaps.iter().enumerate().for_each(|(at, other)| column.swap(top + at, *other as usize));
}

/// Eliminates column by column.
fn eliminate<T: Scalar>(simd: Simd, height: usize, top: usize, columns: &mut [T], swaps: &mut [u32]) {
    for (at, swap) in swaps.iter_mut().enumerate() {
        let row = top + at;
        let column = &columns[at * height..][..height];
        let pivot = row + largest(&column[row..]);
        *swap = pivot as u32;
        if pivot != row {
            columns.chunks_exact_mut(height).for_each(|column| column.swap(row, pivot));
        }
        let (done, rest) = columns.split_at_mut((at + 1) * height);
        let column = &mut done[at * height..];
        let value = column[row];
        if value == T::ZERO {
            continue;
        }
        if value.abs() >= T::SMALLEST {
            let factor = T::ONE / value;
            column[row + 1..].iter_mut().for_each(|x| *x = *x * factor);
        } else {
            column[row + 1..].iter_mut().for_each(|x| *x = *x / value);
        }
        for other in rest.chunks_exact_mut(height) {
            axpy(simd, -other[row], &column[row + 1..], &mut other[row + 1..]);
        }
    }
}

/// Where the first of the largest numbers is.
fn largest<T: Scalar>(x: &[T]) -> usize {
    let mut most = [T::ZERO; 16];
    let (whole, rest) = x.as_chunks::<16>();
    for chunk in whole {
        for (most, x) in most.iter_mut().zip(chunk) {
            *most = if x.abs() > *most { x.abs() } else { *most };
        }
    }
    let most = most.iter().chain(rest).fold(T::ZERO, |most, x| if x.abs() > most { x.abs() } else { most });
    x.iter().position(|x| x.abs() == most).unwrap_or(0)
}
