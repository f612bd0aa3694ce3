//! Products and comparisons of complex matrices.

use crate::common::numbers;

/// A complex number as its two parts.
pub type Complex = [f64; 2];

/// Pseudo-random complex numbers.
pub fn complex_numbers(count: usize, seed: u64) -> Vec<Complex> {
    numbers(2 * count, seed).as_chunks::<2>().0.to_vec()
}

/// The product of an `m x k` and a `k x n` matrix.
pub fn product(m: usize, k: usize, n: usize, a: &[Complex], b: &[Complex]) -> Vec<Complex> {
    let mut to = vec![[0.0; 2]; m * n];
    for (row, to) in a.chunks_exact(k.max(1)).zip(to.chunks_exact_mut(n.max(1))) {
        for ([x, y], b) in row.iter().zip(b.chunks_exact(n.max(1))) {
            for (to, [z, w]) in to.iter_mut().zip(b) {
                *to = [to[0] + x * z - y * w, to[1] + x * w + y * z];
            }
        }
    }
    to
}

/// The conjugated transpose of an `m x n` matrix.
pub fn adjoint(m: usize, n: usize, a: &[Complex]) -> Vec<Complex> {
    (0..m * n).map(|at| a[at % m * n + at / m]).map(|[x, y]| [x, -y]).collect()
}

pub fn near(a: &[Complex], b: &[Complex], bound: f64) -> bool {
    a.len() == b.len() && a.as_flattened().iter().zip(b.as_flattened()).all(|(a, b)| (a - b).abs() <= bound)
}
