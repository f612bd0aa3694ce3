//! Quantized weights: packed integers with scales and biases for groups, 4-bit floats, pointer casts.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{Rng, bits, integers, normal, uniform};
use crate::elementwise::eps;
use crate::{header, kernel};
use half::f16;

pub fn add(all: &mut Vec<Case>) {
    matvec_cases(all);
    decode_cases(all);
    cast_cases(all);
    ternary_cases(all);
}

/// Packs codes of `width` bits, low bits first, into little-endian words.
pub fn pack(codes: &[u32], width: usize) -> Vec<i64> {
    let mut words = vec![0u32; (codes.len() * width).div_ceil(32)];
    for (i, code) in codes.iter().enumerate() {
        for b in 0..width {
            let at = i * width + b;
            words[at / 32] |= (code >> b & 1) << (at % 32);
        }
    }
    words.iter().map(|w| i64::from(*w)).collect()
}

/// The inverse of [`pack`].
pub fn unpack(words: &[i64], width: usize) -> Vec<u32> {
    let bit = |at: usize| (words[at / 32] as u32 >> (at % 32)) & 1;
    (0..words.len() * 32 / width).map(|i| (0..width).map(|b| bit(i * width + b) << b).sum()).collect()
}

/// Random codes of `width` bits for a matrix, packed row after row.
pub fn packed(seed: u64, rows: usize, k: usize, width: usize) -> Array {
    let mut rng = Rng::new(seed);
    let codes: Vec<u32> = (0..rows * k).map(|_| rng.int(0, 1 << width) as u32).collect();
    Array::ints(DType::U32, &[rows, k * width / 32], &pack(&codes, width))
}

fn matvec_cases(all: &mut Vec<Case>) {
    let one = |name, file, dtype: DType, m: usize, k: usize, width: usize, group: usize| {
        Case::new(name, file, matvec)
            .with("w", packed(80, m, k, width))
            .with("scales", uniform(81, dtype, &[m, k / group], 0.01, 0.1))
            .with("biases", uniform(82, dtype, &[m, k / group], -0.5, 0.5))
            .with("x", normal(83, dtype, &[k]))
            .int("K", k as i64)
            .int("M", m as i64)
            .int("BITS", width as i64)
            .int("GROUP", group as i64)
            .ty("T", dtype)
            .close("y", dtype, &[m], 20.0 * eps(dtype), 4.0 * eps(dtype))
            .launch([32, m, 1], [32, 2, 1])
    };
    let words = kernel!("quant_matvec");
    all.push(one("quant_matvec_2bit", words, DType::F32, 9, 256, 2, 64).header(header!("quant_matvec")));
    all.push(one("quant_matvec_4bit_half", words, DType::F16, 6, 320, 4, 32).header(header!("quant_matvec")));
    all.push(
        one("quant_matvec_8bit_bfloat", words, DType::BF16, 5, 128, 8, 64).header(header!("quant_matvec")),
    );
    let bytes = kernel!("quant_matvec_bytes");
    all.push(one("quant_matvec_3bit", bytes, DType::F32, 7, 192, 3, 64));
    all.push(one("quant_matvec_6bit", bytes, DType::F32, 5, 128, 6, 32));
    let masked = kernel!("quant_matvec_masked");
    all.push(
        one("quant_matvec_4bit_masked", masked, DType::F16, 11, 512, 4, 64).launch([32, 6, 1], [32, 2, 1]),
    );
}

fn matvec(c: &Case) -> Vec<Expected> {
    let (s, b, x, group) = (c.f("scales"), c.f("biases"), c.f("x"), c.arg("GROUP"));
    let q = unpack(&c.i("w"), c.arg("BITS"));
    let k = x.len();
    let weight = |at: usize| s[at / group] * f64::from(q[at]) + b[at / group];
    let row = |r: usize| (0..k).map(|i| weight(r * k + i) * x[i]).sum();
    vec![Expected::Floats((0..q.len() / k).map(row).collect())]
}

fn decode_cases(all: &mut Vec<Case>) {
    let dequantized = |name, dtype: DType, m: usize, k: usize, group: usize| {
        Case::new(name, kernel!("dequantize"), dequantize)
            .with("w", packed(84, m, k, 4))
            .with("scales", uniform(85, dtype, &[m, k / group], 0.01, 0.1))
            .with("biases", uniform(86, dtype, &[m, k / group], -0.5, 0.5))
            .ty("T", dtype)
            .int("GROUP", group as i64)
            .close("out", dtype, &[m, k], 2.0 * eps(dtype), 2.0 * eps(dtype))
            .exact("codes", DType::U8, &[m, k])
            .launch([m * k / 8, 1, 1], [50, 1, 1])
    };
    all.push(dequantized("dequantize_4bit_half", DType::F16, 5, 192, 64));
    all.push(dequantized("dequantize_4bit_bfloat", DType::BF16, 3, 64, 32));

    let blocks = 21;
    let mxfp4 = |name, dtype: DType| {
        Case::new(name, kernel!("mxfp4_decode"), mxfp4_decode)
            .header(header!("mxfp4_decode"))
            .with("w", bits(87, DType::U32, &[blocks * 4]))
            .with("scales", integers(88, DType::U8, &[blocks], 120, 134))
            .ty("T", dtype)
            .exact("out", dtype, &[blocks * 32])
            .launch([blocks * 16, 1, 1], [64, 1, 1])
    };
    all.push(mxfp4("mxfp4_decode_float", DType::F32));
    all.push(mxfp4("mxfp4_decode_bfloat", DType::BF16));
}

