//! Data movement: sorting, compaction, scattered maxima, gathering, butterflies, complex numbers.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{integers, normal, uniform};
use crate::elementwise::eps;
use crate::{header, kernel};

pub fn add(all: &mut Vec<Case>) {
    sort_cases(all);
    scatter_cases(all);
    gather_cases(all);
    transform_cases(all);
    fft_cases(all);
}

fn sort_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, x: Array| {
        let (rows, n) = (x.shape[0], x.shape[1]);
        Case::new(name, kernel!("bitonic_sort"), bitonic_sort)
            .with("x", x)
            .ty("T", dtype)
            .int("N", n as i64)
            .exact("sorted", dtype, &[rows, n])
            .exact("indices", DType::U16, &[rows, n])
            .launch([rows * n / 2, 1, 1], [n / 2, 1, 1])
    };
    all.push(one("bitonic_sort_float", DType::F32, normal(220, DType::F32, &[3, 128])));
    all.push(one("bitonic_sort_int_ties", DType::I32, integers(221, DType::I32, &[4, 64], 0, 20)));
    all.push(one("bitonic_sort_half_small", DType::F16, normal(222, DType::F16, &[5, 16])));
}

fn bitonic_sort(c: &Case) -> Vec<Expected> {
    let (mut sorted, mut indices) = (Vec::new(), Vec::new());
    for row in c.f("x").chunks(c.arg("N")) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*a].total_cmp(&row[*b]));
        sorted.extend(order.iter().map(|i| row[*i]));
        indices.extend(order.iter().map(|i| *i as i64));
    }
    let values = if c.input("x").dtype.is_float() {
        Expected::Floats(sorted)
    } else {
        Expected::Ints(sorted.iter().map(|v| *v as i64).collect())
    };
    vec![values, Expected::Ints(indices)]
}

fn scatter_cases(all: &mut Vec<Case>) {
    all.push(
        Case::new("compaction_ballot", kernel!("compaction"), |c| {
            let x = c.f("x");
            let mut kept: Vec<i64> =
                (0..x.len() as i64).filter(|i| x[*i as usize] > c.f("threshold")[0]).collect();
            let count = kept.len() as i64;
            kept.resize(x.len(), 0);
            vec![Expected::Ints(kept), Expected::Ints(vec![count])]
        })
        .with("x", uniform(223, DType::F32, &[700], 0.0, 1.0))
        .with("threshold", Array::scalar(DType::F32, 0.6))
        .unordered("kept", DType::U32, &[700])
        .exact("count", DType::U32, &[1])
        .launch([700, 1, 1], [96, 1, 1])
        .atomic()
        .init(0.0),
    );
    all.push(
        Case::new("atomic_float_max", kernel!("atomic_float_max"), |c| {
            let mut top = [0f32; 9];
            for (x, bucket) in c.f("x").iter().zip(c.i("buckets")) {
                top[bucket as usize] = top[bucket as usize].max(*x as f32);
            }
            vec![Expected::Ints(top.iter().map(|v| i64::from(v.to_bits())).collect())]
        })
        .header(header!("atomic_float_max"))
        .with("x", uniform(224, DType::F32, &[500], 0.1, 10.0))
        .with("buckets", integers(225, DType::U32, &[500], 0, 9))
        .exact("bits", DType::U32, &[9])
        .launch([500, 1, 1], [128, 1, 1])
        .atomic()
        .init(0.0),
    );
}

fn gather_cases(all: &mut Vec<Case>) {
    let indices = [0, 4, -1, -12, 11, 12, 1 << 40, -13, 7, 7, i64::MIN / 2];
    let one = |name, dtype: DType| {
        Case::new(name, kernel!("gather_int64"), gather)
            .with("table", normal(226, dtype, &[12, 21]))
            .with("indices", Array::ints(DType::I64, &[11], &indices))
            .ty("T", dtype)
            .exact("out", dtype, &[11, 21])
            .exact("ok", DType::Bool, &[11])
            .launch([21, 11, 1], [32, 4, 1])
    };
    all.push(one("gather_int64_float", DType::F32));
    all.push(one("gather_int64_bfloat", DType::BF16));
}

