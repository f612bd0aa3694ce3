//! 8-bit floats (E4M3).

use smallvec::smallvec;

use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::Batch;
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::ops::{Op, OpRef};

/// Rounds float32 to E4M3.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ToFp8;

impl Op for ToFp8 {
    fn name(&self) -> &'static str {
        "to_fp8"
    }

    fn export(&self) -> Export {
        Record::new("to_fp8").into()
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

impl Array {
    /// The elements rounded to 8-bit floats (E4M3), as bytes. Values beyond their range saturate.
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
    ///
    /// ```
    /// use hesper::{Dtype, array};
    /// let x = array![1.0, 0.3, -448.0];
    /// let back = x.to_fp8()?.from_fp8(Dtype::Float32)?;
    /// assert_eq!(back.to_vec::<f32>()?, [1.0, 0.3125, -448.0]); // three bits of fraction
    /// # Ok::<(), hesper::Error>(())
    /// ```
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
        // A table of all codes.
        let numbers: Vec<f32> = (0..=255u8).map(e4m3).collect();
        let table = Array::from_slice(&numbers).astype(dtype)?;
        table.take(self.clone(), Some(0))
    }
}

/// The value of an E4M3 code.
fn e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
    };
    if code >= 128 { -size } else { size }
}

reader!("to_fp8", One(read_to_fp8));
fn read_to_fp8(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.to_fp8()
}
