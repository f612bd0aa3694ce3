//! Quantized matrices: the bits against MLX's, the products against the definition.

use crate::common::{Rng, close, levels};
use half::{bf16, f16};
use hesper_compute::{
    Activations, AtLevel, Float, GgmlType, GgufMat, LayerEpilogue, MatMut, MatRef, Mismatch, Par,
    QuantFormat, QuantMat, Scales, Serial, Simd, Threads, dequantize, gguf_dequantize, gguf_layer,
    gguf_matmul, gguf_quantize, qmatmul, quantize_affine, quantize_fp, rms_norm,
};
use std::collections::HashMap;

fn golden() -> HashMap<String, Vec<u32>> {
    include_str!("golden/quantize.txt")
        .lines()
        .filter_map(|l| l.split_once(':'))
        .map(|(k, v)| {
            let words = v.split_whitespace().map(|w| u32::from_str_radix(w, 16).unwrap()).collect();
            (k.to_string(), words)
        })
        .collect()
}

fn bits<T: Float>(v: &[T]) -> Vec<u32> {
    v.iter().map(|x| x.to_f32().to_bits()).collect()
}

trait Named: Float {
    const NAME: &'static str;
    fn scales(s: &[Self]) -> Scales<'_>;
}

impl Named for f32 {
    const NAME: &'static str = "f32";
    fn scales(s: &[Self]) -> Scales<'_> {
        Scales::F32(s)
    }
}

impl Named for f16 {
    const NAME: &'static str = "f16";
    fn scales(s: &[Self]) -> Scales<'_> {
        Scales::F16(s)
    }
}

impl Named for bf16 {
    const NAME: &'static str = "bf16";
    fn scales(s: &[Self]) -> Scales<'_> {
        Scales::Bf16(s)
    }
}

fn all_affine() -> impl Iterator<Item = QuantFormat> {
    [2, 3, 4, 5, 6, 8]
        .into_iter()
        .flat_map(|bits| [32, 64, 128].map(|group| QuantFormat::Affine { bits, group }))
}

fn quantizes_like_mlx<T: Named>() {
    let golden = golden();
    let name = T::NAME;
    let input: Vec<T> =
        golden[&format!("input {name}")].iter().map(|b| T::from_f32(f32::from_bits(*b))).collect();
    let n = input.len();
    for format in all_affine() {
        let QuantFormat::Affine { bits: b, group } = format else { unreachable!() };
        let key = format!("affine {b} {group} {name}");
        let zero = T::from_f32(0.0);
        let mut packed = vec![0; format.words(n)];
        let (mut scales, mut biases) = (vec![zero; n / group], vec![zero; n / group]);
        quantize_affine(&Serial, format, &input, n, &mut packed, &mut scales, &mut biases).unwrap();
        assert_eq!(packed, golden[&format!("{key} packed")], "{key}");
        assert_eq!(bits(&scales), golden[&format!("{key} scales")], "{key}");
        assert_eq!(bits(&biases), golden[&format!("{key} biases")], "{key}");
        let w = QuantMat::new(format, 1, n, &packed, T::scales(&scales), Some(T::scales(&biases))).unwrap();
        let mut values = vec![zero; n];
        dequantize(&Serial, &w, &mut values).unwrap();
        assert_eq!(bits(&values), golden[&format!("{key} values")], "{key}");
    }
    for (format, mode) in
        [(QuantFormat::Mxfp4, "mxfp4"), (QuantFormat::Mxfp8, "mxfp8"), (QuantFormat::Nvfp4, "nvfp4")]
    {
        let key = format!("{mode} {name}");
        let mut packed = vec![0; format.words(n)];
        let mut scales = vec![0; n / format.group()];
        quantize_fp(&Serial, format, &input, n, &mut packed, &mut scales).unwrap();
        let as_words: Vec<u32> = scales.iter().map(|s| u32::from(*s)).collect();
        assert_eq!(as_words, golden[&format!("{key} scales")], "{key}");
        for (i, (g, w)) in packed.iter().zip(&golden[&format!("{key} packed")]).enumerate() {
            assert_eq!(format!("{g:08x}"), format!("{w:08x}"), "{key} word {i}");
        }
        let w = QuantMat::new(format, 1, n, &packed, Scales::Bytes(&scales), None).unwrap();
        let mut values = vec![T::from_f32(0.0); n];
        dequantize(&Serial, &w, &mut values).unwrap();
        for (g, w) in bits(&values).iter().zip(&golden[&format!("{key} values")]) {
            assert_eq!(f32::from_bits(*g), f32::from_bits(*w), "{key}");
        }
    }
}

