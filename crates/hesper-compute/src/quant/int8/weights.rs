//! Formats of weights that are multiplied as integers: how codes and scales become a panel.

use hesper_types::{GgmlType, QuantFormat};

use super::activations::{CodeOrder, Rounding};
use super::{BLOCK, CHUNK};
use crate::quant::gguf::GgufMat;
use crate::quant::{QuantMat, Scales};
use crate::simd::Isa;
#[cfg(target_arch = "x86_64")]
use crate::simd::unit_sums::RowCodes;

/// The low nibble of every byte.
const NIBBLES: u32 = 0x0f0f_0f0f;
/// The highest bit of every byte: flipping it adds 128 to a signed byte.
const SIGNS: u32 = 0x8080_8080;
/// Elements of a block of the K formats.
const SUPER_BLOCK: usize = 256;

/// A matrix of unsigned codes. An element is `scale * (code - zero) + offset`.
pub(in crate::quant) struct ByteCodes<'a> {
    matrix: Layout<'a>,
    /// What it requires of the activations.
    pub rounding: Rounding,
    /// Bytes of the codes of a row.
    row_bytes: usize,
    /// Elements of a block, and its bytes.
    block: (usize, usize),
}

/// The formats whose codes and scales are stored alike.
enum Layout<'a> {
    /// Blocks of 32 elements that begin with a scale: Q4_0, Q4_1, Q8_0.
    Blocks(GgufMat<'a>),
    /// Blocks of 256 elements: units of 32 with 6-bit scales and minima, and 4-bit codes.
    Q4K(GgufMat<'a>),
    /// Blocks of 256 elements: units of 16 with 8-bit scales, and 6-bit codes whose upper bits are stored
    /// separately.
    Q6K(GgufMat<'a>),
    /// MLX's codes of 4 or 8 bits, in order.
    Affine(QuantMat<'a>, usize),
}

impl<'a> ByteCodes<'a> {
    /// The codes of a matrix of blocks, if its format has them.
    pub(in crate::quant) fn of_blocks(w: &GgufMat<'a>) -> Option<Self> {
        let natural = |unit, zero| Rounding { order: CodeOrder::Natural, unit, zero };
        let (matrix, rounding) = match w.kind {
            GgmlType::Q4_0 => (Layout::Blocks(*w), natural(BLOCK, 8)),
            GgmlType::Q4_1 => (Layout::Blocks(*w), natural(BLOCK, 0)),
            GgmlType::Q8_0 => (Layout::Blocks(*w), natural(BLOCK, 128)),
            GgmlType::Q4_K => (Layout::Q4K(*w), natural(BLOCK, 0)),
            GgmlType::Q6_K => (Layout::Q6K(*w), natural(16, 32)),
            _ => return None,
        };
        let block = (w.kind.block_len(), w.kind.block_bytes());
        Some(Self { matrix, rounding, row_bytes: w.cols / block.0 * block.1, block })
    }

    /// The codes of a matrix in MLX's layout, if its format has them.
    pub(in crate::quant) fn of_affine(w: &QuantMat<'a>) -> Option<Self> {
        let (bits, order) = match w.format {
            QuantFormat::Affine { bits: 4, .. } => (4, CodeOrder::EvenOdd),
            QuantFormat::Affine { bits: 8, .. } => (8, CodeOrder::Natural),
            _ => return None,
        };
        let rounding = Rounding { order, unit: BLOCK, zero: 0 };
        let (row_bytes, block) = (4 * w.row_words(), (BLOCK, BLOCK * bits / 8));
        Some(Self { matrix: Layout::Affine(*w, bits), rounding, row_bytes, block })
    }

    /// Whether codes have eight bits.
    #[inline(always)]
    pub(super) fn is_wide(&self) -> bool {
        match &self.matrix {
            Layout::Blocks(w) => w.kind == GgmlType::Q8_0,
            Layout::Affine(_, bits) => *bits == 8,
            Layout::Q4K(_) | Layout::Q6K(_) => false,
        }
    }

    /// Whether elements have offsets. Formats whose code of zero is not zero have none.
    #[inline(always)]
    pub(super) fn has_offsets(&self) -> bool {
        self.rounding.zero == 0
    }

    /// Pointers to the codes of rows, from element `from` on.
    #[inline(always)]
    fn pointers(&self, rows: &[usize; 16], from: usize) -> RowPointers {
        let codes = match &self.matrix {
            Layout::Blocks(w) | Layout::Q4K(w) | Layout::Q6K(w) => w.block(0, 0),
            Layout::Affine(w, _) => w.packed.as_ptr().cast(),
        };
        let first = codes.wrapping_add(from / self.block.0 * self.block.1);
        let mut p = [first; 16];
        for (p, row) in p.iter_mut().zip(rows) {
            *p = p.wrapping_add(row * self.row_bytes);
        }
        p
    }

    /// Prefetches elements `from..from + len` of `LANES` rows, without their scales where these are stored
    /// separately.
    #[inline(always)]
    pub(super) fn prefetch<S: Isa>(&self, s: S, rows: &[usize; 16], from: usize, len: usize) {
        const LINE: usize = 64;
        let bytes = len / self.block.0 * self.block.1;
        for p in self.pointers(rows, from).into_iter().take(S::LANES) {
            for at in (0..bytes).step_by(LINE) {
                s.prefetch(p.wrapping_add(at));
            }
        }
    }

    /// Unpacks elements `from..from + len` of `LANES` rows: `len / 4` vectors, whose lanes hold four codes
    /// each, unit by unit.
    ///
    /// # Safety
    /// The rows have these elements, and there is room for a chunk.
    #[inline(always)]
    pub(super) unsafe fn unpack<S: Isa>(
        &self,
        s: S,
        rows: &[usize; 16],
        from: usize,
        len: usize,
        codes: *mut f32,
    ) {
        let p = self.pointers(rows, from);
        // SAFETY: the caller's promise.
        unsafe {
            match &self.matrix {
                Layout::Blocks(w) => {
                    let (head, bytes) = (w.kind.head(), self.block.1);
                    for b in 0..len / BLOCK {
                        let (at, to) = (b * bytes + head, codes.add(b * BLOCK / 4 * S::LANES));
                        if w.kind == GgmlType::Q8_0 {
                            unpack_bytes(s, &p, at, SIGNS, to);
                        } else {
                            split_nibbles(s, &p, at, to, to.add(4 * S::LANES), 1);
                        }
                    }
                }
                Layout::Q4K(_) => {
                    for b in 0..len / SUPER_BLOCK {
                        unpack_q4_k(s, &p, b * self.block.1, codes.add(b * SUPER_BLOCK / 4 * S::LANES));
                    }
                }
                Layout::Q6K(_) => {
                    for b in 0..len / SUPER_BLOCK {
                        unpack_q6_k(s, &p, b * self.block.1, codes.add(b * SUPER_BLOCK / 4 * S::LANES));
                    }
                }
                Layout::Affine(_, bits) => {
                    for b in 0..len / BLOCK {
                        let (at, to) = (b * BLOCK * bits / 8, codes.add(b * BLOCK / 4 * S::LANES));
                        if *bits == 4 {
                            split_nibbles(s, &p, at, to, to.add(S::LANES), 2);
                        } else {
                            unpack_bytes(s, &p, at, 0, to);
                        }
                    }
                }
            }
        }
    }

    /// Elements whose scales are widened together: of scales stored separately as many as a vector has lanes.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn scale_chunk(&self) -> usize {
        match &self.matrix {
            Layout::Affine(w, _) => w.format.group() * CHUNK / BLOCK,
            Layout::Blocks(_) | Layout::Q4K(_) | Layout::Q6K(_) => CHUNK,
        }
    }

    /// Widens the scales and offsets of elements `from..from + len` of `LANES` rows, unit by unit.
    ///
    /// # Safety
    /// As for [`ByteCodes::unpack`].
    #[inline(always)]
    pub(super) unsafe fn scales<S: Isa>(
        &self,
        s: S,
        rows: &[usize; 16],
        from: usize,
        len: usize,
        scales: *mut f32,
        offsets: *mut f32,
    ) {
        let p = self.pointers(rows, from);
        // SAFETY: the caller's promise.
        unsafe {
            match &self.matrix {
                Layout::Blocks(_) => {
                    block_scales(s, &p, self.block.1, 0, len / BLOCK, scales);
                    if self.has_offsets() {
                        block_scales(s, &p, self.block.1, 2, len / BLOCK, offsets);
                    }
                }
                Layout::Q4K(_) => {
                    for b in 0..len / SUPER_BLOCK {
                        let unit = b * (SUPER_BLOCK / BLOCK) * S::LANES;
                        q4_k_scales(s, &p, b * self.block.1, scales.add(unit), offsets.add(unit));
                    }
                }
                Layout::Q6K(_) => {
                    for b in 0..len / SUPER_BLOCK {
                        let unit = b * (SUPER_BLOCK / 16) * S::LANES;
                        q6_k_scales(s, &p, b * self.block.1, scales.add(unit));
                    }
                }
                Layout::Affine(w, _) => {
                    affine_scales(s, w, w.scales, rows, from, len, scales);
                    if let Some(biases) = w.biases {
                        affine_scales(s, w, biases, rows, from, len, offsets);
                    }
                }
            }
        }
    }

    /// Prefetches the scales of rows where they are stored separately.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn prefetch_scales<S: Isa>(&self, s: S, row: usize, count: usize) {
        let Layout::Affine(w, _) = &self.matrix else { return };
        for list in [Some(w.scales), w.biases].into_iter().flatten() {
            let (first, size) = match list {
                Scales::F32(list) => (list.as_ptr().cast::<u8>(), 4),
                Scales::F16(list) => (list.as_ptr().cast(), 2),
                Scales::Bf16(list) => (list.as_ptr().cast(), 2),
                Scales::Bytes(list) => (list.as_ptr(), 1),
            };
            let bytes = w.row_groups() * size;
            for at in (0..count * bytes).step_by(64) {
                s.prefetch(first.wrapping_add(row * bytes + at));
            }
        }
    }

    /// The first code of a row, and how the row stores its codes.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn row(&self, row: usize) -> (*const u8, RowCodes) {
        let stride = self.block.1;
        let first = self.pointers(&[row; 16], 0)[0];
        match &self.matrix {
            Layout::Blocks(w) => {
                let codes = match w.kind {
                    GgmlType::Q8_0 => RowCodes::Bytes { stride, signed: true },
                    _ => RowCodes::Nibbles { stride },
                };
                (first.wrapping_add(w.kind.head()), codes)
            }
            Layout::Q4K(_) => (first.wrapping_add(16), RowCodes::Halves { stride }),
            Layout::Q6K(_) => (first, RowCodes::Six { stride }),
            Layout::Affine(_, 4) => (first, RowCodes::InOrder),
            Layout::Affine(..) => (first, RowCodes::Bytes { stride, signed: false }),
        }
    }
}

