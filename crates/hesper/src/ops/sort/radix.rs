//! Sorting of integers: by digits where they are many and short, else by comparison; long rows in pieces
//! on all cores, merged on all cores. Pieces depend on the length alone.

use crate::ops::native::par_pieces;

/// An integer that rows are sorted by.
pub(crate) trait Item: Copy + Ord + Send + Sync + Default {
    /// One of its bytes, the lowest being the first.
    fn byte(self, at: u32) -> usize;
}

macro_rules! items {
    ($($t:ty)*) => { $(
        impl Item for $t {
            #[inline(always)]
            fn byte(self, at: u32) -> usize { (self >> (8 * at)) as usize & 0xff }
        }
    )* };
}

items!(u8 u16 u32 u64 u128);

/// Rows at least this long are sorted by digits, if these are few.
const BY_DIGITS: usize = 1024;
/// Most digits.
const DIGITS: usize = 4;
/// Elements of a piece that one task sorts.
const PIECE: usize = 1 << 18;

/// Sorts a row by the bytes in `digits`; the order by lower bytes, if there are such, is the one that the
/// row has already. `spare` is memory to use.
pub(crate) fn sort<K: Item>(row: &mut [K], digits: std::ops::Range<u32>, spare: &mut Vec<K>) {
    if row.len() < BY_DIGITS || digits.len() > DIGITS {
        return row.sort_unstable();
    }
    let mut counts = [[0u32; 256]; DIGITS];
    for item in row.iter() {
        for (counts, digit) in counts.iter_mut().zip(digits.clone()) {
            counts[item.byte(digit)] += 1;
        }
    }
    spare.clear();
    spare.resize(row.len(), K::default());
    let mut in_row = true;
    for (counts, digit) in counts.iter_mut().zip(digits) {
        // All the same: nothing moves.
        if counts.contains(&(row.len() as u32)) {
            continue;
        }
        let mut start = 0;
        for count in counts.iter_mut() {
            (start, *count) = (start + *count, start);
        }
        let (from, to): (&[K], &mut [K]) = if in_row { (&*row, &mut *spare) } else { (&*spare, &mut *row) };
        for item in from {
            let place = &mut counts[item.byte(digit)];
            to[*place as usize] = *item;
            *place += 1;
        }
        in_row = !in_row;
    }
    if !in_row {
        row.copy_from_slice(spare);
    }
}

/// Sorts one row on all cores.
pub(crate) fn sort_long<K: Item>(row: &mut Vec<K>, digits: std::ops::Range<u32>) {
    if row.len() <= PIECE {
        return sort(row, digits, &mut Vec::new());
    }
    par_pieces(row.chunks_mut(PIECE).collect(), |_, piece| sort(piece, digits.clone(), &mut Vec::new()));
    let mut other = vec![K::default(); row.len()];
    let mut sorted = PIECE;
    while sorted < row.len() {
        let mut pieces = Vec::new();
        for (from, to) in row.chunks(2 * sorted).zip(other.chunks_mut(2 * sorted)) {
            let (left, right) = from.split_at(sorted.min(from.len()));
            cut(left, right, to, &mut pieces);
        }
        par_pieces(pieces, |_, (left, right, to)| merge(left, right, to));
        std::mem::swap(row, &mut other);
        sorted *= 2;
    }
}

/// Two sorted rows, and the place for both.
type Merge<'a, K> = (&'a [K], &'a [K], &'a mut [K]);

/// Cuts a merge into parts that can be done side by side.
fn cut<'a, K: Item>(
    mut left: &'a [K],
    mut right: &'a [K],
    mut to: &'a mut [K],
    parts: &mut Vec<Merge<'a, K>>,
) {
    while left.len() > PIECE / 4 {
        let at = PIECE / 4;
        // What is in the first part is not above what follows.
        let border = left[at];
        let other = right.partition_point(|item| *item < border);
        let (first, rest) = to.split_at_mut(at + other);
        parts.push((&left[..at], &right[..other], first));
        (left, right, to) = (&left[at..], &right[other..], rest);
    }
    parts.push((left, right, to));
}

fn merge<K: Item>(left: &[K], right: &[K], to: &mut [K]) {
    let (mut l, mut r) = (0, 0);
    for slot in to {
        let take_left = r >= right.len() || l < left.len() && left[l] <= right[r];
        *slot = if take_left { left[l] } else { right[r] };
        l += usize::from(take_left);
        r += usize::from(!take_left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<u32> {
        let mut state = 12345u32;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state ^ state >> 15
            })
            .collect()
    }

    #[test]
    fn rows_of_every_length_are_sorted() {
        for count in [0, 1, 2, 100, BY_DIGITS, 5000, PIECE + 1, 3 * PIECE + 77] {
            let mut row = numbers(count);
            let mut expected = row.clone();
            expected.sort_unstable();
            sort_long(&mut row, 0..4);
            assert!(row == expected, "{count} numbers");
        }
    }

    #[test]
    fn equal_digits_keep_their_order() {
        let mut row: Vec<u64> =
            numbers(3000).iter().enumerate().map(|(at, x)| u64::from(x % 7) << 32 | at as u64).collect();
        sort(&mut row, 4..8, &mut Vec::new());
        assert!(row.is_sorted());
    }
}
