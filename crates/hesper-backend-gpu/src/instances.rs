//! The operations of reductions and scans, as the texts name them.

use hesper_core::ops::reduce::ReduceKind;
use hesper_core::ops::scan::ScanKind;
use hesper_core::{Category, Dtype};

use crate::KernelText;

/// The operation of a scan.
pub fn scan_instance<T: KernelText>(kind: ScanKind, dtype: Dtype) -> String {
    let of = T::type_name(dtype);
    match kind {
        ScanKind::Sum => format!("Sum<{of}>"),
        ScanKind::Product => format!("Product<{of}>"),
        ScanKind::LogSum => format!("LogSum<{of}>"),
        ScanKind::Max => format!("Extreme<{of}, true>"),
        ScanKind::Min => format!("Extreme<{of}, false>"),
    }
}

/// The operation of a reduction. `word` names an unsigned type of the size of an element.
pub fn reduce_instance<T: KernelText>(kind: ReduceKind, dtype: Dtype, word: &str) -> String {
    let of = T::type_name(dtype);
    match kind {
        ReduceKind::Sum(_) => format!("Sum<{of}>"),
        ReduceKind::Product => format!("Product<{of}>"),
        ReduceKind::Max => format!("Extreme<{of}, true>"),
        ReduceKind::Min => format!("Extreme<{of}, false>"),
        ReduceKind::ArgMax => format!("Arg<{of}, true>"),
        ReduceKind::ArgMin => format!("Arg<{of}, false>"),
        ReduceKind::All => format!("Truth<{word}, true>"),
        ReduceKind::Any => format!("Truth<{word}, false>"),
        ReduceKind::Count => format!("Count<{word}>"),
        ReduceKind::Variance { .. } => format!("Moments<{of}>"),
    }
}

/// The bits by which an element differs from zero: all of an integer, all but the signs of a float.
pub fn nonzero_mask(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::Complex64 => 0x7fff_ffff_7fff_ffff,
        _ if !dtype.is(Category::Inexact) => u64::MAX,
        _ => u64::MAX >> (65 - 8 * dtype.size()),
    }
}
