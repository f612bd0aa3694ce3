//! Reductions: one pass over memory, however the input lies.

mod number;

use std::any::TypeId;

use crate::parallel::with_element;
use crate::parallel::{GRAIN, par_chunks_mut};
use crate::row_source::RowSource;
use bytemuck::Pod;
use half::{bf16, f16};
use hesper_compute::{Mismatch, Plain, ReduceInput, ReduceLayout, ReduceOrder, Reduction, Sample};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::reduce::{Reduce, ReduceKind};
use hesper_core::{Category, Dtype, Error, Result};
use hesper_cpu::Cores;

use crate::Cpu;
use number::Number;

/// Shorter rows are not produced while they are reduced: calling the producer would cost more than its
/// elements.
const MIN_PRODUCED_ROW: usize = 16;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Reduce>()
}

impl Lower<Reduce> for Cpu {
    fn lower(op: &Reduce, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        let all = !dtype.is(Category::Inexact);
        match (op.kind, dtype) {
            (ReduceKind::Max | ReduceKind::Min, _) => match dtype {
                Dtype::Float32 => extremes::<f32>(op, l),
                Dtype::Float64 => extremes::<f64>(op, l),
                Dtype::Float16 => extremes::<f16>(op, l),
                Dtype::Bfloat16 => extremes::<bf16>(op, l),
                Dtype::Int32 => extremes::<i32>(op, l),
                Dtype::Uint32 => extremes::<u32>(op, l),
                Dtype::Int64 => extremes::<i64>(op, l),
                Dtype::Uint64 => extremes::<u64>(op, l),
                Dtype::Complex64 => extremes::<[f32; 2]>(op, l),
                Dtype::Complex128 => extremes::<[f64; 2]>(op, l),
                Dtype::Bool | Dtype::Uint8 => small_extremes::<u8>(op, l),
                Dtype::Int8 => small_extremes::<i8>(op, l),
                Dtype::Uint16 => small_extremes::<u16>(op, l),
                Dtype::Int16 => small_extremes::<i16>(op, l),
            },
            (ReduceKind::ArgMax | ReduceKind::ArgMin, _) => with_element!(dtype, T => indices::<T>(op, l)),
            (ReduceKind::All | ReduceKind::Any | ReduceKind::Count, _) => match dtype.size() {
                1 => flags::<u8>(op, l, u64::MAX),
                2 => flags::<u16>(op, l, if all { u64::MAX } else { 0x7fff }),
                4 => flags::<u32>(op, l, if all { u64::MAX } else { 0x7fff_ffff }),
                _ if dtype == Dtype::Complex64 => flags::<u64>(op, l, 0x7fff_ffff_7fff_ffff),
                _ => flags::<u64>(op, l, if all { u64::MAX } else { u64::MAX >> 1 }),
            },
            (ReduceKind::Variance { .. }, Dtype::Float16) => variance(op, l, f16::from_f64),
            (ReduceKind::Variance { .. }, Dtype::Bfloat16) => variance(op, l, bf16::from_f64),
            (ReduceKind::Variance { .. }, Dtype::Float32) => variance(op, l, |x| x as f32),
            (ReduceKind::Variance { .. }, _) => Err(no_variance(op, l)),
            (ReduceKind::Sum(_) | ReduceKind::Product, _) => match dtype {
                Dtype::Bool | Dtype::Uint8 => arithmetic::<u8>(op, l),
                Dtype::Uint16 => arithmetic::<u16>(op, l),
                Dtype::Uint32 | Dtype::Int32 => arithmetic::<u32>(op, l),
                Dtype::Uint64 | Dtype::Int64 => arithmetic::<u64>(op, l),
                Dtype::Int8 => arithmetic::<i8>(op, l),
                Dtype::Int16 => arithmetic::<i16>(op, l),
                Dtype::Float16 => arithmetic::<f16>(op, l),
                Dtype::Bfloat16 => arithmetic::<bf16>(op, l),
                Dtype::Float32 => arithmetic::<f32>(op, l),
                Dtype::Float64 => arithmetic::<f64>(op, l),
                Dtype::Complex64 => arithmetic::<[f32; 2]>(op, l),
                Dtype::Complex128 => arithmetic::<[f64; 2]>(op, l),
            },
        }
        .map(Some)
    }

