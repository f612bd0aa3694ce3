//! Timing by the best of many runs, and the limits of the machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hesper_compute::Par;

/// The shortest of many runs, in seconds.
pub fn best(mut f: impl FnMut()) -> f64 {
    f();
    let start = Instant::now();
    let mut best = f64::MAX;
    let mut runs = 0;
    while runs < 5 || (start.elapsed() < Duration::from_millis(600) && runs < 2000) {
        let t = Instant::now();
        f();
        best = best.min(t.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Multiply-adds in `f32` per second (times two), on all threads of the executor.
pub fn peak_flops(par: &dyn Par) -> f64 {
    const ROUNDS: usize = 400_000;
    let n = par.threads();
    let t = best(|| {
        par.run(n, &|_| {
            black_box(fma_loop(ROUNDS));
        });
    });
    n as f64 * ROUNDS as f64 * 16.0 * lanes() as f64 * 2.0 / t
}

#[cfg(target_arch = "x86_64")]
fn lanes() -> usize {
    if is_x86_feature_detected!("avx512f") { 16 } else { 8 }
}

#[cfg(not(target_arch = "x86_64"))]
fn lanes() -> usize {
    8
}

fn fma_loop(rounds: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: detected.
        unsafe { if is_x86_feature_detected!("avx512f") { fma512(rounds) } else { fma256(rounds) } }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut a = [[0.5f32; 8]; 16];
        for _ in 0..rounds {
            a.iter_mut().flatten().for_each(|x| *x = x.mul_add(0.999, 0.001));
        }
        a[0][0]
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fma512(rounds: usize) -> f32 {
    use std::arch::x86_64::*;
    let (m, c) = (_mm512_set1_ps(0.999), _mm512_set1_ps(0.001));
    let mut a: [_; 16] = std::array::from_fn(|i| _mm512_set1_ps(black_box(i as f32)));
    for _ in 0..rounds {
        for x in &mut a {
            *x = _mm512_fmadd_ps(*x, m, c);
        }
    }
    a.into_iter().map(|v| _mm512_reduce_add_ps(v)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma256(rounds: usize) -> f32 {
    use std::arch::x86_64::*;
    let (m, c) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
    let mut a: [_; 12] = std::array::from_fn(|i| _mm256_set1_ps(black_box(i as f32)));
    for _ in 0..rounds * 16 / 12 {
        for x in &mut a {
            *x = _mm256_fmadd_ps(*x, m, c);
        }
    }
    a.into_iter().map(|v| _mm256_cvtss_f32(v)).sum()
}

/// Bytes read per second from an array of the given size.
pub fn read_rate(par: &dyn Par, bytes: usize) -> f64 {
    let data = vec![1u64; bytes / 8];
    let n = par.threads() * 8;
    let t = best(|| {
        par.run(n, &|i| {
            let part = &data[i * data.len() / n..(i + 1) * data.len() / n];
            let mut acc = [0u64; 64];
            for c in part.chunks_exact(64) {
                for (a, x) in acc.iter_mut().zip(c) {
                    *a ^= x;
                }
            }
            black_box(acc);
        });
    });
    bytes as f64 / t
}

/// Bytes read and written per second by a copy of `bytes` bytes to as many.
pub fn copy_rate(par: &dyn Par, bytes: usize) -> f64 {
    let src = vec![1u8; bytes];
    let mut dst = vec![0u8; bytes];
    let n = par.threads() * 8;
    let p = dst.as_mut_ptr() as usize;
    let t = best(|| {
        par.run(n, &|i| {
            let (a, b) = (i * bytes / n, (i + 1) * bytes / n);
            // SAFETY: tasks copy disjoint ranges of a live buffer.
            unsafe { std::ptr::copy_nonoverlapping(src.as_ptr().add(a), (p as *mut u8).add(a), b - a) };
        });
    });
    black_box(&dst);
    2.0 * bytes as f64 / t
}