#[test]
fn f32_is_quantized_bit_for_bit_like_mlx() {
    quantizes_like_mlx::<f32>();
}

#[test]
fn f16_is_quantized_bit_for_bit_like_mlx() {
    quantizes_like_mlx::<f16>();
}

#[test]
fn bf16_is_quantized_bit_for_bit_like_mlx() {
    quantizes_like_mlx::<bf16>();
}

/// A quantized random matrix and its dequantized values.
struct Sample {
    format: QuantFormat,
    rows: usize,
    cols: usize,
    packed: Vec<u32>,
    scales: Vec<f32>,
    biases: Vec<f32>,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Sample {
    fn new(format: QuantFormat, rows: usize, cols: usize, rng: &mut Rng) -> Self {
        let w: Vec<f32> = rng.floats(rows * cols);
        let groups = rows * cols / format.group();
        let mut packed = vec![0; rows * format.words(cols)];
        let (mut scales, mut biases, mut bytes) = (vec![0.0; groups], vec![0.0; groups], vec![0u8; groups]);
        if matches!(format, QuantFormat::Affine { .. }) {
            quantize_affine(&Serial, format, &w, cols, &mut packed, &mut scales, &mut biases).unwrap();
        } else {
            quantize_fp(&Serial, format, &w, cols, &mut packed, &mut bytes).unwrap();
        }
        let mut s =
            Self { format, rows, cols, packed, scales, biases, bytes, values: vec![0.0; rows * cols] };
        let mut values = std::mem::take(&mut s.values);
        dequantize(&Serial, &s.mat(), &mut values).unwrap();
        s.values = values;
        s
    }

    fn mat(&self) -> QuantMat<'_> {
        let affine = matches!(self.format, QuantFormat::Affine { .. });
        let scales = if affine { Scales::F32(&self.scales) } else { Scales::Bytes(&self.bytes) };
        let biases = affine.then_some(Scales::F32(&self.biases[..]));
        QuantMat::new(self.format, self.rows, self.cols, &self.packed, scales, biases).unwrap()
    }
}

fn formats() -> Vec<QuantFormat> {
    all_affine().chain([QuantFormat::Mxfp4, QuantFormat::Mxfp8, QuantFormat::Nvfp4]).collect()
}

fn check_products<T: Float>(tol: f32) {
    let shapes = [(1, 5, 1), (2, 67, 3), (4, 9, 5), (7, 33, 2), (20, 40, 3)];
    check_products_of::<T>(tol, |unit| shapes.map(|(m, rows, groups)| (m, rows, unit * groups)).to_vec());
}

