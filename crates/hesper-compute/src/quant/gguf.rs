//! The blocks of GGUF files, multiplied as they lie in the file.
//!
//! A block holds 32 numbers: Q4_0 is a half `d` and nibbles `q` for `d (q - 8)`, Q4_1 halves `d` and `m` and
//! nibbles for `d q + m`, Q8_0 a half `d` and signed bytes for `d q`. The low nibbles of a block's sixteen
//! bytes are its first half, the high ones its second. Blocks begin at any address.

use half::f16;

use super::columns::QuantColumns;
use super::int8::{Order, Prepare, Ready};
use super::{Activations, as_bf16, in_f32, panels};
use crate::error::{Mismatch, at_least, product, same};
use crate::gemm::kind::{Pairs, Single};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, FloatKind, Isa, Kernel, Local, dispatch_dot};

/// Numbers of a block.
const BLOCK: usize = 32;
/// Rows of activations multiplied together.
const TILE: usize = 4;
/// Rows of activations up to which blocks are taken apart for each tile of them.
const FEW: usize = 2 * TILE;

/// A block layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufFormat {
    /// 4 bits, one scale.
    Q4_0,
    /// 4 bits, scale and minimum.
    Q4_1,
    /// 8 bits, one scale.
    Q8_0,
}

impl GgufFormat {
    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    /// Bytes before the codes.
    fn head(self) -> usize {
        if self == Self::Q4_1 { 4 } else { 2 }
    }
}

/// A matrix of blocks, row by row.
#[derive(Clone, Copy, Debug)]
pub struct GgufMat<'a> {
    format: GgufFormat,
    rows: usize,
    cols: usize,
    data: &'a [u8],
}

impl<'a> GgufMat<'a> {
    /// `rows` times `cols` numbers; `cols` is a multiple of 32.
    pub fn new(format: GgufFormat, rows: usize, cols: usize, data: &'a [u8]) -> Result<Self, Mismatch> {
        same("columns in whole blocks", cols / BLOCK * BLOCK, cols)?;
        let bytes = product("bytes of blocks", &[rows, cols / BLOCK, format.block_bytes()])?;
        at_least("bytes of blocks", bytes, data.len())?;
        Ok(Self { format, rows, cols, data })
    }

    fn block(&self, row: usize, b: usize) -> *const u8 {
        self.data.as_ptr().wrapping_add((row * (self.cols / BLOCK) + b) * self.format.block_bytes())
    }
}

/// Scale and offset of a block: its numbers are `scale * code + offset`, 8-bit codes taken as signed.
///
/// # Safety
/// The block is readable.
#[inline(always)]
unsafe fn head(format: GgufFormat, p: *const u8) -> (f32, f32) {
    // SAFETY: the caller's promise.
    let half = |i: usize| unsafe { f16::from_bits(p.add(i).cast::<u16>().read_unaligned()).to_f32() };
    let d = half(0);
    match format {
        GgufFormat::Q4_0 => (d, -8.0 * d),
        GgufFormat::Q4_1 => (d, half(2)),
        GgufFormat::Q8_0 => (d, 0.0),
    }
}

/// The 32 numbers of a block.
///
/// # Safety
/// The block is readable.
unsafe fn decode(format: GgufFormat, p: *const u8) -> [f32; BLOCK] {
    // SAFETY: the caller's promise.
    unsafe {
        let (d, o) = head(format, p);
        let q = p.add(format.head());
        std::array::from_fn(|i| match format {
            GgufFormat::Q8_0 => d * f32::from(*q.add(i) as i8),
            _ if i < 16 => d * f32::from(*q.add(i) & 15) + o,
            _ => d * f32::from(*q.add(i - 16) >> 4) + o,
        })
    }
}

/// Writes the numbers of the matrix.
pub fn gguf_dequantize<T: Float>(par: &dyn Par, w: &GgufMat<'_>, out: &mut [T]) -> Result<(), Mismatch> {
    same("dequantized elements", w.rows * w.cols, out.len())?;
    let blocks = w.rows * w.cols / BLOCK;
    let to = Shared::new(out.as_mut_ptr());
    chunks(par, blocks, grain(par, blocks, 512), |a, b| {
        for i in a..b {
            // SAFETY: block `i` is in the data, its numbers in the output, and in this task's part.
            let (out, p) = unsafe { (to.slice(i * BLOCK, BLOCK), w.block(0, i)) };
            // SAFETY: as above.
            for (o, v) in out.iter_mut().zip(unsafe { decode(w.format, p) }) {
                *o = T::from_f32(v);
            }
        }
    });
    Ok(())
}

