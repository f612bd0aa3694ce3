//! Matrices of GGUF blocks: decoded, quantized, and multiplied without conversion. Blocks need no alignment.

use half::f16;
use hesper_types::GgmlType;

use super::columns::QuantColumns;
use super::decode::decode_block;
use super::gguf_dot::Tiles;
use super::int8;
use super::{Activations, as_bf16, bf16_panels, f32_panels, in_f32};
use crate::error::{Mismatch, at_least, multiple, product, same, supported};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, Shared, chunks, grain};
use crate::simd::{Float, FloatKind, Isa, Kernel, Local, dispatch};

/// Elements of a plain block.
pub(super) const BLOCK: usize = 32;
/// Elements of the largest block.
const MAX_BLOCK: usize = 256;
/// Most rows of activations for which blocks are decoded per tile. Up to here the result of a row is
/// bit-identical to that of the row alone.
pub(super) const MAX_TILED_ROWS: usize = 64;

/// A matrix of blocks, row by row.
#[derive(Clone, Copy, Debug)]
pub struct GgufMat<'a> {
    pub(super) kind: GgmlType,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) data: &'a [u8],
}

impl<'a> GgufMat<'a> {
    /// A matrix of `rows` x `cols` elements; rows are whole blocks.
    pub fn new(kind: GgmlType, rows: usize, cols: usize, data: &'a [u8]) -> Result<Self, Mismatch> {
        supported(kind.is_decoded(), "decoding this block type", "convert the file to a type that is")?;
        let unit = kind.block_len();
        multiple("columns of a matrix of blocks", unit, cols)?;
        let bytes = product("bytes of blocks", &[rows, cols / unit, kind.block_bytes()])?;
        at_least("bytes of blocks", bytes, data.len())?;
        Ok(Self { kind, rows, cols, data })
    }

    #[inline(always)]
    pub(super) fn block(&self, row: usize, b: usize) -> *const u8 {
        self.data
            .as_ptr()
            .wrapping_add((row * (self.cols / self.kind.block_len()) + b) * self.kind.block_bytes())
    }
}

/// Dequantizes the matrix.
pub fn gguf_dequantize<T: Float>(par: &dyn Par, w: &GgufMat<'_>, out: &mut [T]) -> Result<(), Mismatch> {
    same("dequantized elements", w.rows * w.cols, out.len())?;
    let (unit, simd) = (w.kind.block_len(), par.simd());
    let blocks = w.rows * w.cols / unit;
    let whole = GgufMat { kind: w.kind, rows: blocks, cols: unit, data: w.data };
    let to = Shared::new(out.as_mut_ptr());
    chunks(par, blocks, grain(par, blocks, 16384 / unit), |a, b| {
        let mut elements = [0.0f32; MAX_BLOCK];
        for i in a..b {
            let line = DecodeLine { w: &whole, row: i, from: 0, len: unit, dst: elements.as_mut_ptr() };
            dispatch(simd, Line(line));
            // SAFETY: the elements of block `i` are in the output, and in this task's part.
            let out = unsafe { to.slice(i * unit, unit) };
            for (o, v) in out.iter_mut().zip(elements) {
                *o = T::from_f32(v);
            }
        }
    });
    Ok(())
}

/// Quantizes elements to Q4_0, Q4_1 or Q8_0 blocks, as GGUF writers do.
pub fn gguf_quantize(kind: GgmlType, x: &[f32], out: &mut [u8]) -> Result<(), Mismatch> {
    supported(kind.is_plain(), "rounding to this block type", "give Q4_0, Q4_1 or Q8_0")?;
    multiple("elements to round", BLOCK, x.len())?;
    same("bytes of blocks", x.len() / BLOCK * kind.block_bytes(), out.len())?;
    for (x, out) in x.chunks_exact(BLOCK).zip(out.chunks_exact_mut(kind.block_bytes())) {
        let top = x.iter().copied().fold(0.0f32, |t, v| if v.abs() > t.abs() { v } else { t });
        let (d, low) = match kind {
            GgmlType::Q4_0 => (top / -8.0, 0.0),
            GgmlType::Q8_0 => (top.abs() / 127.0, 0.0),
            _ => {
                let low = x.iter().copied().fold(f32::INFINITY, f32::min);
                let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                ((high - low) / 15.0, low)
            }
        };
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        if kind == GgmlType::Q4_1 {
            out[2..4].copy_from_slice(&f16::from_f32(low).to_le_bytes());
        }
        let codes = &mut out[kind.head()..];
        if kind == GgmlType::Q8_0 {
            for (c, v) in codes.iter_mut().zip(x) {
                *c = (v * inverse).round() as i8 as u8;
            }
            continue;
        }
        let offset = if kind == GgmlType::Q4_0 { 8.5 } else { 0.5 };
        let code = |v: f32| (((v - low) * inverse + offset) as u8).min(15);
        for (i, c) in codes.iter_mut().enumerate() {
            *c = code(x[i]) | (code(x[i + 16]) << 4);
        }
    }
    Ok(())
}

