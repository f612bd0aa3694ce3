//! The blocks of GGUF files, multiplied as they lie in the file.
//!
//! A block holds 32 numbers: Q4_0 is a half `d` and nibbles `q` for `d (q - 8)`, Q4_1 halves `d` and `m` and
//! nibbles for `d q + m`, Q8_0 a half `d` and signed bytes for `d q`. The low nibbles of a block's sixteen
//! bytes are its first half, the high ones its second. Other formats are decoded by [`super::wide`]. Blocks begin at any
//! address.

use half::f16;

use super::blocks::{Heads, Tiles};
use super::columns::QuantColumns;
use super::int8::{Order, Prepare, Ready};
use super::wide::decode_wide;
use super::{Activations, as_bf16, in_f32, panels};
use crate::error::{Mismatch, at_least, product, same};
use crate::gemm::kind::{Pairs, Single};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, Shared, chunks, grain};
use crate::simd::{Float, FloatKind, Isa, Kernel, Local, dispatch, dispatch_dot};

/// Numbers of a plain block.
pub(super) const BLOCK: usize = 32;
/// Numbers of the largest block.
const MOST: usize = 256;
/// Rows of activations up to which blocks are taken apart for each tile of them: each row then gives the
/// result that it gives alone.
pub(super) const FEW: usize = 64;
/// Rows of activations up to which rounding them to 8 bits pays.
const FEW_ROUNDED: usize = 4;

/// A block layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "these are their names")]
pub enum GgufFormat {
    /// 4 bits, one scale.
    Q4_0,
    /// 4 bits, scale and minimum.
    Q4_1,
    /// 8 bits, one scale.
    Q8_0,
    /// 5 bits, one scale.
    Q5_0,
    /// 5 bits, scale and minimum.
    Q5_1,
    /// 2 bits in groups of 16, each with a scale and a minimum of 4 bits.
    Q2_K,
    /// 3 bits in groups of 16, each with a scale of 6 bits.
    Q3_K,
    /// 4 bits in groups of 32, each with a scale and a minimum of 6 bits.
    Q4_K,
    /// 5 bits in groups of 32, each with a scale and a minimum of 6 bits.
    Q5_K,
    /// 6 bits in groups of 16, each with a scale of 8 bits.
    Q6_K,
}

impl GgufFormat {
    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Numbers of a block.
    pub fn block_len(self) -> usize {
        match self {
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
            _ => BLOCK,
        }
    }

    /// Whether blocks are multiplied code by code; the others are decoded row by row first.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q4_1 | Self::Q8_0)
    }

    /// Bytes before the codes.
    pub(super) fn head(self) -> usize {
        if self == Self::Q4_1 { 4 } else { 2 }
    }
}

/// A matrix of blocks, row by row.
#[derive(Clone, Copy, Debug)]
pub struct GgufMat<'a> {
    pub(super) format: GgufFormat,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) data: &'a [u8],
}

impl<'a> GgufMat<'a> {
    /// `rows` times `cols` numbers; rows are whole blocks.
    pub fn new(format: GgufFormat, rows: usize, cols: usize, data: &'a [u8]) -> Result<Self, Mismatch> {
        let unit = format.block_len();
        same("columns in whole blocks", cols / unit * unit, cols)?;
        let bytes = product("bytes of blocks", &[rows, cols / unit, format.block_bytes()])?;
        at_least("bytes of blocks", bytes, data.len())?;
        Ok(Self { format, rows, cols, data })
    }

    pub(super) fn block(&self, row: usize, b: usize) -> *const u8 {
        self.data
            .as_ptr()
            .wrapping_add((row * (self.cols / self.format.block_len()) + b) * self.format.block_bytes())
    }
}

/// A half as a float, in a few instructions that every processor has: a row has one for every 32 numbers,
/// and a call would cost more than their products.
#[inline(always)]
pub(super) fn widen(half: u16) -> f32 {
    const UP: f32 = f32::from_bits((127 + 112) << 23);
    let half = u32::from(half);
    let bits = (half & 0x7fff) << 13;
    let finite = (f32::from_bits(bits) * UP).to_bits();
    // Infinities and what is no number have the largest exponent, which the factor does not reach.
    let special = u32::from(half & 0x7c00 == 0x7c00).wrapping_neg() & 0x7f80_0000;
    f32::from_bits(finite | special | (half & 0x8000) << 16)
}

/// Scale and offset of a block: its numbers are `scale * code + offset`, 8-bit codes taken as signed.
///
/// # Safety
/// The block is readable.
#[inline(always)]
unsafe fn head(format: GgufFormat, p: *const u8) -> (f32, f32) {
    // SAFETY: the caller's promise.
    let half = |i: usize| widen(unsafe { p.add(i).cast::<u16>().read_unaligned() });
    let d = half(0);
    match format {
        GgufFormat::Q4_0 => (d, -8.0 * d),
        GgufFormat::Q4_1 => (d, half(2)),
        _ => (d, 0.0),
    }
}