fn gather(c: &Case) -> Vec<Expected> {
    let table = c.f("table");
    let (rows, width) = (c.input("table").shape[0] as i64, c.input("table").shape[1]);
    let (mut out, mut ok) = (Vec::new(), Vec::new());
    for r in c.i("indices") {
        let r = if r < 0 { r + rows } else { r };
        let valid = (0..rows).contains(&r);
        ok.push(i64::from(valid));
        out.extend(if valid { table[r as usize * width..][..width].to_vec() } else { vec![0.0; width] });
    }
    vec![Expected::Floats(out), Expected::Ints(ok)]
}

fn transform_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, rows: usize, log: usize| {
        let n = 1 << log;
        Case::new(name, kernel!("hadamard"), hadamard)
            .with("x", normal(227, dtype, &[rows, n]))
            .ty("T", dtype)
            .int("LOG", log as i64)
            .close("out", dtype, &[rows, n], 4.0 * eps(dtype), 2.0 * eps(dtype))
            .launch([rows * n, 1, 1], [n, 1, 1])
    };
    all.push(one("hadamard_float", DType::F32, 2, 8));
    all.push(one("hadamard_half_one_simdgroup", DType::F16, 5, 5));

    let product = |name, conjugate: bool| {
        Case::new(name, kernel!("complex_multiply"), complex_multiply)
            .with("a", normal(228, DType::Complex64, &[45]))
            .with("b", normal(229, DType::Complex64, &[45]))
            .flag("conjugate", conjugate)
            .close("out", DType::Complex64, &[45], 1e-6, 1e-6)
            .close("norm", DType::F32, &[45], 1e-6, 4e-6)
            .launch([45, 1, 1], [32, 1, 1])
    };
    all.push(product("complex_multiply", false));
    all.push(product("complex_multiply_conjugate", true));
}

fn hadamard(c: &Case) -> Vec<Expected> {
    let n = 1usize << c.arg("LOG");
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let row = |r: &[f64]| {
        let value = |i: usize| (0..n).map(|j| sign(i, j) * r[j]).sum::<f64>() / (n as f64).sqrt();
        (0..n).map(value).collect::<Vec<_>>()
    };
    vec![Expected::Floats(c.f("x").chunks(n).flat_map(row).collect())]
}

fn complex_multiply(c: &Case) -> Vec<Expected> {
    let side = if c.arg("conjugate") == 1 { -1.0 } else { 1.0 };
    let (a, b) = (c.f("a"), c.f("b"));
    let product =
        |(p, q): (&[f64], &[f64])| [p[0] * q[0] - p[1] * side * q[1], p[0] * side * q[1] + p[1] * q[0]];
    let out: Vec<f64> = a.chunks(2).zip(b.chunks(2)).flat_map(product).collect();
    let norm = out.chunks(2).map(|z| z[0] * z[0] + z[1] * z[1]).collect();
    vec![Expected::Floats(out), Expected::Floats(norm)]
}

fn fft_cases(all: &mut Vec<Case>) {
    let one = |name, rows: usize, n: usize, inverse: bool| {
        Case::new(name, kernel!("fft"), fft)
            .with("x", normal(230, DType::Complex64, &[rows, n]))
            .int("N", n as i64)
            .flag("inverse", inverse)
            .close("out", DType::Complex64, &[rows, n], 2e-5, 1e-5)
            .launch([rows * n / 2, 1, 1], [n / 2, 1, 1])
    };
    all.push(one("fft_128", 3, 128, false));
    all.push(one("fft_inverse_16", 5, 16, true));
}

/// The transform by its definition.
fn fft(c: &Case) -> Vec<Expected> {
    let (n, inverse) = (c.arg("N"), c.arg("inverse") == 1);
    let (sign, scale) = if inverse { (1.0, 1.0 / n as f64) } else { (-1.0, 1.0) };
    let mut out = Vec::new();
    for row in c.f("x").chunks(2 * n) {
        for k in 0..n {
            let (mut re, mut im) = (0.0, 0.0);
            for j in 0..n {
                let (s, co) = (sign * std::f64::consts::TAU * (j * k % n) as f64 / n as f64).sin_cos();
                re += row[2 * j] * co - row[2 * j + 1] * s;
                im += row[2 * j] * s + row[2 * j + 1] * co;
            }
            out.extend([re * scale, im * scale]);
        }
    }
    vec![Expected::Floats(out)]
}
