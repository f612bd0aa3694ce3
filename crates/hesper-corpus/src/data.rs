//! Deterministic test data: every array is a function of its seed.

use crate::array::{Array, DType};

/// A small splitmix64 generator.
pub struct Rng(u64);

impl Rng {
    /// A generator whose numbers depend on the seed alone.
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `[low, high)`.
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A uniform integer in `[low, high)`.
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low) as u64) as i64
    }
}

fn count(dtype: DType, shape: &[usize]) -> usize {
    shape.iter().product::<usize>() * if dtype == DType::Complex64 { 2 } else { 1 }
}

/// Uniform numbers in `[low, high)`.
pub fn uniform(seed: u64, dtype: DType, shape: &[usize], low: f64, high: f64) -> Array {
    let mut rng = Rng::new(seed);
    let values: Vec<f64> = (0..count(dtype, shape)).map(|_| rng.range(low, high)).collect();
    Array::floats(dtype, shape, &values)
}

/// Roughly normal numbers (a sum of four uniforms, variance one).
pub fn normal(seed: u64, dtype: DType, shape: &[usize]) -> Array {
    let mut rng = Rng::new(seed);
    let mut next = || (0..4).map(|_| rng.range(-0.5, 0.5)).sum::<f64>() * 3f64.sqrt();
    let values: Vec<f64> = (0..count(dtype, shape)).map(|_| next()).collect();
    Array::floats(dtype, shape, &values)
}

/// Uniform integers in `[low, high)`.
pub fn integers(seed: u64, dtype: DType, shape: &[usize], low: i64, high: i64) -> Array {
    let mut rng = Rng::new(seed);
    let values: Vec<i64> = (0..count(dtype, shape)).map(|_| rng.int(low, high)).collect();
    Array::ints(dtype, shape, &values)
}

/// Random bits in every byte.
pub fn bits(seed: u64, dtype: DType, shape: &[usize]) -> Array {
    let mut rng = Rng::new(seed);
    let values: Vec<i64> = (0..count(dtype, shape)).map(|_| rng.bits() as i64).collect();
    Array::ints(dtype, shape, &values)
}