/// Rounds numbers to blocks, as GGUF writers do.
pub fn gguf_quantize(format: GgufFormat, x: &[f32], out: &mut [u8]) -> Result<(), Mismatch> {
    same("elements in whole blocks", x.len() / BLOCK * BLOCK, x.len())?;
    same("bytes of blocks", x.len() / BLOCK * format.block_bytes(), out.len())?;
    for (x, out) in x.chunks_exact(BLOCK).zip(out.chunks_exact_mut(format.block_bytes())) {
        let top = x.iter().copied().fold(0.0f32, |t, v| if v.abs() > t.abs() { v } else { t });
        let (d, low) = match format {
            GgufFormat::Q4_0 => (top / -8.0, 0.0),
            GgufFormat::Q8_0 => (top.abs() / 127.0, 0.0),
            GgufFormat::Q4_1 => {
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
    let many = x.rows > FEW && activations == Activations::Exact && w.cols > 0;
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
        let chunk = grain(par, w.rows, (65536 / w.cols.max(1) / x.rows).max(1));
        if activations == Activations::Int8 {
            let order = if w.format == GgufFormat::Q8_0 { Order::Bytes } else { Order::Halves };
            let ready = dispatch_dot(simd, Prepare { x, order, group: BLOCK });
            let ready = &ready;
            chunks(par, w.rows, chunk, |j0, j1| dispatch_dot(simd, Int8Rows { w, x: ready, y, j0, j1 }));
        } else {
            let (m, x) = (x.rows, Shared::new(x.ptr.cast_mut()));
            chunks(par, w.rows, chunk, |j0, j1| dispatch_dot(simd, ExactRows { w, m, x, y, j0, j1 }));
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

/// Writes `len` numbers of a row from `from` on.
///
/// # Safety
/// They exist, and `dst` has room for them.
#[inline(always)]
unsafe fn decode_line<S: Isa>(s: S, line: &DecodeLine<'_, '_>) {
    let DecodeLine { w, row, from, len, dst } = *line;
    let mut i = 0;
    while i < len {
        let (b, inside) = ((from + i) / BLOCK, (from + i) % BLOCK);
        let n = (BLOCK - inside).min(len - i);
        let mut numbers = [0.0f32; BLOCK];
        // SAFETY: the caller's promise; a whole block fits where all of it is asked for.
        unsafe {
            let to = if n == BLOCK { dst.add(i) } else { numbers.as_mut_ptr() };
            decode_block(s, w.format, w.block(row, b), to);
            if n < BLOCK {
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
                s.store(to.add(e), s.mul(signed_bytes(s, q.add(e)), d));
                e += S::LANES;
            }
            return;
        }
        while e < BLOCK / 2 {
            let (low, high) = s.nibbles(q.add(e));
            s.store(to.add(e), s.fma(low, d, o));
            s.store(to.add(BLOCK / 2 + e), s.fma(high, d, o));
            e += S::LANES;
        }
    }
}

struct ExactRows<'a, 'b, 'c> {
    w: &'a GgufMat<'b>,
    m: usize,
    x: Shared<f32>,
    y: &'a MatMut<'c, f32>,
    j0: usize,
    j1: usize,
}

impl Kernel for ExactRows<'_, '_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { w, m, x, y, j0, j1 } = self;
        for j in j0..j1 {
            let mut i = 0;
            while i < m {
                let n = (m - i).min(TILE);
                let xs = x.get().wrapping_add(i * w.cols);
                macro_rules! tile {
                    ($n:literal) => {{
                        // SAFETY: row `j` and the rows `i..i + n` exist.
                        let sums = unsafe { exact_row::<S, $n>(s, w, xs, j) };
                        for (r, v) in sums.into_iter().enumerate() {
                            // SAFETY: in the result, and this task alone writes it.
                            unsafe { *y.at(i + r, j) = s.reduce_add(v) };
                        }
                    }};
                }
                match n {
                    4 => tile!(4),
                    3 => tile!(3),
                    2 => tile!(2),
                    _ => tile!(1),
                }
                i += n;
            }
        }
    }
}

/// # Safety
/// The row exists, and `x` holds `M` rows.
#[inline(always)]
unsafe fn exact_row<S: Isa, const M: usize>(s: S, w: &GgufMat<'_>, x: *const f32, j: usize) -> [S::F; M] {
    let mut total = [s.zero(); M];
    // SAFETY: the caller's promise.
    unsafe {
        for b in 0..w.cols / BLOCK {
            let p = w.block(j, b);
            let (d, o) = head(w.format, p);
            let q = p.add(w.format.head());
            let (d, o) = (s.splat(d), s.splat(o));
            let xs = x.add(b * BLOCK);
            let mut e = 0;
            if w.format == GgufFormat::Q8_0 {
                while e < BLOCK {
                    // Signed bytes: the sign bit is worth -128, which is 128 taken away after a flip.
                    let v = signed_bytes(s, q.add(e));
                    let v = s.mul(v, d);
                    for (m, t) in total.iter_mut().enumerate() {
                        *t = s.fma(v, s.load(xs.add(m * w.cols + e)), *t);
                    }
                    e += S::LANES;
                }
                continue;
            }
            while e < 16 {
                let (l, h) = s.nibbles(q.add(e));
                let (l, h) = (s.fma(l, d, o), s.fma(h, d, o));
                for (m, t) in total.iter_mut().enumerate() {
                    *t = s.fma(l, s.load(xs.add(m * w.cols + e)), *t);
                    *t = s.fma(h, s.load(xs.add(m * w.cols + 16 + e)), *t);
                }
                e += S::LANES;
            }
        }
    }
    total
}

/// `LANES` signed bytes as floats.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn signed_bytes<S: Isa>(s: S, p: *const u8) -> S::F {
    // SAFETY: the caller's promise.
    let v = unsafe { s.codes::<8>(p) };
    s.select(s.lt(v, s.splat(127.5)), v, s.sub(v, s.splat(256.0)))
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
        let blocks = w.cols / BLOCK;
        let room = x.groups + S::LANES;
        let heads = Scratch::<f32>::new(2 * room);
        let offsets = heads.ptr().wrapping_add(room);
        for g in 0..2 * room {
            // SAFETY: the buffer has that many elements.
            unsafe { *heads.ptr().add(g) = 0.0 };
        }
        for j in j0..j1 {
            for b in 0..blocks {
                // SAFETY: the block exists, and the buffers hold the blocks of a row.
                unsafe {
                    let (d, o) = head(w.format, w.block(j, b));
                    *heads.ptr().add(b) = d;
                    // A flipped sign bit adds 128 to every signed byte.
                    *offsets.add(b) = if w.format == GgufFormat::Q8_0 { -128.0 * d } else { o };
                }
            }
            for i in 0..x.rows {
                // SAFETY: the rows exist.
                let v = unsafe { int8_row(s, w, x, i, j, heads.ptr(), offsets) };
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
