//! Formats of weights that are multiplied as integers: how codes and scales become a panel.

use hesper_types::{GgmlType, QuantFormat};

use super::activations::{CodeOrder, Rounding};
use super::{BLOCK, CHUNK};
use crate::quant::decode::widen;
use crate::quant::gguf::GgufMat;
use crate::quant::{QuantMat, Scales};
use crate::simd::Isa;

/// The low nibble of every byte.
const NIBBLES: u32 = 0x0f0f_0f0f;
/// The highest bit of every byte: flipping it adds 128 to a signed byte.
const SIGNS: u32 = 0x8080_8080;

/// A matrix of unsigned codes. An element is `scale * (code - zero) + offset`.
pub(in crate::quant) struct ByteCodes<'a> {
    matrix: Layout<'a>,
    /// What it requires of the activations.
    pub rounding: Rounding,
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
        Some(Self { matrix, rounding })
    }

    /// The codes of a matrix in MLX's layout, if its format has them.
    pub(in crate::quant) fn of_affine(w: &QuantMat<'a>) -> Option<Self> {
        let (bits, order) = match w.format {
            QuantFormat::Affine { bits: 4, .. } => (4, CodeOrder::EvenOdd),
            QuantFormat::Affine { bits: 8, .. } => (8, CodeOrder::Natural),
            _ => return None,
        };
        Some(Self { matrix: Layout::Affine(*w, bits), rounding: Rounding { order, unit: BLOCK, zero: 0 } })
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

    /// Unpacks elements `from..from + len` of `LANES` rows: `len / 4` vectors, whose lanes hold four codes
    /// each, and the scales and offsets of their units, unit by unit.
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
        scales: *mut f32,
        offsets: *mut f32,
    ) {
        let to = |at: usize| codes.wrapping_add(at / 4 * S::LANES);
        // SAFETY: the caller's promise.
        unsafe {
            match &self.matrix {
                Layout::Blocks(w) => {
                    for at in (0..len).step_by(BLOCK) {
                        unpack_block(s, w, rows, from + at, to(at));
                    }
                    block_scales(s, w, rows, from, len, scales, self.has_offsets().then_some(offsets));
                }
                Layout::Q4K(w) => {
                    for at in (0..len).step_by(256) {
                        unpack_q4_k(s, w, rows, from + at, to(at));
                    }
                    q4_k_scales(s, w, rows, from, len, scales, offsets);
                }
                Layout::Q6K(w) => {
                    for at in (0..len).step_by(256) {
                        unpack_q6_k(s, w, rows, from + at, to(at));
                    }
                    q6_k_scales(s, w, rows, from, len, scales);
                }
                Layout::Affine(w, bits) => {
                    for at in (0..len).step_by(BLOCK) {
                        unpack_affine(s, w, *bits, rows, from + at, to(at));
                    }
                    affine_scales(s, w, rows, from, len, scales, offsets);
                }
            }
        }
    }
}

/// Pointers to rows.
#[inline(always)]
fn pointers(rows: &[usize; 16], row: impl Fn(usize) -> *const u8) -> [*const u8; 16] {
    std::array::from_fn(|r| row(rows[r]))
}

/// Stores the low and the high nibbles of sixteen bytes of each row: four vectors each.
///
/// # Safety
/// The bytes are readable, and both have room.
#[inline(always)]
unsafe fn split_nibbles<S: Isa>(s: S, rows: &[*const u8; 16], low: *mut f32, high: *mut f32, apart: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        for (q, v) in s.words(rows).into_iter().enumerate() {
            s.store(low.add(q * apart * S::LANES), s.bits(v, 0, NIBBLES));
            s.store(high.add(q * apart * S::LANES), s.bits(v, 4, NIBBLES));
        }
    }
}

/// Transposes per-unit values from row order to unit order: `value(r, u)` has those of units `u..u + LANES`
/// of row `r`.
///
/// # Safety
/// There is room for the units, rounded up to whole vectors.
#[inline(always)]
unsafe fn by_unit<S: Isa>(s: S, units: usize, value: impl Fn(usize, usize) -> S::F, to: *mut f32) {
    let mut u = 0;
    while u < units {
        let mut rows = [s.zero(); 16];
        for (r, row) in rows.iter_mut().enumerate().take(S::LANES) {
            *row = value(r, u);
        }
        // SAFETY: the caller's promise.
        unsafe { s.transpose(&rows, to.add(u * S::LANES), S::LANES) };
        u += S::LANES;
    }
}

