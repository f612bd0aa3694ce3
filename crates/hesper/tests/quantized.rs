//! Quantized matrices: round trips, products against the dequantized matrix, blocks of GGUF files.

use hesper::{Activations, Array, Dtype, PackedArray, PackedFormat, QuantMode, packed_matmul, transform};

/// Pseudorandom elements.
fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn array(shape: &[usize], seed: u32, dtype: Dtype) -> Array {
    let count = shape.iter().product();
    Array::try_from_slice(&noise(count, seed), shape).unwrap().astype(dtype).unwrap()
}

fn doubles(array: &Array) -> Vec<f64> {
    array.astype(Dtype::Float64).unwrap().to_vec::<f64>().unwrap()
}

fn formats() -> Vec<(QuantMode, usize, usize)> {
    let mut all = vec![];
    for bits in [1, 2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            all.push((QuantMode::Affine, group, bits));
        }
    }
    all.extend([(QuantMode::Mxfp4, 32, 4), (QuantMode::Mxfp8, 32, 8), (QuantMode::Nvfp4, 16, 4)]);
    all
}

/// `x w` or `x w^T` for matrices of doubles, and the sum of the absolute values of the terms.
fn product(x: &[f64], w: &[f64], m: usize, rows: usize, cols: usize, transpose: bool) -> Vec<(f64, f64)> {
    let (k, n) = if transpose { (cols, rows) } else { (rows, cols) };
    let mut out = vec![];
    for i in 0..m {
        for j in 0..n {
            let terms =
                (0..k).map(|e| x[i * k + e] * if transpose { w[j * cols + e] } else { w[e * cols + j] });
            out.push(terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs())));
        }
    }
    out
}

fn close(given: &Array, wanted: &[(f64, f64)], tolerance: f64, what: &str) {
    let given = doubles(given);
    assert_eq!(given.len(), wanted.len(), "{what}");
    for (at, (a, (b, all))) in given.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= tolerance * all + 1e-6, "{what}: element {at} is {a}, not {b}");
    }
}

fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => 1e-3,
        Dtype::Bfloat16 => 1e-2,
        _ => 1e-6,
    }
}

#[test]
fn codes_are_as_near_as_their_bits_allow() {
    for dtype in [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Float64] {
        let x = array(&[2, 3, 128], 1, dtype);
        for (mode, group, bits) in formats() {
            let (codes, scales, biases) = x.quantize(Some(group), Some(bits), mode).unwrap();
            assert_eq!(codes.shape(), [2, 3, 128 * bits / 32]);
            assert_eq!(scales.shape(), [2, 3, 128 / group]);
            assert_eq!((codes.dtype(), biases.is_some()), (Dtype::Uint32, mode == QuantMode::Affine));
            let scale_type = if mode == QuantMode::Affine { dtype } else { Dtype::Uint8 };
            assert_eq!(scales.dtype(), scale_type);
            let back = codes
                .dequantize(&scales, biases.as_ref(), Some(group), Some(bits), mode, Some(dtype))
                .unwrap();
            assert_eq!((back.shape(), back.dtype()), (x.shape(), dtype));
            let largest =
                doubles(&back).iter().zip(doubles(&x)).fold(0.0, |top: f64, (a, b)| top.max((a - b).abs()));
            let step = match mode {
                QuantMode::Affine => 2.0 / ((1 << bits) - 1) as f64 + 0.02,
                QuantMode::Mxfp8 => 0.1,
                _ => 0.3,
            };
            assert!(largest <= step, "{mode}, groups of {group}, {bits} bits, {dtype}: off by {largest}");
        }
    }
}