    /// Where whole rows are combined by the kernels of contiguous axes.
    fn takes_rows(op: &Reduce, shape: &[usize], dtype: Dtype) -> bool {
        let combined = match op.kind {
            ReduceKind::Sum(_) | ReduceKind::Product => true,
            ReduceKind::Max | ReduceKind::Min => dtype.size() >= 4 || dtype.is(Category::Inexact),
            _ => false,
        };
        let trailing = op.over.iter().rev().zip((0..shape.len()).rev()).all(|(axis, at)| *axis == at);
        let length: usize = op.over.iter().filter_map(|at| shape.get(*at)).product();
        combined && !dtype.is(Category::Complex) && trailing && length >= MIN_PRODUCED_ROW
    }
}

/// Stores what `reduce` combines. Where that is of the result's type it is computed in place; `done` says
/// that it then needs no `finish`.
fn finished<A: Pod + Send + Sync, R: Pod + Send + Sync>(
    out: &mut [R],
    done: bool,
    finish: impl Fn(A) -> R + Sync,
    reduce: impl FnOnce(&mut [A]) -> std::result::Result<(), Mismatch>,
) -> std::result::Result<(), Mismatch> {
    if TypeId::of::<A>() == TypeId::of::<R>() {
        reduce(bytemuck::cast_slice_mut(out))?;
        if !done {
            par_chunks_mut(out, GRAIN, |_, part| {
                part.iter_mut().for_each(|result| *result = finish(bytemuck::cast(*result)));
            });
        }
        return Ok(());
    }
    let mut combined = vec![A::zeroed(); out.len()];
    reduce(&mut combined)?;
    par_chunks_mut(out, GRAIN, |task, part| {
        for (result, one) in part.iter_mut().zip(&combined[task * GRAIN..]) {
            *result = finish(*one);
        }
    });
    Ok(())
}

