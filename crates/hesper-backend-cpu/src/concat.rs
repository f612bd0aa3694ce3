//! Concatenation.

use crate::walk::{ElementLayout, Strided};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::concat::Concatenate;
use hesper_core::shape::{Shape, Strides, row_major};

use crate::Cpu;
use crate::copy::{Carrier, copy_to, with_carrier};

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Concatenate>()
}

impl Lower<Concatenate> for Cpu {
    fn lower(op: &Concatenate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_carrier!(l.dtype(), run::<_>(op.0, l)).map(Some)
    }
}

/// The order of axes in memory, outermost first, if all parts share one that does not end with the last axis.
/// A result in that order is copied without transposing. Axes of length one go first.
fn common_order(parts: &[Strided]) -> Option<Shape> {
    let first = parts.iter().find(|part| part.shape.iter().product::<usize>() > 1)?;
    let reach = |axis: &usize| match first.shape[*axis] {
        1 => isize::MAX,
        _ => first.strides()[*axis],
    };
    let mut order: Shape = (0..first.shape.len()).collect();
    order.sort_by_key(|axis| std::cmp::Reverse(reach(axis)));
    let innermost = *order.last()?;
    // Rows that are contiguous are copied to row-major order as fast.
    if innermost + 1 == first.shape.len() || first.strides()[innermost] != 1 {
        return None;
    }
    let in_order = |part: &Strided| {
        let axes = order.iter().filter(|axis| part.shape[**axis] != 1);
        let strides: Shape = axes.map(|axis| usize::try_from(part.strides()[*axis]).unwrap_or(0)).collect();
        strides.windows(2).all(|pair| pair[0] >= pair[1]) && strides.last().is_none_or(|stride| *stride > 0)
    };
    parts.iter().all(in_order).then_some(order)
}

fn run<T: Carrier>(along: usize, l: &Lowering<'_>) -> Result<Data> {
    let parts: Vec<Strided> = (0..l.input_count()).map(|at| Strided::input(l, at)).collect();
    let order = common_order(&parts).unwrap_or_else(|| (0..l.shape().len()).collect());
    let along = order.iter().position(|axis| *axis == along).unwrap_or(along);
    let output = l.output()?;
    let mut encoder = l.stream().command("concatenate");
    for part in &parts {
        encoder = encoder.read_range(&part.data.buffer, part.bytes.clone());
    }
    // Strides in the order of memory, and in the order of axes.
    let strides = row_major(&order.iter().map(|axis| l.shape()[*axis]).collect::<Shape>());
    let mut result: Strides = strides.iter().copied().collect();
    for (axis, stride) in order.iter().zip(&strides) {
        result[*axis] = *stride;
    }
    let permuted = |part: &Strided| ElementLayout {
        shape: order.iter().map(|axis| part.shape[*axis]).collect(),
        strides: order.iter().map(|axis| part.strides()[*axis]).collect(),
        offset: part.offset,
    };
    let layouts: Vec<_> = parts.iter().map(permuted).collect();
    encoder.write(&output).run(move |native| {
        let Some((to, views)) = native.views().split_last_mut() else { return Ok(()) };
        let to = to.as_mut_slice::<T>()?;
        let mut first = 0;
        for (view, part) in views.iter().zip(&layouts) {
            copy_to(to, first, &strides, view.as_slice::<T>()?, part)?;
            first += part.shape[along] * strides[along] as usize;
        }
        Ok(())
    })?;
    Ok(Data { buffer: output, offset: 0, strides: result })
}
