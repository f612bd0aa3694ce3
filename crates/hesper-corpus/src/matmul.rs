//! Transposition and matrix products.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{Rng, integers, normal, uniform};
use crate::elementwise::eps;
use crate::kernel;

pub fn add(all: &mut Vec<Case>) {
    transpose_cases(all);
    tiled_cases(all);
    simdgroup_cases(all);
    staged_cases(all);
    gemv_cases(all);
    sparse_cases(all);
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

fn staged_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, m: usize, n: usize, k: usize| {
        Case::new(name, kernel!("matmul_simdgroup_staged"), matmul_transposed)
            .with("a", normal(65, dtype, &[m, k]))
            .with("b", normal(66, dtype, &[n, k]))
            .with("bias", normal(67, dtype, &[n]))
            .with("alpha", Array::scalar(DType::F32, 0.5))
            .ty("T", dtype)
            .close("c", dtype, &[m, n], 10.0 * eps(dtype), 4.0 * eps(dtype))
            .launch([n.div_ceil(16) * 128, m.div_ceil(16), 1], [128, 1, 1])
    };
    all.push(one("matmul_staged_float", DType::F32, 21, 35, 30));
    all.push(one("matmul_staged_half", DType::F16, 16, 9, 40));
    all.push(one("matmul_staged_bfloat", DType::BF16, 33, 17, 8));
}

fn matmul_transposed(c: &Case) -> Vec<Expected> {
    let (a, b, bias, alpha) = (c.f("a"), c.f("b"), c.f("bias"), c.f("alpha")[0]);
    let (n, k) = (c.input("b").shape[0], c.input("b").shape[1]);
    let dot = |r: usize, col: usize| (0..k).map(|i| a[r * k + i] * b[col * k + i]).sum::<f64>();
    let element = |e: usize| alpha * dot(e / n, e % n) + bias[e % n];
    vec![Expected::Floats((0..c.input("a").shape[0] * n).map(element).collect())]
}

fn gemv_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, m: usize, k: usize| {
        Case::new(name, kernel!("gemv_vec4"), gemv)
            .with("w", uniform(68, dtype, &[m, k], -0.5, 0.5))
            .with("x", normal(69, dtype, &[k]))
            .ty("T", dtype)
            .int("K", k as i64)
            .close("y", dtype, &[m], 8.0 * eps(dtype), 2.0 * eps(dtype))
            .launch([m * 32, 1, 1], [96, 1, 1])
    };
    all.push(one("gemv_vec4_float", DType::F32, 10, 100));
    all.push(one("gemv_vec4_half", DType::F16, 7, 256));
    all.push(one("gemv_vec4_bfloat", DType::BF16, 5, 140));
}

fn gemv(c: &Case) -> Vec<Expected> {
    let (w, x) = (c.f("w"), c.f("x"));
    vec![Expected::Floats(w.chunks(x.len()).map(|r| r.iter().zip(&x).map(|(a, b)| a * b).sum()).collect())]
}

fn sparse_cases(all: &mut Vec<Case>) {
    let (rows, columns) = (30, 50);
    let mut rng = Rng::new(70);
    let mut row_ptr = vec![0];
    for r in 0..rows {
        // Some rows are empty, some are long.
        let length = if r % 7 == 3 { 0 } else { rng.int(0, if r % 5 == 0 { 40 } else { 6 }) };
        row_ptr.push(row_ptr[r] + length);
    }
    let nnz = row_ptr[rows] as usize;
    all.push(
        Case::new("csr_matvec", kernel!("csr_matvec"), csr_matvec)
            // Lanes past the last row have returned when the others shuffle.
            .divergent()
            .with("row_ptr", Array::ints(DType::U32, &[rows + 1], &row_ptr))
            .with("columns", integers(71, DType::U32, &[nnz], 0, columns as i64))
            .with("values", normal(72, DType::F32, &[nnz]))
            .with("x", normal(73, DType::F32, &[columns]))
            .close("y", DType::F32, &[rows], 1e-5, 1e-5)
            .launch([(rows * 8).next_multiple_of(64), 1, 1], [64, 1, 1]),
    );
}

fn csr_matvec(c: &Case) -> Vec<Expected> {
    let (ptr, columns, values, x) = (c.i("row_ptr"), c.i("columns"), c.f("values"), c.f("x"));
    let row = |w: &[i64]| (w[0] as usize..w[1] as usize).map(|k| values[k] * x[columns[k] as usize]).sum();
    vec![Expected::Floats(ptr.windows(2).map(row).collect())]
}
