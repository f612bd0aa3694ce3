//! Quantized matrices as the right operand of a packed product: panels are dequantized as they are packed.

use super::gguf::{DecodeLine, GgufMat};
use super::tables::{COUNT, E2M1, E4M3};
use super::{QuantFormat, QuantMat};
use crate::gemm::columns::{Columns, Panel};
use crate::gemm::precision::{Pairs, Precision, Single};
use crate::scratch::Scratch;
use crate::simd::{Isa, Local};

/// A quantized matrix as a right operand.
pub(super) enum QuantColumns<'a> {
    /// Packed codes, plain or transposed.
    Codes { w: QuantMat<'a>, transpose: bool },
    /// GGUF blocks, transposed.
    Blocks(GgufMat<'a>),
}

impl QuantColumns<'_> {
    /// Whether the rows of the matrix are the columns of the operand.
    fn transposed(&self) -> bool {
        match self {
            Self::Codes { transpose, .. } => *transpose,
            Self::Blocks(_) => true,
        }
    }
}

impl Columns<Single<f32>> for QuantColumns<'_> {
    fn is_contiguous_along_k(&self) -> bool {
        self.transposed()
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<f32>) {
        // SAFETY: the caller's promise.
        unsafe { pack::<S, false>(self, s, panel) }
    }
}

impl Columns<Pairs> for QuantColumns<'_> {
    fn is_contiguous_along_k(&self) -> bool {
        self.transposed()
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<f32>) {
        // SAFETY: the caller's promise.
        unsafe { pack::<S, true>(self, s, panel) }
    }
}

/// # Safety
/// As for [`Columns::pack`].
#[inline(always)]
unsafe fn pack<S: Isa, const PAIRS: bool>(q: &QuantColumns<'_>, s: S, panel: Panel<f32>) {
    let Panel { k0, len, j0, valid, width, dst } = panel;
    // SAFETY: the caller's promise; at least one column is valid.
    unsafe {
        if let QuantColumns::Codes { w, transpose: true } = q
            && w.format.bits() == 4
        {
            return s.call(TransposeWords::<PAIRS> { w, panel });
        }
        // Dequantize to a buffer with the layout of the matrix, then pack.
        let transposed = q.transposed();
        let (lines, run) = if transposed { (valid, len) } else { (len, valid) };
        let (first, from) = if transposed { (j0, k0) } else { (k0, j0) };
        let buf = Scratch::<f32>::new(lines * run);
        for i in 0..lines {
            let (row, dst) = (first + i, buf.ptr().add(i * run));
            match q {
                QuantColumns::Codes { w, .. } => s.call(Dequant { w, row, from, len: run, dst }),
                QuantColumns::Blocks(w) => s.call(DecodeLine { w, row, from, len: run, dst }),
            }
        }
        let (ws, ks) = if transposed { (run as isize, 1) } else { (1, run as isize) };
        if PAIRS {
            let half = Scratch::<half::bf16>::new(lines * run);
            let mut i = 0;
            while i < lines * run {
                let n = (lines * run - i).min(S::LANES);
                s.store_bf16_n(half.ptr().add(i).cast(), s.load_n(buf.ptr().add(i), n), n);
                i += n;
            }
            Pairs::pack(s, half.ptr(), ws, ks, valid, width, len, dst);
        } else {
            Single::<f32>::pack(s, buf.ptr(), ws, ks, valid, width, len, dst);
        }
    }
}

/// Dequantizes a part of a row; whoever builds it guarantees what [`dequant`] requires.
pub(super) struct Dequant<'a, 'b> {
    pub w: &'a QuantMat<'b>,
    pub row: usize,
    pub from: usize,
    pub len: usize,
    pub dst: *mut f32,
}

impl<S: Isa> Local<S> for Dequant<'_, '_> {
    #[inline(always)]
    fn run(self, s: S) {
        // SAFETY: guaranteed where it was built.
        unsafe { dequant(s, &self) }
    }
}

/// Dequantizes `len` elements of a row from `from` on, both multiples of `LANES`, in `f32`.
///
/// # Safety
/// They exist, and `dst` has room for them.
#[inline(always)]
unsafe fn dequant<S: Isa>(s: S, d: &Dequant<'_, '_>) {
    let Dequant { w, row, from, len, dst } = *d;
    let bytes = w.packed.as_ptr().cast::<u8>().wrapping_add(row * w.row_words() * 4);
    macro_rules! affine {
        ($($bits:literal)*) => {
            match w.format {
                $(QuantFormat::Affine { bits: $bits, .. } => {
                    // SAFETY: the caller's promise.
                    unsafe { affine::<S, $bits>(s, w, row, bytes, from, len, dst) }
                })*
                QuantFormat::Mxfp8 => {
                    for i in 0..len {
                        // SAFETY: the caller's promise.
                        unsafe {
                            let x = E4M3[usize::from(*bytes.add(from + i))];
                            *dst.add(i) = x * w.scale(row, (from + i) / 32).0;
                        }
                    }
                }
                _ => {
                    for i in 0..len {
                        let at = from + i;
                        // SAFETY: the caller's promise.
                        unsafe {
                            let b = *bytes.add(at / 2) >> (at % 2 * 4);
                            *dst.add(i) = E2M1[usize::from(b & 15)] * w.scale(row, at / w.format.group()).0;
                        }
                    }
                }
            }
        };
    }
    affine!(1 2 3 4 5 6 8);
}