/// Writes the numbers of the matrix.
pub fn gguf_dequantize<T: Float>(par: &dyn Par, w: &GgufMat<'_>, out: &mut [T]) -> Result<(), Mismatch> {
    same("dequantized elements", w.rows * w.cols, out.len())?;
    let (unit, simd) = (w.format.block_len(), par.simd());
    let blocks = w.rows * w.cols / unit;
    let whole = GgufMat { format: w.format, rows: blocks, cols: unit, data: w.data };
    let to = Shared::new(out.as_mut_ptr());
    chunks(par, blocks, grain(par, blocks, 16384 / unit), |a, b| {
        let mut numbers = [0.0f32; MOST];
        for i in a..b {
            let line = DecodeLine { w: &whole, row: i, from: 0, len: unit, dst: numbers.as_mut_ptr() };
            dispatch(simd, Line(line));
            // SAFETY: the numbers of block `i` are in the output, and in this task's part.
            let out = unsafe { to.slice(i * unit, unit) };
            for (o, v) in out.iter_mut().zip(numbers) {
                *o = T::from_f32(v);
            }
        }
    });
    Ok(())
}

/// Rounds numbers to blocks, as GGUF writers do: to those of Q4_0, Q4_1 and Q8_0.
pub fn gguf_quantize(format: GgufFormat, x: &[f32], out: &mut [u8]) -> Result<(), Mismatch> {
    same("formats that numbers can be rounded to", 1, usize::from(format.is_plain()))?;
    same("elements in whole blocks", x.len() / BLOCK * BLOCK, x.len())?;
    same("bytes of blocks", x.len() / BLOCK * format.block_bytes(), out.len())?;
    for (x, out) in x.chunks_exact(BLOCK).zip(out.chunks_exact_mut(format.block_bytes())) {
        let top = x.iter().copied().fold(0.0f32, |t, v| if v.abs() > t.abs() { v } else { t });
        let (d, low) = match format {
            GgufFormat::Q4_0 => (top / -8.0, 0.0),
            GgufFormat::Q8_0 => (top.abs() / 127.0, 0.0),
            _ => {
                let low = x.iter().copied().fold(f32::INFINITY, f32::min);
                let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                ((high - low) / 15.0, low)
            }
        };
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        if format == GgufFormat::Q4_1 {
            out[2..4].copy_from_slice(&f16::from_f32(low).to_le_bytes());
        }
        let codes = &mut out[format.head()..];
        if format == GgufFormat::Q8_0 {
            for (c, v) in codes.iter_mut().zip(x) {
                *c = (v * inverse).round() as i8 as u8;
            }
            continue;
        }
        let offset = if format == GgufFormat::Q4_0 { 8.5 } else { 0.5 };
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
    let many = x.rows > FEW && w.cols > 0;
    if many && T::KIND == FloatKind::Bf16 && par.simd().has_fast_bf16() {
        // SAFETY: `T` is `bf16`.
        let (a, c) = unsafe { as_bf16(x, y) };
        panels::<Pairs>(par, a, QuantColumns::Blocks(*w), c);
        return Ok(());
    }
    in_f32(par, x, y, &|x, y| {
        if many {
            // SAFETY: the same view, which nobody else writes.
            let y = unsafe { MatMut::from_raw(y.ptr, y.rows, y.cols, y.row_stride, y.col_stride) };
            return panels::<Single<f32>>(par, x, QuantColumns::Blocks(*w), y);
        }
        let simd = par.simd();
        let chunk = grain(par, w.rows, (16384 / w.cols.max(1) / x.rows).max(1));
        if activations == Activations::Int8 && x.rows <= FEW_ROUNDED && w.format.is_plain() {
            let order = if w.format == GgufFormat::Q8_0 { Order::Bytes } else { Order::Halves };
            let ready = dispatch_dot(simd, Prepare { x, order, group: BLOCK });
            let ready = &ready;
            chunks(par, w.rows, chunk, |j0, j1| dispatch_dot(simd, Int8Rows { w, x: ready, y, j0, j1 }));
        } else {
            let x = Tiles::of(simd, x);
            let x = &x;
            chunks(par, w.rows, chunk, |j0, j1| {
                x.times(simd, w, j0, j1, &mut |j, sums| {
                    for (i, sum) in sums.iter().enumerate() {
                        // SAFETY: in the result, and this task alone writes it.
                        unsafe { *y.at(i, j) = *sum };
                    }
                });
            });
        }
    });
    Ok(())
}

/// A part of a row of numbers; whoever makes one promises what [`decode_line`] asks for.
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
        // SAFETY: the maker's promise.
        unsafe { decode_line(s, &self) }
    }
}

/// The same as a kernel.
struct Line<'a, 'b>(DecodeLine<'a, 'b>);

impl Kernel for Line<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        // SAFETY: the maker's promise.
        unsafe { decode_line(s, &self.0) }
    }
}

