//! Cases of products, dense and quantized.

use hesper::placement::{self, Device};
use hesper::{Array, Dtype, QuantMode, transform};

use crate::cases::{CaseResult, Cases, FLOATS, data, indices, sized, tolerance};

/// Adds all cases.
pub fn add(cases: &mut Cases) {
    products(cases);
    wide_codes(cases);
    rows_by_matrices(cases);
    float_codes(cases);
}

fn products(cases: &mut Cases) {
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16, Dtype::Float64, Dtype::Complex64] {
        let close = if dtype == Dtype::Complex64 { 1e-4 } else { tolerance(dtype) * 5.0 };
        cases.add(format!("matmul {dtype}"), close, move || {
            let x = |shape: &[usize], seed| data(shape, dtype, seed);
            let mut all = vec![
                x(&[64, 128], 1).matmul(&x(&[128, 96], 2))?,
                x(&[65, 129], 1).matmul(&x(&[129, 33], 2))?,
                x(&[1, 256], 1).matmul(&x(&[512, 256], 2).t()?)?,
                x(&[3, 256], 1).matmul(&x(&[512, 256], 2).t()?)?,
                x(&[7, 256], 1).matmul(&x(&[512, 256], 2).t()?)?,
                x(&[128, 64], 1).t()?.matmul(&x(&[128, 64], 2))?,
                x(&[128, 64], 1).t()?.matmul(&x(&[96, 128], 2).t()?)?,
                x(&[4, 3, 20, 40], 1).matmul(&x(&[4, 3, 40, 24], 2))?,
                x(&[4, 3, 20, 40], 1).matmul(&x(&[40, 24], 2))?,
                x(&[4, 1, 20, 40], 1).matmul(&x(&[3, 40, 24], 2))?,
                x(&[4, 20, 3, 40], 1).transpose(&[0, 2, 1, 3])?.matmul(&x(&[4, 3, 40, 24], 2))?,
                x(&[40], 1).matmul(&x(&[40, 24], 2))?,
                x(&[24, 40], 1).matmul(&x(&[40], 2))?,
                x(&[40], 1).matmul(&x(&[40], 2))?,
                x(&[33, 80], 1).slice(&[0, 0], &[33, 80], &[1, 2])?.matmul(&x(&[40, 24], 2))?,
                x(&[0, 8], 1).matmul(&x(&[8, 4], 2))?,
                x(&[3, 0], 1).matmul(&x(&[0, 4], 2))?,
            ];
            all.push(x(&[24], 3).addmm(&x(&[33, 40], 1), &x(&[40, 24], 2), 1.0, 1.0)?);
            all.push(x(&[33, 24], 3).addmm(&x(&[33, 40], 1), &x(&[40, 24], 2), 0.5, 2.0)?);
            all.push(x(&[24], 3).addmm(&x(&[33, 0], 1), &x(&[0, 24], 2), 0.5, 2.0)?);
            all.push(x(&[24], 3).addmm(&x(&[2, 40], 1), &x(&[24, 40], 2).t()?, 1.0, 1.0)?);
            let product = |x: &[Array]| Ok(vec![x[0].addmm(&x[1], &x[2], 0.5, 2.0)?]);
            let (c, a, b) = (x(&[24], 4), x(&[2, 9, 40], 5), x(&[40, 24], 6));
            for (inputs, axes) in [
                ([c.clone(), a.clone(), b.clone()], [None, Some(0), None]),
                ([x(&[2, 24], 7), a.slice_axis(0, 1, 2, 1)?.squeeze(0)?, b.clone()], [Some(0), None, None]),
                ([c, a, x(&[40, 24, 2], 8)], [None, Some(0), Some(2)]),
            ] {
                all.extend(transform::vmap(product, &axes, &[Some(0)])(&inputs)?);
            }
            Ok(all)
        });
    }
    cases.add("einsum, inner, outer, tensordot", 1e-4, || {
        let (x, y) = (data(&[5, 6, 7], Dtype::Float32, 1), data(&[7, 6, 4], Dtype::Float32, 2));
        Ok(vec![
            hesper::einsum("abc,cbd->ad", &[&x, &y])?,
            x.reshape(&[30, 7])?.inner(&data(&[9, 7], Dtype::Float32, 3))?,
            data(&[9], Dtype::Float32, 3).outer(&data(&[8], Dtype::Float32, 4))?,
        ])
    });
    cases.add("gather_mm", 1e-4, || {
        let (x, y) = (data(&[5, 6, 32], Dtype::Float32, 1), data(&[4, 32, 16], Dtype::Float32, 2));
        Ok(vec![x.gather_mm(&y, None, Some(&indices(&[5], 4, 3)))?])
    });
    for (bits, group) in [(4usize, 64usize), (8, 64), (4, 32), (8, 128), (2, 64), (3, 64), (6, 64)] {
        for dtype in [Dtype::Bfloat16, Dtype::Float32, Dtype::Float16] {
            cases.add(format!("dequantized {bits} bits, groups of {group}, {dtype}"), 0.0, move || {
                let w = data(&[16, 4 * group], dtype, 1);
                let (group, bits, mode) = (Some(group), Some(bits), QuantMode::Affine);
                let quantized = placement::with_device(Device::Cpu, || w.quantize(group, bits, mode));
                let (codes, scales, biases) = quantized??;
                let types = [None, Some(Dtype::Float32), Some(Dtype::Bfloat16)];
                let of = |dtype| codes.dequantize(&scales, biases.as_ref(), group, bits, mode, dtype);
                types.into_iter().map(of).collect()
            });
            cases.add(format!("quantized {bits} bits, groups of {group}, {dtype}"), 2e-2, move || {
                let (n, k) = sized((256, 512), (80, 128));
                let w = data(&[n, k], dtype, 1);
                let quantized = placement::with_device(Device::Cpu, || {
                    w.quantize(Some(group), Some(bits), QuantMode::Affine)
                });
                let (q, scales, biases) = quantized??;
                let biases = biases.as_ref();
                let mut all = Vec::new();
                for rows in [1usize, 2, 5, 33] {
                    let x = data(&[rows, k], dtype, 2);
                    all.push(x.quantized_matmul(
                        &q,
                        &scales,
                        biases,
                        true,
                        Some(group),
                        Some(bits),
                        QuantMode::Affine,
                    )?);
                }
                all.extend(more_rows(group, bits, dtype)?);
                let y = data(&[3, n], dtype, 3);
                all.push(y.quantized_matmul(
                    &q,
                    &scales,
                    biases,
                    false,
                    Some(group),
                    Some(bits),
                    QuantMode::Affine,
                )?);
                all.push(q.dequantize(&scales, biases, Some(group), Some(bits), QuantMode::Affine, None)?);
                Ok(all)
            });
        }
    }
}