/// `y = x w^T`.
pub fn gguf_matmul<T: Float>(
    par: &dyn Par,
    x: MatRef<'_, T>,
    w: &GgufMat<'_>,
    y: MatMut<'_, T>,
    activations: Activations,
) -> Result<(), Mismatch> {
    same("columns of the activations", w.cols, x.cols)?;
    same("rows of the result", x.rows, y.rows)?;
    same("columns of the result", w.rows, y.cols)?;
    if x.rows == 0 || w.rows == 0 {
        return Ok(());
    }
    if activations == Activations::Int8
        && let Some(w) = int8::ByteCodes::of_blocks(w)
    {
        in_f32(par, x, y, &|x, y| int8::product(par, x, &w, y));
        return Ok(());
    }
    let many = x.rows > MAX_TILED_ROWS && w.cols > 0;
    if many && T::KIND == FloatKind::Bf16 && par.simd().has_fast_bf16() {
        // SAFETY: `T` is `bf16`.
        let (a, c) = unsafe { as_bf16(x, y) };
        bf16_panels(par, a, QuantColumns::Blocks(*w), c);
        return Ok(());
    }
    in_f32(par, x, y, &|x, y| {
        if many {
            f32_panels(par, x, QuantColumns::Blocks(*w), y);
        } else {
            few_rows(par, x, w, y);
        }
    });
    Ok(())
}

/// A few rows: every row of blocks is decoded once and multiplied with all of them.
fn few_rows(par: &dyn Par, x: MatRef<'_, f32>, w: &GgufMat<'_>, y: &MatMut<'_, f32>) {
    let simd = par.simd();
    let chunk = grain(par, w.rows, (16384 / w.cols.max(1) / x.rows).max(1));
    let x = &Tiles::of(simd, x);
    chunks(par, w.rows, chunk, |j0, j1| {
        x.times(simd, w, j0, j1, &mut |j, sums| {
            for (i, sum) in sums.iter().enumerate() {
                // SAFETY: in the result, and this task alone writes it.
                unsafe { *y.at(i, j) = *sum };
            }
        });
    });
}

/// A part of a row of elements; whoever builds it guarantees what [`decode_line`] requires.
pub(super) struct DecodeLine<'a, 'b> {
    pub w: &'a GgufMat<'b>,
    pub row: usize,
    pub from: usize,
    pub len: usize,
    pub dst: *mut f32,
}

impl<S: Isa> Local<S> for DecodeLine<'_, '_> {
    #[inline(always)]
    fn run(self, s: S) {
        // SAFETY: guaranteed where it was built.
        unsafe { decode_line(s, &self) }
    }
}

/// [`DecodeLine`] as a kernel.
struct Line<'a, 'b>(DecodeLine<'a, 'b>);

impl Kernel for Line<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        // SAFETY: guaranteed where it was built.
        unsafe { decode_line(s, &self.0) }
    }
}

/// Decodes `len` elements of a row from `from` on.
///
/// # Safety
/// They exist, and `dst` has room for them.
#[inline(always)]
unsafe fn decode_line<S: Isa>(s: S, line: &DecodeLine<'_, '_>) {
    let DecodeLine { w, row, from, len, dst } = *line;
    let unit = w.kind.block_len();
    let mut i = 0;
    while i < len {
        let (b, inside) = ((from + i) / unit, (from + i) % unit);
        let n = (unit - inside).min(len - i);
        let mut elements = [0.0f32; MAX_BLOCK];
        // SAFETY: the caller's promise; `dst` has room for a whole block if all of it is requested.
        unsafe {
            let to = if n == unit { dst.add(i) } else { elements.as_mut_ptr() };
            let block = std::slice::from_raw_parts(w.block(row, b), w.kind.block_bytes());
            decode_block(s, w.kind, block, std::slice::from_raw_parts_mut(to, unit));
            if n < unit {
                std::ptr::copy_nonoverlapping(elements.as_ptr().add(inside), dst.add(i), n);
            }
        }
        i += n;
    }
}
