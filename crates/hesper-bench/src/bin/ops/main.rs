//! The speed of arrays: one JSON line per workload, to compare with the lines of other libraries.
//!
//! `cargo run --release -p hesper-bench --bin ops [W1,W3,...]`: products (W1), element-wise chains (W2),
//! rows (W3), movement (W4), quantized and dense products of few rows (W5), attention (W6), convolution
//! (W7), Fourier transforms and linear algebra (W8), the cost of an op and of a training step (W9).
//! Everything goes through the public `hesper::Array`.
//!
//! `ops --table FILE` puts lines of this program and of others into one table.

mod mlp;

use std::time::Instant;

use hesper::fast::AttentionMask;
use hesper::{
    Activations, Array, Dtype, PackedArray, PackedFormat, QuantMode, Result, concatenate, eval, fast, fft,
    linalg, random, transform,
};
use hesper_bench::lines::{Lines, Unit};

const ALL: &str = "W1,W2,W3,W4,W5,W6,W7,W8,W9";

/// Normally distributed values, evaluated.
fn rand(seed: u64, shape: &[usize], dtype: Dtype) -> Result<Array> {
    computed(random::normal(shape, Dtype::Float32, 0.0, 1.0, Some(&random::key(seed)?))?.astype(dtype)?)
}

fn rand32(seed: u64, shape: &[usize]) -> Result<Array> {
    rand(seed, shape, Dtype::Float32)
}

fn computed(array: Array) -> Result<Array> {
    array.eval()?;
    Ok(array)
}

/// Matrix products.
fn w1(lines: &Lines) -> Result<()> {
    let types = [(Dtype::Float32, "f32"), (Dtype::Bfloat16, "bf16"), (Dtype::Float16, "f16")];
    for (dtype, name) in types {
        for n in [512usize, 1024, 2048, 4096] {
            let (a, b) = (rand(1, &[n, n], dtype)?, rand(2, &[n, n], dtype)?);
            let unit = Unit::Gflops(2e-9 * (n as f64).powi(3));
            let params = format!("\"n\": {n}, \"dtype\": \"{name}\"");
            lines.measure("W1.matmul", &params, unit, || computed(a.matmul(&b)?));
        }
    }
    let (a, b) = (rand32(3, &[64, 256, 64])?, rand32(4, &[64, 64, 256])?);
    let unit = Unit::Gflops(2e-9 * 64.0 * 256.0 * 64.0 * 256.0);
    let params = "\"b\": 64, \"m\": 256, \"k\": 64, \"n\": 256, \"dtype\": \"f32\"";
    lines.measure("W1.bmm", params, unit, || computed(a.matmul(&b)?));
    Ok(())
}

/// A chain of element-wise ops, fused without `compile`.
fn w2(lines: &Lines) -> Result<()> {
    let n = 16usize << 20;
    let x = rand32(21, &[n])?;
    let chain = |x: &Array| x.multiply(1.3)?.add(0.7)?.tanh()?.multiply(&x.sigmoid()?)?.add(x);
    let compiled = transform::compile(move |x| Ok(vec![chain(&x[0])?]));
    let begun = Instant::now();
    eval(&compiled(std::slice::from_ref(&x))?)?;
    lines.once("W2.compile_first_call", &format!("\"n\": {n}"), begun.elapsed().as_secs_f64());
    let (params, unit) = (|mode| format!("\"n\": {n}, \"mode\": \"{mode}\""), Unit::Gbytes(8e-9 * n as f64));
    lines.measure("W2.chain", &params("eager"), unit, || computed(chain(&x)?));
    lines.measure("W2.chain", &params("compiled"), unit, || {
        let outputs = compiled(std::slice::from_ref(&x))?;
        eval(&outputs)?;
        Ok::<_, hesper::Error>(outputs)
    });
    Ok(())
}

