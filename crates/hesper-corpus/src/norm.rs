//! Row-wise kernels of transformers: softmax, RMS norm, layer norm, rotary embedding.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{normal, uniform};
use crate::elementwise::eps;
use crate::{header, kernel};

pub fn add(all: &mut Vec<Case>) {
    softmax_cases(all);
    norm_cases(all);
    rope_cases(all);
    fused_cases(all);
    group_norm_cases(all);
}

fn softmax_cases(all: &mut Vec<Case>) {
    let online = |name, dtype: DType, rows: usize, n: usize| {
        Case::new(name, kernel!("softmax_online"), softmax)
            .with("x", uniform(20, dtype, &[rows, n], -8.0, 8.0))
            .ty("T", dtype)
            .int("N", n as i64)
            .close("out", dtype, &[rows, n], 1e-6, 4.0 * eps(dtype))
            .launch([32, rows, 1], [32, 4, 1])
    };
    all.push(online("softmax_online_float", DType::F32, 6, 301));
    all.push(online("softmax_online_half", DType::F16, 7, 96));
    all.push(online("softmax_online_short_rows", DType::F32, 5, 19));
    let block = |name, dtype: DType, rows: usize, n: usize, group: usize| {
        Case::new(name, kernel!("softmax_block"), softmax)
            .with("x", uniform(21, dtype, &[rows, n], -8.0, 8.0))
            .ty("T", dtype)
            .int("N", n as i64)
            .close("out", dtype, &[rows, n], 1e-6, 4.0 * eps(dtype))
            .launch([rows * group, 1, 1], [group, 1, 1])
    };
    all.push(block("softmax_block_bfloat", DType::BF16, 3, 200, 128));
    all.push(block("softmax_block_odd_group", DType::F32, 4, 333, 80));
}

/// Softmax of one row.
pub fn softmax_row(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = row.iter().map(|v| (v - top).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

fn softmax(c: &Case) -> Vec<Expected> {
    vec![Expected::Floats(c.f("x").chunks(c.arg("N")).flat_map(softmax_row).collect())]
}

fn norm_cases(all: &mut Vec<Case>) {
    let rms = |name, dtype: DType, rows: usize, d: usize, group: usize| {
        Case::new(name, kernel!("rms_norm"), rms_norm)
            .with("x", normal(22, dtype, &[rows, d]))
            .with("w", uniform(23, dtype, &[d], 0.5, 1.5))
            .with("eps", Array::scalar(DType::F32, 1e-5))
            .ty("T", dtype)
            .int("D", d as i64)
            .close("out", dtype, &[rows, d], 2.0 * eps(dtype), 2.0 * eps(dtype))
            .launch([rows * group, 1, 1], [group, 1, 1])
    };
    all.push(rms("rms_norm_float", DType::F32, 4, 257, 96));
    all.push(rms("rms_norm_half", DType::F16, 3, 512, 256));
    all.push(rms("rms_norm_bfloat", DType::BF16, 5, 100, 33));
    let layer = |name, dtype: DType, rows: usize, d: usize| {
        Case::new(name, kernel!("layer_norm"), layer_norm)
            .with("x", normal(24, dtype, &[rows, d]))
            .with("weight", uniform(25, dtype, &[d], 0.5, 1.5))
            .with("bias", uniform(26, dtype, &[d], -0.5, 0.5))
            .with("eps", Array::scalar(DType::F32, 1e-5))
            .ty("T", dtype)
            .int("D", d as i64)
            .close("out", dtype, &[rows, d], 4.0 * eps(dtype), 4.0 * eps(dtype))
            .close("means", DType::F32, &[rows], 2e-6, 2e-6)
            .close("rstd", DType::F32, &[rows], 2e-6, 4e-6)
            .launch([32, rows, 1], [32, 3, 1])
    };
    all.push(layer("layer_norm_float", DType::F32, 7, 130));
    all.push(layer("layer_norm_half_short", DType::F16, 4, 20));
}

fn rms_norm(c: &Case) -> Vec<Expected> {
    let (w, d, eps) = (c.f("w"), c.arg("D"), c.f("eps")[0]);
    let row = |r: &[f64]| {
        let inv = 1.0 / (r.iter().map(|v| v * v).sum::<f64>() / d as f64 + eps).sqrt();
        r.iter().zip(&w).map(|(v, w)| v * inv * w).collect::<Vec<_>>()
    };
    vec![Expected::Floats(c.f("x").chunks(d).flat_map(row).collect())]
}

fn layer_norm(c: &Case) -> Vec<Expected> {
    let (w, b, d, eps) = (c.f("weight"), c.f("bias"), c.arg("D"), c.f("eps")[0]);
    let (mut out, mut means, mut rstd) = (Vec::new(), Vec::new(), Vec::new());
    for r in c.f("x").chunks(d) {
        let mean = r.iter().sum::<f64>() / d as f64;
        let variance = r.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / d as f64;
        let inv = 1.0 / (variance + eps).sqrt();
        out.extend((0..d).map(|i| (r[i] - mean) * inv * w[i] + b[i]));
        means.push(mean);
        rstd.push(inv);
    }
    vec![Expected::Floats(out), Expected::Floats(means), Expected::Floats(rstd)]
}

fn rope_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, heads: usize, l: usize, d: usize, traditional: bool, offset: i64| {
        Case::new(name, kernel!("rope"), rope)
            .with("x", normal(27, dtype, &[heads, l, d]))
            .with("offset", Array::ints(DType::I32, &[], &[offset]))
            .with("base", Array::scalar(DType::F32, 10000.0))
            .ty("T", dtype)
            .int("D", d as i64)
            .flag("traditional", traditional)
            .close("out", dtype, &[heads, l, d], 3e-5 + eps(dtype), eps(dtype))
            .launch([d / 2, l, heads], [16, 4, 1])
    };
    all.push(one("rope_float", DType::F32, 3, 7, 32, false, 0));
    all.push(one("rope_traditional_half", DType::F16, 2, 5, 48, true, 17));
    all.push(one("rope_bfloat_offset", DType::BF16, 2, 6, 20, false, 100));
}

fn rope(c: &Case) -> Vec<Expected> {
    let x = c.f("x");
    let (d, traditional) = (c.arg("D"), c.arg("traditional") == 1);
    let (offset, base, l) = (c.i("offset")[0] as f64, c.f("base")[0], c.input("x").shape[1]);
    let mut out = vec![0.0; x.len()];
    for row in 0..x.len() / d {
        let position = (row % l) as f64 + offset;
        for i in 0..d / 2 {
            let theta = position * base.powf(-2.0 * i as f64 / d as f64);
            let (p, q) = if traditional { (2 * i, 2 * i + 1) } else { (i, i + d / 2) };
            let (a, b) = (x[row * d + p], x[row * d + q]);
            out[row * d + p] = a * theta.cos() - b * theta.sin();
            out[row * d + q] = a * theta.sin() + b * theta.cos();
        }
    }
    vec![Expected::Floats(out)]
}

fn fused_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, m: usize, d: usize, rows: usize, groups: usize| {
        Case::new(name, kernel!("layernorm_gemv"), layernorm_gemv)
            .with("x", normal(28, dtype, &[d]))
            .with("gamma", uniform(29, dtype, &[d], 0.5, 1.5))
            .with("beta", uniform(30, dtype, &[d], -0.5, 0.5))
            .with("w", uniform(31, dtype, &[m, d], -0.2, 0.2))
            .with("bias", uniform(32, dtype, &[m], -1.0, 1.0))
            .ty("T", dtype)
            .int("D", d as i64)
            .int("ROWS", rows as i64)
            .close("y", dtype, &[m], 10.0 * eps(dtype), 2.0 * eps(dtype))
            .launch([m / rows * 32, 1, 1], [32 * groups, 1, 1])
    };
    all.push(one("layernorm_gemv_float", DType::F32, 24, 150, 4, 2));
    all.push(one("layernorm_gemv_half", DType::F16, 12, 77, 2, 3));
}

