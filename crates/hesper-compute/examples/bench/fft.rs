//! Fourier transforms of a million elements, as one row and as many rows.

use hesper_compute::{Axis, Fft, FftKind, Par};

use crate::measure::best;

pub fn run(par: &dyn Par) {
    println!("threads {}, simd {:?}", par.threads(), par.simd());
    for n in [1usize << 20, 1 << 18, 1 << 16, 1 << 14, 1 << 13, 1 << 12, 1 << 10, 1 << 8, 1 << 6] {
        let rows = (1 << 20) / n;
        let x: Vec<f32> =
            (0..2 * rows * n + 2 * rows).map(|i| ((i * 7919) % 1021) as f32 / 500.0 - 1.0).collect();
        let mut out = vec![0.0f32; x.len()];
        let mut time = |kind, given: usize, row: usize| {
            let fft = Fft::new(n, rows, kind, kind == FftKind::HalfToReal).unwrap();
            let width = if kind == FftKind::RealToHalf { 1 } else { 2 };
            let x = &x[..rows * given * width];
            1e3 * best(|| fft.run(par, x, given, &mut out[..rows * row], 1.0).unwrap())
        };
        let complex = time(FftKind::Complex, n, 2 * n);
        let (half, back) = (time(FftKind::RealToHalf, n, n + 2), time(FftKind::HalfToReal, n / 2 + 1, n));
        print!("{rows:6} x {n:7}: fft {complex:7.3} ms, rfft {half:7.3} ms, irfft {back:7.3} ms");
        let fft = Fft::new(n, rows, FftKind::Complex, false).unwrap();
        if fft.has_columns() {
            let (axis, len) = (Axis { outer: 1, len: n, inner: rows }, 2 * n * rows);
            let t = best(|| fft.run_columns(par, &x[..len], axis, &mut out[..len], 1.0).unwrap());
            print!(", along axis 0 {:7.3} ms", t * 1e3);
        }
        println!();
    }
}
