//! Quantization and dequantization, bit-identical to MLX.

use super::tables::{E2M1, e4m3, e8m0, to_e2m1, to_e4m3, to_e8m0};
use super::{QuantFormat, QuantMat};
use crate::affine_group::affine_group;
use crate::error::{Mismatch, multiple, product, same};
use crate::par::{Par, Shared, grain};
use crate::simd::Float;

/// Packs codes of `bits` bits, the first code lowest.
fn pack(codes: &[u8], bits: usize, out: &mut [u32]) {
    out.fill(0);
    for (i, &c) in codes.iter().enumerate() {
        let at = i * bits;
        let wide = u64::from(c) << (at % 32);
        out[at / 32] |= wide as u32;
        if at % 32 + bits > 32 {
            out[at / 32 + 1] |= (wide >> 32) as u32;
        }
    }
}

/// Quantizes rows of `cols` elements to an affine format; scales and biases are rounded to the input's type.
pub fn quantize_affine<T: Float>(
    par: &dyn Par,
    format: QuantFormat,
    w: &[T],
    cols: usize,
    packed: &mut [u32],
    scales: &mut [T],
    biases: &mut [T],
) -> Result<(), Mismatch> {
    let QuantFormat::Affine { bits, group } = format else {
        return Err(Mismatch::Unsupported {
            what: "rounding to this format with biases",
            instead: "use quantize_fp",
        });
    };
    let (rows, groups) = sizes(format, w.len(), cols, packed.len(), scales.len())?;
    same("biases", rows * groups, biases.len())?;
    let (packed, scales, biases) = (
        Shared::new(packed.as_mut_ptr()),
        Shared::new(scales.as_mut_ptr()),
        Shared::new(biases.as_mut_ptr()),
    );
    each_row(par, rows, cols, |row| {
        // SAFETY: rows do not overlap, and the sizes were checked.
        let (out, scales, biases) = unsafe {
            (
                packed.slice(row * format.words(cols), format.words(cols)),
                scales.slice(row * groups, groups),
                biases.slice(row * groups, groups),
            )
        };
        let mut codes = vec![0u8; cols];
        for g in 0..groups {
            let x = &w[row * cols + g * group..][..group];
            let (s, b) = affine_group(x, bits, &mut codes[g * group..][..group]);
            scales[g] = T::from_f32(s);
            biases[g] = T::from_f32(b);
        }
        pack(&codes, bits, out);
    });
    Ok(())
}

/// Quantizes rows of `cols` elements to one of the floating point formats.
pub fn quantize_fp<T: Float>(
    par: &dyn Par,
    format: QuantFormat,
    w: &[T],
    cols: usize,
    packed: &mut [u32],
    scales: &mut [u8],
) -> Result<(), Mismatch> {
    let (group, largest) = match format {
        QuantFormat::Affine { .. } => {
            return Err(Mismatch::Unsupported {
                what: "rounding to an affine format without biases",
                instead: "use quantize_affine",
            });
        }
        QuantFormat::Mxfp8 => (32, 448.0),
        _ => (format.group(), 6.0),
    };
    let (rows, groups) = sizes(format, w.len(), cols, packed.len(), scales.len())?;
    let (packed, scales) = (Shared::new(packed.as_mut_ptr()), Shared::new(scales.as_mut_ptr()));
    each_row(par, rows, cols, |row| {
        // SAFETY: rows do not overlap, and the sizes were checked.
        let (out, scales) = unsafe {
            (packed.slice(row * format.words(cols), format.words(cols)), scales.slice(row * groups, groups))
        };
        let mut codes = vec![0u8; cols];
        for g in 0..groups {
            let x = &w[row * cols + g * group..][..group];
            // The scale is computed in the input's precision, where it may underflow.
            let top = x.iter().fold(0.0f32, |m, v| m.max(v.to_f32().abs()));
            let top = T::from_f32(top / largest).to_f32();
            let (code, scale) = if format == QuantFormat::Nvfp4 {
                let c = to_e4m3(top);
                (c, e4m3(c))
            } else {
                let c = to_e8m0(top);
                (c, e8m0(c))
            };
            scales[g] = code;
            for (c, v) in codes[g * group..][..group].iter_mut().zip(x) {
                let v = if scale == 0.0 { 0.0 } else { v.to_f32() / scale };
                *c = if format == QuantFormat::Mxfp8 { to_e4m3(v) } else { to_e2m1(v) };
            }
        }
        pack(&codes, format.bits(), out);
    });
    Ok(())
}

/// Dequantizes the matrix to `T`: product and sum are each rounded to `T`, as in MLX.
pub fn dequantize<T: Float>(par: &dyn Par, w: &QuantMat<'_>, out: &mut [T]) -> Result<(), Mismatch> {
    same("dequantized elements", product("dequantized elements", &[w.rows, w.cols])?, out.len())?;
    let to = Shared::new(out.as_mut_ptr());
    let (bits, group) = (w.format.bits(), w.format.group());
    let affine = matches!(w.format, QuantFormat::Affine { .. });
    each_row(par, w.rows, w.cols, |row| {
        // SAFETY: rows do not overlap, and the size was checked.
        let out = unsafe { to.slice(row * w.cols, w.cols) };
        let words = &w.packed[row * w.row_words()..][..w.row_words()];
        for g in 0..w.row_groups() {
            let (scale, bias) = w.scale(row, g);
            for i in g * group..(g + 1) * group {
                let code = code(words, i, bits);
                out[i] = if affine {
                    T::from_f32(T::from_f32(code as f32 * scale).to_f32() + bias)
                } else if bits == 4 {
                    T::from_f32(E2M1[code as usize] * scale)
                } else {
                    T::from_f32(e4m3(code as u8) * scale)
                };
            }
        }
    });
    Ok(())
}

#[inline(always)]
fn code(words: &[u32], i: usize, bits: usize) -> u32 {
    let at = i * bits;
    let mut v = u64::from(words[at / 32]);
    if at % 32 + bits > 32 {
        v |= u64::from(words[at / 32 + 1]) << 32;
    }
    (v >> (at % 32)) as u32 & ((1 << bits) - 1)
}

fn sizes(
    format: QuantFormat,
    len: usize,
    cols: usize,
    packed: usize,
    scales: usize,
) -> Result<(usize, usize), Mismatch> {
    super::check(format, cols)?;
    let rows = len.checked_div(cols).unwrap_or(0);
    multiple("elements to round", cols, len)?;
    same("packed words", rows * format.words(cols), packed)?;
    let groups = cols / format.group();
    same("scales", rows * groups, scales)?;
    Ok((rows, groups))
}

fn each_row(par: &dyn Par, rows: usize, cols: usize, f: impl Fn(usize) + Sync) {
    let chunk = grain(par, rows, (16384 / cols.max(1)).max(1));
    crate::par::chunks(par, rows, chunk, |a, b| (a..b).for_each(&f));
}