// The functions below take no closures with vectors: a closure is not compiled for the level unless it
// happens to be inlined.

/// Pointers to the first unpacked elements of rows.
type RowPointers = [*const u8; 16];

/// Stores the low and the high nibbles of sixteen bytes of each row, from offset `at` on: four vectors each.
///
/// # Safety
/// The bytes are readable, and both have room.
#[inline(always)]
unsafe fn split_nibbles<S: Isa>(
    s: S,
    rows: &RowPointers,
    at: usize,
    low: *mut f32,
    high: *mut f32,
    apart: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (q, v) in s.words(rows, at).into_iter().enumerate() {
            s.store(low.add(q * apart * S::LANES), s.bits(v, 0, NIBBLES));
            s.store(high.add(q * apart * S::LANES), s.bits(v, 4, NIBBLES));
        }
    }
}

/// Stores 32 bytes of each row, from offset `at` on, with some bits flipped: eight vectors.
///
/// # Safety
/// The bytes are readable, and `to` has room.
#[inline(always)]
unsafe fn unpack_bytes<S: Isa>(s: S, rows: &RowPointers, at: usize, flipped: u32, to: *mut f32) {
    for half in 0..2 {
        // SAFETY: the caller's promise.
        unsafe {
            for (q, v) in s.words(rows, at + 16 * half).into_iter().enumerate() {
                s.store(to.add((4 * half + q) * S::LANES), s.flip(v, flipped));
            }
        }
    }
}

