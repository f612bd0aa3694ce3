//! Matrix products of gathered matrices and of segments.

use crate::walk::{Cursor, Strided};
use half::{bf16, f16};
use hesper_compute::{GemmOptions, MatMut, MatRef, gemm};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::grouped::{GatherMm, SegmentedMm};
use hesper_core::ops::index_arrays::Indices;
use hesper_core::shape::is_row_major;
use hesper_core::{Dtype, Element, Result};
use hesper_cpu::Cores;
use hesper_runtime::Access;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<GatherMm>().with::<SegmentedMm>()
}

/// Calls a function that is generic over the element type of matrices.
macro_rules! with_element {
    ($l:expr, $function:ident) => {
        match $l.dtype() {
            Dtype::Float32 => $function::<f32>($l),
            Dtype::Float64 => $function::<f64>($l),
            Dtype::Float16 => $function::<f16>($l),
            Dtype::Bfloat16 => $function::<bf16>($l),
            _ => return Ok(None),
        }
        .map(Some)
    };
}

impl Lower<GatherMm> for Cpu {
    fn lower(_: &GatherMm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_element!(l, gathered)
    }
}

impl Lower<SegmentedMm> for Cpu {
    fn lower(_: &SegmentedMm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_element!(l, segmented)
    }
}

fn gathered<T: Element + hesper_compute::Element>(l: &Lowering<'_>) -> Result<Data> {
    let a = Strided::row_major(l, 0)?;
    // A transposed view of row-major weights is read in place.
    let (shape, strides) = (l.input_shape(1), &l.input(1).strides);
    let transposed = is_row_major(&[shape[0], shape[2], shape[1]], &[strides[0], strides[2], strides[1]])
        && !is_row_major(shape, strides);
    let b = if transposed { Strided::input(l, 1) } else { Strided::row_major(l, 1)? };
    let lists = [Strided::input(l, 2), Strided::input(l, 3)];
    let types = [l.input_dtype(2), l.input_dtype(3)];
    let output = l.output()?;
    let mut encoder = l.stream().command("gather_mm");
    for bound in [&a, &b, &lists[0], &lists[1]] {
        encoder.add(&bound.data.buffer, bound.bytes.clone(), Access::Read);
    }
    let (a, b, lists) = (a.layout(), b.layout(), lists.each_ref().map(Strided::layout));
    encoder.write(&output).run(move |native| {
        let [x, y, left, right, to] = native.take()?;
        let (x, y, to) = (x.as_slice::<T>()?, y.as_slice::<T>()?, to.as_mut_slice::<T>()?);
        let (m, k, n) = (a.shape[1], a.shape[2], b.shape[2]);
        if to.is_empty() {
            return Ok(());
        }
        let indices = [Indices::of(left, types[0])?, Indices::of(right, types[1])?];
        let count = to.len() / (m * n);
        let mut cursor = Cursor::new(&lists[0].shape, [&lists[0].strides, &lists[1].strides], 0);
        // Products with the same right matrix are computed as one, so the matrix is read once.
        let mut by_right: Vec<Vec<(usize, usize)>> = vec![Vec::new(); b.shape[0]];
        for at in 0..count {
            let left = indices[0].get(lists[0].offset + cursor.at[0], a.shape[0], 1);
            let right = indices[1].get(lists[1].offset + cursor.at[1], b.shape[0], 1);
            by_right[right as usize].push((at, left as usize));
            cursor.advance();
        }
        let zero = <T as bytemuck::Zeroable>::zeroed();
        let (mut rows, mut products) = (Vec::new(), Vec::new());
        for (right, list) in by_right.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            rows.clear();
            list.iter().for_each(|(_, left)| rows.extend_from_slice(&x[left * m * k..(left + 1) * m * k]));
            products.clear();
            products.resize(list.len() * m * n, zero);
            let own = &y[right * k * n..(right + 1) * k * n];
            let own = if transposed {
                MatRef::row_major(own, n, k).map(MatRef::transposed)
            } else {
                MatRef::row_major(own, k, n)
            };
            MatRef::row_major(&rows, list.len() * m, k)
                .and_then(|rows| {
                    let products = MatMut::row_major(&mut products, list.len() * m, n)?;
                    gemm(&Cores, rows, own?, products, &GemmOptions::default())
                })
                .map_err(crate::refused)?;
            for ((at, _), product) in list.iter().zip(products.chunks(m * n)) {
                to[at * m * n..(at + 1) * m * n].copy_from_slice(product);
            }
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

fn segmented<T: Element + hesper_compute::Element>(l: &Lowering<'_>) -> Result<Data> {
    let (a, b, list) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?, Strided::input(l, 2));
    let (dtype, output) = (l.input_dtype(2), l.output()?);
    let mut encoder = l.stream().command("segmented_mm");
    for bound in [&a, &b, &list] {
        encoder.add(&bound.data.buffer, bound.bytes.clone(), Access::Read);
    }
    let (a, b, list) = (a.layout(), b.layout(), list.layout());
    encoder.write(&output).run(move |native| {
        let [x, y, segments, to] = native.take()?;
        let (x, y, to) = (x.as_slice::<T>()?, y.as_slice::<T>()?, to.as_mut_slice::<T>()?);
        let (m, k, n) = (a.shape[0], a.shape[1], b.shape[1]);
        if to.is_empty() {
            return Ok(());
        }
        let bounds = Indices::of(segments, dtype)?;
        let mut cursor = Cursor::new(&list.shape, [&list.strides], 0);
        let mut bound = || {
            // An end may be one past the last element.
            let found = bounds.get(list.offset + cursor.at[0], k + 1, 1) as usize;
            cursor.advance();
            found
        };
        let mut columns = Vec::new();
        for part in to.chunks_mut(m * n) {
            let (start, stop) = (bound(), bound());
            let width = stop.saturating_sub(start);
            columns.clear();
            (0..m).for_each(|row| columns.extend_from_slice(&x[row * k + start..][..width]));
            MatRef::row_major(&columns, m, width)
                .and_then(|columns| {
                    let rows = MatRef::row_major(&y[start * n..][..width * n], width, n)?;
                    gemm(&Cores, columns, rows, MatMut::row_major(part, m, n)?, &GemmOptions::default())
                })
                .map_err(crate::refused)?;
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}
