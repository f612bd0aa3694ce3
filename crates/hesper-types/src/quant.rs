//! Formats of quantized matrices.

/// A quantization format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantFormat {
    /// `scale * code + bias` with codes of 1, 2, 3, 4, 5, 6 or 8 bits, in groups of 32, 64 or 128.
    Affine {
        /// Bits of a code.
        bits: usize,
        /// Codes that share a scale and a bias.
        group: usize,
    },
    /// 4-bit floats (E2M1) in groups of 32 with a power of two as scale (E8M0).
    Mxfp4,
    /// 8-bit floats (E4M3) in groups of 32 with a power of two as scale (E8M0).
    Mxfp8,
    /// 4-bit floats (E2M1) in groups of 16 with an 8-bit float as scale (E4M3).
    Nvfp4,
}

impl QuantFormat {
    /// Bits of a code.
    #[inline]
    pub fn bits(self) -> usize {
        match self {
            Self::Affine { bits, .. } => bits,
            Self::Mxfp4 | Self::Nvfp4 => 4,
            Self::Mxfp8 => 8,
        }
    }

    /// Codes that share a scale.
    #[inline]
    pub fn group(self) -> usize {
        match self {
            Self::Affine { group, .. } => group,
            Self::Mxfp4 | Self::Mxfp8 => 32,
            Self::Nvfp4 => 16,
        }
    }

    /// 32-bit words that hold `n` codes.
    #[inline]
    pub fn words(self, n: usize) -> usize {
        n / 16 * self.bits() / 2
    }
}

/// The precision of activations in a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activations {
    /// Activations are not rounded.
    #[default]
    Exact,
    /// Activations may be rounded to 8 bits in blocks of 32, and multiplied as integers.
    ///
    /// On the CPU this applies to affine codes of 4 and 8 bits, used transposed, and to blocks of Q4_0, Q4_1,
    /// Q8_0, Q4_K and Q6_K. The error of an activation is at most 1/254 of the largest of its block. A block
    /// with an element that is not finite makes its results NaN. Other products are exact.
    Int8,
}
