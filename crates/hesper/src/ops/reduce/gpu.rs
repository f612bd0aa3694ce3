//! Reductions for GPUs: which instance of the kernels computes what.

use super::layout::Layout;
use super::{Kind, Reduce};
use crate::Dtype;
use crate::array::Data;
use crate::dtype::Category;
use crate::error::Result;
use crate::eval::Lowering;
use crate::gpu::reduce::{MOST, Reduction};
use crate::gpu::type_name;
use crate::ops::native::reach;

/// Bytes of the type that elements are compared in, and of the one that they are summed up in.
fn widths(dtype: Dtype) -> (usize, usize) {
    let size = dtype.size();
    match dtype {
        Dtype::Float16 | Dtype::Bfloat16 => (4, 4),
        _ => (size, size.max(4)),
    }
}

pub(super) fn lower(op: &Reduce, l: &mut Lowering<'_>) -> Result<Option<Data>> {
    let dtype = l.input_dtype(0);
    let floats = matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32);
    if matches!(op.kind, Kind::Variance { .. }) && !floats {
        return Ok(None);
    }
    let layout = Layout::new(l.input(0), l.input_shape(0), &op.over);
    if layout.kept.len() > MOST || layout.reduced.len() > MOST {
        return Ok(None);
    }
    l.bring()?;
    let size = dtype.size();
    let (wide, total) = widths(dtype);
    let name = type_name(dtype);
    let word = ["u8", "u16", "u32", "u64"][size.trailing_zeros() as usize];
    // All bits of an integer, all but the sign of a float.
    let mask = match (dtype, size) {
        (Dtype::Complex64, _) => 0x7fff_ffff_7fff_ffff,
        _ if !dtype.is(Category::Inexact) => u64::MAX,
        (_, size) => u64::MAX >> (65 - 8 * size),
    };
    let turned = if layout.turned { layout.length() } else { 0 };
    let (instance, accumulator, numbers) = match op.kind {
        Kind::Sum(scale) => (format!("Sum<{name}>"), total, (scale, 0.0, 0, 0)),
        Kind::Product => (format!("Product<{name}>"), total, (0.0, 0.0, 0, 0)),
        Kind::Max => (format!("Extreme<{name}, true>"), wide, (0.0, 0.0, 0, 0)),
        Kind::Min => (format!("Extreme<{name}, false>"), wide, (0.0, 0.0, 0, 0)),
        // A wide value and a place: as long as two of the larger.
        Kind::ArgMax => (format!("Arg<{name}, true>"), wide.max(4) * 2, (0.0, 0.0, 0, turned)),
        Kind::ArgMin => (format!("Arg<{name}, false>"), wide.max(4) * 2, (0.0, 0.0, 0, turned)),
        Kind::All => (format!("Truth<{word}, true>"), 4, (0.0, 0.0, mask, 0)),
        Kind::Any => (format!("Truth<{word}, false>"), 4, (0.0, 0.0, mask, 0)),
        Kind::Count => (format!("Count<{word}>"), 4, (0.0, 0.0, mask, 0)),
        Kind::Variance { count, ddof, root } => {
            (format!("Moments<{name}>"), 16, (count, ddof, u64::from(root), 0))
        }
    };
    let data = op.result(l, &layout, l.dtype().size())?;
    let (bytes, _) = reach(l.input(0), l.input_shape(0), size);
    let (kept, reduced) = (&layout.kept[..], &layout.reduced[..]);
    let reduction = Reduction { op: instance, size, accumulator, kept, reduced, numbers, bytes };
    Ok(reduction.encode(l, &data.buffer)?.then_some(data))
}
