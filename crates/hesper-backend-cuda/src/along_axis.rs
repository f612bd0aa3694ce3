//! Elements along one axis, found by an index array with the same axes.

use crate::copy::word;
use crate::launch::{Constants, blocks, kernel, type_name};
use hesper_core::Result;
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::along_axis::{PutAlong, TakeAlong};
use hesper_core::ops::command::Commands;
use hesper_core::shape::row_major;

use crate::Cuda;
use crate::scatter::{MAX_ELEMENTS, SliceUpdates, links, owned_or_copy};
use crate::walk::{MAX_AXES, walk};

const TEXT: &str = include_str!("along_axis.cuh");

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<PutAlong>().with::<TakeAlong>()
}

impl Lower<TakeAlong> for Cuda {
    fn lower(op: &TakeAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let axis = op.0;
        let rank = l.shape().len();
        if rank > MAX_AXES || rank == 0 {
            return Ok(None);
        }
        l.bring()?;
        let size = l.dtype().size();
        let (source, list) = (l.input(0), l.input(1));
        let (bytes, first) = reach(source, l.input_shape(0), size);
        let (listed, second) = reach(list, l.input_shape(1), l.input_dtype(1).size());
        let output = l.output()?;
        let n: usize = l.shape().iter().product();
        let command = l.stream().command("take_along_axis").read_range(&source.buffer, bytes);
        let command = command.read_range(&list.buffer, listed).write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let still = |at: usize| if at == axis { 0 } else { source.strides[at] };
        let sources: Vec<(usize, isize)> = (0..rank).map(|at| (l.shape()[at], still(at))).collect();
        let lists: Vec<(usize, isize)> = (0..rank).map(|at| (l.shape()[at], list.strides[at])).collect();
        let mut constants = walk(walk(Constants::default(), &sources), &lists);
        for number in [rank, n, first, second, l.input_shape(0)[axis]] {
            constants = constants.long(number as i64);
        }
        let constants = constants.long(source.strides[axis] as i64);
        let entry = format!("take_along_axis<{}, {}>", word(size), type_name(l.input_dtype(1)));
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<PutAlong> for Cuda {
    fn lower(op: &PutAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let PutAlong(axis, mode) = *op;
        let rank = l.shape().len();
        let points: usize = l.input_shape(1).iter().product();
        let elements: usize = l.shape().iter().product();
        if rank == 0 || rank > MAX_AXES || elements > MAX_ELEMENTS || points > MAX_ELEMENTS {
            return Ok(None);
        }
        l.bring()?;
        if points == 0 || elements == 0 {
            return owned_or_copy(l).map(Some);
        }
        let (stream, own) = (l.stream(), row_major(l.shape()));
        let (list, shape) = (l.input(1), l.input_shape(1));
        let lists: Vec<(usize, isize)> = shape.iter().copied().zip(list.strides.iter().copied()).collect();
        let still = |at: usize| if at == axis { 0 } else { own[at] };
        let rest: Vec<(usize, isize)> = (0..rank).map(|at| (shape[at], still(at))).collect();
        let keys = stream.alloc(points * 4)?;
        let (bytes, first) = reach(list, shape, l.input_dtype(1).size());
        let mut constants = walk(walk(Constants::default(), &lists), &rest);
        for number in [rank, points, first, l.shape()[axis]] {
            constants = constants.long(number as i64);
        }
        let constants = constants.long(own[axis] as i64);
        let pipeline =
            kernel(stream, TEXT, &format!("element_offsets<{}>", type_name(l.input_dtype(1))), "")?;
        let command = stream.command("element_offsets").read_range(&list.buffer, bytes).write(&keys);
        command.constants(constants.bytes()).dispatch(
            &pipeline,
            [blocks(points) * 256, 1, 1],
            [256, 1, 1],
        )?;
        let links = if points > 1 { Some(links(stream, &keys, points)?) } else { None };
        let slices = SliceUpdates {
            stream,
            dtype: l.dtype(),
            mode,
            updates: l.input(2),
            shape: l.input_shape(2),
            rank,
            into: &[],
            base: 0,
        };
        slices.encode(l, Some(&keys), links.as_ref())
    }
}
