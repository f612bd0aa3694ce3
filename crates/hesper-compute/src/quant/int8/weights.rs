//! Formats of weights that are multiplied as integers: how codes and scales become a panel.

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
pub(in crate::quant) trait ByteCodes: Sync {
    /// What it requires of the activations.
    const ROUNDING: Rounding;
    /// Codes are below `2^BITS`.
    const BITS: usize;
    /// Whether elements have offsets.
    const OFFSETS: bool;
    /// Elements that [`ByteCodes::unpack`] unpacks.
    const STEP: usize;

    /// Unpacks `STEP` elements from `from` on of `LANES` rows: `STEP / 4` vectors, whose lanes hold four
    /// codes each.
    ///
    /// # Safety
    /// The rows have these elements, and `to` has room.
    unsafe fn unpack<S: Isa>(&self, s: S, rows: &[usize; 16], from: usize, to: *mut f32);

    /// Scales (and offsets) of the units of elements `from..from + len` of `LANES` rows, unit by unit.
    ///
    /// # Safety
    /// The rows have these elements; both have room for a chunk.
    unsafe fn scales<S: Isa>(
        &self,
        s: S,
        rows: &[usize; 16],
        from: usize,
        len: usize,
        scales: *mut f32,
        offsets: *mut f32,
    );
}

const fn rounding(unit: usize, zero: i32) -> Rounding {
    Rounding { order: CodeOrder::Natural, unit, zero }
}

/// Evaluates `$body` with `$w` as the [`ByteCodes`] of a matrix of blocks, or `$none` where it has none.
macro_rules! with_block_codes {
    ($mat:expr, $w:ident => $body:expr, _ => $none:expr) => {
        with_block_codes!(@each $mat, $w, $body, $none, Q4_0 => Q4_0, Q4_1 => Q4_1, Q8_0 => Q8_0, Q4_K => Q4K, Q6_K => Q6K)
    };
    (@each $mat:expr, $w:ident, $body:expr, $none:expr, $($kind:ident => $codes:ident),*) => {
        match $mat.kind {
            $(GgmlType::$kind => {
                let $w = &$crate::quant::int8::weights::$codes(*$mat);
                $body
            })*
            _ => $none,
        }
    };
}
pub(in crate::quant) use with_block_codes;

/// [`with_block_codes`] for matrices in MLX's layout.
macro_rules! with_affine_codes {
    ($mat:expr, $w:ident => $body:expr, _ => $none:expr) => {
        match $mat.format {
            QuantFormat::Affine { bits: 4, .. } => {
                let $w = &$crate::quant::int8::weights::Affine::<4>(*$mat);
                $body
            }
            QuantFormat::Affine { bits: 8, .. } => {
                let $w = &$crate::quant::int8::weights::Affine::<8>(*$mat);
                $body
            }
            _ => $none,
        }
    };
}
pub(in crate::quant) use with_affine_codes;

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

/// Blocks of 32 elements that begin with a scale.
macro_rules! plain_blocks {
    ($($name:ident: $zero:expr, $bits:expr, $offsets:expr;)*) => {$(
        pub(in crate::quant) struct $name<'a>(pub GgufMat<'a>);

        impl ByteCodes for $name<'_> {
            const ROUNDING: Rounding = rounding(BLOCK, $zero);
            const BITS: usize = $bits;
            const OFFSETS: bool = $offsets;
            const STEP: usize = BLOCK;

            #[inline(always)]
            unsafe fn unpack<S: Isa>(&self, s: S, rows: &[usize; 16], from: usize, to: *mut f32) {
                let w = &self.0;
                let p = pointers(rows, |row| w.block(row, from / BLOCK).wrapping_add(w.kind.head()));
                // SAFETY: the caller's promise.
                unsafe {
                    if Self::BITS == 4 {
                        return split_nibbles(s, &p, to, to.add(4 * S::LANES), 1);
                    }
                    for half in 0..2 {
                        for (q, v) in s.words(&p.map(|p| p.wrapping_add(16 * half))).into_iter().enumerate() {
                            s.store(to.add((4 * half + q) * S::LANES), s.flip(v, SIGNS));
                        }
                    }
                }
            }

            #[inline(always)]
            unsafe fn scales<S: Isa>(
                &self,
                s: S,
                rows: &[usize; 16],
                from: usize,
                len: usize,
                scales: *mut f32,
                offsets: *mut f32,
            ) {
                let (w, units) = (&self.0, len / BLOCK);
                let bytes = w.kind.block_bytes();
                let p = pointers(rows, |row| w.block(row, from / BLOCK));
                // SAFETY: the caller's promise.
                unsafe {
                    let head = |field: usize| move |r: usize, u: usize| {
                        s.halves(p[r].wrapping_add(u * bytes + 2 * field), bytes, (units - u).min(S::LANES))
                    };
                    by_unit(s, units, head(0), scales);
                    if Self::OFFSETS {
                        by_unit(s, units, head(1), offsets);
                    }
                }
            }
        }
    )*};
}
plain_blocks! {
    Q4_0: 8, 4, false;
    Q4_1: 0, 4, true;
    Q8_0: 128, 8, false;
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

/// Blocks of 256 elements: units of 32 with 6-bit scales and minima, and 4-bit codes.
pub(in crate::quant) struct Q4K<'a>(pub GgufMat<'a>);

