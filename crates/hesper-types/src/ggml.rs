//! The block types of GGUF files: names, codes, sizes.

/// Elements that share a scale and a bias in the affine layout of blocks.
pub const AFFINE_GROUP: usize = 32;

macro_rules! ggml_types {
    ($($variant:ident $name:literal = $code:literal, $len:literal in $bytes:literal;)*) => {
        /// Block-quantized element types of GGUF.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, non_camel_case_types, reason = "the names are ggml's")]
        pub enum GgmlType { $($variant,)* }

        impl GgmlType {
            /// Every type, in the order of its code.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant,)*];

            /// The code of the type in a file.
            pub fn code(self) -> u32 {
                match self { $(GgmlType::$variant => $code,)* }
            }

            /// The type of a code.
            pub fn from_code(code: u32) -> Option<GgmlType> {
                match code { $($code => Some(GgmlType::$variant),)* _ => None }
            }

            /// The name in ggml.
            pub fn name(self) -> &'static str {
                match self { $(GgmlType::$variant => $name,)* }
            }

            /// Elements of a block.
            pub fn block_len(self) -> usize {
                match self { $(GgmlType::$variant => $len,)* }
            }

            /// Bytes of a block.
            pub fn block_bytes(self) -> usize {
                match self { $(GgmlType::$variant => $bytes,)* }
            }
        }
    };
}

ggml_types! {
    Q4_0 "Q4_0" = 2, 32 in 18;
    Q4_1 "Q4_1" = 3, 32 in 20;
    Q5_0 "Q5_0" = 6, 32 in 22;
    Q5_1 "Q5_1" = 7, 32 in 24;
    Q8_0 "Q8_0" = 8, 32 in 34;
    Q8_1 "Q8_1" = 9, 32 in 36;
    Q2_K "Q2_K" = 10, 256 in 84;
    Q3_K "Q3_K" = 11, 256 in 110;
    Q4_K "Q4_K" = 12, 256 in 144;
    Q5_K "Q5_K" = 13, 256 in 176;
    Q6_K "Q6_K" = 14, 256 in 210;
    Q8_K "Q8_K" = 15, 256 in 292;
    Iq2Xxs "IQ2_XXS" = 16, 256 in 66;
    Iq2Xs "IQ2_XS" = 17, 256 in 74;
    Iq3Xxs "IQ3_XXS" = 18, 256 in 98;
    Iq1S "IQ1_S" = 19, 256 in 50;
    Iq4Nl "IQ4_NL" = 20, 32 in 18;
    Iq3S "IQ3_S" = 21, 256 in 110;
    Iq2S "IQ2_S" = 22, 256 in 82;
    Iq4Xs "IQ4_XS" = 23, 256 in 136;
    Iq1M "IQ1_M" = 29, 256 in 56;
    Tq1_0 "TQ1_0" = 34, 256 in 54;
    Tq2_0 "TQ2_0" = 35, 256 in 66;
    Mxfp4 "MXFP4" = 39, 32 in 17;
    Nvfp4 "NVFP4" = 40, 64 in 36;
    Q1_0 "Q1_0" = 41, 128 in 18;
}

impl GgmlType {
    /// Whether its blocks can be decoded.
    pub fn is_decoded(self) -> bool {
        self.is_multiplied() || matches!(self, Self::Q8_K | Self::Iq4Nl | Self::Iq4Xs | Self::Mxfp4)
    }

    /// Whether every device can multiply by its blocks.
    pub fn is_multiplied(self) -> bool {
        use GgmlType::*;
        self.is_plain() || matches!(self, Q5_0 | Q5_1 | Q2_K | Q3_K | Q4_K | Q5_K | Q6_K)
    }

    /// Whether its blocks are decoded in registers during a product, and can be written: 32 codes after one
    /// scale, and a minimum for Q4_1.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q4_1 | Self::Q8_0)
    }

    /// Bytes before the codes of a plain block.
    pub fn head(self) -> usize {
        if self == Self::Q4_1 { 4 } else { 2 }
    }

    /// Bits of an element in the affine layout; `None` for types that do not fit it.
    pub fn affine_bits(self) -> Option<usize> {
        match self {
            Self::Q4_0 | Self::Q4_1 => Some(4),
            Self::Q8_0 => Some(8),
            _ => None,
        }
    }
}