#[test]
fn products_agree_with_those_of_the_dequantized_matrix() {
    for dtype in [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Float64] {
        for (mode, group, bits) in formats() {
            let w = array(&[32, 256], 2, dtype);
            let (codes, scales, biases) = w.quantize(Some(group), Some(bits), mode).unwrap();
            let wide = codes
                .dequantize(&scales, biases.as_ref(), Some(group), Some(bits), mode, Some(Dtype::Float32))
                .unwrap();
            let wide = doubles(&wide);
            for (m, transpose) in [(1, true), (3, true), (9, true), (1, false), (7, false)] {
                let k = if transpose { 256 } else { 32 };
                let x = array(&[m, k], 3, dtype);
                let given = x
                    .quantized_matmul(
                        &codes,
                        &scales,
                        biases.as_ref(),
                        transpose,
                        Some(group),
                        Some(bits),
                        mode,
                    )
                    .unwrap();
                assert_eq!(given.dtype(), dtype);
                let wanted = product(&doubles(&x), &wide, m, 32, 256, transpose);
                let what = format!("{mode}, {group}, {bits} bits, {dtype}, {m} rows, transpose {transpose}");
                close(&given, &wanted, tolerance(dtype), &what);
            }
        }
    }
}

#[test]
fn batches_broadcast_vectors_are_rows_and_types_promote() {
    let w = array(&[3, 16, 64], 4, Dtype::Float32);
    let (codes, scales, biases) = w.quantize(None, None, QuantMode::Affine).unwrap();
    let times = |x: &Array, w: (&Array, &Array, &Array)| {
        x.quantized_matmul(w.0, w.1, Some(w.2), true, None, None, QuantMode::Affine)
    };
    let biases = biases.unwrap();
    let whole = codes.dequantize(&scales, Some(&biases), None, None, QuantMode::Affine, None).unwrap();
    let wide = whole.swapaxes(-1, -2).unwrap();
    for shape in [&[3, 2, 64][..], &[2, 1, 5, 64], &[2, 64], &[64]] {
        let x = array(shape, 5, Dtype::Float32);
        let given = times(&x, (&codes, &scales, &biases)).unwrap();
        let wanted = x.matmul(&wide).unwrap();
        assert_eq!(given.shape(), wanted.shape());
        let off = given.subtract(&wanted).unwrap().abs().unwrap().max(()).unwrap();
        assert!(off.item::<f32>().unwrap() < 1e-4, "{shape:?}");
    }
    assert!(times(&array(&[1, 2, 64], 5, Dtype::Float32), (&codes, &scales, &biases)).is_ok());
    assert!(times(&array(&[2, 2, 64], 5, Dtype::Float32), (&codes, &scales, &biases)).is_err());
    // One matrix of the stack, read in place; activations of any strides.
    let one = |array: &Array| array.take(1, Some(0)).unwrap();
    let x = array(&[64, 6], 6, Dtype::Float16).t().unwrap();
    let given = times(&x, (&one(&codes), &one(&scales), &one(&biases))).unwrap();
    assert_eq!((given.shape(), given.dtype()), (&[6, 16][..], Dtype::Float32));
    let wanted = product(&doubles(&x), &doubles(&one(&whole)), 6, 16, 64, true);
    close(&given, &wanted, 1e-6, "one of a stack");
    let half = |array: &Array| array.astype(Dtype::Bfloat16).unwrap();
    let narrow = times(&half(&x), (&one(&codes), &half(&one(&scales)), &half(&one(&biases)))).unwrap();
    assert_eq!(narrow.dtype(), Dtype::Bfloat16);
    let none = times(&array(&[0, 64], 1, Dtype::Float32), (&one(&codes), &one(&scales), &one(&biases)));
    assert_eq!(none.unwrap().shape(), [0, 16]);
}