/// Writes `len` numbers of a row from `from` on.
///
/// # Safety
/// They exist, and `dst` has room for them.
#[inline(always)]
pub(super) unsafe fn decode_line<S: Isa>(s: S, line: &DecodeLine<'_, '_>) {
    let DecodeLine { w, row, from, len, dst } = *line;
    let unit = w.format.block_len();
    let mut i = 0;
    while i < len {
        let (b, inside) = ((from + i) / unit, (from + i) % unit);
        let n = (unit - inside).min(len - i);
        let mut numbers = [0.0f32; MOST];
        // SAFETY: the caller's promise; a whole block fits where all of it is asked for.
        unsafe {
            let to = if n == unit { dst.add(i) } else { numbers.as_mut_ptr() };
            match w.format.is_plain() {
                true => decode_block(s, w.format, w.block(row, b), to),
                false => decode_wide(w.format, w.block(row, b), to),
            }
            if n < unit {
                std::ptr::copy_nonoverlapping(numbers.as_ptr().add(inside), dst.add(i), n);
            }
        }
        i += n;
    }
}

/// The 32 numbers of a block, in vectors.
///
/// # Safety
/// The block is readable, and `to` has room.
#[inline(always)]
unsafe fn decode_block<S: Isa>(s: S, format: GgufFormat, p: *const u8, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let (d, o) = head(format, p);
        let (q, d, o) = (p.add(format.head()), s.splat(d), s.splat(o));
        let mut e = 0;
        if format == GgufFormat::Q8_0 {
            while e < BLOCK {
                s.store(to.add(e), s.mul(s.signed(q.add(e)), d));
                e += S::LANES;
            }
            return;
        }
        while e < BLOCK / 2 {
            let (low, high) = s.nibbles(q.add(e), d, o);
            s.store(to.add(e), low);
            s.store(to.add(BLOCK / 2 + e), high);
            e += S::LANES;
        }
    }
}

struct Int8Rows<'a, 'b, 'c> {
    w: &'a GgufMat<'b>,
    x: &'a Ready,
    y: &'a MatMut<'c, f32>,
    j0: usize,
    j1: usize,
}

impl Kernel for Int8Rows<'_, '_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { w, x, y, j0, j1 } = self;
        let heads = Heads::new(w.cols / BLOCK);
        for j in j0..j1 {
            heads.read(s, w, j, 1);
            if w.format == GgufFormat::Q8_0 {
                for b in 0..w.cols / BLOCK {
                    // A flipped sign bit adds 128 to every signed byte.
                    // SAFETY: the buffers hold the blocks of a row.
                    unsafe { *heads.offsets().add(b) = -128.0 * *heads.scales().add(b) };
                }
            }
            for i in 0..x.rows {
                // SAFETY: the rows exist.
                let v = unsafe { int8_row(s, w, x, i, j, heads.scales(), heads.offsets()) };
                // SAFETY: in the result, and this task alone writes it.
                unsafe { *y.at(i, j) = v };
            }
        }
    }
}

/// # Safety
/// The rows exist; scales and offsets hold the blocks and a vector more.
#[inline(always)]
unsafe fn int8_row<S: Isa>(
    s: S,
    w: &GgufMat<'_>,
    x: &Ready,
    i: usize,
    j: usize,
    scales: *const f32,
    offsets: *const f32,
) -> f32 {
    let blocks = w.cols / BLOCK;
    let mut total = s.zero();
    // SAFETY: the caller's promise; a block past the end stands for the last, with scale zero.
    unsafe {
        let codes = |b: usize| w.block(j, b.min(blocks - 1)).add(w.format.head());
        let bytes = x.bytes.ptr().add(i * x.padded);
        if w.format == GgufFormat::Q8_0 {
            // Eight lanes are a block.
            let per = S::LANES / 8;
            for v in 0..blocks.div_ceil(per) {
                let (b, c) = (codes(v * per), codes(v * per + 1));
                let q = s.pieces([b, b.add(16), c, c.add(16)]);
                let d = s.dot_u8(q, 0x80, bytes.add(v * per * BLOCK));
                let step = s.load(x.scales.ptr().add(i * x.lanes + v * S::LANES));
                total = s.fma(d, s.mul(step, s.repeat(scales.add(v * per), 8)), total);
            }
        } else {
            // Four lanes are a block: low nibbles its first half, high ones its second.
            let per = S::LANES / 4;
            for v in 0..blocks.div_ceil(per) {
                let at = v * per;
                let q = s.pieces([codes(at), codes(at + 1), codes(at + 2), codes(at + 3)]);
                let d = s.dot_u4(q, bytes.add(at * BLOCK));
                let step = s.load(x.scales.ptr().add(i * x.lanes + v * S::LANES));
                total = s.fma(d, s.mul(step, s.repeat(scales.add(at), 4)), total);
            }
        }
        let mut g = 0;
        while g < x.groups {
            let o = s.load(offsets.add(g));
            total = s.fma(o, s.load(x.sums.ptr().add(i * x.groups + g)), total);
            g += S::LANES;
        }
    }
    s.reduce_add(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_widened_as_the_type_says() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (widen(bits), f16::from_bits(bits).to_f32());
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{bits:#06x}: {ours} and {theirs}"
            );
        }
    }
}
