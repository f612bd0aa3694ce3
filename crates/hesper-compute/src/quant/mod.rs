//! Quantized matrices in MLX's layouts, their products, and the blocks of GGUF files.
//!
//! A quantized matrix has its codes along its rows, packed little-endian into 32-bit words, and a scale (and
//! a bias) for every group of neighbouring codes. [`qmatmul`] never materializes the dequantized matrix. A
//! few rows of activations read the codes once, bound by memory; many rows dequantize panels while packing.
//!
//! With [`Activations::Exact`] the activations keep their type, and products are summed in `f32`. With
//! [`Activations::Int8`] they are rounded to 8 bits in blocks of 32 first, where the weights have integer
//! codes of 4, 6 or 8 bits. The error of an activation is at most 1/254 of the largest of its block, and that
//! of the result at most this times the sum of `|w|` in each block. A block with an element that is not
//! finite makes its results NaN.

mod affine;
mod columns;
mod convert;
mod decode;
mod exact;
mod gguf;
mod gguf_dot;
mod int8;
mod layer;
mod tables;

pub use affine::{affine_biases, affine_scales, affine_words};
pub use convert::{dequantize, quantize_affine, quantize_fp};
pub use decode::widen;
pub use gguf::{GgufMat, gguf_dequantize, gguf_matmul, gguf_quantize};
pub use layer::{LayerEpilogue, gguf_layer};

use half::{bf16, f16};
use hesper_types::{Activations, QuantFormat};

use crate::error::{Mismatch, at_least, multiple, product, same, supported};
use crate::gemm::columns::{Columns, LeftRows};
use crate::gemm::precision::{Pairs, Precision, Single};
use crate::gemm::{Epilogue, Problem, driver};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, FloatKind};

/// Whether a format exists and rows of `cols` codes can have it.
fn check(format: QuantFormat, cols: usize) -> Result<(), Mismatch> {
    if let QuantFormat::Affine { bits, group } = format {
        supported(matches!(bits, 1..=6 | 8), "this number of bits of an affine code", "give 1 to 6, or 8")?;
        supported(matches!(group, 32 | 64 | 128), "this size of an affine group", "give 32, 64 or 128")?;
    }
    multiple("columns of a quantized matrix", format.group(), cols)
}

/// The scales or biases of a quantized matrix, row by row.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [f16]),
    /// Bfloat16.
    Bf16(&'a [bf16]),
    /// Scales of the floating point formats: E8M0 or E4M3, depending on the format.
    Bytes(&'a [u8]),
}

impl Scales<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(s) => s.len(),
            Self::F16(s) => s.len(),
            Self::Bf16(s) => s.len(),
            Self::Bytes(s) => s.len(),
        }
    }

    /// Scale or bias `i`; bytes are decoded as the format's scale type.
    #[inline(always)]
    fn get(&self, i: usize, format: QuantFormat) -> f32 {
        match self {
            Self::F32(s) => s[i],
            Self::F16(s) => s[i].to_f32(),
            Self::Bf16(s) => s[i].to_f32(),
            Self::Bytes(s) if format == QuantFormat::Nvfp4 => tables::e4m3(s[i]),
            Self::Bytes(s) => tables::e8m0(s[i]),
        }
    }
}

/// A quantized matrix to read.
#[derive(Clone, Copy, Debug)]
pub struct QuantMat<'a> {
    format: QuantFormat,
    rows: usize,
    cols: usize,
    packed: &'a [u32],
    scales: Scales<'a>,
    biases: Option<Scales<'a>>,
}

impl<'a> QuantMat<'a> {
    /// A matrix of `rows` x `cols` codes. Affine formats need biases, the others have none.
    pub fn new(
        format: QuantFormat,
        rows: usize,
        cols: usize,
        packed: &'a [u32],
        scales: Scales<'a>,
        biases: Option<Scales<'a>>,
    ) -> Result<Self, Mismatch> {
        check(format, cols)?;
        let groups = product("groups of a quantized matrix", &[rows, cols / format.group()])?;
        let words = product("words of a quantized matrix", &[rows, format.words(cols)])?;
        at_least("words of a quantized matrix", words, packed.len())?;
        at_least("scales of a quantized matrix", groups, scales.len())?;
        let affine = matches!(format, QuantFormat::Affine { .. });
        let bytes = matches!(scales, Scales::Bytes(_));
        supported(affine != bytes, "this type of scales", "affine formats take floats, the others bytes")?;
        match biases {
            Some(b) if affine => {
                at_least("biases of a quantized matrix", groups, b.len())?;
                supported(!matches!(b, Scales::Bytes(_)), "a bias of bytes", "affine formats take floats")?;
            }
            None if affine => at_least("biases of a quantized matrix", groups, 0)?,
            Some(_) => supported(false, "a bias in this format", "only affine formats have biases")?,
            None => {}
        }
        Ok(Self { format, rows, cols, packed, scales, biases })
    }

    /// Words of a row.
    fn row_words(&self) -> usize {
        self.format.words(self.cols)
    }

    /// Groups of a row.
    fn row_groups(&self) -> usize {
        self.cols / self.format.group()
    }

    /// Scale and bias of group `g` of a row.
    #[inline(always)]
    fn scale(&self, row: usize, g: usize) -> (f32, f32) {
        let i = row * self.row_groups() + g;
        (self.scales.get(i, self.format), self.biases.map_or(0.0, |b| b.get(i, self.format)))
    }
}

/// Most rows of activations for which codes are unpacked in registers.
const MAX_EXACT_ROWS: usize = 4;