/// Unpacks a block of 32 codes of each row.
///
/// # Safety
/// The rows have these elements, and `to` has room.
#[inline(always)]
unsafe fn unpack_block<S: Isa>(s: S, w: &GgufMat<'_>, rows: &[usize; 16], from: usize, to: *mut f32) {
    let p = pointers(rows, |row| w.block(row, from / BLOCK).wrapping_add(w.kind.head()));
    // SAFETY: the caller's promise.
    unsafe {
        if w.kind == GgmlType::Q8_0 {
            unpack_bytes(s, &p, SIGNS, to);
        } else {
            split_nibbles(s, &p, to, to.add(4 * S::LANES), 1);
        }
    }
}

/// Stores 32 bytes of each row, with some bits flipped: eight vectors.
///
/// # Safety
/// The bytes are readable, and `to` has room.
#[inline(always)]
unsafe fn unpack_bytes<S: Isa>(s: S, rows: &[*const u8; 16], flipped: u32, to: *mut f32) {
    for half in 0..2 {
        // SAFETY: the caller's promise.
        unsafe {
            for (q, v) in s.words(&rows.map(|p| p.wrapping_add(16 * half))).into_iter().enumerate() {
                s.store(to.add((4 * half + q) * S::LANES), s.flip(v, flipped));
            }
        }
    }
}

/// The scales, and offsets if they are asked for, at the start of blocks of 32 elements.
///
/// # Safety
/// The rows have these elements; there is room for a chunk.
#[inline(always)]
unsafe fn block_scales<S: Isa>(
    s: S,
    w: &GgufMat<'_>,
    rows: &[usize; 16],
    from: usize,
    len: usize,
    scales: *mut f32,
    offsets: Option<*mut f32>,
) {
    let (bytes, units) = (w.kind.block_bytes(), len / BLOCK);
    let p = pointers(rows, |row| w.block(row, from / BLOCK));
    for (field, to) in [Some(scales), offsets].into_iter().flatten().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let head = |r: usize, u: usize| {
                s.halves(p[r].wrapping_add(u * bytes + 2 * field), bytes, (units - u).min(S::LANES))
            };
            by_unit(s, units, head, to);
        }
    }
}

/// Widens the half at each pointer.
///
/// # Safety
/// The halves are readable.
#[inline(always)]
unsafe fn head<S: Isa>(s: S, rows: &[*const u8; 16]) -> S::F {
    let mut values = [0.0f32; 16];
    for (value, row) in values.iter_mut().zip(rows) {
        // SAFETY: the caller's promise.
        *value = widen(unsafe { row.cast::<u16>().read_unaligned() });
    }
    // SAFETY: a vector has at most sixteen lanes.
    unsafe { s.load(values.as_ptr()) }
}

/// Unpacks a block of 256 codes of each row.
///
/// # Safety
/// The rows have these elements, and `to` has room.
#[inline(always)]
unsafe fn unpack_q4_k<S: Isa>(s: S, w: &GgufMat<'_>, rows: &[usize; 16], from: usize, to: *mut f32) {
    let p = pointers(rows, |row| w.block(row, from / 256).wrapping_add(16));
    // SAFETY: the caller's promise.
    unsafe {
        // Two units share 32 bytes.
        for piece in 0..8 {
            let low = to.add((piece / 2 * 16 + piece % 2 * 4) * S::LANES);
            let p = p.map(|p| p.wrapping_add(16 * piece));
            split_nibbles(s, &p, low, low.add(8 * S::LANES), 1);
        }
    }
}

/// The scales of the units of blocks of 256 elements.
///
/// # Safety
/// The rows have these elements; there is room for a chunk.
#[inline(always)]
unsafe fn q4_k_scales<S: Isa>(
    s: S,
    w: &GgufMat<'_>,
    rows: &[usize; 16],
    from: usize,
    len: usize,
    scales: *mut f32,
    offsets: *mut f32,
) {
    for b in 0..len / 256 {
        let p = pointers(rows, |row| w.block(row, from / 256 + b));
        // SAFETY: the caller's promise.
        unsafe {
            let d = head(s, &p);
            let low = s.sub(s.zero(), head(s, &p.map(|p| p.wrapping_add(2))));
            let [_, scale, minimum, upper] = s.words(&p);
            let top = |v| s.bits(v, 2, 0x3030_3030);
            let six = 0x3f3f_3f3f;
            let words = [
                (s.bits(scale, 0, six), s.bits(minimum, 0, six)),
                (s.or(s.bits(upper, 0, NIBBLES), top(scale)), s.or(s.bits(upper, 4, NIBBLES), top(minimum))),
            ];
            for (half, (scale, minimum)) in words.into_iter().enumerate() {
                for e in 0..4 {
                    let at = (8 * b + 4 * half + e) * S::LANES;
                    let number = |v| s.int_to_float(s.bits(v, 8 * e as i32, 0xff));
                    s.store(scales.add(at), s.mul(number(scale), d));
                    s.store(offsets.add(at), s.mul(number(minimum), low));
                }
            }
        }
    }
}

