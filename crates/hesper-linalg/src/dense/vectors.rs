//! Vectors of a divide-and-conquer problem, as rows: whole vectors, or only their first and last elements,
//! which is all that eigenvalues alone need.

use hesper_compute::Par;

use super::block::{Block, multiply};
use super::field::Scalar;
use super::implicit_qr::rotate_rows;
use crate::Failure;

/// In which columns of a part a vector is nonzero: those of the left half, of the right half, or of both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Support {
    Left,
    Both,
    Right,
}

/// The vectors of a part, as rows `stride` apart, and the first column in which they are nonzero; or the
/// first and the last element of each.
pub(super) struct Vectors<'a, T> {
    rows: &'a mut [T],
    stride: usize,
    first: usize,
    width: usize,
    ends: bool,
}

impl<'a, T: Scalar> Vectors<'a, T> {
    /// Vectors of `width` elements.
    pub(super) fn whole(rows: &'a mut [T], stride: usize, width: usize) -> Self {
        Self { rows, stride, first: 0, width, ends: false }
    }

    /// The ends of vectors of `width` elements, two for each.
    pub(super) fn ends(rows: &'a mut [T], width: usize) -> Self {
        Self { rows, stride: 2, first: 0, width, ends: true }
    }

    pub(super) fn reborrow(&mut self) -> Vectors<'_, T> {
        Vectors { rows: &mut *self.rows, ..*self }
    }

    /// Splits into the vectors before column `at`, of the first `at` rows, and those from there on, of the
    /// others.
    pub(super) fn split(self, at: usize) -> (Self, Self) {
        let Self { stride, first, width, ends, .. } = self;
        let place = (at * stride).min(self.rows.len());
        let (rows, rest) = self.rows.split_at_mut(place);
        let right = if ends { 0 } else { first + at };
        (
            Vectors { rows, stride, first, width: at.min(width), ends },
            Vectors { rows: rest, stride, first: right, width: width.saturating_sub(at), ends },
        )
    }

    /// Elements of a row that are kept.
    fn kept(&self) -> usize {
        if self.ends { 2 } else { self.width }
    }

    fn row(&mut self, row: usize) -> &mut [T] {
        let kept = self.kept();
        &mut self.rows[row * self.stride + self.first..][..kept]
    }

    /// Sets a row to a unit vector.
    pub(super) fn set_unit(&mut self, row: usize, column: usize) {
        if self.ends {
            let last = self.width - 1;
            let ends = [column == 0, column == last].map(|is| if is { T::ONE } else { T::ZERO });
            self.row(row).copy_from_slice(&ends);
        } else {
            self.row(row)[column] = T::ONE;
        }
    }

    /// Writes whole vectors, each with as many elements as the part has columns.
    pub(super) fn write(&mut self, vectors: &[T]) {
        let width = self.width.max(1);
        vectors.chunks_exact(width).enumerate().for_each(|(at, vector)| self.write_row(at, vector));
    }

    /// Writes a whole vector, or the leading elements of one that is zero after them.
    pub(super) fn write_row(&mut self, row: usize, vector: &[T]) {
        if self.ends {
            let last = vector.get(self.width - 1).copied().unwrap_or(T::ZERO);
            self.row(row).copy_from_slice(&[vector[0], last]);
        } else {
            self.row(row)[..vector.len()].copy_from_slice(vector);
        }
    }

    /// The elements next to a cut: for each of the first `cut` rows that before column `cut`, for the others
    /// that after it. Rows of the halves become rows of the whole.
    pub(super) fn join(&mut self, cut: usize, count: usize) -> Vec<f64> {
        let (width, ends) = (self.width, self.ends);
        (0..count)
            .map(|at| {
                let row = self.row(at);
                if !ends {
                    return row[if at < cut { cut - 1 } else { cut }].to_f64();
                }
                let inner = if at < cut { 1 } else { 0 };
                let number = row[inner].to_f64();
                // Without columns after the cut, a vector ends at the cut.
                if cut < width {
                    row[inner] = T::ZERO;
                }
                number
            })
            .collect()
    }

    /// `one = c one - s other`, `other = s one + c other`.
    pub(super) fn rotate(&mut self, cosine: f64, sine: f64, (one, other): (usize, usize)) {
        let kept = self.kept();
        let (low, high) = (one.min(other), one.max(other));
        let (above, below) = self.rows.split_at_mut(high * self.stride);
        let low_row = &mut above[low * self.stride + self.first..][..kept];
        let high_row = &mut below[self.first..][..kept];
        if one == low {
            rotate_rows(cosine, sine, low_row, high_row);
        } else {
            rotate_rows(cosine, sine, high_row, low_row);
        }
    }

    /// Replaces the first rows by products of `mixed` with the rows `kept`, of which the first `lefts` are
    /// nonzero before column `cut`, and the last `rights` from there on. The rows `left_out` follow.
    pub(super) fn replace(
        &mut self,
        par: &dyn Par,
        mixed: &[T],
        kept: &[usize],
        left_out: &[usize],
        [lefts, rights]: [usize; 2],
        cut: usize,
    ) -> Result<(), Failure> {
        let (k, width) = (kept.len(), self.kept());
        let cut = match (self.ends, cut < self.width) {
            (false, _) => cut,
            (true, true) => 1,
            (true, false) => 2,
        };
        let mut old_left = Vec::with_capacity(lefts * cut);
        let mut old_right = Vec::with_capacity(rights * (width - cut));
        for (at, from) in kept.iter().enumerate() {
            let row = self.row(*from);
            if at < lefts {
                old_left.extend_from_slice(&row[..cut]);
            }
            if at >= k - rights {
                old_right.extend_from_slice(&row[cut..]);
            }
        }
        let mut unchanged = Vec::with_capacity(left_out.len() * width);
        left_out.iter().for_each(|at| unchanged.extend_from_slice(self.row(*at)));
        for (at, row) in unchanged.chunks_exact(width).enumerate() {
            self.row(k + at).copy_from_slice(row);
        }
        let mixed = Block::rows(mixed, k);
        let (first, stride) = (self.first, self.stride);
        let old = Block::rows(&old_left, cut);
        multiply(par, [k, lefts, cut], mixed, old, &mut self.rows[first..], stride)?;
        if width == cut {
            return Ok(());
        }
        let (mixed, old) = (mixed.from(0, k - rights), Block::rows(&old_right, width - cut));
        multiply(par, [k, rights, width - cut], mixed, old, &mut self.rows[first + cut..], stride)
    }
}

/// How many vectors are nonzero on the left, and how many on the right.
pub(super) fn sides(kept: &[usize], supports: &[Support]) -> [usize; 2] {
    let without = |what: Support| kept.iter().filter(|at| supports[**at] != what).count();
    [without(Support::Right), without(Support::Left)]
}
