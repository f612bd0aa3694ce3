//! Quantized matrices: codes of a few bits with a scale for each group, in MLX's packed layout, and products
//! with them.
//!
//! Rows of codes are packed into 32-bit words, first code lowest. Products read the codes in place; the
//! dequantized matrix is never written.

pub mod convert;
pub mod fp8;
pub mod gathered;
pub mod matmul;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::graph::{Record, Replay};
use crate::{Array, Dtype};

pub use hesper_types::{Activations, QuantFormat};

/// How codes are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum QuantMode {
    /// `scale * code + bias`; codes of 1, 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128.
    #[default]
    Affine,
    /// 4-bit floats (E2M1) in groups of 32, with a power of two as scale.
    Mxfp4,
    /// 8-bit floats (E4M3) in groups of 32, with a power of two as scale.
    Mxfp8,
    /// 4-bit floats (E2M1) in groups of 16, with an 8-bit float (E4M3) as scale.
    Nvfp4,
}

impl QuantMode {
    /// All modes.
    pub const ALL: [QuantMode; 4] = [QuantMode::Affine, QuantMode::Mxfp4, QuantMode::Mxfp8, QuantMode::Nvfp4];

    /// The mode of a format, for backends.
    #[doc(hidden)]
    pub fn of(format: QuantFormat) -> QuantMode {
        match format {
            QuantFormat::Affine { .. } => QuantMode::Affine,
            QuantFormat::Mxfp4 => QuantMode::Mxfp4,
            QuantFormat::Mxfp8 => QuantMode::Mxfp8,
            QuantFormat::Nvfp4 => QuantMode::Nvfp4,
        }
    }

    /// The name, as in `affine`.
    ///
    /// ```
    /// use hesper::QuantMode;
    /// assert_eq!(QuantMode::Mxfp4.name(), "mxfp4");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            QuantMode::Affine => "affine",
            QuantMode::Mxfp4 => "mxfp4",
            QuantMode::Mxfp8 => "mxfp8",
            QuantMode::Nvfp4 => "nvfp4",
        }
    }

    /// The default group size and bits.
    ///
    /// ```
    /// use hesper::QuantMode;
    /// assert_eq!(QuantMode::Affine.defaults(), (64, 4));
    /// ```
    pub fn defaults(self) -> (usize, usize) {
        match self {
            QuantMode::Affine => (64, 4),
            QuantMode::Mxfp4 => (32, 4),
            QuantMode::Mxfp8 => (32, 8),
            QuantMode::Nvfp4 => (16, 4),
        }
    }

    /// The format that the parameters name.
    fn format(self, op: &str, group_size: Option<usize>, bits: Option<usize>) -> Result<QuantFormat> {
        let usual = self.defaults();
        let (group, bits) = (group_size.unwrap_or(usual.0), bits.unwrap_or(usual.1));
        if self == QuantMode::Affine {
            if !matches!(group, 32 | 64 | 128) {
                return Err(Error::value(op, format!("group_size must be 32, 64 or 128, not {group}")));
            }
            if !matches!(bits, 1..=6 | 8) {
                let what = format!("bits must be 1, 2, 3, 4, 5, 6 or 8, not {bits}");
                return Err(Error::value(op, what));
            }
            return Ok(QuantFormat::Affine { bits, group });
        }
        if (group, bits) != usual {
            let what = format!(
                "{self} has groups of {} and {} bits, not groups of {group} and {bits} bits",
                usual.0, usual.1
            );
            return Err(Error::value(op, what));
        }
        Ok(match self {
            QuantMode::Mxfp4 => QuantFormat::Mxfp4,
            QuantMode::Mxfp8 => QuantFormat::Mxfp8,
            _ => QuantFormat::Nvfp4,
        })
    }
}

impl fmt::Display for QuantMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for QuantMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = QuantMode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| {
            Error::value("quantization", format!("mode must be affine, mxfp4, mxfp8 or nvfp4, not {name:?}"))
        })
    }
}

/// A quantized matrix, or a stack of them, with consistent parts.
pub struct Quantized {
    format: QuantFormat,
    w: Array,
    scales: Array,
    biases: Option<Array>,
    /// Rows and columns of the dequantized matrix.
    rows: usize,
    cols: usize,
}

impl Quantized {
    fn new(
        op: &str,
        w: &Array,
        scales: &Array,
        biases: Option<&Array>,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
    ) -> Result<Self> {
        let format = mode.format(op, group_size, bits)?;
        match (mode, biases) {
            (QuantMode::Affine, None) => return Err(Error::value(op, "affine quantization needs biases")),
            (QuantMode::Affine, _) | (_, None) => {}
            (_, Some(_)) => return Err(Error::value(op, format!("{mode} has no biases"))),
        }
        if w.dtype() != Dtype::Uint32 {
            let what = "codes must be uint32, not an array".into();
            return Err(Error::Type { op: op.into(), what, dtype: w.dtype() });
        }
        if mode != QuantMode::Affine && scales.dtype() != Dtype::Uint8 {
            let what = format!("scales of {mode} must be uint8, not an array");
            return Err(Error::Type { op: op.into(), what, dtype: scales.dtype() });
        }
        let rank = w.ndim();
        if rank < 2 || scales.ndim() != rank || w.shape()[..rank - 1] != scales.shape()[..rank - 1] {
            let what = format!("codes of shape {:?} with scales of shape {:?}", w.shape(), scales.shape());
            return Err(Error::shape(op, what).with_shapes([w, scales]));
        }
        if let Some(biases) = biases
            && biases.shape() != scales.shape()
        {
            let what =
                format!("scales of shape {:?} with biases of shape {:?}", scales.shape(), biases.shape());
            return Err(Error::shape(op, what).with_shapes([scales, biases]));
        }
        let (code_words, groups) = (w.shape()[rank - 1], scales.shape()[rank - 1]);
        let cols = groups.saturating_mul(format.group());
        if code_words.checked_mul(32) != cols.checked_mul(format.bits()) {
            let what = format!(
                "codes of shape {:?} with scales of shape {:?} are no matrix with groups of {} and {} bits",
                w.shape(),
                scales.shape(),
                format.group(),
                format.bits()
            );
            return Err(Error::shape(op, what).with_shapes([w, scales]));
        }
        // Kernels widen narrow floats as they load them; other types are converted.
        let known = |array: &Array| match array.dtype() {
            Dtype::Uint8 if mode != QuantMode::Affine => Ok(array.clone()),
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => Ok(array.clone()),
            _ => array.astype(Dtype::Float32),
        };
        let (scales, biases) = (known(scales)?, biases.map(known).transpose()?);
        Ok(Quantized { format, w: w.clone(), scales, biases, rows: w.shape()[rank - 2], cols })
    }

    /// Rows and columns of the right operand of a product.
    fn operand(&self, transpose: bool) -> (usize, usize) {
        if transpose { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    /// Its parts as inputs of an op, after others.
    fn inputs(&self, before: impl IntoIterator<Item = Array>) -> smallvec::SmallVec<[Array; 3]> {
        let own = [&self.w, &self.scales].into_iter().chain(&self.biases).cloned();
        before.into_iter().chain(own).collect()
    }
}

impl Record {
    /// Records a format.
    fn format(self, format: QuantFormat) -> Self {
        let mode = QuantMode::of(format);
        self.with("mode", mode.name()).with("group", format.group()).with("bits", format.bits())
    }
}

/// Reads a format: the mode, the group size and the bits.
fn read_format(replay: &Replay<'_>) -> Result<(QuantMode, usize, usize)> {
    Ok((replay.text("mode")?.parse()?, replay.length("group")?, replay.length("bits")?))
}
