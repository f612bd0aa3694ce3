//! Kernels in the manner of large collections: tile libraries, blocks as structs, types chosen by types,
//! small matrices, the mathematical library.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{Rng, normal, uniform};
use crate::elementwise::eps;
use crate::matmul::matmul;
use crate::{header, kernel};
use half::f16;

pub fn add(all: &mut Vec<Case>) {
    gemm_cases(all);
    block_cases(all);
    type_cases(all);
    geometry_cases(all);
    math_cases(all);
}

fn gemm_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, m: usize, n: usize, k: usize| {
        Case::new(name, kernel!("gemm_library"), matmul)
            .header(header!("gemm_library"))
            .with("a", normal(280, dtype, &[m, k]))
            .with("b", normal(281, dtype, &[k, n]))
            .ty("T", dtype)
            .close("c", dtype, &[m, n], 10.0 * eps(dtype), 4.0 * eps(dtype))
            .launch([n.div_ceil(16) * 64, m.div_ceil(16), 1], [64, 1, 1])
    };
    all.push(one("gemm_library_float", DType::F32, 21, 35, 40));
    all.push(one("gemm_library_half", DType::F16, 16, 50, 19));
    all.push(one("gemm_library_bfloat", DType::BF16, 33, 16, 16));
}

fn block_cases(all: &mut Vec<Case>) {
    let (rows, k) = (9, 256);
    let mut rng = Rng::new(282);
    let mut bytes = Vec::new();
    for _ in 0..rows * k / 32 {
        bytes.extend(f16::from_f64(rng.range(0.01, 0.1)).to_le_bytes());
        bytes.extend((0..16).map(|_| rng.bits() as u8));
    }
    all.push(
        Case::new("block_quant_structs", kernel!("block_quant"), block_quant)
            .header(header!("block_quant"))
            .with("w", Array::from_bytes(DType::U8, &[rows, k / 32 * 18], bytes))
            .with("x", normal(283, DType::F32, &[k]))
            .int("K", k as i64)
            .close("y", DType::F32, &[rows], 5e-5, 1e-5)
            .launch([rows * 32, 1, 1], [64, 1, 1]),
    );
}

fn block_quant(c: &Case) -> Vec<Expected> {
    let (x, bytes) = (c.f("x"), c.i("w"));
    let block = |(b, raw): (usize, &[i64])| {
        let scale = f16::from_bits((raw[0] | raw[1] << 8) as u16).to_f64();
        let code = |i: usize| (raw[2 + i % 16] >> (i / 16 * 4) & 15) - 8;
        (0..32).map(|i| code(i) as f64 * x[(b * 32 + i) % x.len()]).sum::<f64>() * scale
    };
    let sums: Vec<f64> = bytes.chunks(18).enumerate().map(block).collect();
    vec![Expected::Floats(sums.chunks(x.len() / 32).map(|r| r.iter().sum()).collect())]
}

fn type_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, x: Array| {
        let (rows, n) = (x.shape[0], x.shape[1]);
        Case::new(name, kernel!("type_library"), type_library)
            .header(header!("type_library"))
            .with("x", x)
            .ty("T", dtype)
            .int("N", n as i64)
            .close("out", DType::F32, &[rows, 3], 1e-4, 1e-5)
            .launch([rows, 1, 1], [8, 1, 1])
    };
    all.push(one("type_library_float", DType::F32, normal(284, DType::F32, &[10, 33])));
    all.push(one("type_library_half", DType::F16, normal(285, DType::F16, &[7, 20])));
    // Sums of squares that only a 64-bit accumulator holds.
    let large: Vec<i64> = (0..60).map(|i| (i * 7919 % 97 - 48) * 1000).collect();
    all.push(one("type_library_int", DType::I32, Array::ints(DType::I32, &[5, 12], &large)));
}

fn type_library(c: &Case) -> Vec<Expected> {
    let n = c.arg("N");
    let (kind, scale, sign) = match c.input("x").dtype {
        DType::I32 => (1.0, 2.0, -1.0),
        DType::F16 => (2.0, 4.0, 1.0),
        _ => (0.0, 0.5, 1.0),
    };
    let row = |r: &[f64]| {
        let sum: f64 = r.iter().sum();
        let top = r.iter().copied().fold(f64::MIN, f64::max);
        let squares: f64 = r.iter().map(|v| v * v).sum();
        [sum + 2.0 * squares, (top + 2.0 * kind) * scale, sign * f64::from(n.next_power_of_two().ilog2())]
    };
    vec![Expected::Floats(c.f("x").chunks(n).flat_map(row).collect())]
}

