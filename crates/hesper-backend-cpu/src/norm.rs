//! Softmax, norms, sums of exponentials and cross entropy: each reads its row once and writes its result
//! once.

use crate::float::{self, Float, Wide};
use crate::parallel::{GRAIN, par_chunks_mut};
use crate::row_epilogue::{EpilogueRows, RowRange};
use crate::row_source::RowSource;
use half::{bf16, f16};
use hesper_compute::{Axis, Mismatch, Par, Plain, RowScratch, Serial, Source};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, compose};
use hesper_core::eval::producer_fusion::FusedRows;
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::{CrossEntropy, CrossEntropyGradient, RowOp, not_floats};
use hesper_core::{Dtype, Result};
use hesper_cpu::Cores;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<RowOp>().with::<CrossEntropy>().with::<CrossEntropyGradient>()
}

impl Lower<RowOp> for Cpu {
    fn lower(op: &RowOp, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match l.input_dtype(0) {
            Dtype::Float16 => run_single::<f16>(*op, l),
            Dtype::Bfloat16 => run_single::<bf16>(*op, l),
            Dtype::Float32 => run_single::<f32>(*op, l),
            Dtype::Float64 => {
                let rows = RowSource::of::<f64>(l)?;
                run::<f64>(*op, l, rows, |_, op, x, length, vectors, out| {
                    double(op, x.piece(0, x.count(), &mut RowScratch::default()), length, vectors, out);
                    Ok(())
                })
            }
            dtype => Err(not_floats(op.name(), dtype)),
        }
        .map(Some)
    }

    fn takes_rows(_: &RowOp, shape: &[usize], dtype: Dtype) -> bool {
        fuses(shape, dtype)
    }

    /// The result of log-sum-exp is small.
    fn takes_epilogue(op: &RowOp, shape: &[usize], dtype: Dtype) -> bool {
        *op != RowOp::LogSumExp && fuses(shape, dtype)
    }
}

/// Whether rows are computed together with element-wise ops. One core computes a row: if there are only a few
/// long rows, all cores compute the element-wise ops by themselves.
fn fuses(shape: &[usize], dtype: Dtype) -> bool {
    let Some((length, outer)) = shape.split_last() else { return false };
    let rows: usize = outer.iter().product();
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
        && (rows >= 2 * Cores.threads() || rows * length <= GRAIN)
}

impl Lower<CrossEntropy> for Cpu {
    fn lower(op: &CrossEntropy, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match l.input_dtype(0) {
            Dtype::Float16 => cross_entropy::<f16>(l),
            Dtype::Bfloat16 => cross_entropy::<bf16>(l),
            Dtype::Float32 => cross_entropy::<f32>(l),
            Dtype::Float64 => cross_entropy::<f64>(l),
            dtype => Err(not_floats(op.name(), dtype)),
        }
        .map(Some)
    }
}

/// Fused kernels compute all of it behind one reduction.
impl Lower<CrossEntropyGradient> for Cpu {
    fn lower(_: &CrossEntropyGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, CrossEntropyGradient::composed)
    }
}

/// Computes rows in single precision.
fn single<T: hesper_compute::Float>(
    par: &dyn Par,
    op: RowOp,
    x: &dyn Source<T>,
    length: usize,
    [weight, bias]: [Option<&[T]>; 2],
    out: &mut [T],
) -> std::result::Result<(), Mismatch> {
    match op {
        RowOp::Softmax => hesper_compute::softmax(par, x, length, out),
        RowOp::LogSumExp => hesper_compute::logsumexp(par, x, length, out),
        RowOp::RmsNorm { eps, .. } => hesper_compute::rms_norm(par, x, length, weight, eps.0 as f32, out),
        RowOp::LayerNorm { eps, .. } => {
            hesper_compute::layer_norm(par, x, length, weight, bias, eps.0 as f32, out)
        }
    }
}

/// Computes rows in double precision.
fn double(op: RowOp, x: &[f64], length: usize, [weight, bias]: [Option<&[f64]>; 2], out: &mut [f64]) {
    let kept = if op == RowOp::LogSumExp { 1 } else { length };
    let grain = (GRAIN / length).max(1);
    par_chunks_mut(out, grain * kept, |task, piece| {
        let from = x[task * grain * length..].chunks_exact(length);
        for (to, from) in piece.chunks_exact_mut(kept).zip(from) {
            double_row(op, from, weight, bias, to);
        }
    });
}

