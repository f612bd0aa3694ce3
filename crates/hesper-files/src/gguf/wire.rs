//! GGUF's numbers for tensor types and metadata value types.

use hesper_types::GgmlType;

use crate::dtype::FileDtype;

/// The tensor type of a number.
pub(crate) fn dtype_of(code: u32) -> Option<FileDtype> {
    Some(match code {
        0 => FileDtype::F32,
        1 => FileDtype::F16,
        24 => FileDtype::I8,
        25 => FileDtype::I16,
        26 => FileDtype::I32,
        27 => FileDtype::I64,
        28 => FileDtype::F64,
        30 => FileDtype::BF16,
        other => FileDtype::Block(GgmlType::from_code(other)?),
    })
}

/// The number of a tensor type; `None` if GGUF has none for it.
pub(crate) fn code_of(dtype: FileDtype) -> Option<u32> {
    Some(match dtype {
        FileDtype::F32 => 0,
        FileDtype::F16 => 1,
        FileDtype::I8 => 24,
        FileDtype::I16 => 25,
        FileDtype::I32 => 26,
        FileDtype::I64 => 27,
        FileDtype::F64 => 28,
        FileDtype::BF16 => 30,
        FileDtype::Block(block) => block.code(),
        _ => return None,
    })
}

pub(crate) const U8: u32 = 0;
pub(crate) const I8: u32 = 1;
pub(crate) const U16: u32 = 2;
pub(crate) const I16: u32 = 3;
pub(crate) const U32: u32 = 4;
pub(crate) const I32: u32 = 5;
pub(crate) const F32: u32 = 6;
pub(crate) const BOOL: u32 = 7;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;
pub(crate) const U64: u32 = 10;
pub(crate) const I64: u32 = 11;
pub(crate) const F64: u32 = 12;

/// Nested arrays that are followed.
pub(crate) const MAX_DEPTH: u32 = 8;