/// The halves at offset `at` of each of `units` blocks, unit by unit.
///
/// # Safety
/// The blocks are readable; there is room for a chunk.
#[inline(always)]
unsafe fn block_scales<S: Isa>(s: S, p: &RowPointers, bytes: usize, at: usize, units: usize, to: *mut f32) {
    let whole = units / S::LANES * S::LANES;
    // SAFETY: the caller's promise.
    unsafe {
        for u in (0..whole).step_by(S::LANES) {
            let mut rows = [s.zero(); 16];
            for (row, p) in rows.iter_mut().zip(p).take(S::LANES) {
                *row = s.halves(p.add(u * bytes + at), bytes);
            }
            s.transpose(&rows, to.add(u * S::LANES), S::LANES);
        }
        for u in whole..units {
            let halves = p.map(|p| p.add(u * bytes + at).cast::<u16>().read_unaligned());
            s.store(to.add(u * S::LANES), s.load_f16(halves.as_ptr()));
        }
    }
}

/// Byte `e` of each word, as a number.
#[inline(always)]
fn byte<S: Isa>(s: S, words: S::F, e: usize) -> S::F {
    s.int_to_float(s.bits(words, 8 * e as i32, 0xff))
}

/// Unpacks a block of 256 codes of each row.
///
/// # Safety
/// The rows have a block at offset `at`, and `to` has room.
#[inline(always)]
unsafe fn unpack_q4_k<S: Isa>(s: S, rows: &RowPointers, at: usize, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        // Two units share 32 bytes.
        for piece in 0..8 {
            let low = to.add((piece / 2 * 16 + piece % 2 * 4) * S::LANES);
            split_nibbles(s, rows, at + 16 + 16 * piece, low, low.add(8 * S::LANES), 1);
        }
    }
}