/// Reductions, scans, norms and sorts.
fn w3(lines: &Lines) -> Result<()> {
    let n = 4096usize;
    let (x, g, b) = (rand32(31, &[n, n])?, rand32(32, &[n])?, rand32(33, &[n])?);
    let params = format!("\"shape\": [{n}, {n}]");
    let once = 4e-9 * (n * n) as f64;
    let measure = |op: &str, passes: f64, work: &dyn Fn() -> Result<Array>| {
        lines.measure(&format!("W3.{op}"), &params, Unit::Gbytes(passes * once), || computed(work()?));
    };
    measure("sum_all", 1.0, &|| x.sum(()));
    measure("sum_axis0", 1.0, &|| x.sum(0));
    measure("sum_axis1", 1.0, &|| x.sum(1));
    measure("softmax", 2.0, &|| x.softmax(-1));
    measure("argmax", 1.0, &|| x.argmax(-1));
    measure("cumsum", 2.0, &|| x.cumsum(Some(-1), false, true));
    measure("layernorm", 2.0, &|| fast::layer_norm(&x, Some(&g), Some(&b), 1e-5));
    measure("rmsnorm", 2.0, &|| fast::rms_norm(&x, Some(&g), 1e-5));
    for shape in [&[1usize << 20][..], &[1024, 1024]] {
        let x = rand32(34, shape)?;
        let params = format!("\"shape\": {shape:?}");
        let unit = Unit::Gbytes(8e-9 * x.size() as f64);
        lines.measure("W3.sort", &params, unit, || computed(x.sort(Some(-1))?));
    }
    Ok(())
}

/// Copies, casts, joins and gathers.
fn w4(lines: &Lines) -> Result<()> {
    let n = 4096usize;
    let (x, y) = (rand32(41, &[n, n])?, rand32(42, &[n, n])?);
    let moved = 8e-9 * (n * n) as f64;
    let params = format!("\"shape\": [{n}, {n}]");
    lines.measure("W4.transpose_copy", &params, Unit::Gbytes(moved), || computed(x.t()?.contiguous()?));
    let unit = Unit::Gbytes(0.75 * moved);
    lines.measure("W4.cast_bf16", &params, unit, || computed(x.astype(Dtype::Bfloat16)?));
    let (parts, params) = ([x, y], format!("\"shape\": [{n}, {n}], \"parts\": 2"));
    for along in [0, 1] {
        let name = format!("W4.concat{along}");
        lines.measure(&name, &params, Unit::Gbytes(2.0 * moved), || computed(concatenate(&parts, along)?));
    }
    let table = rand32(43, &[65536, 1024])?;
    let rows = computed(random::randint(0, 65536, &[4096], Dtype::Int32, Some(&random::key(44)?))?)?;
    let unit = Unit::Gbytes(8e-9 * 4096.0 * 1024.0);
    let params = "\"table\": [65536, 1024], \"rows\": 4096";
    lines.measure("W4.gather_rows", params, unit, || computed(table.take(&rows, Some(0))?));
    Ok(())
}

/// Products of few rows with a large matrix.
fn w5(lines: &Lines) -> Result<()> {
    let sizes = [1usize, 8, 32, 512].map(|m| [(m, 4096usize, 4096usize), (m, 14336, 4096)]);
    for (m, n, k) in sizes.concat() {
        quantized(lines, m, n, k)?;
        packed(lines, m, n, k)?;
        let (w, x) = (rand32(51, &[n, k])?, rand32(52, &[m, k])?);
        let unit = if m == 1 {
            Unit::Gbytes(4e-9 * (n * k) as f64)
        } else {
            Unit::Gflops(2e-9 * (m * n * k) as f64)
        };
        let params = format!("\"m\": {m}, \"n\": {n}, \"k\": {k}, \"dtype\": \"f32\"");
        lines.measure("W5.dense", &params, unit, || computed(x.matmul(&w.t()?)?));
    }
    Ok(())
}

