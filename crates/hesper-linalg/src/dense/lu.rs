//! LU factorization with partial pivoting: panels of columns, a few columns at a time, then one product for
//! the rest.

use hesper_compute::{AtLevel, MAX_ELIMINATED, Par, Serial};

use super::block::{Block, Rows, subtract};
use super::field::Field;
use super::triangular::{Factor, solve_lower};
use crate::Failure;

/// Columns of a panel.
const PANEL: usize = 128;
/// Most rows of a panel that is factored on one core: a second one would mostly wait for cache lines of the
/// first.
const SERIAL_ROWS: usize = 512;

/// Replaces a matrix by its factors, the lower one without its unit diagonal. `swaps` are the rows that each
/// row in turn was exchanged with. A column without a pivot is left as it is.
pub(crate) fn lu<T: Field>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &mut [T],
    swaps: &mut [u32],
) -> Result<(), Failure> {
    let size = rows.min(columns);
    if columns <= PANEL {
        return factor_panel(par, rows, columns, a, &mut swaps[..size]);
    }
    let mut panel = Vec::new();
    for first in (0..size).step_by(PANEL) {
        let width = PANEL.min(size - first);
        let last = first + width;
        // A contiguous panel: with a large stride, a column of the matrix may fall into a single cache set.
        panel.clear();
        for row in a[first * columns..].chunks_exact(columns) {
            panel.extend_from_slice(&row[first..last]);
        }
        let swaps = &mut swaps[first..last];
        factor_panel(par, rows - first, width, &mut panel, swaps)?;
        for (at, swap) in swaps.iter_mut().enumerate() {
            swap_rows(a, columns, first + at, first + *swap as usize);
            *swap += first as u32;
        }
        for (row, from) in a[first * columns..].chunks_exact_mut(columns).zip(panel.chunks_exact(width)) {
            row[first..last].copy_from_slice(from);
        }
        if last == columns {
            continue;
        }
        let right = columns - last;
        let (above, below) = a.split_at_mut(last * columns);
        let top = &mut above[first * columns + last..];
        let lower = Block::rows(&panel, width);
        solve_lower(par, width, Factor { matrix: lower, unit: true }, top, right, columns)?;
        if last < rows {
            let (left, top) = (lower.from(width, 0), Block::rows(top, columns));
            subtract(par, [rows - last, width, right], left, top, &mut below[last..], columns)?;
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

/// Factors a panel, a few columns at a time.
fn factor_panel<T: Field>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &mut [T],
    swaps: &mut [u32],
) -> Result<(), Failure> {
    let simd = par.simd();
    let alone = AtLevel(Serial, simd);
    let par: &dyn Par = if rows <= SERIAL_ROWS { &alone } else { par };
    let mut corner = [T::ZERO; MAX_ELIMINATED * MAX_ELIMINATED];
    let mut first = 0;
    for swaps in swaps.chunks_mut(MAX_ELIMINATED) {
        T::eliminate(simd, a, columns, first, swaps);
        let width = swaps.len();
        let last = first + width;
        if last < columns {
            let right = columns - last;
            for (row, to) in corner.chunks_exact_mut(MAX_ELIMINATED).enumerate().take(width) {
                to[..width].copy_from_slice(&a[(first + row) * columns + first..][..width]);
            }
            let (above, below) = a.split_at_mut(last * columns);
            let top = &mut above[first * columns + last..];
            T::solve_unit(simd, Rows::new(&corner, MAX_ELIMINATED, width, width), top, columns, right);
            if last < rows {
                // Copy the factors, which are adjacent to the rows that are updated.
                let mut left = Vec::with_capacity((rows - last) * width);
                for row in below.chunks_exact(columns) {
                    left.extend_from_slice(&row[first..last]);
                }
                let (left, top) = (Block::rows(&left, width), Block::rows(top, columns));
                subtract(par, [rows - last, width, right], left, top, &mut below[last..], columns)?;
            }
        }
        first = last;
    }
    Ok(())
}
