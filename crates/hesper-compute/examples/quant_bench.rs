//! How fast products with blocks of GGUF files are, beside reading their bytes.
//!
//!     cargo run --release -p hesper-compute --example quant_bench

use std::hint::black_box;
use std::time::Instant;

use hesper_compute::{Activations, GgufFormat, GgufMat, gguf_matmul, gguf_quantize};
use hesper_compute::{MatMut, MatRef, Serial};

fn best(mut f: impl FnMut()) -> f64 {
    f();
    let mut least = f64::INFINITY;
    for _ in 0..20 {
        let begun = Instant::now();
        for _ in 0..4 {
            f();
        }
        least = least.min(begun.elapsed().as_secs_f64() / 4.0);
    }
    least
}

fn main() {
    for (n, k) in [(576usize, 576usize), (1536, 576), (576, 1536), (8192, 576)] {
        let numbers: Vec<f32> = (0..n * k).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 504.0).collect();
        for format in [GgufFormat::Q4_1, GgufFormat::Q8_0] {
            let mut data = vec![0u8; n * k / 32 * format.block_bytes()];
            gguf_quantize(format, &numbers, &mut data).expect("sizes fit");
            let w = GgufMat::new(format, n, k, &data).expect("sizes fit");
            for m in [1usize, 4, 16, 64] {
                // Arrays begin at whole cache lines.
                let room: Vec<f32> = numbers.iter().copied().take(m * k + 16).collect();
                let skip = room.as_ptr().align_offset(64);
                let x = &room[skip..skip + m * k];
                for activations in [Activations::Exact, Activations::Int8] {
                    let mut y = vec![0.0f32; m * n];
                    let seconds = best(|| {
                        let x = MatRef::row_major(x, m, k).expect("sizes fit");
                        let y = MatMut::row_major(&mut y, m, n).expect("sizes fit");
                        gguf_matmul(&Serial, x, &w, y, activations).expect("sizes fit");
                    });
                    black_box(&y);
                    println!(
                        "{n}x{k} {format:?} rows {m} {activations:?}: {:.1} us, {:.2} GB/s, {:.1} GFLOP/s",
                        seconds * 1e6,
                        data.len() as f64 / seconds / 1e9,
                        2.0 * (m * n * k) as f64 / seconds / 1e9
                    );
                }
            }
        }
    }
}
