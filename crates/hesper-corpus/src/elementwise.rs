//! Element-wise kernels: contiguous, strided, broadcast, gated.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{integers, normal, uniform};
use crate::{header, kernel};

/// Relative error that one or two roundings to a type may leave.
pub fn eps(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 2e-6,
    }
}

pub fn add(all: &mut Vec<Case>) {
    axpy_cases(all);
    strided_cases(all);
    swiglu_cases(all);
}

fn axpy_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, n: usize, group: usize| {
        Case::new(name, kernel!("axpy"), axpy)
            .with("x", uniform(1, dtype, &[n], -2.0, 2.0))
            .with("a", Array::scalar(dtype, 1.5))
            .with("b", Array::scalar(dtype, -0.25))
            .close("y", dtype, &[n], eps(dtype), eps(dtype))
            .launch([n, 1, 1], [group, 1, 1])
    };
    all.push(one("axpy_float", DType::F32, 1000, 256));
    all.push(one("axpy_half", DType::F16, 333, 64));
    all.push(one("axpy_bfloat", DType::BF16, 77, 1024));
    all.push(
        Case::new("axpy_int", kernel!("axpy"), axpy)
            .with("x", integers(2, DType::I32, &[129], -1000, 1000))
            .with("a", Array::ints(DType::I32, &[], &[-7]))
            .with("b", Array::ints(DType::I32, &[], &[13]))
            .exact("y", DType::I32, &[129])
            .launch([129, 1, 1], [50, 1, 1]),
    );
}

fn axpy(c: &Case) -> Vec<Expected> {
    if c.input("x").dtype == DType::I32 {
        let (a, b) = (c.i("a")[0], c.i("b")[0]);
        return vec![Expected::Ints(c.i("x").iter().map(|x| a * x + b).collect())];
    }
    let (a, b) = (c.f("a")[0], c.f("b")[0]);
    vec![Expected::Floats(c.f("x").iter().map(|x| a * x + b).collect())]
}

fn strided_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, a: Array, b: Array| {
        let (shape, n) = (a.shape.clone(), a.len());
        Case::new(name, kernel!("strided_binary"), strided_binary)
            .with("a", a)
            .with("b", b)
            .ty("T", dtype)
            .close("out", dtype, &shape, eps(dtype), eps(dtype))
            .launch([n, 1, 1], [128, 1, 1])
    };
    let transposed = normal(3, DType::F32, &[19, 23]).view(&[23, 19], &[1, 23], 0);
    let row = normal(4, DType::F32, &[19]).view(&[23, 19], &[0, 1], 0);
    all.push(one("strided_binary_float", DType::F32, transposed.clone(), row.clone()).strided());
    all.push(one("strided_binary_made_contiguous", DType::F32, transposed, row));

    let reversed = normal(5, DType::F16, &[6, 5, 7]).view(&[6, 5, 7], &[35, -7, 1], 28);
    let column = normal(6, DType::F16, &[6, 2, 1]).view(&[6, 5, 7], &[2, 0, 0], 1);
    all.push(one("strided_binary_half_reversed", DType::F16, reversed, column).strided());

    let x = normal(7, DType::F32, &[9, 4, 11]).view(&[4, 11, 9], &[11, 1, 44], 0);
    all.push(
        Case::new("strided_3d_float", kernel!("strided_3d"), center_first_axis)
            .with("x", x)
            .close("out", DType::F32, &[4, 11, 9], 1e-6, 1e-6)
            .launch([16, 12, 4], [8, 4, 2])
            .strided(),
    );
}

fn strided_binary(c: &Case) -> Vec<Expected> {
    let pairs = c.f("a").into_iter().zip(c.f("b"));
    vec![Expected::Floats(pairs.map(|(a, b)| a * b + a).collect())]
}

fn center_first_axis(c: &Case) -> Vec<Expected> {
    let x = c.f("x");
    let first = c.input("x").shape[0];
    let inner = x.len() / first;
    let mean = |at: usize| (0..first).map(|i| x[i * inner + at]).sum::<f64>() / first as f64;
    vec![Expected::Floats((0..x.len()).map(|e| x[e] - mean(e % inner)).collect())]
}

fn swiglu_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, rows: usize, d: usize, kind: i64| {
        Case::new(name, kernel!("swiglu"), swiglu)
            .header(header!("swiglu"))
            .with("x", uniform(8, dtype, &[rows, 2 * d], -4.0, 4.0))
            .ty("T", dtype)
            .int("D", d as i64)
            .int("KIND", kind)
            .close("out", dtype, &[rows, d], 2.0 * eps(dtype), 3.0 * eps(dtype))
            .launch([d.div_ceil(2), rows, 1], [32, 2, 1])
    };
    all.push(one("swiglu_silu_float", DType::F32, 5, 37, 0));
    all.push(one("swiglu_gelu_half", DType::F16, 3, 64, 1));
    all.push(one("swiglu_silu_bfloat", DType::BF16, 4, 21, 0));
}

fn swiglu(c: &Case) -> Vec<Expected> {
    let (x, d, kind) = (c.f("x"), c.arg("D"), c.arg("KIND"));
    let activate = |v: f64| {
        if kind == 0 {
            v / (1.0 + (-v).exp())
        } else {
            0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v.powi(3))).tanh())
        }
    };
    let rows = x.chunks(2 * d);
    vec![Expected::Floats(rows.flat_map(|r| (0..d).map(move |i| activate(r[i]) * r[d + i])).collect())]
}