fn double_row(op: RowOp, row: &[f64], weight: Option<&[f64]>, bias: Option<&[f64]>, out: &mut [f64]) {
    let by = |out: &mut [f64], factor: f64| match weight {
        Some(weight) => out.iter_mut().zip(weight).for_each(|(x, w)| *x = *x * factor * w),
        None => out.iter_mut().for_each(|x| *x *= factor),
    };
    let length = row.len() as f64;
    match op {
        RowOp::Softmax => {
            out.copy_from_slice(row);
            let top = Wide::max(row);
            let sum = float::exp_and_sum(out, top);
            by(out, 1.0 / sum);
        }
        RowOp::LogSumExp => out[0] = float::logsumexp(&mut row.to_vec()),
        RowOp::RmsNorm { eps, .. } => {
            out.copy_from_slice(row);
            by(out, (squares(row) / length + eps.0).rsqrt());
        }
        RowOp::LayerNorm { eps, .. } => {
            let mean = Wide::sum(row) / length;
            out.iter_mut().zip(row).for_each(|(to, x)| *to = x - mean);
            let factor = (squares(out) / length + eps.0).rsqrt();
            by(out, factor);
            if let Some(bias) = bias {
                out.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
            }
        }
    }
}

/// Computes along an axis that is not the innermost one.
fn columns<T: hesper_compute::Float>(
    op: RowOp,
    x: &[T],
    axis: Axis,
    out: &mut [T],
) -> std::result::Result<(), Mismatch> {
    match op {
        RowOp::LogSumExp => hesper_compute::logsumexp_along(&Cores, x, axis, out),
        _ => hesper_compute::softmax_along(&Cores, x, axis, out),
    }
}

