//! Counting sort, for types with few distinct values.

use super::Sortable;
use crate::par::{Par, Shared};

/// Elements of a row counted per task.
const PART: usize = 1 << 17;

/// Whether a counting sort is the fastest for rows of `n` elements.
pub(super) fn pays<T: Sortable>(n: usize) -> bool {
    match T::BYTES {
        1 => n >= 64,
        2 => n >= 1 << 15,
        _ => false,
    }
}

/// Sorts one row of 8-bit or 16-bit elements.
pub(super) fn row<T: Sortable>(par: &dyn Par, x: &[T], out: &mut [T]) {
    let values = 1 << (8 * T::BYTES);
    let parts = x.len().div_ceil(PART).min(par.threads()).max(1);
    let mut counts = vec![0u32; parts * values];
    if parts == 1 {
        histogram(x, &mut counts);
    } else {
        let shared = Shared::new(counts.as_mut_ptr());
        par.run(parts, &|p| {
            // SAFETY: every task has counts of its own.
            let counts = unsafe { shared.slice(p * values, values) };
            histogram(&x[p * x.len() / parts..(p + 1) * x.len() / parts], counts);
        });
    }
    let mut at = 0;
    for value in 0..values {
        let count: u32 = (0..parts).map(|p| counts[p * values + value]).sum();
        if count > 0 {
            out[at..at + count as usize].fill(T::from_key(value as u64));
            at += count as usize;
        }
    }
}

/// Counts every second element in a separate table, so that equal neighbours do not depend on each other.
fn histogram<T: Sortable>(x: &[T], counts: &mut [u32]) {
    let mut odd = vec![0u32; counts.len()];
    let pairs = x.chunks_exact(2);
    for last in pairs.remainder() {
        counts[last.key() as usize] += 1;
    }
    for pair in pairs {
        counts[pair[0].key() as usize] += 1;
        odd[pair[1].key() as usize] += 1;
    }
    for (count, odd) in counts.iter_mut().zip(odd) {
        *count += odd;
    }
}
