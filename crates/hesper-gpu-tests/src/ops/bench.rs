//! The speed of the device, one line per kind of work: time, and bandwidth or throughput.

use std::time::Instant;

use hesper::fast::{self, AttentionMask};
use hesper::placement::{self, Device};
use hesper::{Array, CustomKernel, Dtype, Error, QuantMode, eval, random, transform};

/// How work is measured.
#[derive(Clone, Copy)]
enum Unit {
    Bytes(f64),
    Operations(f64),
    Time,
}

/// The benchmark lines: those whose name contains `part` are measured.
struct BenchLines<'a> {
    part: &'a str,
    failures: usize,
}

/// Runs all lines whose name contains `part`.
pub fn run(part: &str) -> usize {
    let mut bench = BenchLines { part, failures: 0 };
    let done = placement::with_device(Device::Gpu(0), || {
        let groups =
            [elementwise, reductions, fused_rows, products, quantized, attention, sequences, overheads];
        groups.iter().for_each(|group| {
            if let Err(error) = group(&mut bench) {
                bench.failures += 1;
                println!("FAIL bench: {error}");
            }
        });
    });
    if let Err(error) = done {
        println!("FAIL bench: {error}");
        return 1;
    }
    println!("computed on the host: {:?}", placement::fallbacks());
    bench.failures
}

fn noise(shape: &[usize], dtype: Dtype) -> Result<Array, Error> {
    let x = random::uniform(-1.0, 1.0, shape, Dtype::Float32, None)?.astype(dtype)?;
    x.eval()?;
    Ok(x)
}

impl BenchLines<'_> {
    /// Times a computation: the first call, then the best of several runs of many calls.
    fn line(&mut self, name: &str, unit: Unit, f: impl Fn() -> Result<Array, Error>) {
        if !name.contains(self.part) {
            return;
        }
        match self.measure(&f) {
            Ok((first, best)) => {
                let rate = match unit {
                    Unit::Bytes(bytes) => format!("{:8.0} GB/s", bytes / best / 1e9),
                    Unit::Operations(count) => format!("{:8.1} TFLOP/s", count / best / 1e12),
                    Unit::Time => String::new(),
                };
                println!("bench {name:44} {:10.1} us {rate} (first {:.1} ms)", best * 1e6, first * 1e3);
            }
            Err(error) => {
                self.failures += 1;
                println!("FAIL bench {name}: {error}");
            }
        }
    }

    fn measure(&self, f: &dyn Fn() -> Result<Array, Error>) -> Result<(f64, f64), Error> {
        let start = Instant::now();
        f()?.eval()?;
        let first = start.elapsed().as_secs_f64();
        let start = Instant::now();
        f()?.eval()?;
        let once = start.elapsed().as_secs_f64();
        let count = ((0.02 / once) as usize).clamp(3, 200);
        let mut best = f64::INFINITY;
        for _ in 0..4 {
            let start = Instant::now();
            let mut last = None;
            for _ in 0..count {
                let out = f()?;
                hesper::async_eval([&out])?;
                last = Some(out);
            }
            if let Some(last) = last {
                last.eval()?;
            }
            best = best.min(start.elapsed().as_secs_f64() / count as f64);
        }
        Ok((first, best))
    }
}