/// The scales and offsets of the units of a block of 256 elements.
///
/// # Safety
/// The rows have a block at offset `at`; there is room for its units.
#[inline(always)]
unsafe fn q4_k_scales<S: Isa>(s: S, rows: &RowPointers, at: usize, scales: *mut f32, offsets: *mut f32) {
    const SIX: u32 = 0x3f3f_3f3f;
    const TOP: u32 = 0x3030_3030;
    // SAFETY: the caller's promise.
    unsafe {
        let [heads, scale, minimum, upper] = s.words(rows, at);
        let d = s.low_halves(heads);
        let low = s.sub(s.zero(), s.low_halves(s.bits(heads, 16, 0xffff)));
        let words = [
            (s.bits(scale, 0, SIX), s.bits(minimum, 0, SIX)),
            (
                s.or(s.bits(upper, 0, NIBBLES), s.bits(scale, 2, TOP)),
                s.or(s.bits(upper, 4, NIBBLES), s.bits(minimum, 2, TOP)),
            ),
        ];
        for (half, (scale, minimum)) in words.into_iter().enumerate() {
            for e in 0..4 {
                let unit = (4 * half + e) * S::LANES;
                s.store(scales.add(unit), s.mul(byte(s, scale, e), d));
                s.store(offsets.add(unit), s.mul(byte(s, minimum, e), low));
            }
        }
    }
}