/// Runs an op in single precision. Rows that are columns in memory are computed in place.
fn run_single<T>(op: RowOp, l: &mut Lowering<'_>) -> Result<Data>
where
    T: hesper_core::Element + Plain + hesper_compute::Float,
{
    if let Some(rows) = l.take_fused_rows()? {
        return run(op, l, RowSource::Fused(rows), single::<T>);
    }
    let axis = match op {
        RowOp::Softmax | RowOp::LogSumExp => columns_of(l.input(0), l.input_shape(0)),
        _ => None,
    };
    let Some(axis) = axis else {
        let rows = RowSource::of::<T>(l)?;
        return run(op, l, rows, single::<T>);
    };
    let (input, output) = (l.input(0).clone(), l.output()?);
    let (bytes, _) = reach(&input, l.input_shape(0), T::DTYPE.size());
    let command = l.stream().command(op.name()).read_range(&input.buffer, bytes);
    command.write(&output).run(move |native| {
        let [x, out] = native.take()?;
        columns(op, x.as_slice::<T>()?, axis, out.as_mut_slice::<T>()?).map_err(crate::refused)
    })?;
    if op == RowOp::LogSumExp {
        return Ok(Data::contiguous(output, l.shape()));
    }
    Ok(Data { buffer: output, offset: 0, strides: input.strides })
}

fn run<T: hesper_core::Element + Plain>(
    op: RowOp,
    l: &mut Lowering<'_>,
    rows: RowSource,
    compute: Compute<T>,
) -> Result<Data> {
    let shape = l.input_shape(0);
    let length = shape[shape.len() - 1];
    let (weight, bias) = op.vectors();
    let count = 1 + usize::from(weight) + usize::from(bias);
    let vectors = (1..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
    let epilogue = l.epilogue_rows()?;
    let output = if epilogue.is_some() { l.epilogue_output()? } else { l.output()? };
    let mut command = rows.bind(l.stream().command(op.name()));
    for (data, at) in vectors.iter().zip(1..) {
        let (bytes, _) = reach(data, l.input_shape(at), T::DTYPE.size());
        command = command.read_range(&data.buffer, bytes);
    }
    for data in epilogue.iter().flat_map(FusedRows::memory) {
        command = command.read(&data.buffer);
    }
    let command = command.write(&output);
    let (reader, size) = (rows.reader(), l.epilogue_dtype().size());
    let kernel = epilogue.as_ref().map(|rows| rows.kernel().clone());
    command.run(move |native| {
        reader.with::<T>(native, |x, rest| {
            let Some((out, inputs)) = rest.split_last_mut() else { return Ok(()) };
            let (vectors, others) = inputs.split_at(usize::from(weight) + usize::from(bias));
            let mut vectors = vectors.iter().map(|view| view.as_slice::<T>());
            let weight = if weight { vectors.next().transpose()? } else { None };
            let bias = if bias { vectors.next().transpose()? } else { None };
            let vectors = [weight, bias];
            if x.count() == 0 {
                return Ok(());
            }
            let Some(kernel) = &kernel else {
                let out = out.as_mut_slice::<T>()?;
                return compute(&Cores, op, x, length, vectors, out).map_err(crate::refused);
            };
            let epilogue = EpilogueRows::new(kernel, others, size)?;
            epilogue.apply(length, out.bytes_mut()?, |first, out: &mut [T]| {
                let rows = RowRange { of: x, first: first * length, count: out.len() };
                compute(&Serial, op, &rows, length, vectors, out)
            })
        })
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// The axis of the rows, if they are columns of a contiguous array.
fn columns_of(data: &Data, shape: &[usize]) -> Option<Axis> {
    let (len, kept) = shape.split_last()?;
    let (step, strides) = data.strides.split_last()?;
    if *step < 2 || *len < 2 {
        return None;
    }
    // From the innermost axis on: first the axes inside of the row axis, then those outside.
    let (mut next, mut inner) = (1usize, None);
    for (length, stride) in kept.iter().zip(strides).rev().filter(|(length, _)| **length != 1) {
        if inner.is_none() && next == *step as usize && *stride as usize != next {
            inner = Some(next);
            next *= len;
        }
        if usize::try_from(*stride).ok()? != next {
            return None;
        }
        next *= length;
    }
    if inner.is_none() && next == *step as usize {
        inner = Some(next);
        next *= len;
    }
    let inner = inner?;
    Some(Axis { outer: next / (len * inner), len: *len, inner })
}

/// Computes rows: cores, op, elements, length of a row, weight and bias, results.
type Compute<T> = fn(
    &dyn Par,
    RowOp,
    &dyn Source<T>,
    usize,
    [Option<&[T]>; 2],
    &mut [T],
) -> std::result::Result<(), Mismatch>;

/// The sum of squares.
fn squares(row: &[f64]) -> f64 {
    let mut squares = [0.0; 256];
    let mut total = 0.0;
    for block in row.chunks(256) {
        squares.iter_mut().zip(block).for_each(|(square, x)| *square = x * x);
        total += Wide::sum(&squares[..block.len()]);
    }
    total
}

fn cross_entropy<T: Float>(l: &Lowering<'_>) -> Result<Data> {
    let (logits, targets, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
    let shape = l.input_shape(0);
    let length = shape[shape.len() - 1];
    let (logits_bytes, _) = reach(&logits, shape, T::DTYPE.size());
    let (targets_bytes, _) = reach(&targets, l.input_shape(1), 8);
    let command = l.stream().command("cross_entropy").read_range(&logits.buffer, logits_bytes);
    let command = command.read_range(&targets.buffer, targets_bytes);
    command.write(&output).run(move |native| {
        let [logits, targets, out] = native.take()?;
        let (logits, targets) = (logits.as_slice::<T>()?, targets.as_slice::<i64>()?);
        let grain = (GRAIN / length).max(1);
        par_chunks_mut(out.as_mut_slice::<f32>()?, grain, |task, losses| {
            let mut row = vec![T::Wide::of(0.0); length];
            for (at, loss) in losses.iter_mut().enumerate() {
                let at = task * grain + at;
                T::load(&logits[at * length..(at + 1) * length], &mut row);
                let target = if targets[at] < 0 { targets[at] + length as i64 } else { targets[at] };
                let logit = usize::try_from(target).ok().and_then(|target| row.get(target)).copied();
                *loss = match logit {
                    Some(logit) => float::logsumexp(&mut row).minus(logit).single(),
                    None => f32::NAN,
                };
            }
        });
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}