fn elementwise(b: &mut BenchLines<'_>) -> Result<(), Error> {
    let n = 1usize << 28;
    let x = noise(&[n], Dtype::Bfloat16)?;
    let chain = |x: &Array| x.multiply(1.5)?.add(0.25)?.tanh()?.multiply(x.sigmoid()?)?.add(x);
    b.line("chain of five, 2^28 bf16", Unit::Bytes(4.0 * n as f64), || chain(&x));
    let compiled = transform::compile(move |x: &[Array]| Ok(vec![chain(&x[0])?]));
    b.line("chain of five, 2^28 bf16, compiled", Unit::Bytes(4.0 * n as f64), || {
        Ok(compiled(&[x.clone()])?.swap_remove(0))
    });
    b.line("x + 1, 2^28 bf16", Unit::Bytes(4.0 * n as f64), || x.add(1.0));
    drop(x);
    let x = noise(&[1 << 26], Dtype::Float32)?;
    b.line("x + 1, 2^26 f32", Unit::Bytes(8.0 * x.size() as f64), || x.add(1.0));
    let text = "uint i = thread_position_in_grid.x; out[i] = 2.0f * x[i] + 1.0f;";
    let checked = CustomKernel::new("axpb", &["x"], &["out"], text)?;
    for (name, kernel) in [("", checked.clone()), (", unchecked", checked.unchecked())] {
        b.line(&format!("custom kernel, 64M f32{name}"), Unit::Bytes(8.0 * x.size() as f64), || {
            let call = kernel.call(&[x.clone()]).grid([x.size() as u64, 1, 1]).threadgroup([256, 1, 1]);
            Ok(call.output(&[x.size()], Dtype::Float32).run()?.swap_remove(0))
        });
    }
    // The index comes from memory, so each access is checked.
    let indices = Array::arange(x.size() as i64, Some(Dtype::Int32))?;
    indices.eval()?;
    let text = "uint i = thread_position_in_grid.x; int j = indices[i]; out[j] = 2.0f * x[j] + 1.0f;";
    let checked = CustomKernel::new("axpb_indexed", &["x", "indices"], &["out"], text)?;
    for (name, kernel) in [("", checked.clone()), (", unchecked", checked.unchecked())] {
        b.line(
            &format!("custom kernel by index, 64M f32{name}"),
            Unit::Bytes(12.0 * x.size() as f64),
            || {
                let call = kernel.call(&[x.clone(), indices.clone()]);
                let call = call.grid([x.size() as u64, 1, 1]).threadgroup([256, 1, 1]).init_value(0.0);
                Ok(call.output(&[x.size()], Dtype::Float32).run()?.swap_remove(0))
            },
        );
    }
    let text = "uint i = thread_position_in_grid.x; float4 v = ((device const float4*)x)[i];
                ((device float4*)out)[i] = 2.0f * v + 1.0f;";
    let kernel = CustomKernel::new("axpb4", &["x"], &["out"], text)?;
    b.line("custom kernel by float4, 64M f32", Unit::Bytes(8.0 * x.size() as f64), || {
        let call = kernel.call(&[x.clone()]).grid([x.size() as u64 / 4, 1, 1]).threadgroup([256, 1, 1]);
        Ok(call.output(&[x.size()], Dtype::Float32).run()?.swap_remove(0))
    });
    Ok(())
}

fn reductions(b: &mut BenchLines<'_>) -> Result<(), Error> {
    let x = noise(&[16384, 8192], Dtype::Bfloat16)?;
    let bytes = x.nbytes() as f64;
    b.line("sum all, 16384x8192 bf16", Unit::Bytes(bytes), || x.sum(()));
    b.line("sum axis 0", Unit::Bytes(bytes), || x.sum(0));
    b.line("sum axis 1", Unit::Bytes(bytes), || x.sum(1));
    b.line("softmax", Unit::Bytes(2.0 * bytes), || x.softmax(-1));
    b.line("rms_norm", Unit::Bytes(2.0 * bytes), || fast::rms_norm(&x, None, 1e-5));
    b.line("layer_norm", Unit::Bytes(2.0 * bytes), || fast::layer_norm(&x, None, None, 1e-5));
    b.line("argmax", Unit::Bytes(bytes), || x.argmax(1));
    b.line("transpose copy", Unit::Bytes(2.0 * bytes), || x.t()?.contiguous());
    b.line("strided copy", Unit::Bytes(2.0 * bytes), || {
        x.reshape(&[128, 128, 8192])?.transpose(&[1, 0, 2])?.contiguous()
    });
    Ok(())
}