impl ByteCodes for Q4K<'_> {
    const ROUNDING: Rounding = rounding(BLOCK, 0);
    const BITS: usize = 4;
    const OFFSETS: bool = true;
    const STEP: usize = 256;

    #[inline(always)]
    unsafe fn unpack<S: Isa>(&self, s: S, rows: &[usize; 16], from: usize, to: *mut f32) {
        let p = pointers(rows, |row| self.0.block(row, from / 256).wrapping_add(16));
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

    #[inline(always)]
    unsafe fn scales<S: Isa>(
        &self,
        s: S,
        rows: &[usize; 16],
        from: usize,
        len: usize,
        scales: *mut f32,
        offsets: *mut f32,
    ) {
        for b in 0..len / 256 {
            let p = pointers(rows, |row| self.0.block(row, from / 256 + b));
            // SAFETY: the caller's promise.
            unsafe {
                let d = head(s, &p);
                let low = s.sub(s.zero(), head(s, &p.map(|p| p.wrapping_add(2))));
                let [_, scale, minimum, upper] = s.words(&p);
                let top = |v| s.bits(v, 2, 0x3030_3030);
                let six = 0x3f3f_3f3f;
                let words = [
                    (s.bits(scale, 0, six), s.bits(minimum, 0, six)),
                    (
                        s.or(s.bits(upper, 0, NIBBLES), top(scale)),
                        s.or(s.bits(upper, 4, NIBBLES), top(minimum)),
                    ),
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
}

/// Blocks of 256 elements: units of 16 with 8-bit scales, and 6-bit codes whose upper bits are stored
/// separately.
pub(in crate::quant) struct Q6K<'a>(pub GgufMat<'a>);

impl ByteCodes for Q6K<'_> {
    const ROUNDING: Rounding = rounding(16, 32);
    const BITS: usize = 6;
    const OFFSETS: bool = false;
    const STEP: usize = 256;

    #[inline(always)]
    unsafe fn unpack<S: Isa>(&self, s: S, rows: &[usize; 16], from: usize, to: *mut f32) {
        let p = pointers(rows, |row| self.0.block(row, from / 256));
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

    #[inline(always)]
    unsafe fn scales<S: Isa>(
        &self,
        s: S,
        rows: &[usize; 16],
        from: usize,
        len: usize,
        scales: *mut f32,
        _: *mut f32,
    ) {
        for b in 0..len / 256 {
            let p = pointers(rows, |row| self.0.block(row, from / 256 + b).wrapping_add(192));
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
}

/// MLX's codes of 4 or 8 bits, in order.
pub(in crate::quant) struct Affine<'a, const BITS: usize>(pub QuantMat<'a>);

impl<const BITS: usize> ByteCodes for Affine<'_, BITS> {
    const ROUNDING: Rounding = Rounding {
        order: if BITS == 4 { CodeOrder::EvenOdd } else { CodeOrder::Natural },
        unit: BLOCK,
        zero: 0,
    };
    const BITS: usize = BITS;
    const OFFSETS: bool = true;
    const STEP: usize = BLOCK;

    #[inline(always)]
    unsafe fn unpack<S: Isa>(&self, s: S, rows: &[usize; 16], from: usize, to: *mut f32) {
        let (w, word) = (&self.0, from * BITS / 32);
        let p = pointers(rows, |row| w.packed.as_ptr().wrapping_add(row * w.row_words() + word).cast());
        // SAFETY: the caller's promise.
        unsafe {
            if BITS == 4 {
                return split_nibbles(s, &p, to, to.add(S::LANES), 2);
            }
            for half in 0..2 {
                for (q, v) in s.words(&p.map(|p| p.wrapping_add(16 * half))).into_iter().enumerate() {
                    s.store(to.add((4 * half + q) * S::LANES), v);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Isa>(
        &self,
        s: S,
        rows: &[usize; 16],
        from: usize,
        len: usize,
        scales: *mut f32,
        offsets: *mut f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { affine_scales(s, &self.0, rows, from, len, scales, offsets) }
    }
}

/// # Safety
/// As for [`ByteCodes::scales`].
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