/// `y = x w^T` (`transpose`) or `y = x w`.
///
/// With more than a few rows of `bf16` activations, dequantized weights are rounded to `bf16` if the
/// processor multiplies these faster than `f32`.
pub fn qmatmul<T: Float>(
    par: &dyn Par,
    x: MatRef<'_, T>,
    w: &QuantMat<'_>,
    transpose: bool,
    y: MatMut<'_, T>,
    activations: Activations,
) -> Result<(), Mismatch> {
    let (n, k) = if transpose { (w.rows, w.cols) } else { (w.cols, w.rows) };
    same("columns of the activations", k, x.cols)?;
    same("rows of the result", x.rows, y.rows)?;
    same("columns of the result", n, y.cols)?;
    if x.rows == 0 || n == 0 {
        return Ok(());
    }
    if transpose
        && activations == Activations::Int8
        && let Some(w) = int8::ByteCodes::of_affine(w)
    {
        in_f32(par, x, y, &|x, y| int8::product(par, x, &w, y));
        return Ok(());
    }
    let pairs = T::KIND == FloatKind::Bf16 && par.simd().has_fast_bf16();
    if pairs && x.rows > MAX_EXACT_ROWS {
        // SAFETY: `T` is `bf16`.
        let (a, c) = unsafe { as_bf16(x, y) };
        bf16_panels(par, a, columns::QuantColumns::Codes { w: *w, transpose }, c);
        return Ok(());
    }
    in_f32(par, x, y, &|x, y| {
        if transpose && x.rows <= MAX_EXACT_ROWS && k > 0 {
            exact::run(par, x, w, y);
        } else {
            f32_panels(par, x, columns::QuantColumns::Codes { w: *w, transpose }, y);
        }
    });
    Ok(())
}

/// Casts views from `T` to `bf16`.
///
/// # Safety
/// `T` is `bf16`.
unsafe fn as_bf16<'a, 'b, T: Float>(
    x: MatRef<'a, T>,
    y: MatMut<'b, T>,
) -> (MatRef<'a, bf16>, MatMut<'b, bf16>) {
    // SAFETY: the caller's promise: the same elements.
    unsafe {
        (
            MatRef::from_raw(x.ptr.cast(), x.rows, x.cols, x.row_stride, x.col_stride),
            MatMut::from_raw(y.ptr.cast(), y.rows, y.cols, y.row_stride, y.col_stride),
        )
    }
}

/// Calls `f` with contiguous activations and result in `f32`: the given ones, or copies.
fn in_f32<T: Float>(
    par: &dyn Par,
    x: MatRef<'_, T>,
    y: MatMut<'_, T>,
    f: &dyn Fn(MatRef<'_, f32>, &MatMut<'_, f32>),
) {
    let (m, k, n) = (x.rows, x.cols, y.cols);
    let single = T::KIND == FloatKind::F32;
    let (x_in, y_in) = (single && x.col_stride == 1 && x.row_stride == k as isize, single);
    let xs = Scratch::<f32>::new(if x_in { 0 } else { m * k });
    let ys = Scratch::<f32>::new(if y_in { 0 } else { m * n });
    // SAFETY: in place only where `T` is `f32`; otherwise the buffers have the size of the views.
    unsafe {
        let x = if x_in {
            MatRef::from_raw(x.ptr.cast(), m, k, k as isize, 1)
        } else {
            let to = Shared::new(xs.ptr());
            chunks(par, m, grain(par, m, 8), |a, b| {
                for i in a..b {
                    for j in 0..k {
                        *to.get().add(i * k + j) = (*x.at(i, j)).to_f32();
                    }
                }
            });
            MatRef::from_raw(xs.ptr(), m, k, k as isize, 1)
        };
        if y_in {
            f(x, &MatMut::from_raw(y.ptr.cast(), m, n, y.row_stride, y.col_stride));
            return;
        }
        f(x, &MatMut::from_raw(ys.ptr(), m, n, n as isize, 1));
        let from = Shared::new(ys.ptr());
        chunks(par, m, grain(par, m, 8), |a, b| {
            for i in a..b {
                for j in 0..n {
                    *y.at(i, j) = T::from_f32(*from.get().add(i * n + j));
                }
            }
        });
    }
}

/// Many rows in `f32`: the packed product, whose right operand is dequantized while packing.
///
/// It is no generic function, so that its kernels are compiled in this crate alone.
fn f32_panels(par: &dyn Par, a: MatRef<'_, f32>, b: columns::QuantColumns<'_>, c: &MatMut<'_, f32>) {
    // SAFETY: the same view, and no other task writes it.
    let c = unsafe { MatMut::from_raw(c.ptr, c.rows, c.cols, c.row_stride, c.col_stride) };
    panels::<Single<f32>>(par, a, b, c);
}

/// [`f32_panels`] of bfloat16, in pairs.
fn bf16_panels(par: &dyn Par, a: MatRef<'_, bf16>, b: columns::QuantColumns<'_>, c: MatMut<'_, bf16>) {
    panels::<Pairs>(par, a, b, c);
}

fn panels<P: Precision<Acc = f32>>(
    par: &dyn Par,
    a: MatRef<'_, P::In>,
    b: columns::QuantColumns<'_>,
    c: MatMut<'_, P::Out>,
) where
    for<'a> columns::QuantColumns<'a>: Columns<P>,
{
    let (m, n, k) = (a.rows, c.cols, a.cols);
    let epilogue = Epilogue { alpha: 1.0, beta: 0.0 };
    let p = Problem::<P, _> { m, n, k, a: LeftRows(a), b, c, epilogue };
    if k == 0 { driver::empty(par, &p) } else { driver::run(par, &p) }
}