#[test]
fn activations_of_eight_bits_stay_within_their_bound() {
    for (mode, group, bits) in [(QuantMode::Affine, 64, 4), (QuantMode::Affine, 32, 8)] {
        let w = array(&[40, 512], 7, Dtype::Float32);
        let (codes, scales, biases) = w.quantize(Some(group), Some(bits), mode).unwrap();
        let biases = biases.as_ref();
        let wide = codes.dequantize(&scales, biases, Some(group), Some(bits), mode, None).unwrap();
        let (x, wide) = (array(&[5, 512], 8, Dtype::Float32), doubles(&wide));
        let given = x
            .quantized_matmul_with(
                &codes,
                &scales,
                biases,
                true,
                Some(group),
                Some(bits),
                mode,
                Activations::Int8,
            )
            .unwrap();
        let (x, given) = (doubles(&x), doubles(&given));
        for (i, row) in x.chunks(512).enumerate() {
            for (j, line) in wide.chunks(512).enumerate() {
                let wanted: f64 = row.iter().zip(line).map(|(a, b)| a * b).sum();
                let bound: f64 = row
                    .chunks(32)
                    .zip(line.chunks(32))
                    .map(|(x, w)| {
                        let top = x.iter().fold(0.0f64, |top, x| top.max(x.abs()));
                        top / 254.0 * w.iter().map(|w| w.abs()).sum::<f64>()
                    })
                    .sum();
                let off = (given[i * 40 + j] - wanted).abs();
                assert!(off <= bound * 1.001, "row {i}, column {j}: off by {off} of {bound}");
            }
        }
    }
}