/// Ops of rows whose input is computed in their slot, and the same with the input in memory. The bytes are
/// those that must be read and written.
fn fused_rows(b: &mut BenchLines<'_>) -> Result<(), Error> {
    type Program = fn(&Array) -> Result<Array, Error>;
    type Group = fn(&[Array]) -> Result<Array, Error>;
    let dtype = Dtype::Bfloat16;
    let (x, y) = (noise(&[16384, 8192], dtype)?, noise(&[16384, 8192], dtype)?);
    let (mask, mean) = (noise(&[8192], dtype)?, noise(&[16384, 1], dtype)?);
    let scale = Array::full(&[], 0.125f32, Some(dtype))?;
    scale.eval()?;
    let inputs = [x, y, mask, mean, scale];
    let lines: [(&str, f64, Group, Program); 10] = [
        ("sum(x * y)", 2.0, |i| i[0].multiply(&i[1]), |x| x.sum(-1)),
        ("sum of columns(x * y)", 2.0, |i| i[0].multiply(&i[1]), |x| x.sum(0)),
        ("sum of all(x * y)", 2.0, |i| i[0].multiply(&i[1]), |x| x.sum(())),
        ("softmax(x * scale + mask)", 2.0, |i| i[0].multiply(&i[4])?.add(&i[2]), |x| x.softmax(-1)),
        ("mean((x - m)^2)", 1.0, |i| i[0].subtract(&i[3])?.square(), |x| x.mean(-1)),
        ("rms_norm(x + r)", 3.0, |i| i[0].add(&i[1]), |x| fast::rms_norm(x, None, 1e-5)),
        ("variance(x * y)", 2.0, |i| i[0].multiply(&i[1]), |x| x.var(-1, 0)),
        ("logsumexp(x * scale)", 1.0, |i| i[0].multiply(&i[4]), |x| x.logsumexp(-1)),
        ("argmax(x + mask)", 1.0, |i| i[0].add(&i[2]), |x| x.argmax(-1)),
        ("cumsum(x * y)", 3.0, |i| i[0].multiply(&i[1]), |x| x.cumsum(Some(-1), false, true)),
    ];
    let waits = eval::fusion_waits();
    eval::set_fusion_waits(true);
    for (name, arrays, group, consume) in lines {
        let unit = Unit::Bytes(arrays * inputs[0].nbytes() as f64);
        b.line(&format!("slot: {name}"), unit, || consume(&group(&inputs)?));
        // A held value goes to memory.
        let held = std::cell::RefCell::new(None);
        b.line(&format!("memory: {name}"), unit, || {
            let value = group(&inputs)?;
            let result = consume(&value)?;
            held.replace(Some(value));
            Ok(result)
        });
    }
    eval::set_fusion_waits(waits);
    Ok(())
}

fn products(b: &mut BenchLines<'_>) -> Result<(), Error> {
    for n in [4096usize, 8192] {
        let (x, y) = (noise(&[n, n], Dtype::Bfloat16)?, noise(&[n, n], Dtype::Bfloat16)?);
        b.line(&format!("matmul {n} bf16"), Unit::Operations(2.0 * (n as f64).powi(3)), || x.matmul(&y));
        b.line(
            &format!("matmul {n} bf16, right transposed"),
            Unit::Operations(2.0 * (n as f64).powi(3)),
            || x.matmul(&y.t()?),
        );
    }
    for (n, k) in [(14336usize, 4096usize), (4096, 4096), (1024, 4096), (4096, 14336)] {
        let w = noise(&[n, k], Dtype::Bfloat16)?;
        for m in [1usize, 4, 16, 64] {
            let x = noise(&[m, k], Dtype::Bfloat16)?;
            b.line(&format!("linear {k} to {n} bf16, {m} rows"), Unit::Bytes(w.nbytes() as f64), || {
                x.matmul(&w.t()?)
            });
        }
    }
    let x = noise(&[32, 56, 56, 256], Dtype::Bfloat16)?;
    let w = noise(&[256, 3, 3, 256], Dtype::Bfloat16)?;
    let operations = 2.0 * (32 * 56 * 56) as f64 * 256.0 * 9.0 * 256.0;
    b.line("conv2d 32x56x56x256, 3x3 bf16", Unit::Operations(operations), || {
        x.conv2d(&w, [1, 1], [1, 1], [1, 1], 1)
    });
    Ok(())
}

