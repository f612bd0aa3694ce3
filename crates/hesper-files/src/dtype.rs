//! Element types that tensor files can hold, and their sizes.
//!
//! One enum for all formats. Block-quantised GGUF types are [`FileDtype::Block`]: their elements have no
//! size of their own, only whole blocks do.

use std::fmt;

use hesper_types::GgmlType;

/// The element type of a tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names say it.
pub enum FileDtype {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    F8E4M3Fnuz,
    F8E5M2Fnuz,
    F6E2M3,
    F6E3M2,
    F4,
    /// Quantised blocks of GGUF.
    Block(GgmlType),
}

impl FileDtype {
    /// Bits of one element, or `None` for quantised blocks.
    pub fn bits(self) -> Option<u32> {
        use FileDtype::*;
        Some(match self {
            F4 => 4,
            F6E2M3 | F6E3M2 => 6,
            Bool | U8 | I8 | F8E4M3 | F8E5M2 | F8E8M0 | F8E4M3Fnuz | F8E5M2Fnuz => 8,
            U16 | I16 | F16 | BF16 => 16,
            U32 | I32 | F32 => 32,
            U64 | I64 | F64 | C64 => 64,
            C128 => 128,
            Block(_) => return None,
        })
    }

    /// Elements in a block and bytes of a block. Types of whole bytes have blocks of one element.
    pub fn block(self) -> (u64, u64) {
        match self {
            FileDtype::Block(ggml) => (ggml.block_len() as u64, ggml.block_bytes() as u64),
            FileDtype::F4 => (2, 1),
            FileDtype::F6E2M3 | FileDtype::F6E3M2 => (4, 3),
            other => (1, u64::from(other.bits().unwrap_or(8) / 8)),
        }
    }

    /// The alignment, in bytes, for reading elements in place.
    pub fn alignment(self) -> u64 {
        match self {
            FileDtype::C64 => 4,
            FileDtype::C128 => 8,
            // Blocks start with, or consist of, 16-bit and 32-bit scales.
            FileDtype::Block(GgmlType::Q8_K) => 4,
            FileDtype::Block(GgmlType::Mxfp4 | GgmlType::Nvfp4) => 1,
            FileDtype::Block(_) => 2,
            other => u64::from(other.bits().unwrap_or(8)).div_ceil(8),
        }
    }

    /// Bytes of the units that byte order applies to (half an element for complex numbers).
    pub fn swap_unit(self) -> usize {
        match self {
            FileDtype::Block(_) => 1,
            other => other.alignment() as usize,
        }
    }

    /// Bytes of a row-major tensor of this type, or what is wrong with the shape.
    ///
    /// ```
    /// use hesper_files::FileDtype;
    /// assert_eq!(FileDtype::F32.byte_len(&[2, 3]), Ok(24));
    /// assert_eq!(FileDtype::F32.byte_len(&[]), Ok(4));
    /// assert!(FileDtype::F32.byte_len(&[1 << 40, 1 << 40]).is_err());
    /// ```
    pub fn byte_len(self, shape: &[u64]) -> Result<u64, ShapeError> {
        let elements = elements(shape).ok_or(ShapeError::Overflow)?;
        let (per_block, bytes) = self.block();
        let unit = match self {
            // Quantised rows hold whole blocks.
            FileDtype::Block(_) => shape.last().copied().unwrap_or(1),
            _ => elements,
        };
        if unit % per_block != 0 {
            return Err(ShapeError::PartialBlock { elements: unit, per_block });
        }
        (elements / per_block).checked_mul(bytes).ok_or(ShapeError::Overflow)
    }
}

/// The number of elements, unless it exceeds a signed 64-bit integer (zeros aside): a dimension that other
/// readers take for negative is refused here.
pub(crate) fn elements(shape: &[u64]) -> Option<u64> {
    let mut product = 1i64;
    for &dim in shape.iter().filter(|&&dim| dim != 0) {
        product = product.checked_mul(i64::try_from(dim).ok()?)?;
    }
    Some(if shape.contains(&0) { 0 } else { product.unsigned_abs() })
}

/// Why a shape has no byte size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The product does not fit 63 bits, or the bytes do not fit 64.
    #[error("the product of the dimensions does not fit 63 bits")]
    Overflow,
    /// Elements that do not fill whole blocks (or whole bytes).
    #[error("{elements} elements are no multiple of the {per_block} in a block")]
    PartialBlock {
        /// Elements given.
        elements: u64,
        /// Elements in a block.
        per_block: u64,
    },
}

impl fmt::Display for FileDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileDtype::Block(ggml) => f.write_str(ggml.name()),
            other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_product_that_wraps_is_refused_even_beside_a_zero() {
        assert_eq!(FileDtype::U8.byte_len(&[1 << 32, 1 << 32]), Err(ShapeError::Overflow));
        assert_eq!(FileDtype::U8.byte_len(&[0, 1 << 32, 1 << 32]), Err(ShapeError::Overflow));
        assert_eq!(FileDtype::F64.byte_len(&[1 << 61]), Err(ShapeError::Overflow));
        assert_eq!(FileDtype::U8.byte_len(&[0, u64::MAX]), Err(ShapeError::Overflow));
        assert_eq!(FileDtype::F64.byte_len(&[0, i64::MAX as u64]), Ok(0));
    }

    #[test]
    fn types_below_a_byte_fill_whole_bytes_and_blocks_fill_rows() {
        assert_eq!(FileDtype::F4.byte_len(&[3, 2]), Ok(3));
        assert!(FileDtype::F4.byte_len(&[3]).is_err());
        assert_eq!(FileDtype::F6E2M3.byte_len(&[8]), Ok(6));
        let q = FileDtype::Block(GgmlType::Q4_0);
        assert_eq!(q.byte_len(&[2, 64]), Ok(72));
        assert!(q.byte_len(&[64, 16]).is_err(), "the total is a multiple of 32 but a row is not");
    }
}
