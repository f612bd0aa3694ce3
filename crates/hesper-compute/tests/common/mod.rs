//! Shared by the tests: reproducible random values, and every executor that a kernel must agree on.
#![allow(dead_code, reason = "each test file uses a part of it")]

use hesper_compute::{AtLevel, Float, Serial, Simd, Threads};

/// A small random number generator with a seed.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In -1..1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 11) as usize % n
    }

    pub fn floats<T: Float>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| T::from_f32(self.float())).collect()
    }
}

/// Every SIMD level of this machine, on one thread and on three.
pub fn levels() -> Vec<(AtLevel<Serial>, AtLevel<Threads>)> {
    Simd::available().into_iter().map(|s| (AtLevel(Serial, s), AtLevel(Threads(3), s))).collect()
}

/// Fails where two numbers differ by more than `tol`, relative above one and absolute below.
#[track_caller]
pub fn close(got: f32, want: f32, tol: f32, what: impl std::fmt::Debug) {
    let ok =
        got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= tol * want.abs().max(1.0);
    assert!(ok, "{what:?}: got {got}, want {want}");
}
