//! Quantized products: time, and bytes of the matrix read per second.

use half::bf16;
use hesper_compute::{
    Activations, Float, GgmlType, GgufMat, MatMut, MatRef, Par, QuantFormat, QuantMat, Scales, gguf_matmul,
    qmatmul,
};

use crate::measure::{best, read_rate};

fn product<T: Float>(
    par: &dyn Par,
    name: &str,
    (m, n, k): (usize, usize, usize),
    format: QuantFormat,
    mode: Activations,
    rate: f64,
) {
    let packed: Vec<u32> = (0..n * format.words(k)).map(|i| (i as u32).wrapping_mul(2_654_435_761)).collect();
    let groups = n * k / format.group();
    let (s, b) = (vec![bf16::from_f32(0.01); groups], vec![bf16::from_f32(-0.08); groups]);
    let bytes = vec![120u8; groups];
    let affine = matches!(format, QuantFormat::Affine { .. });
    let scales = if affine { Scales::Bf16(&s) } else { Scales::Bytes(&bytes) };
    let w = QuantMat::new(format, n, k, &packed, scales, affine.then_some(Scales::Bf16(&b))).unwrap();
    let x: Vec<T> = (0..m * k).map(|i| T::from_f32((i % 17) as f32 / 8.0 - 1.0)).collect();
    let mut y = vec![T::from_f32(0.0); m * n];
    let t = best(|| {
        let (x, y) = (MatRef::row_major(&x, m, k).unwrap(), MatMut::row_major(&mut y, m, n).unwrap());
        qmatmul(par, x, &w, true, y, mode).unwrap();
    });
    let read = (packed.len() * 4 + groups * if affine { 4 } else { 1 }) as f64 / t;
    println!(
        "{name:10} {mode:?} m={m:3} {n}x{k} {:8.3} ms {:6.1} GB/s {:5.2} of a read {:7.1} GFLOP/s",
        t * 1e3,
        read / 1e9,
        read / rate,
        2.0 * (m * n * k) as f64 / t / 1e9
    );
}

pub fn run(par: &dyn Par) {
    let rate = read_rate(par, 10 << 20);
    println!("threads {}, read of 10 MiB {:.1} GB/s", par.threads(), rate / 1e9);
    let q4 = QuantFormat::Affine { bits: 4, group: 64 };
    for (n, k) in [(4096, 4096), (14336, 4096)] {
        product::<f32>(par, "q4 f32", (1, n, k), q4, Activations::Exact, rate);
        product::<bf16>(par, "q4 bf16", (1, n, k), q4, Activations::Exact, rate);
        product::<f32>(par, "q4 f32", (1, n, k), q4, Activations::Int8, rate);
    }
    for m in [2, 4, 8, 16, 32, 128] {
        product::<f32>(par, "q4 f32", (m, 4096, 4096), q4, Activations::Exact, rate);
        product::<bf16>(par, "q4 bf16", (m, 4096, 4096), q4, Activations::Exact, rate);
        product::<f32>(par, "q4 f32", (m, 4096, 4096), q4, Activations::Int8, rate);
    }
    for bits in [2, 3, 5, 6, 8] {
        let format = QuantFormat::Affine { bits, group: 64 };
        product::<f32>(par, &format!("q{bits} f32"), (1, 4096, 4096), format, Activations::Exact, rate);
    }
    for (format, name) in
        [(QuantFormat::Mxfp4, "mxfp4"), (QuantFormat::Mxfp8, "mxfp8"), (QuantFormat::Nvfp4, "nvfp4")]
    {
        product::<f32>(par, name, (1, 4096, 4096), format, Activations::Exact, rate);
    }
    decoder(par);
    for format in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0] {
        let (n, k) = (4096, 4096);
        let data = vec![0x31u8; n * k / 32 * format.block_bytes()];
        let w = GgufMat::new(format, n, k, &data).unwrap();
        let (x, mut y) = (vec![0.5f32; k], vec![0.0f32; n]);
        for mode in [Activations::Exact, Activations::Int8] {
            let t = best(|| {
                let (x, y) = (MatRef::row_major(&x, 1, k).unwrap(), MatMut::row_major(&mut y, 1, n).unwrap());
                gguf_matmul(par, x, &w, y, mode).unwrap();
            });
            let read = data.len() as f64 / t;
            println!(
                "{format:?} {mode:?} {:8.3} ms {:6.1} GB/s {:5.2} of a read",
                t * 1e3,
                read / 1e9,
                read / rate
            );
        }
    }
}

