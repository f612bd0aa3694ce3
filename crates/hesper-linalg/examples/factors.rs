//! Times factorisations on a pool of threads.
//!
//!     cargo run --release -p hesper-linalg --example factors -- [threads] [filter]

#![allow(clippy::unwrap_used, reason = "a failure here should stop the run")]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../../hesper-compute/examples/bench/pool.rs"]
mod pool;

use std::time::{Duration, Instant};

use hesper_linalg::{cholesky, eig, eigh, inv, lu, qr, singular_values, solve, solve_triangular, svd};

/// The shortest and the middle of many runs, in milliseconds.
fn timed(name: &str, filter: &str, mut f: impl FnMut()) {
    if !name.contains(filter) {
        return;
    }
    f();
    let start = Instant::now();
    let mut runs = Vec::new();
    while runs.len() < 3 || (start.elapsed() < Duration::from_millis(500) && runs.len() < 100) {
        let t = Instant::now();
        f();
        runs.push(t.elapsed().as_secs_f64() * 1e3);
    }
    runs.sort_by(f64::total_cmp);
    println!("{name:24} best {:8.3} ms  median {:8.3} ms", runs[0], runs[runs.len() / 2]);
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    common::numbers(count, seed).into_iter().map(|number| number as f32).collect()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let filter = args.next().unwrap_or_default();
    let par = pool::Pool::new(threads);
    for n in [8, 32, 128, 512, 1024, 2048] {
        let a = numbers(n * n, 1);
        let mut s = vec![0.0; n];
        let (mut u, mut vt) = (vec![0.0; n * n], vec![0.0; n * n]);
        timed(&format!("svd {n}"), &filter, || svd(&par, n, n, &a, &mut u, &mut s, &mut vt).unwrap());
        timed(&format!("singular_values {n}"), &filter, || singular_values(&par, n, n, &a, &mut s).unwrap());
        let both: Vec<f32> = (0..n * n).map(|at| a[at] + a[at % n * n + at / n]).collect();
        timed(&format!("eigh {n}"), &filter, || eigh(&par, n, &both, false, &mut s, Some(&mut u)).unwrap());
        timed(&format!("eigvalsh {n}"), &filter, || eigh(&par, n, &both, false, &mut s, None).unwrap());
        timed(&format!("qr {n}"), &filter, || qr(&par, n, n, &a, &mut u, &mut vt).unwrap());
    }
    for (m, n) in [(2000, 200), (200, 2000), (1000, 800)] {
        let (a, k) = (numbers(m * n, 5), m.min(n));
        let (mut u, mut s, mut vt) = (vec![0.0; m * m], vec![0.0; k], vec![0.0; n * n]);
        timed(&format!("svd {m}x{n}"), &filter, || svd(&par, m, n, &a, &mut u, &mut s, &mut vt).unwrap());
    }
    let n = 256;
    let (a, mut s, mut u) = (numbers(n * n, 2), vec![[0.0; 2]; n], vec![[0.0; 2]; n * n]);
    timed(&format!("eig {n}"), &filter, || eig(&par, n, &a, &mut s, Some(&mut u)).unwrap());
    for n in [16, 32, 64, 128, 512, 1024, 2048] {
        let mut a = numbers(n * n, 3);
        (0..n).for_each(|at| a[at * n + at] += 50.0);
        let mut out = vec![0.0; n * n];
        let symmetric: Vec<f32> = (0..n * n)
            .map(|at| if at / n == at % n { n as f32 } else { a[at.min(at % n * n + at / n)] })
            .collect();
        timed(&format!("cholesky {n}"), &filter, || cholesky(&par, n, &symmetric, false, &mut out).unwrap());
        let (mut swaps, mut places) = (vec![0; n], vec![0; n]);
        timed(&format!("lu {n}"), &filter, || lu(&par, n, n, &a, &mut out, &mut swaps, &mut places).unwrap());
        let (b, mut x) = (numbers(n, 4), vec![0.0; n]);
        timed(&format!("solve {n}"), &filter, || solve(&par, n, 1, &a, &b, &mut x).unwrap());
        let mut many = vec![0.0; n * n];
        timed(&format!("solve n {n}"), &filter, || solve(&par, n, n, &a, &symmetric, &mut many).unwrap());
        timed(&format!("solve_triangular {n}"), &filter, || {
            solve_triangular(&par, n, 1, &a, &b, true, &mut x).unwrap();
        });
        let mut whole = vec![0.0; n * n];
        timed(&format!("solve_triangular n {n}"), &filter, || {
            solve_triangular(&par, n, n, &a, &symmetric, false, &mut whole).unwrap();
        });
        if n <= 1024 {
            timed(&format!("inv {n}"), &filter, || inv(&par, n, &a, &mut out).unwrap());
        }
    }
}
