//! Transposition and matrix products.

use crate::array::DType;
use crate::case::{Case, Expected};
use crate::data::{integers, normal};
use crate::elementwise::eps;
use crate::kernel;

pub fn add(all: &mut Vec<Case>) {
    transpose_cases(all);
    tiled_cases(all);
    simdgroup_cases(all);
}

fn transpose_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, rows: usize, cols: usize, tile: usize| {
        let grid = [cols.next_multiple_of(tile), rows.div_ceil(tile) * 8, 1];
        Case::new(name, kernel!("transpose"), transpose)
            .with("x", integers(60, dtype, &[rows, cols], 0, 30000))
            .ty("T", dtype)
            .int("TILE", tile as i64)
            .exact("out", dtype, &[cols, rows])
            .launch(grid, [tile, 8, 1])
    };
    all.push(one("transpose_int", DType::I32, 70, 45, 32));
    all.push(one("transpose_short", DType::I16, 33, 64, 16));
}

fn transpose(c: &Case) -> Vec<Expected> {
    let (x, shape) = (c.i("x"), &c.input("x").shape);
    let at = |e: usize| x[(e % shape[0]) * shape[1] + e / shape[0]];
    vec![Expected::Ints((0..x.len()).map(at).collect())]
}

fn tiled_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, m: usize, n: usize, k: usize, tile: usize| {
        Case::new(name, kernel!("matmul_tiled"), matmul)
            .with("a", normal(61, dtype, &[m, k]))
            .with("b", normal(62, dtype, &[k, n]))
            .ty("T", dtype)
            .int("TS", tile as i64)
            .close("c", dtype, &[m, n], 10.0 * eps(dtype), 4.0 * eps(dtype))
            .launch([n.next_multiple_of(tile), m.next_multiple_of(tile), 1], [tile, tile, 1])
    };
    all.push(one("matmul_tiled_float", DType::F32, 37, 29, 50, 16));
    all.push(one("matmul_tiled_half", DType::F16, 20, 33, 17, 8));
}

/// The product of the row-major inputs `a` and `b`.
pub fn matmul(c: &Case) -> Vec<Expected> {
    let (a, b) = (c.f("a"), c.f("b"));
    let (k, n) = (c.input("a").shape[1], c.input("b").shape[1]);
    let dot = |e: usize| (0..k).map(|i| a[e / n * k + i] * b[i * n + e % n]).sum();
    vec![Expected::Floats((0..c.input("a").shape[0] * n).map(dot).collect())]
}

fn simdgroup_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, m: usize, n: usize, k: usize| {
        Case::new(name, kernel!("matmul_simdgroup"), matmul)
            .with("a", normal(63, dtype, &[m, k]))
            .with("b", normal(64, dtype, &[k, n]))
            .ty("T", dtype)
            .int("N", n as i64)
            .int("K", k as i64)
            .close("c", DType::F32, &[m, n], 2e-5, 1e-5)
            .launch([n / 16 * 32, m / 16, 1], [64, 1, 1])
    };
    all.push(one("matmul_simdgroup_float", DType::F32, 32, 64, 40));
    all.push(one("matmul_simdgroup_half", DType::F16, 16, 32, 24));
    all.push(one("matmul_simdgroup_bfloat", DType::BF16, 48, 32, 16));
}
