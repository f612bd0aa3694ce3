//! Matrix products of chosen matrices, of segments, and of blocks.

use half::{bf16, f16};
use hesper_compute::{GemmOptions, MatMut, MatRef, gemm};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::gather::{broadcast_indices, check_indices};
use super::lists::Indices;
use super::walk::{Cursor, Strided};
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::gpu::compose;
use crate::ops::command::Commands;
use crate::shape::{Shape, is_row_major, signed};
use crate::transform::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::{Dtype, Element, select};

/// Runs a generic lowering for a type that matrices are made of.
macro_rules! with_float {
    ($dtype:expr, $op:literal, $function:ident :: <_>($($argument:expr),*)) => {
        match $dtype {
            Dtype::Float32 => $function::<f32>($($argument),*),
            Dtype::Float64 => $function::<f64>($($argument),*),
            Dtype::Float16 => $function::<f16>($($argument),*),
            Dtype::Bfloat16 => $function::<bf16>($($argument),*),
            dtype => Err(no_type($op, dtype)),
        }
    };
}

fn no_type(op: &str, dtype: Dtype) -> Error {
    Error::Type { op: op.into(), what: "takes floats, and was given an array".into(), dtype }
}

/// Products of matrices `[batch, m, k]` and `[batch, k, n]` chosen by two lists of indices.
#[derive(Debug)]
struct GatherMm;