/// The product with a matrix of 4-bit codes in groups of 64, with exact activations and with activations
/// rounded to 8 bits.
fn quantized(lines: &Lines, m: usize, n: usize, k: usize) -> Result<()> {
    for (dtype, name, size) in [(Dtype::Float32, "f32", 4.0), (Dtype::Bfloat16, "bf16", 2.0)] {
        let (w, x) = (rand(51, &[n, k], dtype)?, rand(52, &[m, k], dtype)?);
        let (codes, scales, biases) = w.quantize(Some(64), Some(4), QuantMode::Affine)?;
        hesper::eval([&codes, &scales].into_iter().chain(&biases))?;
        let unit = if m == 1 {
            Unit::Gbytes(1e-9 * (n * k) as f64 * (0.5 + 2.0 * size / 64.0))
        } else {
            Unit::Gflops(2e-9 * (m * n * k) as f64)
        };
        for (activations, workload) in [(Activations::Exact, "W5.qmm"), (Activations::Int8, "W5.qmm8")] {
            let params =
                format!("\"m\": {m}, \"n\": {n}, \"k\": {k}, \"q\": \"affine4g64\", \"x\": \"{name}\"");
            lines.measure(workload, &params, unit, || {
                let (group, bits, mode) = (Some(64), Some(4), QuantMode::Affine);
                let bias = biases.as_ref();
                let y =
                    x.quantized_matmul_with(&codes, &scales, bias, true, group, bits, mode, activations)?;
                computed(y)
            });
        }
    }
    Ok(())
}