fn quantized(b: &mut BenchLines<'_>) -> Result<(), Error> {
    for (n, k, rows) in [
        (14336usize, 4096usize, &[1usize, 8, 16, 32, 64, 128, 4096][..]),
        (4096, 4096, &[1, 16, 64]),
        (1024, 4096, &[1, 16, 64]),
        (4096, 14336, &[1, 16, 64]),
    ] {
        let name = |m: usize| format!("4 bits, {n}x{k}, {m} rows");
        if !rows.iter().any(|m| name(*m).contains(b.part)) {
            continue;
        }
        let q = random::bits(&[n, k / 8], None)?;
        let (scales, biases) =
            (noise(&[n, k / 64], Dtype::Bfloat16)?, Some(noise(&[n, k / 64], Dtype::Bfloat16)?));
        hesper::eval([&q])?;
        let bytes = q.nbytes() + scales.nbytes() * 2;
        for &m in rows {
            let x = noise(&[m, k], Dtype::Bfloat16)?;
            let unit = match m {
                4096 => Unit::Operations(2.0 * (m * n * k) as f64),
                _ => Unit::Bytes(bytes as f64),
            };
            b.line(&name(m), unit, || {
                x.quantized_matmul(&q, &scales, biases.as_ref(), true, Some(64), Some(4), QuantMode::Affine)
            });
        }
    }
    Ok(())
}

fn attention(b: &mut BenchLines<'_>) -> Result<(), Error> {
    let causal = AttentionMask::Causal;
    let (half, single) = (Dtype::Bfloat16, Dtype::Float32);
    for (name, of, [batch, queries, keys, width], mask) in [
        ("decode, kv 32768", half, [1usize, 1usize, 32768usize, 128usize], AttentionMask::None),
        ("decode, batch 32, kv 4096", half, [32, 1, 4096, 128], AttentionMask::None),
        ("decode, kv 512", half, [1, 1, 512, 128], AttentionMask::None),
        ("decode, batch 64, kv 512", half, [64, 1, 512, 128], AttentionMask::None),
        ("decode, kv 4096, f32", single, [1, 1, 4096, 128], AttentionMask::None),
        ("prefill 4096, causal", half, [1, 4096, 4096, 128], causal),
        ("prefill 4096, causal, f16", Dtype::Float16, [1, 4096, 4096, 128], causal),
        ("prefill 4096", half, [1, 4096, 4096, 128], AttentionMask::None),
        ("prefill 4096, causal, width 64", half, [1, 4096, 4096, 64], causal),
        ("prefill 4096, causal, width 80", half, [1, 4096, 4096, 80], causal),
        ("prefill 4096, causal, width 96", half, [1, 4096, 4096, 96], causal),
        ("prefill 4096, causal, width 256", half, [1, 4096, 4096, 256], causal),
        ("prefill 64 of 4096, causal", half, [1, 64, 4096, 128], causal),
        ("prefill 512 of 4096, causal", half, [1, 512, 4096, 128], causal),
        ("prefill 1024, causal, f32", single, [1, 1024, 1024, 128], causal),
    ] {
        if !format!("attention {name}").contains(b.part) {
            continue;
        }
        let q = noise(&[batch, 32, queries, width], of)?;
        let (k, v) = (noise(&[batch, 8, keys, width], of)?, noise(&[batch, 8, keys, width], of)?);
        let operations = 2.0 * 2.0 * 32.0 * (width * queries * keys) as f64;
        let unit = match queries {
            1 => Unit::Bytes((k.nbytes() + v.nbytes()) as f64),
            // On average a causal query sees half of the last `queries` keys.
            _ if matches!(mask, AttentionMask::Causal) => {
                Unit::Operations(operations * (1.0 - queries as f64 / keys as f64 / 2.0))
            }
            _ => Unit::Operations(operations),
        };
        let scale = 1.0 / (width as f32).sqrt();
        b.line(&format!("attention {name}"), unit, || {
            fast::scaled_dot_product_attention(&q, &k, &v, scale, mask, None)
        });
    }
    for (name, of, shape) in [
        ("8192 x 768", half, [8192usize, 768usize]),
        ("8192 x 4096", half, [8192, 4096]),
        ("8192 x 4096, f32", single, [8192, 4096]),
    ] {
        let name = format!("layer norm gradient, {name}");
        if !name.contains(b.part) {
            continue;
        }
        let (x, cotangent) = (noise(&shape, of)?, [noise(&shape, of)?]);
        let inputs = [x, noise(&shape[1..], of)?, noise(&shape[1..], of)?];
        b.line(&name, Unit::Bytes(3.0 * inputs[0].nbytes() as f64), || {
            let run = |x: &[Array]| Ok(vec![fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)?]);
            Ok(transform::vjp(run, &inputs, &cotangent)?.1.swap_remove(0))
        });
    }
    for (name, of, [batch, heads, length, width]) in [
        ("12 heads of 8 x 1024, width 64", half, [8usize, 12usize, 1024usize, 64usize]),
        ("32 heads of 4096, width 128", half, [1, 32, 4096, 128]),
        ("12 heads of 1024, width 64, f32", single, [1, 12, 1024, 64]),
    ] {
        let name = format!("attention gradient, causal, {name}");
        if !name.contains(b.part) {
            continue;
        }
        let draw = || noise(&[batch, heads, length, width], of);
        let (inputs, cotangent) = ([draw()?, draw()?, draw()?], [draw()?]);
        // Five products of the visible half; scores are computed again in addition.
        let operations = 5.0 * (batch * heads * length * length * width) as f64;
        let scale = 1.0 / (width as f32).sqrt();
        b.line(&name, Unit::Operations(operations), || {
            let run = |x: &[Array]| {
                Ok(vec![fast::scaled_dot_product_attention(&x[0], &x[1], &x[2], scale, causal, None)?])
            };
            Ok(transform::vjp(run, &inputs, &cotangent)?.1.swap_remove(0))
        });
    }
    Ok(())
}