/// Products of the shapes (rows, rows of the matrix, its columns); columns must be a multiple of the
/// argument.
fn check_products_of<T: Float>(tol: f32, shapes: impl Fn(usize) -> Vec<(usize, usize, usize)>) {
    let mut rng = Rng::new(21);
    for format in formats() {
        for (m, rows, cols) in shapes(format.group().max(32)) {
            let w = Sample::new(format, rows, cols, &mut rng);
            for transpose in [true, false] {
                let (n, k, w_of): (usize, usize, &dyn Fn(usize, usize) -> f32) = if transpose {
                    (rows, cols, &|j, p| w.values[j * cols + p])
                } else {
                    (cols, rows, &|j, p| w.values[p * cols + j])
                };
                let x: Vec<T> = rng.floats(m * k);
                for (one, three) in levels() {
                    let mut runs = vec![];
                    for par in [&one as &dyn Par, &three] {
                        let mut y = vec![T::from_f32(f32::NAN); m * n];
                        let xm = MatRef::row_major(&x, m, k).unwrap();
                        let ym = MatMut::row_major(&mut y, m, n).unwrap();
                        qmatmul(par, xm, &w.mat(), transpose, ym, Activations::Exact).unwrap();
                        runs.push(y);
                    }
                    assert_eq!(bits(&runs[0]), bits(&runs[1]), "threads differ at {format:?}");
                    for i in 0..m {
                        for j in 0..n {
                            let want: f64 = (0..k)
                                .map(|p| f64::from(x[i * k + p].to_f32()) * f64::from(w_of(j, p)))
                                .sum();
                            let what = (format, m, n, k, transpose, one.1, i, j);
                            close(runs[0][i * n + j].to_f32(), want as f32, tol * (k as f32).sqrt(), what);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn ranges_of_k_start_at_whole_bytes_of_codes() {
    // Three ranges of K; with some widths an exact third would not start on a byte.
    check_products_of::<f32>(3e-6, |_| vec![(9, 17, 1280)]);
    check_products_of::<bf16>(8e-3, |_| vec![(9, 17, 1280)]);
}

#[test]
fn products_with_f32_activations_match_the_dequantized_matrix() {
    check_products::<f32>(3e-6);
}

#[test]
fn products_with_bf16_activations_match_the_dequantized_matrix() {
    check_products::<bf16>(8e-3);
}

#[test]
fn products_with_f16_activations_match_the_dequantized_matrix() {
    check_products::<f16>(1e-3);
}

#[test]
fn scales_may_have_16_bits() {
    let mut rng = Rng::new(8);
    let w: Vec<bf16> = rng.floats(6 * 192);
    let format = QuantFormat::Affine { bits: 4, group: 64 };
    let (mut packed, mut s, mut b) = (vec![0; 6 * 24], vec![bf16::ZERO; 18], vec![bf16::ZERO; 18]);
    quantize_affine(&Serial, format, &w, 192, &mut packed, &mut s, &mut b).unwrap();
    let q = QuantMat::new(format, 6, 192, &packed, Scales::Bf16(&s), Some(Scales::Bf16(&b))).unwrap();
    let mut values = vec![0.0f32; 6 * 192];
    dequantize(&Serial, &q, &mut values).unwrap();
    let x: Vec<f32> = rng.floats(192);
    let mut y = vec![0.0f32; 6];
    let (xm, ym) = (MatRef::row_major(&x, 1, 192).unwrap(), MatMut::row_major(&mut y, 1, 6).unwrap());
    qmatmul(&Serial, xm, &q, true, ym, Activations::Exact).unwrap();
    for (j, y) in y.iter().enumerate() {
        let want: f32 = (0..192).map(|k| x[k] * values[j * 192 + k]).sum();
        close(*y, want, 1e-5, j);
    }
}

/// The bound of the module's documentation: 1/254 of the largest activation of a block times the sum of
/// `|w|`.
fn int8_bound(x: &[f32], w: &[f32]) -> f32 {
    x.chunks(32)
        .zip(w.chunks(32))
        .map(|(x, w)| {
            let top = x.iter().fold(0.0f32, |t, v| t.max(v.abs()));
            top / 254.0 * w.iter().map(|w| w.abs()).sum::<f32>()
        })
        .sum::<f32>()
}

/// A matrix whose products may round activations, and its dequantized values.
enum RoundingMatrix {
    Codes(Sample),
    Blocks { format: GgmlType, rows: usize, cols: usize, data: Vec<u8>, values: Vec<f32> },
}

impl RoundingMatrix {
    fn blocks(format: GgmlType, rows: usize, cols: usize, rng: &mut Rng) -> Self {
        let bytes = format.block_bytes();
        let mut data: Vec<u8> =
            (0..rows * cols / format.block_len() * bytes).map(|_| rng.bits() as u8).collect();
        for (number, block) in data.chunks_exact_mut(bytes).enumerate() {
            // Finite scales; every seventh block is zero.
            let halves: &[usize] = match format {
                GgmlType::Q4_1 | GgmlType::Q4_K => &[0, 2],
                GgmlType::Q6_K => &[208],
                _ => &[0],
            };
            for at in halves {
                let scale = f16::from_f32(if number % 7 == 3 { 0.0 } else { rng.float() / 64.0 });
                block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
        }
        let mut values = vec![0.0; rows * cols];
        gguf_dequantize(&Serial, &GgufMat::new(format, rows, cols, &data).unwrap(), &mut values).unwrap();
        Self::Blocks { format, rows, cols, data, values }
    }

    fn values(&self) -> &[f32] {
        match self {
            Self::Codes(sample) => &sample.values,
            Self::Blocks { values, .. } => values,
        }
    }

    fn product(&self, par: &dyn Par, x: &[f32], mode: Activations) -> Vec<f32> {
        let (rows, cols) = match self {
            Self::Codes(sample) => (sample.rows, sample.cols),
            Self::Blocks { rows, cols, .. } => (*rows, *cols),
        };
        let m = x.len() / cols;
        let mut y = vec![f32::NAN; m * rows];
        let (x, to) = (MatRef::row_major(x, m, cols).unwrap(), MatMut::row_major(&mut y, m, rows).unwrap());
        match self {
            Self::Codes(sample) => qmatmul(par, x, &sample.mat(), true, to, mode).unwrap(),
            Self::Blocks { format, data, .. } => {
                gguf_matmul(par, x, &GgufMat::new(*format, rows, cols, data).unwrap(), to, mode).unwrap();
            }
        }
        y
    }
}

/// Matrices of every format that is multiplied as integers; rows and columns that fill no panel or chunk.
fn rounding_matrices(rng: &mut Rng) -> Vec<(String, usize, usize, RoundingMatrix)> {
    let mut all = Vec::new();
    for bits in [4, 8] {
        for group in [32, 64, 128] {
            for (rows, cols) in [(7, group), (37, 5 * group), (3, 640)] {
                let format = QuantFormat::Affine { bits, group };
                all.push((
                    format!("{format:?}"),
                    rows,
                    cols,
                    RoundingMatrix::Codes(Sample::new(format, rows, cols, rng)),
                ));
            }
        }
    }
    for format in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0] {
        for (rows, cols) in [(3, 32), (37, 544), (70, 96), (5, 1120)] {
            all.push((format!("{format:?}"), rows, cols, RoundingMatrix::blocks(format, rows, cols, rng)));
        }
    }
    for format in [GgmlType::Q4_K, GgmlType::Q6_K] {
        for (rows, cols) in [(3, 256), (37, 512), (18, 768)] {
            all.push((format!("{format:?}"), rows, cols, RoundingMatrix::blocks(format, rows, cols, rng)));
        }
    }
    all
}

#[test]
fn rounding_activations_to_8_bits_stays_within_the_documented_bound() {
    let mut rng = Rng::new(4);
    for (name, rows, cols, w) in rounding_matrices(&mut rng) {
        for m in [1, 5, 19] {
            let mut x: Vec<f32> = rng.floats(m * cols);
            x[..32].fill(0.0);
            let exact: Vec<f64> = (0..m * rows)
                .map(|at| {
                    let (x, w) = (&x[at / rows * cols..][..cols], &w.values()[at % rows * cols..][..cols]);
                    x.iter().zip(w).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
                })
                .collect();
            for (one, three) in levels() {
                let y = w.product(&one, &x, Activations::Int8);
                assert_eq!(y, w.product(&three, &x, Activations::Int8), "{name} {:?}: threads", one.1);
                for (at, (got, want)) in y.iter().zip(&exact).enumerate() {
                    let (x, w) = (&x[at / rows * cols..][..cols], &w.values()[at % rows * cols..][..cols]);
                    let size: f32 = x.iter().zip(w).map(|(a, b)| (a * b).abs()).sum();
                    let bound = f64::from(int8_bound(x, w) * 1.01 + 1e-5 * size + 1e-6);
                    let what = (&name, one.1, m, rows, cols, at);
                    assert!((f64::from(*got) - want).abs() <= bound, "{what:?}: {got} {want}");
                }
            }
        }
    }
}

#[test]
fn a_rounded_row_has_the_same_result_alone_in_a_batch_and_at_every_level() {
    let mut rng = Rng::new(41);
    for (name, rows, cols, w) in rounding_matrices(&mut rng) {
        let x: Vec<f32> = rng.floats(40 * cols);
        let all = w.product(&Serial, &x, Activations::Int8);
        assert_ne!(all, w.product(&Serial, &x, Activations::Exact), "{name}: not rounded");
        // The plain level of x86-64 has no fused multiply-add.
        for (par, _) in levels().into_iter().filter(|(par, _)| par.1 > Simd::Plain) {
            for m in [1, 2, 3, 4, 6, 13, 16, 40] {
                let y = w.product(&par, &x[..m * cols], Activations::Int8);
                assert_eq!(y, all[..m * rows], "{name} {:?}: {m} rows", par.1);
            }
        }
    }
}

#[test]
fn activations_that_are_not_finite_make_only_their_rows_nan() {
    let mut rng = Rng::new(42);
    for (name, rows, cols, w) in rounding_matrices(&mut rng) {
        let clean: Vec<f32> = rng.floats(20 * cols);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = clean.clone();
            x[cols + cols / 2] = bad;
            for (par, _) in levels() {
                let (got, want) =
                    (w.product(&par, &x, Activations::Int8), w.product(&par, &clean, Activations::Int8));
                assert!(got[rows..2 * rows].iter().all(|y| y.is_nan()), "{name} {:?}: {bad}", par.1);
                assert_eq!(got[..rows], want[..rows], "{name}");
                assert_eq!(got[2 * rows..], want[2 * rows..], "{name}");
            }
        }
        // The inverse of the largest element overflows, or its square underflows.
        for tiny in [f32::from_bits(1), f32::MIN_POSITIVE, 1e-30] {
            let y = w.product(&Serial, &vec![tiny; cols], Activations::Int8);
            assert!(y.iter().all(|y| y.abs() <= tiny * 1e4), "{name}: {tiny:e}");
        }
        let y = w.product(&Serial, &vec![f32::MAX / 1e6; cols], Activations::Int8);
        assert!(y.iter().all(|y| y.is_finite()), "{name}: large activations");
    }
}

#[test]
fn products_with_gguf_blocks_match_the_dequantized_matrix() {
    let mut rng = Rng::new(14);
    for format in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0] {
        for (m, rows, cols) in [(1, 3, 32), (2, 5, 96), (5, 9, 224), (1, 4, 640)] {
            let raw: Vec<f32> = rng.floats(rows * cols);
            let mut data = vec![0u8; rows * cols / 32 * format.block_bytes()];
            gguf_quantize(format, &raw, &mut data).unwrap();
            let w = GgufMat::new(format, rows, cols, &data).unwrap();
            let mut values = vec![0.0f32; rows * cols];
            gguf_dequantize(&Serial, &w, &mut values).unwrap();
            let coarse = if format == GgmlType::Q8_0 { 0.005 } else { 0.14 };
            for (v, r) in values.iter().zip(&raw) {
                assert!((v - r).abs() < coarse, "{format:?}: {v} for {r}");
            }
            let x: Vec<f32> = rng.floats(m * cols);
            for (one, _) in levels() {
                for mode in [Activations::Exact, Activations::Int8] {
                    let mut y = vec![f32::NAN; m * rows];
                    let xm = MatRef::row_major(&x, m, cols).unwrap();
                    gguf_matmul(&one, xm, &w, MatMut::row_major(&mut y, m, rows).unwrap(), mode).unwrap();
                    for i in 0..m {
                        for j in 0..rows {
                            let (x, v) = (&x[i * cols..][..cols], &values[j * cols..][..cols]);
                            let want: f32 = x.iter().zip(v).map(|(a, b)| a * b).sum();
                            let slack = if mode == Activations::Int8 { int8_bound(x, v) * 1.01 } else { 0.0 };
                            let got = y[i * rows + j];
                            let what = (format, mode, one.1, m, rows, cols);
                            assert!((got - want).abs() <= slack + 2e-5, "{what:?}: {got} {want}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn formats_that_do_not_exist_are_refused() {
    let bad = [QuantFormat::Affine { bits: 7, group: 64 }, QuantFormat::Affine { bits: 4, group: 48 }];
    for format in bad {
        assert!(QuantMat::new(format, 1, 64, &[0; 64], Scales::F32(&[0.0; 4]), None).is_err());
    }
    let bytes = Scales::Bytes(&[0; 4]);
    let refused = |format, cols, scales| QuantMat::new(format, 1, cols, &[0; 64], scales, None).unwrap_err();
    let wrong = refused(bad[0], 64, bytes).to_string();
    assert_eq!(wrong, "this number of bits of an affine code is not supported: give 1 to 6, or 8");
    let wrong = refused(QuantFormat::Affine { bits: 4, group: 64 }, 96, bytes);
    assert_eq!(wrong, Mismatch::Multiple { what: "columns of a quantized matrix", unit: 64, given: 96 });
    let wrong = refused(QuantFormat::Affine { bits: 4, group: 64 }, 64, bytes).to_string();
    assert!(wrong.starts_with("this type of scales is not supported: affine formats take floats"), "{wrong}");
    let affine = QuantFormat::Affine { bits: 4, group: 64 };
    assert!(QuantMat::new(affine, 1, 96, &[0; 64], Scales::F32(&[0.0; 4]), None).is_err());
    assert!(QuantMat::new(affine, 1, 64, &[0; 8], Scales::F32(&[0.0; 4]), None).is_err());
    assert!(QuantMat::new(affine, 1, 64, &[0; 8], Scales::Bytes(&[0; 4]), None).is_err());
    assert!(QuantMat::new(QuantFormat::Mxfp4, 1, 64, &[0; 8], Scales::F32(&[0.0; 4]), None).is_err());
}

#[test]
fn a_row_has_the_same_result_alone_and_in_a_batch() {
    const COLS: usize = 352;
    let rows = 37;
    let weights: Vec<f32> = (0..rows * COLS).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 504.0).collect();
    let x: Vec<f32> = (0..64 * COLS).map(|i| ((i * 104_729 % 2003) as f32 - 1001.0) / 300.0).collect();
    for format in [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0] {
        let mut data = vec![0u8; rows * COLS / 32 * format.block_bytes()];
        gguf_quantize(format, &weights, &mut data).unwrap();
        let w = GgufMat::new(format, rows, COLS, &data).unwrap();
        for simd in Simd::available() {
            let product = |from: usize, count: usize| {
                let mut y = vec![0.0f32; count * rows];
                let x = MatRef::row_major(&x[from * COLS..][..count * COLS], count, COLS).unwrap();
                let par = AtLevel(Threads(2), simd);
                gguf_matmul(&par, x, &w, MatMut::row_major(&mut y, count, rows).unwrap(), Activations::Exact)
                    .unwrap();
                y
            };
            let alone: Vec<f32> = (0..64).flat_map(|row| product(row, 1)).collect();
            for count in [2, 3, 4, 7, 8, 15, 16, 17, 33, 64] {
                assert_eq!(product(0, count), alone[..count * rows], "{format:?}, {simd:?}, {count} rows");
            }
        }
    }
}

#[test]
fn products_with_decoded_blocks_match_the_dequantized_matrix() {
    let mut rng = Rng::new(15);
    let formats = [
        GgmlType::Q5_0,
        GgmlType::Q5_1,
        GgmlType::Q2_K,
        GgmlType::Q3_K,
        GgmlType::Q4_K,
        GgmlType::Q5_K,
        GgmlType::Q6_K,
    ];
    let (rows, cols) = (5, 512);
    for format in formats {
        let count = rows * cols / format.block_len();
        let mut data: Vec<u8> = (0..count * format.block_bytes()).map(|at| (at * 31 % 251) as u8).collect();
        for block in data.chunks_exact_mut(format.block_bytes()) {
            // Small scales, wherever the format stores them.
            let end = block.len();
            (block[1], block[3], block[end - 1], block[end - 3]) = (0x1c, 0x1c, 0x1c, 0x1c);
        }
        let w = GgufMat::new(format, rows, cols, &data).unwrap();
        let mut values = vec![0.0f32; rows * cols];
        gguf_dequantize(&Serial, &w, &mut values).unwrap();
        let x: Vec<f32> = rng.floats(64 * cols);
        for simd in Simd::available() {
            let product = |m: usize| {
                let mut y = vec![f32::NAN; m * rows];
                let x = MatRef::row_major(&x[..m * cols], m, cols).unwrap();
                let par = AtLevel(Threads(2), simd);
                gguf_matmul(&par, x, &w, MatMut::row_major(&mut y, m, rows).unwrap(), Activations::Exact)
                    .unwrap();
                y
            };
            let many = product(23);
            for (at, got) in many.iter().enumerate() {
                let (x, v) = (&x[at / rows * cols..][..cols], &values[at % rows * cols..][..cols]);
                let want: f64 = x.iter().zip(v).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                let size: f64 = x.iter().zip(v).map(|(a, b)| f64::from((a * b).abs())).sum();
                assert!((f64::from(*got) - want).abs() <= 1e-5 * size, "{format:?}, {simd:?}: {got} {want}");
            }
            assert_eq!(product(1), many[..rows], "{format:?}, {simd:?}: alone and in a batch");
        }
        assert!(gguf_quantize(format, &values, &mut data).is_err());
    }
}

#[test]
fn a_layer_matches_its_norm_products_and_epilogue() {
    let mut rng = Rng::new(16);
    let (k, rows) = (96, [40, 24]);
    let weights: Vec<Vec<u8>> = rows
        .iter()
        .map(|rows| {
            let mut data = vec![0u8; rows * k / 32 * GgmlType::Q4_1.block_bytes()];
            gguf_quantize(GgmlType::Q4_1, &rng.floats(rows * k), &mut data).unwrap();
            data
        })
        .collect();
    let of = |at: usize, rows: usize| GgufMat::new(GgmlType::Q4_1, rows, k, &weights[at]).unwrap();
    let norm: Vec<f32> = rng.floats(k);
    for m in [1, 3, 16, 21, 70] {
        let (x, plus): (Vec<f32>, Vec<f32>) = (rng.floats(m * k), rng.floats(m * 64));
        for (par, mode) in
            levels().into_iter().flat_map(|(par, _)| [(par, Activations::Exact), (par, Activations::Int8)])
        {
            let mut normed = vec![0.0; m * k];
            rms_norm(&Serial, &x, k, Some(&norm), 1e-5, &mut normed).unwrap();
            let product = |w: &GgufMat<'_>, rows: usize| {
                let mut y = vec![0.0; m * rows];
                let x = MatRef::row_major(&normed, m, k).unwrap();
                gguf_matmul(&par, x, w, MatMut::row_major(&mut y, m, rows).unwrap(), mode).unwrap();
                y
            };
            let (first, second) = (product(&of(0, 40), 40), product(&of(1, 24), 24));
            let mut y = vec![f32::NAN; m * 64];
            let (both, norm) = ([of(0, 40), of(1, 24)], Some((&norm[..], 1e-5)));
            gguf_layer(&par, &x, norm, &both, LayerEpilogue::AddResidual(&plus), mode, &mut y).unwrap();
            for (at, y) in y.iter().enumerate() {
                let (i, j) = (at / 64, at % 64);
                let product = if j < 40 { first[i * 40 + j] } else { second[i * 24 + j - 40] };
                assert!((y - product - plus[at]).abs() < 1e-4, "{m} rows: {y}");
            }
            let (gate, wide) = (product(&of(0, 24), 24), &second);
            let mut y = vec![f32::NAN; m * 24];
            gguf_layer(&par, &x, norm, &[of(0, 24), of(1, 24)], LayerEpilogue::SiluGate, mode, &mut y)
                .unwrap();
            for ((y, g), u) in y.iter().zip(&gate).zip(wide) {
                let want = g / (1.0 + (-g).exp()) * u;
                assert!((y - want).abs() < 1e-4 + 1e-5 * want.abs(), "{m} rows: {y} {want}");
            }
            let mut few = vec![0.0; m * 24];
            assert!(gguf_layer(&par, &x, norm, &both, LayerEpilogue::SiluGate, mode, &mut few).is_err());
            assert!(gguf_layer(&par, &x[1..], norm, &both, LayerEpilogue::Plain, mode, &mut y).is_err());
        }
    }
}

#[test]
fn blocks_are_decoded_to_the_same_bits_at_every_level() {
    let formats = [
        GgmlType::Q4_0,
        GgmlType::Q4_1,
        GgmlType::Q5_0,
        GgmlType::Q5_1,
        GgmlType::Q8_0,
        GgmlType::Q2_K,
        GgmlType::Q3_K,
        GgmlType::Q4_K,
        GgmlType::Q5_K,
        GgmlType::Q6_K,
        GgmlType::Iq4Nl,
        GgmlType::Iq4Xs,
        GgmlType::Mxfp4,
    ];
    let (rows, cols) = (3, 512);
    for format in formats {
        let bytes = rows * cols / format.block_len() * format.block_bytes();
        let data: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8 & 0x7b).collect();
        let w = GgufMat::new(format, rows, cols, &data).unwrap();
        let decoded = |simd| {
            let mut values = vec![f32::NAN; rows * cols];
            gguf_dequantize(&AtLevel(Threads(2), simd), &w, &mut values).unwrap();
            values.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
        };
        let plain = decoded(Simd::Plain);
        assert!(plain.iter().any(|bits| *bits != plain[0]), "{format:?}");
        for simd in Simd::available() {
            assert_eq!(decoded(simd), plain, "{format:?}, {simd:?}");
        }
    }
}