fn geometry_cases(all: &mut Vec<Case>) {
    let n = 29;
    let mut rng = Rng::new(286);
    let means: Vec<f64> =
        (0..n * 3).map(|i| rng.range(-1.0, 1.0) + if i % 3 == 2 { 4.0 } else { 0.0 }).collect();
    all.push(
        Case::new("splat_project_matrices", kernel!("splat_project"), splat_project)
            .with("quats", uniform(287, DType::F32, &[n, 4], -1.0, 1.0))
            .with("scales", uniform(288, DType::F32, &[n, 3], 0.05, 0.5))
            .with("means", Array::floats(DType::F32, &[n, 3], &means))
            .with("focal", Array::scalar(DType::F32, 20.0))
            .close("conics", DType::F32, &[n, 3], 1e-4, 2e-5)
            .close("normals", DType::F32, &[n, 3], 2e-6, 2e-6)
            .launch([n, 1, 1], [16, 1, 1]),
    );
    let (sets, most) = (4, 9);
    all.push(
        Case::new("pairwise_config_arrays", kernel!("pairwise_config"), pairwise)
            .with("points", uniform(289, DType::F32, &[sets, most, 3], -1.0, 1.0))
            .with("widths", uniform(290, DType::F32, &[sets, most], 0.5, 2.0))
            .with("counts", Array::ints(DType::I32, &[sets], &[9, 1, 6, 4]))
            .with("shape", Array::ints(DType::I32, &[2], &[sets as i64, most as i64]))
            .close("affinity", DType::F32, &[sets, most, most], 1e-6, 4e-6)
            .launch([(sets * most * most).next_multiple_of(128), 1, 1], [128, 1, 1]),
    );
    let (batch, size) = (21, 4);
    all.push(
        Case::new("sinkhorn_registers", kernel!("sinkhorn"), sinkhorn)
            .with("logits", normal(291, DType::F32, &[batch, size, size]))
            .with("streams", normal(292, DType::F32, &[batch, size]))
            .int("N", size as i64)
            .int("ITERS", 6)
            .close("plan", DType::F32, &[batch, size, size], 1e-6, 1e-5)
            .close("mixed", DType::F32, &[batch, size], 1e-6, 1e-5)
            .launch([batch, 1, 1], [32, 1, 1]),
    );
}

/// Rows of the product of two row-major 3x3 matrices.
fn product(a: &[[f64; 3]; 3], b: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    std::array::from_fn(|i| std::array::from_fn(|j| (0..3).map(|k| a[i][k] * b[k][j]).sum()))
}

fn transposed(a: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    std::array::from_fn(|i| std::array::from_fn(|j| a[j][i]))
}

