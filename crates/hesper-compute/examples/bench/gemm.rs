//! Matrix products in GFLOP/s and matrix-vector products in GB/s.

use half::{bf16, f16};
use hesper_compute::{Element, GemmOptions, MatMut, MatRef, Par, Stack, gemm, gemm_stacked};

use crate::measure::{best, peak_flops, read_rate};

fn fill<T>(n: usize, from: impl Fn(f32) -> T) -> Vec<T> {
    (0..n).map(|i| from(((i * 7919) % 1024) as f32 / 512.0 - 1.0)).collect()
}

fn product<T: Element>(
    par: &dyn Par,
    name: &str,
    (m, n, k): (usize, usize, usize),
    transpose: bool,
    peak: f64,
    from: impl Fn(f32) -> T,
) {
    let (a, b) = (fill(m * k, &from), fill(k * n, &from));
    let mut c = fill(m * n, &from);
    let options = GemmOptions::default();
    let t = best(|| {
        let b = if transpose {
            MatRef::row_major(&b, n, k).unwrap().transposed()
        } else {
            MatRef::row_major(&b, k, n).unwrap()
        };
        let (a, c) = (MatRef::row_major(&a, m, k).unwrap(), MatMut::row_major(&mut c, m, n).unwrap());
        gemm(par, a, b, c, &options).unwrap();
    });
    let rate = 2.0 * (m * n * k) as f64 / t;
    let transpose = if transpose { "T" } else { " " };
    println!(
        "{name:5} {m:5} x{n:5} x{k:5}{transpose} {:9.4} ms {:7.1} GFLOP/s {:5.2} of f32 peak",
        t * 1e3,
        rate / 1e9,
        rate / peak
    );
}

fn matvec<T: Element>(
    par: &dyn Par,
    name: &str,
    m: usize,
    (n, k): (usize, usize),
    transpose: bool,
    rate: f64,
    from: impl Fn(f32) -> T,
) {
    let (x, w) = (fill(m * k, &from), fill(n * k, &from));
    let mut y = fill(m * n, &from);
    let t = best(|| {
        let w = if transpose {
            MatRef::row_major(&w, n, k).unwrap().transposed()
        } else {
            MatRef::row_major(&w, k, n).unwrap()
        };
        let (x, y) = (MatRef::row_major(&x, m, k).unwrap(), MatMut::row_major(&mut y, m, n).unwrap());
        gemm(par, x, w, y, &GemmOptions::default()).unwrap();
    });
    let r = (n * k * size_of::<T>()) as f64 / t;
    let transpose = if transpose { "T" } else { " " };
    println!(
        "{name:5} matvec m={m} {n}x{k}{transpose} {:8.3} ms {:6.1} GB/s {:5.2} of a read",
        t * 1e3,
        r / 1e9,
        r / rate
    );
}

pub fn run(par: &dyn Par, filter: &str) {
    let peak = peak_flops(par);
    println!("threads {}, f32 peak {:.1} GFLOP/s, simd {:?}", par.threads(), peak / 1e9, par.simd());
    if filter == "quick" {
        for n in [16, 32, 64, 96, 128, 192, 256, 512, 1024] {
            product(par, "f32", (n, n, n), false, peak, |x| x);
            product(par, "f32", (n, n, n), true, peak, |x| x);
        }
        batch(par, peak);
        return;
    }
    let want = |s: &str| filter.is_empty() || s.contains(filter);
    for n in [128, 256, 512, 1024, 2048] {
        for transpose in [false, true] {
            if want("f32") {
                product(par, "f32", (n, n, n), transpose, peak, |x| x);
            }
        }
        if want("f64") && n <= 1024 {
            product(par, "f64", (n, n, n), false, peak, f64::from);
            product(par, "f64", (n, n, n), true, peak, f64::from);
        }
        if want("bf16") {
            product(par, "bf16", (n, n, n), false, peak, bf16::from_f32);
            product(par, "bf16", (n, n, n), true, peak, bf16::from_f32);
        }
        if want("f16") {
            product(par, "f16", (n, n, n), true, peak, f16::from_f32);
        }
    }
    if want("f32") {
        for m in [8, 16, 32, 64, 192] {
            product(par, "f32", (m, 4096, 4096), true, peak, |x| x);
            product(par, "f32", (m, 4096, 4096), false, peak, |x| x);
        }
    }
    if want("batch") {
        batch(par, peak);
    }
    if want("matvec") {
        let rate = read_rate(par, 64 << 20);
        println!("read {:.1} GB/s", rate / 1e9);
        for transpose in [false, true] {
            matvec(par, "f32", 1, (4096, 4096), transpose, rate, |x| x);
            matvec(par, "f32", 4, (4096, 4096), transpose, rate, |x| x);
            matvec(par, "bf16", 1, (4096, 8192), transpose, rate, bf16::from_f32);
            matvec(par, "f16", 1, (4096, 8192), transpose, rate, f16::from_f32);
            matvec(par, "f64", 1, (4096, 2048), transpose, rate, f64::from);
        }
    }
}

fn batch(par: &dyn Par, peak: f64) {
    let shapes = [
        (64, 256, 256, 64),
        (1000, 3, 3, 3),
        (1000, 8, 8, 8),
        (1000, 16, 16, 16),
        (1000, 32, 32, 32),
        (256, 64, 64, 64),
    ];
    for (batch, m, n, k) in shapes {
        let (a, b) = (fill(batch * m * k, |x| x), fill(batch * k * n, |x| x));
        let mut c = vec![0.0f32; batch * m * n];
        for transpose in [false, true] {
            let (rows, cols) = if transpose { (1, k as isize) } else { (n as isize, 1) };
            let t = best(|| {
                let a = Stack { data: &a, first: 0, rows: k as isize, cols: 1, batch: &[(m * k) as isize] };
                let b = Stack { data: &b, first: 0, rows, cols, batch: &[(k * n) as isize] };
                gemm_stacked(par, &[batch], (m, n, k), a, b, &mut c, &GemmOptions::default()).unwrap();
            });
            let rate = 2.0 * (batch * m * n * k) as f64 / t;
            println!(
                "batch {batch:4} x ({m}x{k} @ {k}x{n}{}) {:7.4} ms {:7.1} GFLOP/s {:5.2} of f32 peak",
                if transpose { "T" } else { " " },
                t * 1e3,
                rate / 1e9,
                rate / peak
            );
        }
    }
}