/// Quantized products with several tiles of rows per block, and many activations.
fn wide_codes(cases: &mut Cases) {
    type Case = (usize, usize, usize, usize, Dtype, &'static [usize]);
    let all: [Case; 7] = [
        (9001, 256, 4, 64, Dtype::Bfloat16, &[13, 100]),
        (8832, 384, 8, 32, Dtype::Float16, &[30, 64]),
        (17001, 256, 4, 128, Dtype::Bfloat16, &[16, 40]),
        (600, 2304, 2, 64, Dtype::Float16, &[6, 64, 200]),
        (4100, 1280, 4, 32, Dtype::Bfloat16, &[9, 13, 31, 45, 97]),
        (28672, 512, 4, 64, Dtype::Bfloat16, &[1, 5, 16]),
        (28700, 256, 8, 32, Dtype::Float16, &[1, 8]),
    ];
    for (n, k, bits, group, dtype, rows) in all {
        cases.add(format!("quantized {n}x{k}, {bits} bits, groups of {group}, {dtype}"), 2e-2, move || {
            let (n, k, rows) = sized((n, k, rows), (n / 100, 256, &rows[..2]));
            let w = data(&[n, k], dtype, 1);
            let quantized = placement::with_device(Device::Cpu, || {
                w.quantize(Some(group), Some(bits), QuantMode::Affine)
            });
            let (q, scales, biases) = quantized??;
            let product = |rows: &usize| {
                let (group, bits) = (Some(group), Some(bits));
                let x = data(&[*rows, k], dtype, 2);
                x.quantized_matmul(&q, &scales, biases.as_ref(), true, group, bits, QuantMode::Affine)
            };
            rows.iter().map(product).collect()
        });
    }
}

/// A row times a matrix, with and without an addend.
fn rows_by_matrices(cases: &mut Cases) {
    for dtype in FLOATS {
        cases.add(format!("a row by a matrix {dtype}"), 2e-2, move || {
            let mut all = Vec::new();
            let shapes = [(70usize, 16usize), (1000, 8200), (3001, 1288), (9000, 1032), (8200, 40)];
            for (n, k) in sized(shapes, [(70, 16), (10, 8200), (31, 1288), (90, 132), (820, 40)]) {
                let (x, w) = (data(&[1, k], dtype, 1), data(&[n, k], dtype, 2));
                all.push(x.matmul(&w.t()?)?);
                all.push(data(&[1, n], dtype, 3).addmm(&x, &w.t()?, 0.5, 2.0)?);
            }
            Ok(all)
        });
    }
}

/// Quantized products with small floats as codes.
fn float_codes(cases: &mut Cases) {
    for mode in [QuantMode::Mxfp4, QuantMode::Mxfp8, QuantMode::Nvfp4] {
        for dtype in FLOATS {
            cases.add(format!("quantized {} {dtype}", mode.name()), 2e-2, move || {
                let (n, k) = sized((256, 512), (80, 128));
                let w = data(&[n, k], dtype, 1);
                let (q, scales, _) = placement::with_device(Device::Cpu, || w.quantize(None, None, mode))??;
                let product = |rows: usize, width: usize, transpose: bool| {
                    let x = data(&[rows, width], dtype, 2);
                    x.quantized_matmul(&q, &scales, None, transpose, None, None, mode)
                };
                Ok(vec![product(1, k, true)?, product(40, k, true)?, product(3, n, false)?])
            });
        }
    }
}

/// Quantized products whose rows are no multiple of a block, with strided three-dimensional activations, and
/// with many.
fn more_rows(group: usize, bits: usize, dtype: Dtype) -> CaseResult {
    let (n, k) = sized((1000, 1024), (70, 128));
    let w = data(&[n, k], dtype, 4);
    let quantized =
        placement::with_device(Device::Cpu, || w.quantize(Some(group), Some(bits), QuantMode::Affine));
    let (q, scales, biases) = quantized??;
    let (group, bits) = (Some(group), Some(bits));
    let product =
        |x: &Array| x.quantized_matmul(&q, &scales, biases.as_ref(), true, group, bits, QuantMode::Affine);
    let mut all = Vec::new();
    for rows in [1usize, 3, 8, 9, 16, 17, 40, 64, 65] {
        all.push(product(&data(&[rows, k], dtype, 5))?);
    }
    let end = k as isize;
    all.push(product(&data(&[2, 5, k], dtype, 6))?);
    all.push(product(&data(&[12, 2 * k], dtype, 7).slice(&[0, end / 2], &[12, end / 2 * 3], &[2, 1])?)?);
    all.push(product(&data(&[4, k + 3], dtype, 8).slice(&[0, 3], &[4, end + 3], &[1, 1])?)?);
    Ok(all)
}