/// The product with a matrix of GGUF blocks, with exact and with rounded activations. All bytes are alike:
/// the time does not depend on them.
fn packed(lines: &Lines, m: usize, n: usize, k: usize) -> Result<()> {
    use PackedFormat::{Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
    let x = rand32(52, &[m, k])?;
    for (format, name) in [(Q4_0, "q4_0"), (Q4_1, "q4_1"), (Q8_0, "q8_0"), (Q4_K, "q4_K"), (Q6_K, "q6_K")] {
        let (block, bytes) = (format.block_len(), format.block_bytes());
        let bytes = n * k / block * bytes;
        let blocks = Array::try_from_slice(&vec![0x31u8; bytes], &[bytes])?;
        let w = PackedArray::new(&blocks, format, &[n, k])?;
        let unit =
            if m == 1 { Unit::Gbytes(1e-9 * bytes as f64) } else { Unit::Gflops(2e-9 * (m * n * k) as f64) };
        for (activations, workload) in [(Activations::Exact, "W5.qmm"), (Activations::Int8, "W5.qmm8")] {
            let params = format!("\"m\": {m}, \"n\": {n}, \"k\": {k}, \"q\": \"{name}\"");
            lines.measure(workload, &params, unit, || computed(w.matmul_with(&x, activations)?));
        }
    }
    Ok(())
}

/// Attention with 32 query heads and 8 key heads.
fn w6(lines: &Lines) -> Result<()> {
    let (heads, shared, features) = (32usize, 8usize, 128usize);
    for (dtype, name, size) in [(Dtype::Float32, "f32", 4.0), (Dtype::Bfloat16, "bf16", 2.0)] {
        for (kind, queries, keys) in [("decode", 1usize, 4096usize), ("prefill_causal", 1024, 1024)] {
            let q = rand(61, &[1, heads, queries, features], dtype)?;
            let k = rand(62, &[1, shared, keys, features], dtype)?;
            let v = rand(63, &[1, shared, keys, features], dtype)?;
            let params = format!(
                "\"H\": {heads}, \"KV\": {shared}, \"D\": {features}, \"q_len\": {queries}, \"kv_len\": {keys}, \
                 \"dtype\": \"{name}\""
            );
            let decode = queries == 1;
            let unit = if decode {
                Unit::Gbytes(2e-9 * (shared * keys * features) as f64 * size)
            } else {
                Unit::Gflops(2e-9 * (heads * queries * keys * features) as f64)
            };
            let scale = 1.0 / (features as f32).sqrt();
            lines.measure(&format!("W6.sdpa_{kind}"), &params, unit, || {
                let mask = if decode { AttentionMask::None } else { AttentionMask::Causal };
                computed(fast::scaled_dot_product_attention(&q, &k, &v, scale, mask, None)?)
            });
        }
    }
    Ok(())
}

/// A convolution.
fn w7(lines: &Lines) -> Result<()> {
    let (x, w) = (rand32(71, &[8, 56, 56, 64])?, rand32(72, &[64, 3, 3, 64])?);
    let params = "\"x\": [8, 64, 56, 56], \"k\": 3, \"cout\": 64, \"layout\": \"NHWC\"";
    let unit = Unit::Gflops(2e-9 * (8 * 56 * 56 * 64 * 64 * 9) as f64);
    lines.measure("W7.conv2d", params, unit, || computed(x.conv2d(&w, [1, 1], [1, 1], [1, 1], 1)?));
    Ok(())
}

/// A Fourier transform and linear algebra.
fn w8(lines: &Lines) -> Result<()> {
    let n = 1usize << 20;
    let z = computed(random::normal(&[n], Dtype::Complex64, 0.0, 1.0, Some(&random::key(81)?))?)?;
    let params = format!("\"n\": {n}, \"dtype\": \"c64\"");
    let unit = Unit::Gflops(5e-9 * n as f64 * 20.0);
    lines.measure("W8.fft", &params, unit, || computed(fft::fft(&z, None, -1, fft::Norm::default())?));
    let a = rand32(82, &[512, 512])?;
    lines.measure("W8.svd", "\"n\": 512", Unit::Calls, || {
        let (u, s, vt) = linalg::svd(&a)?;
        hesper::eval([&u, &s, &vt])
    });
    let s = computed(a.add(&a.t()?)?)?;
    lines.measure("W8.eigh", "\"n\": 512", Unit::Calls, || {
        let (values, vectors) = linalg::eigh(&s, false)?;
        hesper::eval([&values, &vectors])
    });
    let b = rand32(83, &[1024, 1024])?;
    let cube = |n: f64| 1e-9 * n.powi(3);
    lines.measure("W8.qr", "\"n\": 1024", Unit::Gflops(8.0 / 3.0 * cube(1024.0)), || {
        let (q, r) = linalg::qr(&b)?;
        hesper::eval([&q, &r])
    });
    let n = 2048usize;
    let (c, eye) = (rand32(84, &[n, n])?, Array::identity(n, Dtype::Float32)?);
    let symmetric = computed(c.matmul(&c.t()?)?.divide(n as f64)?.add(&eye.multiply(2.0)?)?)?;
    let params = format!("\"n\": {n}");
    lines.measure("W8.cholesky", &params, Unit::Gflops(cube(n as f64) / 3.0), || {
        computed(linalg::cholesky(&symmetric, false)?)
    });
    let (general, side) = (computed(c.add(&eye.multiply(50.0)?)?)?, rand32(85, &[n, 1])?);
    let params = format!("\"n\": {n}, \"rhs\": 1");
    lines.measure("W8.solve", &params, Unit::Gflops(2.0 / 3.0 * cube(n as f64)), || {
        computed(linalg::solve(&general, &side)?)
    });
    Ok(())
}

/// The cost of an op and of a training step.
fn w9(lines: &Lines) -> Result<()> {
    let one = computed(Array::ones(&[1], Dtype::Float32)?)?;
    let chain = || {
        let mut y = one.clone();
        for _ in 0..10_000 {
            y = y.add(&one)?;
        }
        computed(y)
    };
    let fused = eval::fusion_enabled();
    for mode in ["lazy", "lazy, fusion off"] {
        eval::set_fusion(mode == "lazy");
        lines.measure(
            "W9.add_chain",
            &format!("\"ops\": 10000, \"mode\": \"{mode}\""),
            Unit::Mops(1e-2),
            chain,
        );
    }
    eval::set_fusion(fused);
    mlp::measure(lines)
}

fn main() -> Result<()> {
    let asked = std::env::args().nth(1).unwrap_or_else(|| ALL.to_string());
    if asked == "--table" {
        let file = std::env::args().nth(2).unwrap_or_default();
        match std::fs::read_to_string(&file) {
            Ok(lines) => print!("{}", hesper_bench::table::table(&lines, "hesper")),
            Err(error) => {
                eprintln!("{file}: {error}");
                std::process::exit(1);
            }
        }
        return Ok(());
    }
    let lines = Lines::new("hesper");
    for workload in asked.split(',') {
        match workload {
            "W1" => w1(&lines)?,
            "W2" => w2(&lines)?,
            "W3" => w3(&lines)?,
            "W4" => w4(&lines)?,
            "W5" => w5(&lines)?,
            "W6" => w6(&lines)?,
            "W7" => w7(&lines)?,
            "W8" => w8(&lines)?,
            "W9" => w9(&lines)?,
            other => eprintln!("unknown workload {other:?}: use some of {ALL}"),
        }
    }
    Ok(())
}