fn layernorm_gemv(c: &Case) -> Vec<Expected> {
    let (x, gamma, beta, w, bias) = (c.f("x"), c.f("gamma"), c.f("beta"), c.f("w"), c.f("bias"));
    let d = x.len();
    let mean = x.iter().sum::<f64>() / d as f64;
    let inv = 1.0 / (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / d as f64 + 1e-5).sqrt();
    let h: Vec<f64> = (0..d).map(|i| (x[i] - mean) * inv * gamma[i] + beta[i]).collect();
    let dot = |r: usize| w[r * d..][..d].iter().zip(&h).map(|(a, b)| a * b).sum::<f64>();
    vec![Expected::Floats((0..bias.len()).map(|r| dot(r) + bias[r]).collect())]
}

fn group_norm_cases(all: &mut Vec<Case>) {
    let (groups, n, size) = (5, 150, 64);
    all.push(
        Case::new("group_norm_address_spaces", kernel!("group_norm"), group_norm)
            .header(header!("group_norm"))
            .with("x", normal(33, DType::F16, &[groups, n]))
            // Fewer than eight elements: the kernel sees it in constant memory.
            .with("gain", uniform(34, DType::F32, &[groups], 0.5, 2.0))
            .int("N", n as i64)
            .close("out", DType::F16, &[groups, n], 2e-3, 2e-3)
            .exact("seen", DType::F32, &[groups, size, 2])
            .launch([groups * size, 1, 1], [size, 1, 1]),
    );
}

fn group_norm(c: &Case) -> Vec<Expected> {
    let (x, gain, n, size) = (c.f("x"), c.f("gain"), c.arg("N"), c.threadgroup[0]);
    let (mut out, mut seen) = (Vec::new(), Vec::new());
    for (row, gain) in x.chunks(n).zip(gain) {
        let mean = row.iter().sum::<f64>() / n as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        out.extend(row.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt() * gain));
        for thread in 0..size {
            let mine: Vec<f64> = row.iter().copied().skip(thread).step_by(size).collect();
            seen.extend([mine[mine.len() - 1], mine[mine.len() - 2]]);
        }
    }
    vec![Expected::Floats(out), Expected::Floats(seen)]
}