#[test]
fn gathered_products_agree_with_those_of_the_dequantized_matrices() {
    for (mode, dtype) in [
        (QuantMode::Affine, Dtype::Float32),
        (QuantMode::Mxfp4, Dtype::Float32),
        (QuantMode::Affine, Dtype::Float64),
    ] {
        let w = array(&[4, 32, 64], 9, dtype);
        let (codes, scales, biases) = w.quantize(None, None, mode).unwrap();
        let biases = biases.as_ref();
        let wide = codes.dequantize(&scales, biases, None, None, mode, Some(dtype)).unwrap();
        for transpose in [true, false] {
            let x = array(&[3, 2, if transpose { 64 } else { 32 }], 10, dtype);
            let matrices = if transpose { wide.swapaxes(-1, -2).unwrap() } else { wide.clone() };
            let left = Array::try_from_slice(&[0u32, 2, 1, 2], &[2, 2]).unwrap();
            let right = Array::from_slice(&[3, 0]);
            for (left, right) in [(Some(&left), Some(&right)), (None, Some(&Array::from_slice(&[1, 1, 0])))] {
                let given = x.gather_qmm(&codes, &scales, biases, left, right, transpose, None, None, mode);
                let wanted = x.gather_mm(&matrices, left, right).unwrap();
                let given = given.unwrap();
                assert_eq!((given.shape(), given.dtype()), (wanted.shape(), dtype));
                let off = given.subtract(&wanted).unwrap().abs().unwrap().max(()).unwrap();
                assert!(doubles(&off)[0] < 1e-4, "{mode}, transpose {transpose}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let w = array(&[8, 128], 1, Dtype::Float32);
    let affine = QuantMode::Affine;
    for (group, bits, mode) in [
        (Some(16), None, affine),
        (None, Some(7), affine),
        (Some(64), None, QuantMode::Mxfp4),
        (None, Some(8), QuantMode::Nvfp4),
    ] {
        assert!(w.quantize(group, bits, mode).is_err(), "{mode}, {group:?}, {bits:?}");
    }
    assert!(w.reshape(&[-1]).unwrap().quantize(None, None, affine).is_err());
    assert!(array(&[8, 96], 1, Dtype::Float32).quantize(None, None, affine).is_err());
    assert!(w.astype(Dtype::Int32).unwrap().quantize(None, None, affine).is_err());
    assert!("ternary".parse::<QuantMode>().is_err());
    let (codes, scales, biases) = w.quantize(None, None, affine).unwrap();
    let biases = biases.unwrap();
    let dequantize = |codes: &Array, scales: &Array, biases: Option<&Array>, bits, mode| {
        codes.dequantize(scales, biases, None, bits, mode, None)
    };
    assert!(dequantize(&codes, &scales, None, None, affine).is_err());
    assert!(dequantize(&codes, &scales, Some(&biases), Some(3), affine).is_err());
    assert!(dequantize(&codes.view(Dtype::Int32).unwrap(), &scales, Some(&biases), None, affine).is_err());
    assert!(dequantize(&codes, &scales, None, None, QuantMode::Mxfp4).is_err());
    let fewer = biases.slice(&[0, 0], &[4, 2], &[1, 1]).unwrap();
    assert!(dequantize(&codes, &scales, Some(&fewer), None, affine).is_err());
    let x = array(&[3, 64], 1, Dtype::Float32);
    assert!(x.quantized_matmul(&codes, &scales, Some(&biases), true, None, None, affine).is_err());
    let number = Array::scalar(1.0, Dtype::Float32).unwrap();
    assert!(number.quantized_matmul(&codes, &scales, Some(&biases), true, None, None, affine).is_err());
}

#[test]
fn packed_products_and_rows_agree_with_the_unpacked_matrix() {
    for format in [PackedFormat::Q4_0, PackedFormat::Q4_1, PackedFormat::Q8_0] {
        let w = array(&[24, 96], 11, Dtype::Float32);
        let packed = PackedArray::quantize(&w, format).unwrap();
        assert_eq!((packed.shape(), packed.format()), (&[24, 96][..], format));
        let wide = packed.dequantize(Dtype::Float32).unwrap();
        let step = if format == PackedFormat::Q8_0 { 0.01 } else { 0.2 };
        for (a, b) in doubles(&wide).iter().zip(doubles(&w)) {
            assert!((a - b).abs() < step, "{format:?}: {a} for {b}");
        }
        let list = Array::try_from_slice(&[3i32, -1, 99, 0], &[2, 2]).unwrap();
        let rows = packed.rows(&list, Dtype::Float32).unwrap();
        let wanted = wide.take(Array::try_from_slice(&[3i32, 23, 23, 0], &[2, 2]).unwrap(), Some(0)).unwrap();
        assert_eq!(rows.shape(), wanted.shape());
        assert_eq!(rows.to_vec::<f32>().unwrap(), wanted.to_vec::<f32>().unwrap());
        for dtype in [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Float64] {
            for m in [1, 5, 40] {
                let x = array(&[m, 96], 12, dtype);
                let given = packed_matmul(&x, &packed).unwrap();
                assert_eq!((given.shape(), given.dtype()), (&[m, 24][..], dtype));
                let wanted = product(&doubles(&x), &doubles(&wide), m, 24, 96, true);
                close(&given, &wanted, tolerance(dtype), &format!("{format:?}, {dtype}, {m} rows"));
                let rounded = packed.matmul_with(&x, Activations::Int8).unwrap();
                close(&rounded, &wanted, tolerance(dtype) + 0.02, &format!("{format:?} in 8 bits"));
            }
        }
    }
}

/// Blocks of a mapped file: at any address.
struct Mapped(Vec<u8>);

// SAFETY: the vector is never modified, so its bytes keep their address and value.
unsafe impl hesper_runtime::HostMemory for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0[3..]
    }
}

#[test]
fn blocks_are_multiplied_in_place() {
    let w = array(&[16, 64], 13, Dtype::Float32);
    let packed = PackedArray::quantize(&w, PackedFormat::Q4_0).unwrap();
    let mut bytes = vec![0; 3];
    bytes.extend(packed.bytes().to_vec::<u8>().unwrap());
    let adopted = Array::adopt(Mapped(bytes), "a file", Dtype::Uint8, packed.bytes().shape()).unwrap();
    let mapped = PackedArray::new(&adopted, PackedFormat::Q4_0, &[16, 64]).unwrap();
    let x = array(&[2, 64], 14, Dtype::Float32);
    assert_eq!(
        mapped.matmul(&x).unwrap().to_vec::<f32>().unwrap(),
        packed.matmul(&x).unwrap().to_vec::<f32>().unwrap()
    );
    assert!(PackedArray::new(&adopted, PackedFormat::Q4_1, &[16, 64]).is_err());
    assert!(PackedArray::new(&adopted, PackedFormat::Q4_0, &[16 * 64]).is_err());
    assert!(mapped.matmul(&array(&[2, 32], 1, Dtype::Float32)).is_err());
}

/// The derivatives of a sum of products, by the dequantized matrix.
#[test]
fn derivatives_of_products_are_those_of_the_dequantized_matrix() {
    let (mode, size) = (QuantMode::Affine, Some(32));
    let w = array(&[3, 32, 64], 15, Dtype::Float32);
    let (codes, scales, biases) = w.quantize(size, Some(4), mode).unwrap();
    let biases = biases.unwrap();
    for transpose in [true, false] {
        let x = array(&[3, 5, if transpose { 64 } else { 32 }], 16, Dtype::Float32);
        let weights = array(&[3, 5, if transpose { 32 } else { 64 }], 17, Dtype::Float32);
        let list = Array::from_slice(&[2, 0, 2]);
        let sum = |y: Array| Ok(vec![y.multiply(&weights)?.sum(())?]);
        let wide = |scales: &Array, biases: &Array| {
            let w = codes.dequantize(scales, Some(biases), size, Some(4), mode, None)?;
            if transpose { w.swapaxes(-1, -2) } else { Ok(w) }
        };
        let fused = |a: &[Array]| {
            sum(a[0].quantized_matmul(&codes, &a[1], Some(&a[2]), transpose, size, Some(4), mode)?)
        };
        let dense = |a: &[Array]| sum(a[0].matmul(&wide(&a[1], &a[2])?)?);
        let chosen = |a: &[Array]| {
            let (w, s, b) = (&codes, &a[1], Some(&a[2]));
            sum(a[0].gather_qmm(w, s, b, None, Some(&list), transpose, size, Some(4), mode)?)
        };
        let picked = |a: &[Array]| sum(a[0].matmul(&wide(&a[1], &a[2])?.take(list.clone(), Some(0))?)?);
        let inputs = [x, scales.clone(), biases.clone()];
        let slopes = |f: &dyn Fn(&[Array]) -> hesper::Result<Vec<Array>>| {
            transform::gradient::<hesper::Error>(f, &inputs, &[0, 1, 2]).unwrap().1
        };
        for (given, wanted) in [(slopes(&fused), slopes(&dense)), (slopes(&chosen), slopes(&picked))] {
            for (given, wanted) in given.iter().zip(&wanted) {
                assert_eq!(given.shape(), wanted.shape());
                for (a, b) in doubles(given).iter().zip(doubles(wanted)) {
                    assert!((a - b).abs() < 1e-3 * (1.0 + b.abs()), "{a} for {b}, transpose {transpose}");
                }
            }
        }
    }
}

#[test]
fn vectorized_products_agree_with_those_of_slices() {
    let mode = QuantMode::Affine;
    let w = array(&[16, 64], 18, Dtype::Float32);
    let (codes, scales, biases) = w.quantize(None, None, mode).unwrap();
    let x = array(&[4, 3, 64], 19, Dtype::Float32);
    let times = |x: &Array| x.quantized_matmul(&codes, &scales, biases.as_ref(), true, None, None, mode);
    let all = transform::vmap(|x: &[Array]| Ok(vec![times(&x[0])?]), &[Some(1)], &[Some(0)]);
    let given = &all(std::slice::from_ref(&x)).unwrap()[0];
    let wanted = times(&x).unwrap().swapaxes(0, 1).unwrap();
    assert_eq!(given.shape(), wanted.shape());
    for (a, b) in doubles(given).iter().zip(doubles(&wanted)) {
        assert!((a - b).abs() < 1e-4, "{a} for {b}");
    }
}

#[test]
fn both_sides_quantized_and_small_floats_round_as_their_formats_say() {
    let (x, w) = (array(&[3, 64], 20, Dtype::Float32), array(&[8, 64], 21, Dtype::Float32));
    for mode in [QuantMode::Nvfp4, QuantMode::Mxfp8, QuantMode::Mxfp4] {
        let rounded = |array: &Array| {
            let (codes, scales, _) = array.quantize(None, None, mode).unwrap();
            codes.dequantize(&scales, None, None, None, mode, Some(Dtype::Float32)).unwrap()
        };
        let wanted = product(&doubles(&rounded(&x)), &doubles(&rounded(&w)), 3, 8, 64, true);
        close(&x.qqmm(&w, None, None, None, mode).unwrap(), &wanted, 1e-6, mode.name());
        let (codes, scales, _) = w.quantize(None, None, mode).unwrap();
        close(&x.qqmm(&codes, Some(&scales), None, None, mode).unwrap(), &wanted, 1e-6, mode.name());
        assert!(x.qqmm(&codes, None, None, None, mode).is_err());
    }
    assert!(x.qqmm(&w, None, None, None, QuantMode::Affine).is_err());
    let codes: Vec<u8> = (0..=255).filter(|code| code & 0x7f != 0x7f).collect();
    let numbers = Array::from_slice(&codes).from_fp8(Dtype::Float32).unwrap();
    assert_eq!(numbers.to_fp8().unwrap().to_vec::<u8>().unwrap(), codes);
    let between = Array::from_slice(&[17.0f32, 19.0, 1e-3 * 2f32.powi(-9), -500.0]);
    let rounded = between.to_fp8().unwrap().from_fp8(Dtype::Float32).unwrap();
    assert_eq!(rounded.to_vec::<f32>().unwrap(), [16.0, 20.0, 0.0, -448.0]);
}

#[test]
fn the_derivative_of_a_packed_product_is_that_of_the_unpacked_one() {
    let packed = PackedArray::quantize(&array(&[8, 64], 22, Dtype::Float32), PackedFormat::Q8_0).unwrap();
    let x = array(&[3, 64], 23, Dtype::Float32);
    let f = |x: &[Array]| Ok(vec![packed.matmul(&x[0])?.sum(())?]);
    let (_, given) = transform::gradient::<hesper::Error>(f, &[x], &[0]).unwrap();
    let wide = doubles(&packed.dequantize(Dtype::Float32).unwrap());
    for (at, slope) in doubles(&given[0]).iter().enumerate() {
        let wanted: f64 = (0..8).map(|row| wide[row * 64 + at % 64]).sum();
        assert!((slope - wanted).abs() < 1e-4, "{slope} for {wanted}");
    }
}

/// One of the parts along the first axis.
fn part(x: &Array, at: usize) -> Array {
    x.slice_axis(0, at as isize, at as isize + 1, 1).unwrap().squeeze(0).unwrap()
}

#[test]
fn products_of_rows_along_several_axes_have_the_bits_of_those_of_a_matrix() {
    for (mode, group, bits) in
        [(QuantMode::Affine, 32, 4), (QuantMode::Affine, 64, 8), (QuantMode::Mxfp4, 32, 4)]
    {
        let (w, scales, biases) =
            array(&[24, 128], 1, Dtype::Float32).quantize(Some(group), Some(bits), mode).unwrap();
        let multiply = |x: &Array| {
            x.quantized_matmul(&w, &scales, biases.as_ref(), true, Some(group), Some(bits), mode).unwrap()
        };
        let flat = array(&[30, 128], 2, Dtype::Float32);
        let wanted = multiply(&flat).to_vec::<f32>().unwrap();
        for shape in [vec![30, 1, 128], vec![1, 30, 128], vec![5, 6, 128], vec![2, 3, 5, 128]] {
            let y = multiply(&flat.reshape(&shape).unwrap());
            assert_eq!(y.shape()[..shape.len() - 1], shape[..shape.len() - 1]);
            assert_eq!(y.to_vec::<f32>().unwrap(), wanted, "{mode} {shape:?}");
        }
        // Rows that are evenly spaced, reversed, and that no single step describes.
        let wide = array(&[5, 6, 256], 3, Dtype::Float32);
        for x in [
            wide.slice(&[0, 0, 64], &[5, 6, 192], &[1, 1, 1]).unwrap(),
            wide.slice(&[0, 5, 0], &[5, 6, 128], &[1, 1, 1]).unwrap(),
            wide.swapaxes(0, 1).unwrap().slice(&[0, 0, 128], &[6, 5, 256], &[1, 2, 1]).unwrap(),
            wide.slice(&[0, 0, 0], &[5, 6, 256], &[1, 1, 2]).unwrap(),
        ] {
            let copy = Array::try_from_slice(&x.to_vec::<f32>().unwrap(), x.shape()).unwrap();
            assert_eq!(multiply(&x).to_vec::<f32>().unwrap(), multiply(&copy).to_vec::<f32>().unwrap());
        }
        let empty = multiply(&Array::zeros(&[3, 0, 128], Dtype::Float32).unwrap());
        assert_eq!(empty.shape(), [3, 0, 24]);
        assert_eq!(multiply(&part(&flat, 0)).shape(), [24]);
    }
}

#[test]
fn derivatives_by_the_scales_of_a_shared_matrix_sum_over_all_rows() {
    let (w, scales, biases) =
        array(&[8, 64], 1, Dtype::Float32).quantize(Some(32), Some(4), QuantMode::Affine).unwrap();
    let biases = biases.unwrap();
    let (x, other) = (array(&[2, 3, 64], 2, Dtype::Float32), array(&[2, 3, 8], 3, Dtype::Float32));
    let gradients = |x: &Array, other: &Array| {
        let multiply = |given: &[Array]| {
            let (scales, biases) = (&given[0], Some(&given[1]));
            let y = x.quantized_matmul(&w, scales, biases, true, Some(32), Some(4), QuantMode::Affine)?;
            y.multiply(other)?.sum(())
        };
        transform::grad(multiply, &[0, 1])(&[scales.clone(), biases.clone()]).unwrap()
    };
    let flat = gradients(&x.reshape(&[6, 64]).unwrap(), &other.reshape(&[6, 8]).unwrap());
    for (one, two) in gradients(&x, &other).iter().zip(&flat) {
        assert_eq!(one.to_vec::<f32>().unwrap(), two.to_vec::<f32>().unwrap());
    }
}

#[test]
fn vectorized_products_of_rows_along_several_axes_are_those_of_each_slice() {
    let matrices = array(&[3, 16, 64], 1, Dtype::Float32);
    let x = array(&[3, 2, 5, 64], 2, Dtype::Float32);
    let multiply = |given: &[Array]| {
        let (w, scales, biases) = given[1].quantize(Some(32), Some(4), QuantMode::Affine)?;
        let y = given[0].quantized_matmul(
            &w,
            &scales,
            biases.as_ref(),
            true,
            Some(32),
            Some(4),
            QuantMode::Affine,
        )?;
        Ok(vec![y])
    };
    let each: Vec<Array> =
        (0..3).map(|at| multiply(&[part(&x, at), part(&matrices, at)]).unwrap().remove(0)).collect();
    let all =
        transform::vmap(multiply, &[Some(0), Some(0)], &[Some(0)])(&[x.clone(), matrices.clone()]).unwrap();
    assert_eq!(all[0].shape(), [3, 2, 5, 16]);
    for (at, one) in each.iter().enumerate() {
        assert_eq!(part(&all[0], at).to_vec::<f32>().unwrap(), one.to_vec::<f32>().unwrap());
    }
    let shared = transform::vmap(multiply, &[Some(1), None], &[Some(0)])(&[part(&x, 0), part(&matrices, 0)]);
    assert_eq!(shared.unwrap()[0].shape(), [5, 2, 16]);
}
