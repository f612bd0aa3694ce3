//! Attention: online softmax with grouped heads, decoding over a compressed cache.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{normal, uniform};
use crate::elementwise::eps;
use crate::kernel;
use crate::quant::{packed, unpack};

pub fn add(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, heads: usize, rep: usize, lq: usize, lk: usize, d: usize, causal: bool| {
        Case::new(name, kernel!("attention_gqa"), attention_gqa)
            .with("q", normal(100, dtype, &[heads, lq, d]))
            .with("k", normal(101, dtype, &[heads / rep, lk, d]))
            .with("v", normal(102, dtype, &[heads / rep, lk, d]))
            .with("scale", Array::scalar(DType::F32, 1.0 / (d as f64).sqrt()))
            .ty("T", dtype)
            .int("D", d as i64)
            .int("REP", rep as i64)
            .flag("causal", causal)
            .close("out", dtype, &[heads, lq, d], 4.0 * eps(dtype), 4.0 * eps(dtype))
            .close("lse", DType::F32, &[heads, lq], 1e-5, 1e-5)
            .launch([32, lq, heads], [32, 4, 1])
    };
    all.push(one("attention_gqa_causal_float", DType::F32, 4, 2, 7, 11, 64, true));
    all.push(one("attention_gqa_full_half", DType::F16, 3, 3, 5, 20, 32, false));
    all.push(one("attention_causal_bfloat", DType::BF16, 2, 1, 9, 9, 96, true));

    let decode = |name,
                  dtype: DType,
                  heads: usize,
                  rep: usize,
                  capacity: usize,
                  length: usize,
                  d: usize,
                  ns: usize| {
        let rows = heads / rep * capacity;
        // Scale and bias of a group lie side by side.
        let scales = |seed| uniform(seed, DType::F16, &[rows, d / 32, 2], -0.2, 0.2);
        Case::new(name, kernel!("attention_decode_q4"), attention_decode)
            .with("q", normal(103, dtype, &[heads, d]))
            .with("k_packed", packed(104, rows, d, 4))
            .with("k_scales", scales(105))
            .with("v_packed", packed(106, rows, d, 4))
            .with("v_scales", scales(107))
            .with("scale", Array::scalar(DType::F32, 0.125))
            .with("length", Array::ints(DType::I32, &[], &[length as i64]))
            .ty("T", dtype)
            .int("D", d as i64)
            .int("L", capacity as i64)
            .int("REP", rep as i64)
            .int("NS", ns as i64)
            .close("out", dtype, &[heads, d], 1e-5 + eps(dtype), 1e-5 + eps(dtype))
            .launch([heads * ns * 32, 1, 1], [ns * 32, 1, 1])
    };
    all.push(decode("attention_decode_q4_float", DType::F32, 4, 2, 40, 33, 64, 4));
    // Fewer keys than SIMD groups: some groups see none.
    all.push(decode("attention_decode_q4_half_short", DType::F16, 2, 2, 16, 3, 96, 8));
}

