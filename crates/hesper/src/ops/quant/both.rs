//! Products of two quantized matrices, and numbers as 8-bit floats.

use smallvec::smallvec;

use super::{QuantMode, Quantized};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::gpu::compose;
use crate::ops::command::Commands;
use crate::ops::native::{GRAIN, par_chunks_mut};
use crate::ops::walk::Strided;
use crate::ops::{Op, OpRef};
use crate::transform::rule::Batch;

/// Single precision as E4M3.
#[derive(Debug)]
struct ToFp8;

impl Op for ToFp8 {
    fn name(&self) -> &'static str {
        "to_fp8"
    }

    fn export(&self) -> Export {
        Record::new("to_fp8").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let (x, output) = (Strided::row_major(l, 0)?, l.output()?);
        let buffer = x.data.buffer.clone();
        let command = l.stream().command(self.name()).read_range(&buffer, x.bytes).write(&output);
        command.run(|native| {
            let [x, out] = native.take()?;
            let x = x.as_slice::<f32>()?;
            par_chunks_mut(out.as_mut_slice::<u8>()?, GRAIN, |task, codes| {
                for (code, x) in codes.iter_mut().zip(&x[task * GRAIN..]) {
                    *code = to_e4m3(*x);
                }
            });
            Ok(())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose::compose(l, compose::fp8)
    }
}

/// The nearest E4M3, ties to even; what is beyond the largest becomes the largest.
fn to_e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let size = x.abs().min(448.0);
    if x.is_nan() {
        return sign | 0x7f;
    }
    // Below 2^-6 steps are even; above, three bits of the fraction are kept.
    if size < 1.0 / 64.0 {
        return sign | (size * 512.0).round_ties_even() as u8;
    }
    let bits = size.to_bits();
    let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
    sign | (rounded - (120 << 3)) as u8
}

impl Array {
    /// The product with the transpose of `w`, where this array is quantized first, in the way that `w` is or
    /// will be. `w` is a matrix of numbers, which is quantized too, or with `scales` a quantized one. For the
    /// modes whose codes are floats.
    ///
    /// ```
    /// use hesper::{Array, Dtype, QuantMode};
    /// let x = Array::ones(&[2, 32], Dtype::Float32)?;
    /// let y = x.qqmm(&x, None, None, None, QuantMode::Mxfp8)?;
    /// assert_eq!(y.to_vec::<f32>()?, [32.0; 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn qqmm(
        &self,
        w: &Array,
        scales: Option<&Array>,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
    ) -> Result<Array> {
        const OP: &str = "qqmm";
        let floats = |array: &Array| match array.dtype() {
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => Ok(()),
            dtype => {
                let what = "takes float32, float16 or bfloat16, and was given an array".into();
                Err(Error::Type { op: OP.into(), what, dtype })
            }
        };
        floats(self)?;
        if mode == QuantMode::Affine {
            return Err(Error::value(OP, "affine codes are not multiplied with each other"));
        }
        if w.ndim() != 2 {
            return Err(Error::shape(
                OP,
                format!("a matrix expected, not an array of shape {:?}", w.shape()),
            ));
        }
        let (codes, scales) = match scales {
            Some(scales) => (w.clone(), scales.clone()),
            None if w.dtype() == Dtype::Uint32 => {
                return Err(Error::value(OP, "a quantized matrix needs its scales"));
            }
            None => {
                floats(w)?;
                let (codes, scales, _) = w.quantize(group_size, bits, mode)?;
                (codes, scales)
            }
        };
        let q = Quantized::new(OP, &codes, &scales, None, group_size, bits, mode)?;
        super::matmul::check_inner(OP, self, &q, true)?;
        let rows = if self.ndim() == 1 { self.expand_dims(&[0])? } else { self.clone() };
        let (own, own_scales, _) = rows.quantize(group_size, bits, mode)?;
        let rounded = own.dequantize(&own_scales, None, group_size, bits, mode, Some(self.dtype()))?;
        let rounded = if self.ndim() == 1 { rounded.squeeze(Some(&[0]))? } else { rounded };
        rounded.quantized_matmul(&codes, &scales, None, true, group_size, bits, mode)
    }

    /// The elements rounded to 8-bit floats (E4M3), as bytes. What is beyond their range becomes the largest.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::from_slice(&[1.0f32, -0.3, 1e9]);
    /// assert_eq!(x.to_fp8()?.from_fp8(Dtype::Float32)?.to_vec::<f32>()?, [1.0, -0.3125, 448.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn to_fp8(&self) -> Result<Array> {
        let dtype = self.dtype();
        if !dtype.is(Category::Floating) {
            let what = "takes floating-point numbers, and was given an array".into();
            return Err(Error::Type { op: "to_fp8".into(), what, dtype });
        }
        let input = self.astype(Dtype::Float32)?;
        Array::lazy(self.0.shape.clone(), Dtype::Uint8, OpRef::Static(&ToFp8), smallvec![input])
    }

    /// 8-bit floats (E4M3) as elements of another type.
    #[allow(clippy::wrong_self_convention, reason = "the bytes are the array that this is a method of")]
    pub fn from_fp8(&self, dtype: Dtype) -> Result<Array> {
        if self.dtype() != Dtype::Uint8 {
            let what = "8-bit floats are bytes, not an array".into();
            return Err(Error::Type { op: "from_fp8".into(), what, dtype: self.dtype() });
        }
        if !dtype.is(Category::Floating) {
            let what = "gives floating-point numbers, and was asked for an array".into();
            return Err(Error::Type { op: "from_fp8".into(), what, dtype });
        }
        // Codes in order of their bits: a table of all of them.
        let numbers: Vec<f32> = (0..=255u8).map(e4m3).collect();
        let table = Array::from_slice(&numbers).astype(dtype)?;
        table.take(self.clone(), Some(0))
    }
}

/// The number of an E4M3 code.
fn e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
    };
    if code >= 128 { -size } else { size }
}

pub(in crate::ops) fn read_to_fp8(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.to_fp8()
}
