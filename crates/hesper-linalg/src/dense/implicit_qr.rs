//! Eigenvalues and eigenvectors of small tridiagonal matrices, by QR with implicit shifts.

use super::Scalar;
use crate::Failure;

/// Most steps per eigenvalue; two are typical.
const STEPS: usize = 60;

/// Replaces the diagonal by the eigenvalues in any order, and overwrites the off-diagonal (of the same
/// length; its last element is unused). The rotations are applied to `rows` as well.
pub(super) fn eigenvectors<T: Scalar>(
    diagonal: &mut [f64],
    off_diagonal: &mut [f64],
    rows: &mut [T],
    width: usize,
) -> Result<(), Failure> {
    steps(diagonal, off_diagonal, |at, cosine, sine| {
        let (above, below) = rows[at * width..].split_at_mut(width);
        rotate_rows(cosine, sine, above, &mut below[..width]);
    })
}

/// `one = c one - s other`, `other = s one + c other`.
pub(super) fn rotate_rows<T: Scalar>(cosine: f64, sine: f64, one: &mut [T], other: &mut [T]) {
    let (cosine, sine) = (T::of(cosine), T::of(sine));
    for (one, other) in one.iter_mut().zip(other) {
        let (x, y) = (*one, *other);
        *one = cosine * x - sine * y;
        *other = sine * x + cosine * y;
    }
}

/// Calls `rotated` with the first of two neighbours that were rotated, and the rotation.
fn steps(
    diagonal: &mut [f64],
    off_diagonal: &mut [f64],
    mut rotated: impl FnMut(usize, f64, f64),
) -> Result<(), Failure> {
    let n = diagonal.len();
    if let Some(last) = off_diagonal.last_mut() {
        *last = 0.0;
    }
    let largest = diagonal.iter().chain(&*off_diagonal).fold(0.0, |most: f64, x| most.max(x.abs()));
    for first in 0..n {
        for step in 0.. {
            let parted = |at: &usize| {
                let size = diagonal[*at].abs() + diagonal[*at + 1].abs();
                off_diagonal[*at].abs() <= f64::EPSILON / 2.0 * size + f64::EPSILON / 8.0 * largest
            };
            let last = (first..n - 1).find(parted).unwrap_or(n - 1);
            if last == first {
                break;
            }
            if step == STEPS {
                return Err(Failure::NoConvergence);
            }
            sweep(diagonal, off_diagonal, first, last, &mut rotated);
        }
    }
    Ok(())
}

/// One QR step on the part from `first` to `last`.
fn sweep(
    diagonal: &mut [f64],
    off_diagonal: &mut [f64],
    first: usize,
    last: usize,
    rotated: &mut impl FnMut(usize, f64, f64),
) {
    let half = (diagonal[first + 1] - diagonal[first]) / (2.0 * off_diagonal[first]);
    let shift = diagonal[first] - off_diagonal[first] / (half + half.hypot(1.0).copysign(half));
    let mut g = diagonal[last] - shift;
    let (mut sine, mut cosine, mut lost) = (1.0, 1.0, 0.0);
    for at in (first..last).rev() {
        let (f, b) = (sine * off_diagonal[at], cosine * off_diagonal[at]);
        let length = (f * f + g * g).sqrt();
        off_diagonal[at + 1] = length;
        if length == 0.0 {
            diagonal[at + 1] -= lost;
            off_diagonal[last] = 0.0;
            return;
        }
        (sine, cosine) = (f / length, g / length);
        let d = diagonal[at + 1] - lost;
        let r = (diagonal[at] - d) * sine + 2.0 * cosine * b;
        lost = sine * r;
        diagonal[at + 1] = d + lost;
        g = cosine * r - b;
        rotated(at, cosine, sine);
    }
    diagonal[first] -= lost;
    off_diagonal[first] = g;
    off_diagonal[last] = 0.0;
}