/// Products of exact and of rounded activations with every format that is multiplied as integers.
pub fn rounded(par: &dyn Par) {
    let (n, k) = (4096, 4096);
    println!("threads {}, {n} x {k}, milliseconds: exact, rounded, and their ratio", par.threads());
    for format in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q6_K] {
        let data = vec![0x31u8; n * k / format.block_len() * format.block_bytes()];
        let w = GgufMat::new(format, n, k, &data).unwrap();
        for m in [1, 2, 4, 8, 16, 32, 128, 512] {
            let x: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
            let mut y = vec![0.0f32; m * n];
            let mut time = |mode| {
                best(|| {
                    let (x, y) =
                        (MatRef::row_major(&x, m, k).unwrap(), MatMut::row_major(&mut y, m, n).unwrap());
                    gguf_matmul(par, x, &w, y, mode).unwrap();
                })
            };
            let (exact, rounded) = (time(Activations::Exact) * 1e3, time(Activations::Int8) * 1e3);
            let rate = 2e-6 * (m * n * k) as f64 / rounded;
            println!(
                "{format:?} m={m:3} {exact:8.3} {rounded:8.3} {:5.2}  {rate:7.1} GFLOP/s {:6.1} GB/s",
                exact / rounded,
                data.len() as f64 / rounded / 1e6
            );
        }
    }
}

/// The best time of one product, in milliseconds: `FORMAT,ROWS,N,K,exact` or `...,int8`.
pub fn one(par: &dyn Par, what: &str) {
    let parts: Vec<&str> = what.split(',').collect();
    let number = |at: usize| parts[at].parse::<usize>().unwrap();
    let (m, n, k) = (number(1), number(2), number(3));
    let mode = if parts[4] == "int8" { Activations::Int8 } else { Activations::Exact };
    let x: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
    let mut y = vec![0.0f32; m * n];
    let affine = |bits: usize| {
        let format = QuantFormat::Affine { bits, group: 64 };
        let packed = vec![0x3131_3131u32; n * format.words(k)];
        let (s, b) = (vec![0.01f32; n * k / 64], vec![-0.08f32; n * k / 64]);
        (format, packed, s, b)
    };
    let blocks = |format: GgmlType| (format, vec![0x31u8; n * k / format.block_len() * format.block_bytes()]);
    let mut time = |w: &dyn Fn(MatRef<'_, f32>, MatMut<'_, f32>)| {
        best(|| w(MatRef::row_major(&x, m, k).unwrap(), MatMut::row_major(&mut y, m, n).unwrap()))
    };
    let t = match parts[0] {
        "affine4" | "affine8" => {
            let (format, packed, s, b) = affine(if parts[0] == "affine4" { 4 } else { 8 });
            let biases = Some(Scales::F32(&b));
            let w = QuantMat::new(format, n, k, &packed, Scales::F32(&s), biases).unwrap();
            time(&|x, y| qmatmul(par, x, &w, true, y, mode).unwrap())
        }
        name => {
            use GgmlType::{Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
            let format = [Q4_0, Q4_1, Q8_0, Q4_K, Q6_K].into_iter().find(|f| format!("{f:?}") == name);
            let (format, data) = blocks(format.unwrap());
            let w = GgufMat::new(format, n, k, &data).unwrap();
            time(&|x, y| gguf_matmul(par, x, &w, y, mode).unwrap())
        }
    };
    println!("{:.4}", t * 1e3);
}

/// The matrices of a small decoder of 30 layers, one after the other, as a step reads them.
pub fn decoder(par: &dyn Par) {
    let rate = read_rate(par, 64 << 20);
    let format = GgmlType::Q4_1;
    let shapes = [(576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536)];
    let layers: Vec<(usize, usize)> = (0..30).flat_map(|_| shapes).chain([(49152, 576)]).collect();
    let matrices: Vec<Vec<u8>> =
        layers.iter().map(|(n, k)| vec![0x31u8; n * k / 32 * format.block_bytes()]).collect();
    let bytes: usize = matrices.iter().map(Vec::len).sum();
    for m in [1, 2, 4, 8, 16, 32, 64, 128, 512] {
        let (x, mut y) = (vec![0.5f32; m * 1536], vec![0.0f32; m * 49152]);
        let t = best(|| {
            for (data, &(n, k)) in matrices.iter().zip(&layers) {
                if m > 16 && n == 49152 {
                    continue;
                }
                let w = GgufMat::new(format, n, k, data).unwrap();
                let x = MatRef::row_major(&x[..m * k], m, k).unwrap();
                let y = MatMut::row_major(&mut y[..m * n], m, n).unwrap();
                gguf_matmul(par, x, &w, y, Activations::Exact).unwrap();
            }
        });
        let flops: usize =
            layers.iter().filter(|l| m <= 16 || l.0 != 49152).map(|(n, k)| 2 * m * n * k).sum();
        println!(
            "decoder m={m:3} {:8.3} ms {:6.1} GB/s {:5.2} of a read {:7.1} GFLOP/s",
            t * 1e3,
            bytes as f64 / t / 1e9,
            bytes as f64 / t / rate,
            flops as f64 / t / 1e9
        );
    }
}