fn dequantize(c: &Case) -> Vec<Expected> {
    let (s, b, group) = (c.f("scales"), c.f("biases"), c.arg("GROUP"));
    let q = unpack(&c.i("w"), 4);
    let value = |i: usize| s[i / group] * f64::from(q[i]) + b[i / group];
    vec![
        Expected::Floats((0..q.len()).map(value).collect()),
        Expected::Ints(q.iter().map(|v| i64::from(*v)).collect()),
    ]
}

fn mxfp4_decode(c: &Case) -> Vec<Expected> {
    let scales = c.i("scales");
    let value = |code: u32| {
        let (sign, exponent, mantissa) = (code >> 3, code >> 1 & 3, f64::from(code & 1));
        let size = if exponent == 0 {
            mantissa * 0.5
        } else {
            (1.0 + mantissa / 2.0) * 2f64.powi(exponent as i32 - 1)
        };
        if sign == 1 { -size } else { size }
    };
    let codes = unpack(&c.i("w"), 4);
    let scaled = |(i, code): (usize, &u32)| value(*code) * 2f64.powi(scales[i / 32] as i32 - 127);
    vec![Expected::Floats(codes.iter().enumerate().map(scaled).collect())]
}

fn cast_cases(all: &mut Vec<Case>) {
    // Words made of finite halves, so that comparisons are plain.
    let n = 75;
    let mut rng = Rng::new(89);
    let mut half_bits = || i64::from(f16::from_f64(rng.range(-10.0, 10.0)).to_bits());
    let words: Vec<i64> = (0..2 * n).map(|_| half_bits() | half_bits() << 16).collect();
    all.push(
        Case::new("half4_cast", kernel!("half4_cast"), half4_cast)
            .with("bits", Array::ints(DType::U32, &[2 * n], &words))
            .close("out", DType::F32, &[n], 1e-5, 1e-6)
            .exact("same", DType::Bool, &[n])
            .exact("repacked", DType::U32, &[n])
            .launch([n, 1, 1], [32, 1, 1]),
    );
}

fn half4_cast(c: &Case) -> Vec<Expected> {
    let words = c.i("bits");
    let half = |bits: i64| f16::from_bits(bits as u16).to_f64();
    let sum = |p: &[i64]| half(p[0]) + 2.0 * half(p[0] >> 16) - 0.5 * half(p[1]) + half(p[1] >> 16);
    vec![
        Expected::Floats(words.chunks(2).map(sum).collect()),
        Expected::Ints(vec![1; words.len() / 2]),
        Expected::Ints(words.chunks(2).map(|p| (p[1] >> 16) | (p[0] & 0xffff) << 16).collect()),
    ]
}

fn ternary_cases(all: &mut Vec<Case>) {
    let (m, k) = (13, 160);
    let mut rng = Rng::new(90);
    let codes: Vec<u32> = (0..m * k).map(|_| rng.int(0, 3) as u32).collect();
    let one = |name, dtype: DType| {
        Case::new(name, kernel!("ternary_matvec"), ternary)
            .with("w", Array::ints(DType::U32, &[m, k / 16], &pack(&codes, 2)))
            .with("x", integers(91, DType::I8, &[k], -128, 128))
            .with("w_scale", Array::scalar(DType::F32, 0.75))
            .with("x_scale", Array::scalar(DType::F32, 42.0))
            .ty("T", dtype)
            .int("K", k as i64)
            .close("y", dtype, &[m], 1e-6, 1e-6 + eps(dtype))
            .launch([32, m, 1], [32, 4, 1])
    };
    all.push(one("ternary_matvec_float", DType::F32));
    all.push(one("ternary_matvec_half", DType::F16));
}

fn ternary(c: &Case) -> Vec<Expected> {
    let (w, x) = (unpack(&c.i("w"), 2), c.i("x"));
    let scale = c.f("w_scale")[0] / c.f("x_scale")[0];
    let row = |r: &[u32]| r.iter().zip(&x).map(|(q, x)| (i64::from(*q) - 1) * x).sum::<i64>() as f64 * scale;
    vec![Expected::Floats(w.chunks(x.len()).map(row).collect())]
}