impl Op for GatherMm {
    fn name(&self) -> &'static str {
        "gather_mm"
    }

    fn export(&self) -> Export {
        Record::new("gather_mm").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_float!(l.dtype(), "gather_mm", gathered::<_>(l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose::compose(l, compose::chosen_products)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [a, b, left, right] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let cotangent = rule.cotangent()?;
        let each = all_of(left.shape())?;
        let sum = |into: &Array, parts: Array, places: &Array| {
            let mut shape = signed(places.shape());
            shape.push(1);
            shape.extend(signed(&into.shape()[1..]));
            let places = std::slice::from_ref(places);
            zeros_like(into)?.scatter_add(places, &parts.reshape(&shape)?, &[0])
        };
        rule.each(|at| {
            Ok(match at {
                0 => {
                    let parts = cotangent.gather_mm(&b.swapaxes(-1, -2)?, Some(&each), Some(right))?;
                    Some(sum(a, parts, left)?)
                }
                1 => {
                    let parts = a.swapaxes(-1, -2)?.gather_mm(&cotangent, Some(left), Some(&each))?;
                    Some(sum(b, parts, right)?)
                }
                _ => None,
            })
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.size == 0 {
            return rule.one_by_one();
        }
        let (mut a, left) = one_list(rule, &[0], 2)?;
        let (b, right) = one_list(rule, &[1], 3)?;
        a.extend(b);
        a.extend([left, right]);
        rule.apply(rule.op.clone(), a)
    }
}

/// A side of chosen products under `vmap`: what its `parts` hold for all slices, one after the other, and the
/// indices of `list` into that.
pub(super) fn one_list(
    rule: &Batch<'_>,
    parts: &[usize],
    list: usize,
) -> Result<(SmallVec<[Array; 3]>, Array)> {
    let indices = rule.full(list)?;
    if !parts.iter().any(|at| rule.is_batched(*at)) {
        return Ok((parts.iter().map(|at| rule.inputs[*at].clone()).collect(), indices));
    }
    let all = parts.iter().map(|at| {
        let full = rule.full(*at)?;
        let mut shape = signed(&full.shape()[1..]);
        shape[0] *= rule.size as isize;
        full.reshape(&shape)
    });
    let all = all.collect::<Result<SmallVec<[Array; 3]>>>()?;
    let each = (all[0].shape()[0] / rule.size) as i64;
    // Indices count from the front or the back of their slice's own.
    let indices = indices.astype(Dtype::Int64)?;
    let ahead = indices.add(select(
        &indices.less(0)?,
        &Array::integer(each, Dtype::Int64)?,
        &indices.zeros_like()?,
    )?)?;
    let own = ahead.maximum(0)?.minimum(each - 1)?;
    let mut shape: SmallVec<[isize; 6]> = smallvec![1; own.ndim()];
    shape[0] = rule.size as isize;
    let starts: Vec<i64> = (0..rule.size as i64).map(|slice| slice * each).collect();
    Ok((all, own.add(Array::from_slice(&starts).reshape(&shape)?)?))
}

fn gathered<T: Element + hesper_compute::Element>(l: &Lowering<'_>) -> Result<Data> {
    let a = Strided::row_major(l, 0)?;
    // Weights are often the transpose of what lies in memory.
    let (shape, strides) = (l.input_shape(1), &l.input(1).strides);
    let turned = is_row_major(&[shape[0], shape[2], shape[1]], &[strides[0], strides[2], strides[1]])
        && !is_row_major(shape, strides);
    let b = if turned { Strided::input(l, 1) } else { Strided::row_major(l, 1)? };
    let lists = [Strided::input(l, 2), Strided::input(l, 3)];
    let types = [l.input_dtype(2), l.input_dtype(3)];
    let output = l.output()?;
    let buffers = [&a, &b, &lists[0], &lists[1]].map(|bound| bound.data.buffer.clone());
    let mut encoder = l.stream().command("gather_mm");
    for (buffer, bound) in buffers.iter().zip([&a, &b, &lists[0], &lists[1]]) {
        encoder = encoder.read_range(buffer, bound.bytes.clone());
    }
    encoder.write(&output).run(move |native| {
        let [x, y, left, right, to] = native.take()?;
        let (x, y, to) = (x.as_slice::<T>()?, y.as_slice::<T>()?, to.as_mut_slice::<T>()?);
        let (m, k, n) = (a.shape[1], a.shape[2], b.shape[2]);
        if to.is_empty() {
            return Ok(());
        }
        let indices = [Indices::of(left, types[0])?, Indices::of(right, types[1])?];
        let count = to.len() / (m * n);
        let mut cursor = Cursor::new(&lists[0].shape, [lists[0].strides(), lists[1].strides()], 0);
        // Products with one right matrix are one product: it is read once.
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
            let own = if turned {
                MatRef::row_major(own, n, k).map(MatRef::transposed)
            } else {
                MatRef::row_major(own, k, n)
            };
            MatRef::row_major(&rows, list.len() * m, k)
                .and_then(|rows| {
                    let products = MatMut::row_major(&mut products, list.len() * m, n)?;
                    gemm(&Cores, rows, own?, products, &GemmOptions::default())
                })
                .map_err(|error| error.to_string())?;
            for ((at, _), product) in list.iter().zip(products.chunks(m * n)) {
                to[at * m * n..(at + 1) * m * n].copy_from_slice(product);
            }
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Products over segments of the inner axis.
#[derive(Debug)]
struct SegmentedMm;

impl Op for SegmentedMm {
    fn name(&self) -> &'static str {
        "segmented_mm"
    }

    fn export(&self) -> Export {
        Record::new("segmented_mm").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_float!(l.dtype(), "segmented_mm", segmented::<_>(l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose::compose(l, compose::segment_products)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [a, b, segments] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let (m, k, n) = (a.shape()[0] as isize, a.shape()[1] as isize, b.shape()[1] as isize);
        let cotangent = rule.cotangent()?.reshape(&[-1, m, n])?;
        let bounds = segments.astype(Dtype::Int64)?.reshape(&[-1, 2])?;
        let places: Vec<i64> = (0..k as i64).collect();
        let places = Array::from_slice(&places);
        let inside = places
            .greater_equal(bounds.slice_axis(1, 0, 1, 1)?)?
            .logical_and(places.less(bounds.slice_axis(1, 1, 2, 1)?)?)?;
        let zero = Array::scalar(0.0, cotangent.dtype())?;
        rule.each(|at| {
            Ok(match at {
                0 => {
                    let all = cotangent.matmul(&b.t()?)?;
                    Some(select(&inside.expand_dims(&[1])?, &all, &zero)?.sum(Some(&[0]), false)?)
                }
                1 => {
                    let all = a.t()?.matmul(&cotangent)?;
                    Some(select(&inside.expand_dims(&[2])?, &all, &zero)?.sum(Some(&[0]), false)?)
                }
                _ => None,
            })
        })
    }
}

fn segmented<T: Element + hesper_compute::Element>(l: &Lowering<'_>) -> Result<Data> {
    let (a, b, list) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?, Strided::input(l, 2));
    let (dtype, output) = (l.input_dtype(2), l.output()?);
    let buffers = [&a, &b, &list].map(|bound| bound.data.buffer.clone());
    let mut encoder = l.stream().command("segmented_mm");
    for (buffer, bound) in buffers.iter().zip([&a, &b, &list]) {
        encoder = encoder.read_range(buffer, bound.bytes.clone());
    }
    encoder.write(&output).run(move |native| {
        let [x, y, segments, to] = native.take()?;
        let (x, y, to) = (x.as_slice::<T>()?, y.as_slice::<T>()?, to.as_mut_slice::<T>()?);
        let (m, k, n) = (a.shape[0], a.shape[1], b.shape[1]);
        if to.is_empty() {
            return Ok(());
        }
        let bounds = Indices::of(segments, dtype)?;
        let mut cursor = Cursor::new(&list.shape, [list.strides()], 0);
        let mut bound = || {
            // An end may be one beyond the last element.
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
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Numbers from zero, in the shape of the batch axes.
pub(super) fn all_of(batch: &[usize]) -> Result<Array> {
    let list: Vec<i64> = (0..batch.iter().product::<usize>() as i64).collect();
    Array::try_from_slice(&list, batch)
}

impl Array {
    /// Matrix products of matrices that indices choose: flat indices of the axes before the last two, for
    /// each side. Both broadcast; without indices, a side's matrices are taken in order.
    pub fn gather_mm(&self, other: &Array, left: Option<&Array>, right: Option<&Array>) -> Result<Array> {
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is(Category::Floating) {
            return Err(no_type("gather_mm", dtype));
        }
        // A vector is a row on the left and a column on the right, as in a product.
        if self.ndim() == 1 {
            let rows = if other.ndim() == 1 { -1 } else { -2 };
            return self.expand_dims(&[0])?.gather_mm(other, left, right)?.squeeze(Some(&[rows]));
        }
        if other.ndim() == 1 {
            return self.gather_mm(&other.expand_dims(&[1])?, left, right)?.squeeze(Some(&[-1]));
        }
        let fits = self.ndim() >= 2
            && other.ndim() >= 2
            && self.shape()[self.ndim() - 1] == other.shape()[other.ndim() - 2];
        if !fits {
            let what = format!("shapes {:?} and {:?}", self.shape(), other.shape());
            return Err(Error::shape("gather_mm", what));
        }
        let (batch_a, [m, k]) = matrices(self);
        let (batch_b, [_, n]) = matrices(other);
        let given = |list: Option<&Array>, batch: &[usize]| list.cloned().map_or_else(|| all_of(batch), Ok);
        let lists = [given(left, batch_a)?, given(right, batch_b)?];
        let (mut shape, lists) = broadcast_indices("gather_mm", &lists)?;
        let count: usize = shape.iter().product();
        shape.extend([m, n]);
        let flat = |array: &Array, rows: usize, columns: usize| {
            let batch: usize = array.shape()[..array.ndim() - 2].iter().product();
            array.astype(dtype)?.reshape(&signed(&[batch, rows, columns]))
        };
        let (a, b) = (flat(self, m, k)?, flat(other, k, n)?);
        if count > 0 && (a.shape()[0] == 0 || b.shape()[0] == 0) {
            return Err(Error::value("gather_mm", "there are no matrices to choose from"));
        }
        let [left, right] = &lists[..] else {
            return Err(Error::value("gather_mm", "two lists of indices expected"));
        };
        let inputs = smallvec![a, b, left.clone(), right.clone()];
        Array::lazy(shape, dtype, OpRef::Static(&GatherMm), inputs)
    }

    /// Matrix products over segments of the inner axis: for each pair of `segments`, its start and its
    /// end, one product.
    pub fn segmented_mm(&self, other: &Array, segments: &Array) -> Result<Array> {
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is(Category::Floating) {
            return Err(no_type("segmented_mm", dtype));
        }
        check_indices("segmented_mm", segments)?;
        let fits = self.ndim() == 2
            && other.ndim() == 2
            && self.shape()[1] == other.shape()[0]
            && segments.shape().last() == Some(&2);
        if !fits {
            let what = format!(
                "shapes {:?} and {:?} with segments {:?}",
                self.shape(),
                other.shape(),
                segments.shape()
            );
            return Err(Error::shape("segmented_mm", what));
        }
        let mut shape: Shape = segments.shape()[..segments.ndim() - 1].into();
        shape.extend([self.shape()[0], other.shape()[1]]);
        let inputs = smallvec![self.astype(dtype)?, other.astype(dtype)?, segments.clone()];
        Array::lazy(shape, dtype, OpRef::Static(&SegmentedMm), inputs)
    }

    /// The matrix product with blocks of the operands or the result masked: left out by bools, scaled by
    /// numbers. A mask has one element for each block of `block_size` rows and columns.
    pub fn block_masked_mm(
        &self,
        other: &Array,
        block_size: usize,
        out: Option<&Array>,
        left: Option<&Array>,
        right: Option<&Array>,
    ) -> Result<Array> {
        if !matches!(block_size, 16 | 32 | 64) {
            return Err(Error::value("block_masked_mm", format!("blocks of {block_size} rows")));
        }
        let a = masked(self, left, block_size)?;
        let b = masked(other, right, block_size)?;
        masked(&a.matmul(&b)?, out, block_size)
    }
}

/// The batch axes and the last two.
fn matrices(array: &Array) -> (&[usize], [usize; 2]) {
    let (batch, matrix) = array.shape().split_at(array.ndim() - 2);
    (batch, [matrix[0], matrix[1]])
}

/// A matrix with its blocks masked.
fn masked(matrix: &Array, mask: Option<&Array>, block: usize) -> Result<Array> {
    let Some(mask) = mask else { return Ok(matrix.clone()) };
    let rank = matrix.ndim();
    let fits = rank >= 2
        && mask.ndim() >= 2
        && (1..=2)
            .all(|back| mask.shape()[mask.ndim() - back] == matrix.shape()[rank - back].div_ceil(block));
    if !fits {
        let what = format!("a mask of shape {:?} for blocks of {:?}", mask.shape(), matrix.shape());
        return Err(Error::shape("block_masked_mm", what));
    }
    let (rows, columns) = (mask.ndim() - 2, mask.ndim() - 1);
    let wide = mask
        .repeat(block, Some(rows as isize))?
        .repeat(block, Some(columns as isize))?
        .slice_axis(rows, 0, matrix.shape()[rank - 2] as isize, 1)?
        .slice_axis(columns, 0, matrix.shape()[rank - 1] as isize, 1)?;
    if mask.dtype() == Dtype::Bool {
        return select(&wide, matrix, &Array::scalar(0.0, matrix.dtype())?);
    }
    matrix.multiply(wide.astype(matrix.dtype())?)
}

pub(super) fn read_gathered(replay: &Replay<'_>) -> Result<Array> {
    let [a, b, left, right] = replay.inputs()?;
    a.gather_mm(b, Some(left), Some(right))
}

pub(super) fn read_segmented(replay: &Replay<'_>) -> Result<Array> {
    let [a, b, segments] = replay.inputs()?;
    a.segmented_mm(b, segments)
}