/// Weighted mean of `values` with softmax weights, and the log-sum-exp of the scores.
fn attend(scores: &[f64], values: &[&[f64]]) -> (Vec<f64>, f64) {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
    let mut out = vec![0.0; values[0].len()];
    for (score, value) in scores.iter().zip(values) {
        let weight = (score - top).exp() / sum;
        out.iter_mut().zip(*value).for_each(|(o, v)| *o += weight * v);
    }
    (out, top + sum.ln())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn attention_gqa(c: &Case) -> Vec<Expected> {
    let (q, k, v, scale) = (c.f("q"), c.f("k"), c.f("v"), c.f("scale")[0]);
    let (d, rep, causal) = (c.arg("D"), c.arg("REP"), c.arg("causal") == 1);
    let (heads, lq, lk) = (c.input("q").shape[0], c.input("q").shape[1], c.input("k").shape[1]);
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for row in 0..heads * lq {
        let (head, i) = (row / lq, row % lq);
        let visible = if causal { lk - lq + i + 1 } else { lk };
        let at = |j: usize| (head / rep * lk + j) * d;
        let query = &q[row * d..][..d];
        let scores: Vec<f64> = (0..visible).map(|j| scale * dot(query, &k[at(j)..][..d])).collect();
        let values: Vec<&[f64]> = (0..visible).map(|j| &v[at(j)..][..d]).collect();
        let (o, l) = attend(&scores, &values);
        out.extend(o);
        lse.push(l);
    }
    vec![Expected::Floats(out), Expected::Floats(lse)]
}

fn attention_decode(c: &Case) -> Vec<Expected> {
    let (d, capacity, length) = (c.arg("D"), c.arg("L"), c.i("length")[0] as usize);
    let decode = |words: &str, scales: &str| -> Vec<f64> {
        let (codes, sb) = (unpack(&c.i(words), 4), c.f(scales));
        let value = |i: usize| f64::from(codes[i]) * sb[i / 32 * 2] + sb[i / 32 * 2 + 1];
        (0..codes.len()).map(value).collect()
    };
    let (k, v) = (decode("k_packed", "k_scales"), decode("v_packed", "v_scales"));
    let mut out = Vec::new();
    for (head, q) in c.f("q").chunks(d).enumerate() {
        let at = |t: usize| (head / c.arg("REP") * capacity + t) * d;
        let scores: Vec<f64> = (0..length).map(|t| c.f("scale")[0] * dot(q, &k[at(t)..][..d])).collect();
        let values: Vec<&[f64]> = (0..length).map(|t| &v[at(t)..][..d]).collect();
        out.extend(attend(&scores, &values).0);
    }
    vec![Expected::Floats(out)]
}

/// Attention by SIMD-group matrices, and the fused preparation of queries and keys.
pub fn add_fused(all: &mut Vec<Case>) {
    let flash = |name, dtype: DType, heads: usize, l: usize, d: usize| {
        Case::new(name, kernel!("flash_simdgroup"), attention_gqa_causal)
            .with("q", normal(108, dtype, &[heads, l, d]))
            .with("k", normal(109, dtype, &[heads, l, d]))
            .with("v", normal(110, dtype, &[heads, l, d]))
            .with("scale", Array::scalar(DType::F32, 1.0 / (d as f64).sqrt()))
            .ty("T", dtype)
            .int("D", d as i64)
            .int("L", l as i64)
            .close("out", dtype, &[heads, l, d], 1e-5 + 4.0 * eps(dtype), 4.0 * eps(dtype))
            .launch([32, l / 8, heads], [32, 2, 1])
    };
    all.push(flash("flash_simdgroup_float", DType::F32, 2, 24, 32));
    all.push(flash("flash_simdgroup_half", DType::F16, 3, 16, 40));

    let (hq, hk, d) = (5, 2, 80);
    let fused = |name, dtype: DType| {
        Case::new(name, kernel!("qk_norm_rope"), qk_norm_rope)
            .with("qkv", normal(111, dtype, &[hq + hk, d]))
            .with("q_weight", uniform(112, dtype, &[d], 0.5, 1.5))
            .with("k_weight", uniform(113, dtype, &[d], 0.5, 1.5))
            .with("position", Array::ints(DType::I32, &[1], &[37]))
            .with("eps", Array::scalar(DType::F32, 1e-6))
            .ty("T", dtype)
            .int("D", d as i64)
            .int("HQ", hq as i64)
            .close("q", dtype, &[hq, d], 2e-5 + 4.0 * eps(dtype), 4.0 * eps(dtype))
            .close("k", dtype, &[hk, d], 2e-5 + 4.0 * eps(dtype), 4.0 * eps(dtype))
            .launch([(hq + hk) * 32, 1, 1], [32, 1, 1])
    };
    all.push(fused("qk_norm_rope_float", DType::F32));
    all.push(fused("qk_norm_rope_bfloat", DType::BF16));
}

fn attention_gqa_causal(c: &Case) -> Vec<Expected> {
    let (q, k, v, scale, l, d) = (c.f("q"), c.f("k"), c.f("v"), c.f("scale")[0], c.arg("L"), c.arg("D"));
    let row = |row: usize| {
        let first = row / l * l;
        let scores: Vec<f64> =
            (first..=row).map(|j| scale * dot(&q[row * d..][..d], &k[j * d..][..d])).collect();
        attend(&scores, &(first..=row).map(|j| &v[j * d..][..d]).collect::<Vec<_>>()).0
    };
    vec![Expected::Floats((0..q.len() / d).flat_map(row).collect())]
}

fn qk_norm_rope(c: &Case) -> Vec<Expected> {
    let (d, hq, position) = (c.arg("D"), c.arg("HQ"), c.i("position")[0] as f64);
    let mut out = Vec::new();
    for (head, x) in c.f("qkv").chunks(d).enumerate() {
        let w = c.f(if head < hq { "q_weight" } else { "k_weight" });
        let inv = 1.0 / (dot(x, x) / d as f64 + c.f("eps")[0]).sqrt();
        let h: Vec<f64> = x.iter().zip(&w).map(|(v, w)| v * inv * w).collect();
        let turn = |i: usize| {
            let pair = i % (d / 2);
            let (s, co) = (position * 10000f64.powf(-2.0 * pair as f64 / d as f64)).sin_cos();
            if i < d / 2 { h[pair] * co - h[pair + d / 2] * s } else { h[pair] * s + h[pair + d / 2] * co }
        };
        out.extend((0..d).map(turn));
    }
    let keys = out.split_off(hq * d);
    vec![Expected::Floats(out), Expected::Floats(keys)]
}
