//! Ops with several outputs: one memory, and each output a view of its part.

use smallvec::{SmallVec, smallvec};

use super::{Kind, Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::shape::{Shape, Strides, row_major, size_of};
use crate::transform::rule::Batch;

/// Where outputs lie in their memory.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// Shapes and types.
    pub(crate) outputs: Vec<(Shape, Dtype)>,
    /// Where each begins, in bytes.
    pub(super) starts: Vec<usize>,
    /// Bytes of all.
    end: usize,
}

impl Parts {
    /// Outputs one after the other, each well aligned.
    pub(super) fn new(outputs: Vec<(Shape, Dtype)>) -> Result<Self> {
        let (mut starts, mut end) = (Vec::new(), 0usize);
        for (shape, dtype) in &outputs {
            starts.push(end);
            let bytes = (size_of(shape)? * dtype.size()).next_multiple_of(64);
            end = end.checked_add(bytes).ok_or_else(|| Error::TooLarge { shape: shape.to_vec() })?;
        }
        Ok(Parts { outputs, starts, end })
    }

    /// The bytes of an output.
    pub(crate) fn range(&self, number: usize) -> std::ops::Range<usize> {
        let (shape, dtype) = &self.outputs[number];
        let start = self.starts[number];
        start..start + shape.iter().product::<usize>() * dtype.size()
    }

    /// The outputs of an op applied to inputs.
    pub(super) fn arrays(&self, op: OpRef, inputs: SmallVec<[Array; 3]>) -> Result<Vec<Array>> {
        let memory = Array::lazy(smallvec![self.end], Dtype::Uint8, op, inputs)?;
        let outputs = self.outputs.iter().zip(&self.starts).enumerate();
        outputs
            .map(|(number, ((shape, dtype), start))| {
                let part = OpRef::new(Part { number, start: *start });
                Array::lazy(shape.clone(), *dtype, part, smallvec![memory.clone()])
            })
            .collect()
    }
}

/// One of several results that share memory: the part of it from a byte on.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) start: usize,
    pub(super) number: usize,
}

impl Op for Part {
    fn name(&self) -> &'static str {
        "output"
    }

    fn kind(&self) -> Kind<'_> {
        Kind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let (data, size) = (l.input(0), l.dtype().size() as isize);
        // Before the bytes of a call there may be axes over calls.
        let calls = data.strides.len() - 1;
        let mut strides: Strides = data.strides[..calls].iter().map(|stride| stride / size).collect();
        strides.extend(row_major(&l.shape()[calls..]));
        Ok(Data { buffer: data.buffer.clone(), offset: (data.offset + self.start as isize) / size, strides })
    }

    fn part(&self) -> Option<usize> {
        Some(self.number)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?.contiguous()?])
    }
}