/// Runs a kernel on the input where it lies.
fn run<T: Pod + Plain, R: Pod + Send + Sync>(
    op: &Reduce,
    l: &Lowering<'_>,
    order: ReduceOrder,
    kernel: impl FnOnce(&ReduceInput<'_, T>, &mut [R]) -> std::result::Result<(), Mismatch> + Send + 'static,
) -> Result<Data> {
    let layout = ReduceLayout::new(l.input_shape(0), &l.input(0).strides, &op.over, order);
    let data = result(op, l, &layout, size_of::<R>())?;
    let (bytes, _) = reach(l.input(0), l.input_shape(0), size_of::<T>());
    let command = l.stream().command(op.name()).read_range(&l.input(0).buffer, bytes);
    command.write(&data.buffer).run(move |native| {
        let [from, to] = native.take()?;
        let (x, out) = (from.as_slice::<T>()?, to.as_mut_slice::<R>()?);
        layout.input(x).and_then(|x| kernel(&x, out)).map_err(crate::refused)
    })?;
    Ok(data)
}

/// Sums, products and extremes; `done` says that results of the accumulator's type need no `finish`.
fn combine<T: Number, R: Pod + Send + Sync>(
    op: &Reduce,
    l: &mut Lowering<'_>,
    reduction: Reduction,
    done: bool,
    finish: impl Fn(T::Acc) -> R + Send + Sync + 'static,
) -> Result<Data> {
    let Some(rows) = l.take_fused_rows()? else {
        let rounds = l.input_dtype(0).is(Category::Inexact);
        let sums = rounds && matches!(reduction, Reduction::Sum | Reduction::Prod);
        let order = if sums { ReduceOrder::Sum } else { ReduceOrder::Any };
        return run(op, l, order, move |x: &ReduceInput<'_, T>, out| {
            finished(out, done, finish, |to| hesper_compute::reduce(&Cores, reduction, x, to))
        });
    };
    let rows = RowSource::Fused(rows);
    let length = op.over.iter().map(|at| l.input_shape(0)[*at]).product();
    let output = l.output()?;
    let command = rows.bind(l.stream().command(op.name())).write(&output);
    let reader = rows.reader();
    command.run(move |native| {
        reader.with::<T>(native, |x, rest| {
            let Some(out) = rest.last_mut() else { return Ok(()) };
            let reduce = |to: &mut [T::Acc]| hesper_compute::reduce_rows(&Cores, reduction, x, length, to);
            finished(out.as_mut_slice::<R>()?, done, finish, reduce).map_err(crate::refused)
        })
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Memory for the results, which are of `size` bytes each and lie as their input does.
fn result(op: &Reduce, l: &Lowering<'_>, layout: &ReduceLayout, size: usize) -> Result<Data> {
    let buffer = l.stream().alloc(layout.outputs() * size)?;
    let keep = l.shape().len() == l.input_shape(0).len();
    Ok(Data { buffer, offset: layout.offset, strides: layout.result_strides(&op.over, keep).into() })
}

/// Sums and products. Signed integers wrap as unsigned ones do.
fn arithmetic<T: Number>(op: &Reduce, l: &mut Lowering<'_>) -> Result<Data> {
    let (reduction, scale) = match op.kind {
        ReduceKind::Sum(scale) => (Reduction::Sum, scale.0),
        _ => (Reduction::Prod, 1.0),
    };
    combine::<T, T::Sum>(op, l, reduction, scale == 1.0, move |total| T::sum(total, scale))
}

/// The largest and the smallest elements.
fn extremes<T: Number>(op: &Reduce, l: &mut Lowering<'_>) -> Result<Data> {
    let reduction = if op.kind == ReduceKind::Max { Reduction::Max } else { Reduction::Min };
    combine::<T, T>(op, l, reduction, true, T::narrow)
}

/// The largest and the smallest of small integers.
fn small_extremes<T: hesper_compute::Integer + Pod>(op: &Reduce, l: &Lowering<'_>) -> Result<Data> {
    let max = op.kind == ReduceKind::Max;
    run(op, l, ReduceOrder::Any, move |x, out: &mut [T]| {
        hesper_compute::extreme_integers(&Cores, max, x, out)
    })
}

/// Indices of the largest and the smallest elements.
fn indices<T: hesper_compute::Ordered + Pod>(op: &Reduce, l: &Lowering<'_>) -> Result<Data> {
    let max = op.kind == ReduceKind::ArgMax;
    run(op, l, ReduceOrder::Index, move |x: &ReduceInput<'_, T>, out| {
        hesper_compute::arg_extreme(&Cores, max, x, out)
    })
}

/// Which elements are set.
fn flags<T: hesper_compute::Word + Pod>(op: &Reduce, l: &Lowering<'_>, mask: u64) -> Result<Data> {
    let all = match op.kind {
        ReduceKind::All => true,
        ReduceKind::Any => false,
        _ => {
            return run(op, l, ReduceOrder::Any, move |x: &ReduceInput<'_, T>, out| {
                hesper_compute::count_set(&Cores, mask, x, out)
            });
        }
    };
    run(op, l, ReduceOrder::Any, move |x: &ReduceInput<'_, T>, out| {
        hesper_compute::truths(&Cores, all, mask, x, out)
    })
}

/// The variance, or its root: sums of numbers and squares in double precision leave a float32's digits
/// intact.
fn variance<T: Sample + Pod>(op: &Reduce, l: &Lowering<'_>, of: fn(f64) -> T) -> Result<Data> {
    let ReduceKind::Variance { count, ddof, root } = op.kind else { return Err(no_variance(op, l)) };
    let (count, ddof) = (count.0, ddof.0);
    let finish = move |[sum, squares]: [f64; 2]| {
        let above = squares - sum * sum / count;
        // Rounding may leave a tiny negative number; NaN stays.
        let above = if above < 0.0 { 0.0 } else { above };
        let variance = above / (count - ddof).max(0.0);
        of(if root { variance.sqrt() } else { variance })
    };
    run(op, l, ReduceOrder::Sum, move |x: &ReduceInput<'_, T>, out| {
        finished(out, false, finish, |to| hesper_compute::moments(&Cores, x, to))
    })
}

fn no_variance(op: &Reduce, l: &Lowering<'_>) -> Error {
    let what = "single and half precision only, not an array".into();
    Error::Type { op: op.name().into(), what, dtype: l.input_dtype(0) }
}