fn sequences(b: &mut BenchLines<'_>) -> Result<(), Error> {
    if "cumsum, sort".contains(b.part) || b.part.is_empty() {
        let x = noise(&[16384, 8192], Dtype::Bfloat16)?;
        b.line("cumsum", Unit::Bytes(2.0 * x.nbytes() as f64), || x.cumsum(Some(1), false, true));
        let x = noise(&[1 << 24], Dtype::Float32)?;
        b.line("sort 16M f32", Unit::Time, || x.sort(None));
    }
    Ok(())
}

fn overheads(b: &mut BenchLines<'_>) -> Result<(), Error> {
    let x = noise(&[16], Dtype::Float32)?;
    hesper::eval::set_fusion(false);
    b.line("chain of 100 tiny adds, unfused", Unit::Time, || (0..100).try_fold(x.clone(), |x, _| x.add(1.0)));
    hesper::eval::set_fusion(true);
    let (x, y) = (noise(&[256, 1024], Dtype::Bfloat16)?, noise(&[1024, 4096], Dtype::Bfloat16)?);
    b.line("tiny matmul 256x1024x4096", Unit::Time, || x.matmul(&y));
    if !"uploads and read-back".contains(b.part) {
        return Ok(());
    }
    let bytes = vec![1u8; 256 << 20];
    let gigabytes = |start: Instant| bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e9;
    for round in ["first", "again", "again", "again"] {
        let start = Instant::now();
        let host = Array::from_bytes(&bytes, Dtype::Uint8, &[bytes.len()])?;
        let created = gigabytes(start);
        let start = Instant::now();
        let there = host.add(1)?;
        there.eval()?;
        let uploaded = gigabytes(start);
        let start = Instant::now();
        let sum = there.read_bytes(|bytes| bytes[bytes.len() - 1])?;
        let read = gigabytes(start);
        println!(
            "bench 256 MiB, {round}: created {created:.1}, upload and add {uploaded:.1}, read back {read:.1} GB/s ({sum})"
        );
    }
    Ok(())
}