/// # Safety
/// As for [`dequant`].
#[inline(always)]
unsafe fn affine<S: Isa, const BITS: usize>(
    s: S,
    w: &QuantMat<'_>,
    row: usize,
    bytes: *const u8,
    from: usize,
    len: usize,
    dst: *mut f32,
) {
    let group = w.format.group();
    let mut i = 0;
    while i < len {
        let (scale, bias) = w.scale(row, (from + i) / group);
        let (scale, bias) = (s.splat(scale), s.splat(bias));
        let end = len.min(i + group - (from + i) % group);
        while i < end {
            // SAFETY: the caller's promise; a vector of codes begins at a whole byte.
            unsafe {
                let v = s.codes::<BITS>(bytes.add((from + i) * BITS / 8));
                s.store(dst.add(i), s.fma(v, scale, bias));
            }
            i += S::LANES;
        }
    }
}

/// A panel of 4-bit codes; whoever builds it guarantees what [`transpose_words`] requires.
struct TransposeWords<'a, 'b, const PAIRS: bool> {
    w: &'a QuantMat<'b>,
    panel: Panel<f32>,
}

impl<S: Isa, const PAIRS: bool> Local<S> for TransposeWords<'_, '_, PAIRS> {
    #[inline(always)]
    fn run(self, s: S) {
        // SAFETY: guaranteed where it was built.
        unsafe { transpose_words(s, &self) }
    }
}

/// 4-bit codes: transpose words of eight codes, then unpack them.
///
/// # Safety
/// As for [`Columns::pack`]; `k0` and `len` are multiples of 8.
#[inline(always)]
unsafe fn transpose_words<S: Isa, const PAIRS: bool>(s: S, t: &TransposeWords<'_, '_, PAIRS>) {
    let TransposeWords { w, panel: Panel { k0, len, j0, valid, width, dst } } = *t;
    let group = w.format.group();
    let affine = matches!(w.format, QuantFormat::Affine { .. });
    let table = s.table(if affine { &COUNT } else { &E2M1 });
    let words = w.packed.as_ptr().cast::<f32>();
    let mut transposed = [0.0f32; 256];
    let (mut scales, mut biases) = ([0.0f32; 16], [0.0f32; 16]);
    let mut c0 = 0;
    // SAFETY: the caller's promise; rows and words past the end are not read.
    unsafe {
        while c0 < width {
            let lines = valid.saturating_sub(c0).min(S::LANES);
            let mut at = 0;
            let mut known = usize::MAX;
            while at + 8 <= len {
                let have = ((len - at) / 8).min(S::LANES);
                let mut rows = [s.zero(); 16];
                for (i, r) in rows.iter_mut().enumerate().take(S::LANES) {
                    if i < lines {
                        let p = words.add((j0 + c0 + i) * w.row_words() + (k0 + at) / 8);
                        *r = if have == S::LANES { s.load(p) } else { s.load_n(p, have) };
                    }
                }
                s.transpose(&rows, transposed.as_mut_ptr(), S::LANES);
                for t in 0..have {
                    let k = at + 8 * t;
                    let g = (k0 + k) / group;
                    if g != known {
                        known = g;
                        for i in 0..lines {
                            (scales[i], biases[i]) = w.scale(j0 + c0 + i, g);
                        }
                    }
                    let (sv, bv) = (s.load(scales.as_ptr()), s.load(biases.as_ptr()));
                    let v = s.load(transposed.as_ptr().add(t * S::LANES));
                    for j in 0..4 {
                        let low = s.fma(s.lookup(table, v, 8 * j), sv, bv);
                        let high = s.fma(s.lookup(table, v, 8 * j + 4), sv, bv);
                        let row = k + 2 * j as usize;
                        if PAIRS {
                            s.store(dst.add(row / 2 * width + c0), s.pair_bf16(low, high));
                        } else {
                            s.store(dst.add(row * width + c0), low);
                            s.store(dst.add((row + 1) * width + c0), high);
                        }
                    }
                }
                at += 8 * have;
            }
            c0 += S::LANES;
        }
    }
}