/// Unpacks a block of 256 codes of each row.
///
/// # Safety
/// The rows have these elements, and `to` has room.
#[inline(always)]
unsafe fn unpack_q6_k<S: Isa>(s: S, w: &GgufMat<'_>, rows: &[usize; 16], from: usize, to: *mut f32) {
    let p = pointers(rows, |row| w.block(row, from / 256));
    // SAFETY: the caller's promise.
    unsafe {
        for part in 0..2 {
            for half in 0..2 {
                let at = |offset: usize| p.map(|p| p.wrapping_add(offset + 16 * half));
                // Four groups of 32 elements share the bytes of their upper two bits.
                let upper = s.words(&at(128 + 32 * part));
                for pair in 0..2 {
                    let lower = s.words(&at(64 * part + 32 * pair));
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

/// The scales of the units of blocks of 256 elements.
///
/// # Safety
/// The rows have these elements; there is room for a chunk.
#[inline(always)]
unsafe fn q6_k_scales<S: Isa>(
    s: S,
    w: &GgufMat<'_>,
    rows: &[usize; 16],
    from: usize,
    len: usize,
    scales: *mut f32,
) {
    for b in 0..len / 256 {
        let p = pointers(rows, |row| w.block(row, from / 256 + b).wrapping_add(192));
        // SAFETY: the caller's promise.
        unsafe {
            let d = head(s, &p.map(|p| p.wrapping_add(16)));
            // Scales are signed: 128 is added to each, and subtracted without another rounding.
            let low = s.mul(d, s.splat(-128.0));
            for (q, v) in s.words(&p).into_iter().enumerate() {
                let v = s.flip(v, SIGNS);
                for e in 0..4 {
                    let scale = s.int_to_float(s.bits(v, 8 * e as i32, 0xff));
                    s.store(scales.add((16 * b + 4 * q + e) * S::LANES), s.fma(scale, d, low));
                }
            }
        }
    }
}

/// Unpacks 32 codes of each row in MLX's layout.
///
/// # Safety
/// The rows have these elements, and `to` has room.
#[inline(always)]
unsafe fn unpack_affine<S: Isa>(
    s: S,
    w: &QuantMat<'_>,
    bits: usize,
    rows: &[usize; 16],
    from: usize,
    to: *mut f32,
) {
    let word = from * bits / 32;
    let p = pointers(rows, |row| w.packed.as_ptr().wrapping_add(row * w.row_words() + word).cast());
    // SAFETY: the caller's promise.
    unsafe {
        if bits == 4 {
            split_nibbles(s, &p, to, to.add(S::LANES), 2);
        } else {
            unpack_bytes(s, &p, 0, to);
        }
    }
}

/// Scales and offsets in MLX's layout, for each unit of 32 elements.
///
/// # Safety
/// The rows have these elements; there is room for a chunk.
#[inline(always)]
unsafe fn affine_scales<S: Isa>(
    s: S,
    w: &QuantMat<'_>,
    rows: &[usize; 16],
    from: usize,
    len: usize,
    scales: *mut f32,
    offsets: *mut f32,
) {
    let group = w.format.group();
    let (first, end) = (from / group, (from + len).div_ceil(group));
    let each = |list: Scales<'_>, to: *mut f32| {
        let mut grouped = [0.0f32; CHUNK / BLOCK * 16];
        // SAFETY: the caller's promise: rows have these groups, and there is room for the units of a chunk.
        unsafe {
            let value = |r: usize, g: usize| {
                let (at, n) = (rows[r] * w.row_groups() + first + g, (end - first - g).min(S::LANES));
                match list {
                    Scales::F32(list) => s.load_n(list.as_ptr().add(at), n),
                    Scales::F16(list) if n == S::LANES => s.load_f16(list.as_ptr().add(at).cast()),
                    Scales::F16(list) => s.load_f16_n(list.as_ptr().add(at).cast(), n),
                    Scales::Bf16(list) if n == S::LANES => s.load_bf16(list.as_ptr().add(at).cast()),
                    Scales::Bf16(list) => s.load_bf16_n(list.as_ptr().add(at).cast(), n),
                    Scales::Bytes(_) => s.zero(),
                }
            };
            if group == BLOCK {
                return by_unit(s, end - first, value, to);
            }
            by_unit(s, end - first, value, grouped.as_mut_ptr());
            for u in 0..len / BLOCK {
                let g = (from + u * BLOCK) / group - first;
                s.store(to.add(u * S::LANES), s.load(grouped.as_ptr().add(g * S::LANES)));
            }
        }
    };
    each(w.scales, scales);
    if let Some(biases) = w.biases {
        each(biases, offsets);
    }
}