/// Unpacks a block of 256 codes of each row.
///
/// # Safety
/// The rows have a block at offset `at`, and `to` has room.
#[inline(always)]
unsafe fn unpack_q6_k<S: Isa>(s: S, rows: &RowPointers, at: usize, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        for part in 0..2 {
            for half in 0..2 {
                let at = at + 16 * half;
                // Four groups of 32 elements share the bytes of their upper two bits.
                let upper = s.words(rows, at + 128 + 32 * part);
                for pair in 0..2 {
                    let lower = s.words(rows, at + 64 * part + 32 * pair);
                    for (q, (low, high)) in lower.into_iter().zip(upper).enumerate() {
                        for nibble in 0..2 {
                            let group = 2 * nibble + pair;
                            let high = s.bits(high, 2 * group as i32 - 4, 0x3030_3030);
                            let code = s.or(s.bits(low, 4 * nibble as i32, NIBBLES), high);
                            let word = (128 * part + 32 * group + 16 * half) / 4 + q;
                            s.store(to.add(word * S::LANES), code);
                        }
                    }
                }
            }
        }
    }
}

/// The scales of the units of a block of 256 elements.
///
/// # Safety
/// The rows have a block at offset `at`; there is room for its units.
#[inline(always)]
unsafe fn q6_k_scales<S: Isa>(s: S, rows: &RowPointers, at: usize, scales: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        // The block ends with the scale of its scales.
        let [.., last] = s.words(rows, at + 194);
        let d = s.low_halves(s.bits(last, 16, 0xffff));
        // Scales are signed: 128 is added to each, and subtracted without another rounding.
        let low = s.mul(d, s.splat(-128.0));
        for (q, v) in s.words(rows, at + 192).into_iter().enumerate() {
            let v = s.flip(v, SIGNS);
            for e in 0..4 {
                s.store(scales.add((4 * q + e) * S::LANES), s.fma(byte(s, v, e), d, low));
            }
        }
    }
}

/// Scales or offsets in MLX's layout, for each unit of 32 elements.
///
/// # Safety
/// The rows have these elements; there is room for a chunk.
#[inline(always)]
unsafe fn affine_scales<S: Isa>(
    s: S,
    w: &QuantMat<'_>,
    list: Scales<'_>,
    rows: &[usize; 16],
    from: usize,
    len: usize,
    to: *mut f32,
) {
    let group = w.format.group();
    let (first, end) = (from / group, (from + len).div_ceil(group));
    let mut grouped = [0.0f32; CHUNK / BLOCK * 16];
    let target = if group == BLOCK { to } else { grouped.as_mut_ptr() };
    let mut g = 0;
    // SAFETY: the caller's promise: rows have these groups, and there is room for the units of a chunk.
    unsafe {
        while g < end - first {
            let mut lines = [s.zero(); 16];
            let n = (end - first - g).min(S::LANES);
            for (line, row) in lines.iter_mut().zip(rows).take(S::LANES) {
                let at = row * w.row_groups() + first + g;
                *line = match list {
                    Scales::F32(list) => s.load_n(list.as_ptr().add(at), n),
                    Scales::F16(list) if n == S::LANES => s.load_f16(list.as_ptr().add(at).cast()),
                    Scales::F16(list) => s.load_f16_n(list.as_ptr().add(at).cast(), n),
                    Scales::Bf16(list) if n == S::LANES => s.load_bf16(list.as_ptr().add(at).cast()),
                    Scales::Bf16(list) => s.load_bf16_n(list.as_ptr().add(at).cast(), n),
                    Scales::Bytes(_) => s.zero(),
                };
            }
            s.transpose(&lines, target.add(g * S::LANES), S::LANES);
            g += S::LANES;
        }
        if group != BLOCK {
            for u in 0..len / BLOCK {
                let g = (from + u * BLOCK) / group - first;
                s.store(to.add(u * S::LANES), s.load(grouped.as_ptr().add(g * S::LANES)));
            }
        }
    }
}
