//! Singular vectors of a few rows by one-sided Jacobi: pairs of rows are rotated until all are orthogonal.

use super::implicit_qr::rotate_rows;

/// Most sweeps over all pairs; six are typical.
const ROUNDS: usize = 40;
/// A singular value below this fraction of the largest is zero.
const ZERO: f64 = 1e-100;

/// Singular values of `n` rows of `width` elements, in any order. `left`, a unit matrix before, becomes the
/// left vectors, and the rows become the right ones, followed by those without a singular value.
pub(super) fn orthogonal_rows(n: usize, width: usize, rows: &mut Vec<f64>, left: &mut [f64]) -> Vec<f64> {
    for _ in 0..ROUNDS {
        let mut still = true;
        for q in 1..n {
            for p in 0..q {
                let (one, other) = (&rows[p * width..][..width], &rows[q * width..][..width]);
                let (a, b, c) = (dot(one, one), dot(other, other), dot(one, other));
                if c.abs() <= f64::EPSILON * a.sqrt() * b.sqrt() || c == 0.0 {
                    continue;
                }
                still = false;
                let half = (b - a) / (2.0 * c);
                let tangent = 1.0f64.copysign(half) / (half.abs() + half.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                for (list, length) in [(&mut rows[..], width), (&mut *left, n)] {
                    let (above, below) = list.split_at_mut((q * length).min(list.len()));
                    if let (Some(one), Some(other)) =
                        (above.get_mut(p * length..(p + 1) * length), below.get_mut(..length))
                    {
                        rotate_rows(cosine, cosine * tangent, one, other);
                    }
                }
            }
        }
        if still {
            break;
        }
    }
    let mut values: Vec<f64> = rows.chunks_exact(width.max(1)).map(|row| dot(row, row).sqrt()).collect();
    let nothing = values.iter().fold(0.0, |most: f64, x| most.max(*x)) * ZERO;
    rows.resize(width * width, 0.0);
    values.resize(width, 0.0);
    for (value, row) in values.iter_mut().zip(rows.chunks_exact_mut(width.max(1))) {
        if *value <= nothing {
            *value = 0.0;
            row.fill(0.0);
        } else {
            row.iter_mut().for_each(|x| *x /= *value);
        }
    }
    for (at, _) in values.iter().enumerate().filter(|(_, value)| **value == 0.0) {
        complete(width, rows, at);
    }
    values.truncate(n);
    values
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Replaces a row of zeros by a unit vector that is orthogonal to all others.
fn complete(width: usize, rows: &mut [f64], at: usize) {
    // Start from the unit vector with the smallest projection onto the others.
    let common = |column: usize| rows.iter().skip(column).step_by(width).map(|x| x * x).sum::<f64>();
    let least = (0..width).min_by(|a, b| common(*a).total_cmp(&common(*b))).unwrap_or(0);
    let mut new = vec![0.0; width];
    new[least] = 1.0;
    for _ in 0..2 {
        for row in rows.chunks_exact(width) {
            let along = dot(row, &new);
            new.iter_mut().zip(row).for_each(|(x, y)| *x -= along * y);
        }
        let length = dot(&new, &new).sqrt();
        new.iter_mut().for_each(|x| *x /= length);
    }
    rows[at * width..][..width].copy_from_slice(&new);
}