fn splat_project(c: &Case) -> Vec<Expected> {
    let (quats, scales, means, focal) = (c.f("quats"), c.f("scales"), c.f("means"), c.f("focal")[0]);
    let (mut conics, mut normals) = (Vec::new(), Vec::new());
    for i in 0..quats.len() / 4 {
        let q = &quats[4 * i..4 * i + 4];
        let length = q.iter().map(|v| v * v).sum::<f64>().sqrt();
        let [w, x, y, z] = [q[0] / length, q[1] / length, q[2] / length, q[3] / length];
        let r = [
            [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
            [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
            [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
        ];
        let mut m = r;
        m.iter_mut().for_each(|row| (0..3).for_each(|j| row[j] *= scales[3 * i + j]));
        let cov = product(&m, &transposed(&m));
        let t = &means[3 * i..3 * i + 3];
        let j = [
            [focal / t[2], 0.0, -focal * t[0] / (t[2] * t[2])],
            [0.0, focal / t[2], -focal * t[1] / (t[2] * t[2])],
            [0.0, 0.0, 0.0],
        ];
        let p = product(&product(&j, &cov), &transposed(&j));
        conics.extend([p[0][0] + 0.3, p[0][1], p[1][1] + 0.3]);
        normals.extend([r[0][2], r[1][2], r[2][2]]);
    }
    vec![Expected::Floats(conics), Expected::Floats(normals)]
}

fn pairwise(c: &Case) -> Vec<Expected> {
    let (points, widths, counts) = (c.f("points"), c.f("widths"), c.i("counts"));
    let most = c.i("shape")[1] as usize;
    let element = |e: usize| {
        let (set, a, b) = (e / most / most, e / most % most, e % most);
        if a.max(b) as i64 >= counts[set] {
            return f64::from(u8::from(a == b));
        }
        let at = |p: usize, axis: usize| points[(set * most + p) * 3 + axis];
        let squared: f64 = (0..3).map(|axis| (at(a, axis) - at(b, axis)).powi(2)).sum();
        (-squared / (2.0 * widths[set * most + a] * widths[set * most + b])).exp()
    };
    vec![Expected::Floats((0..counts.len() * most * most).map(element).collect())]
}

fn sinkhorn(c: &Case) -> Vec<Expected> {
    let (n, streams) = (c.arg("N"), c.f("streams"));
    let (mut plan, mut mixed) = (Vec::new(), Vec::new());
    for (b, logits) in c.f("logits").chunks(n * n).enumerate() {
        let top = logits.iter().copied().fold(f64::MIN, f64::max);
        let mut m: Vec<f64> = logits.iter().map(|v| (v - top).exp()).collect();
        for half_step in 0..2 * c.arg("ITERS") {
            // Rows first, then columns.
            let line = |e: usize| if half_step % 2 == 0 { e / n } else { e % n };
            let sums: Vec<f64> = (0..n)
                .map(|l| 1e-6 + (0..n * n).filter(|e| line(*e) == l).map(|e| m[e]).sum::<f64>())
                .collect();
            (0..n * n).for_each(|e| m[e] /= sums[line(e)]);
        }
        mixed.extend((0..n).map(|i| (0..n).map(|j| m[i * n + j] * streams[b * n + j]).sum::<f64>()));
        plan.extend(m);
    }
    vec![Expected::Floats(plan), Expected::Floats(mixed)]
}

fn math_cases(all: &mut Vec<Case>) {
    all.push(
        Case::new("math_table", kernel!("math_table"), math_table)
            .with("x", uniform(293, DType::F32, &[200], -7.5, 7.5))
            .close("out", DType::F32, &[200, 24], 2e-6, 5e-6)
            .launch([200, 1, 1], [64, 1, 1]),
    );
    let x = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        1e-30,
        3.0e38,
        -3.0e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        8388609.0,
        -0.75,
        0.49999997,
        1e10,
        -7.25,
    ];
    all.push(
        Case::new("special_values", kernel!("special_values"), special_values)
            .with("x", Array::floats(DType::F32, &[x.len()], &x))
            .exact("classes", DType::I32, &[x.len(), 6])
            .exact("rounded", DType::F32, &[x.len(), 10])
            .launch([x.len(), 1, 1], [8, 1, 1]),
    );
}

fn math_table(c: &Case) -> Vec<Expected> {
    let row = |v: f64| {
        let p = v.abs() + 0.125;
        let step = ((v + 1.0) / 3.0).clamp(0.0, 1.0);
        [
            v.exp(),
            v.exp2(),
            10f64.powf(v * 0.5),
            p.ln(),
            p.log2(),
            p.log10(),
            v.sin(),
            v.cos(),
            (v * 0.25).tan(),
            (v * 0.125).asin(),
            (v * 0.125).acos(),
            v.atan(),
            v.atan2(p - 1.0),
            (v * 0.5).sinh(),
            (v * 0.5).cosh(),
            v.tanh(),
            p.sqrt(),
            1.0 / p.sqrt(),
            p.powf(v * 0.5),
            p.powf(0.75),
            v * p - 1.0,
            (std::f64::consts::PI * v).sin(),
            step * step * (3.0 - 2.0 * step),
            v + (p - v) * 0.25,
        ]
    };
    vec![Expected::Floats(c.f("x").into_iter().flat_map(row).collect())]
}

fn special_values(c: &Case) -> Vec<Expected> {
    let (mut classes, mut rounded) = (Vec::new(), Vec::new());
    for v in c.f("x").iter().map(|v| *v as f32) {
        let order = i64::from(!v.is_nan()) + 2 * i64::from(v < f32::INFINITY);
        let negative = 4 * i64::from(v < 0.0 || v.is_nan());
        classes.extend([
            i64::from(v.is_nan()),
            i64::from(v.is_infinite()),
            i64::from(v.is_finite()),
            if v.is_sign_negative() { -1 } else { 1 },
            order + negative,
            i64::from(v.to_bits() >> 23 & 0xff),
        ]);
        let remainder = if v.is_finite() { v % 1.5 } else { 0.0 };
        let known = if v.is_nan() { -1.0 } else { v };
        let values = [
            v.floor(),
            v.ceil(),
            v.trunc(),
            v.round(),
            v.round_ties_even(),
            v.min(1.0),
            v.max(1.0),
            2f32.copysign(v),
            remainder,
            known,
        ];
        rounded.extend(values.map(f64::from));
    }
    vec![Expected::Ints(classes), Expected::Floats(rounded)]
}
