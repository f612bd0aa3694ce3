//! Ops with several outputs: one allocation, of which each output is a view.

use hesper_runtime::Buffer;
use smallvec::{SmallVec, smallvec};

use super::command::Commands;
use super::concat::{concatenate, stack};
use super::{Op, OpKind, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Data, Lowering, State};
use crate::shape::{Shape, row_major, size_of};

/// The layout of an op's outputs in one allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Shapes and types.
    pub outputs: Vec<(Shape, Dtype)>,
    /// The offset of each in bytes.
    pub starts: Vec<usize>,
    /// The size of the allocation.
    end: usize,
}

impl Parts {
    /// Places the outputs one after the other, aligned to 64 bytes.
    pub fn new(outputs: Vec<(Shape, Dtype)>) -> Result<Self> {
        let (mut starts, mut end) = (Vec::new(), 0usize);
        for (shape, dtype) in &outputs {
            let too_large = || Error::TooLarge { shape: shape.to_vec() };
            let start = end.checked_next_multiple_of(64).ok_or_else(too_large)?;
            end = start.checked_add(size_of(shape)? * dtype.size()).ok_or_else(too_large)?;
            starts.push(start);
        }
        Ok(Parts { outputs, starts, end })
    }

    /// The byte range of an output.
    pub fn range(&self, number: usize) -> std::ops::Range<usize> {
        let (shape, dtype) = &self.outputs[number];
        let start = self.starts[number];
        start..start + shape.iter().product::<usize>() * dtype.size()
    }

    /// Allocates the outputs. The padding between them is cleared, because no kernel writes it.
    pub fn memory(&self, l: &Lowering<'_>) -> Result<Buffer> {
        let memory = l.output()?;
        for (number, next) in self.starts.iter().enumerate().skip(1) {
            let gap = self.range(number - 1).end..*next;
            if !gap.is_empty() {
                l.stream().command("padding").write_range(&memory, gap).clear()?;
            }
        }
        Ok(memory)
    }

    /// Fills the outputs with a value, converted to the type of each.
    pub fn fill(&self, l: &Lowering<'_>, memory: &Buffer, value: f64) -> Result<()> {
        for (number, (_, dtype)) in self.outputs.iter().enumerate() {
            let element = match &*Array::scalar(value, *dtype)?.state() {
                State::Known(element) => element.0,
                _ => [0; 8],
            };
            l.backend()?.fill(l.stream(), memory, self.range(number), element, dtype.size())?;
        }
        Ok(())
    }

    /// The outputs as one array of bytes, for an op that a graph of others replaces.
    pub fn packed(&self, outputs: &[Array]) -> Result<Array> {
        let mut bytes = Vec::new();
        for (number, output) in outputs.iter().enumerate() {
            let before = if number == 0 { 0 } else { self.range(number - 1).end };
            bytes.push(Array::zeros(&[self.starts[number] - before], Dtype::Uint8)?);
            bytes.push(output.reshape(&[-1])?.view(Dtype::Uint8)?);
        }
        concatenate(&bytes, 0)
    }

    /// The lazy outputs of an op applied to inputs.
    pub fn arrays(&self, op: OpRef, inputs: SmallVec<[Array; 3]>) -> Result<Vec<Array>> {
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

/// One of several outputs: a view of their allocation from byte `start` on.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub start: usize,
    pub number: usize,
}

impl Op for Part {
    fn name(&self) -> &'static str {
        "output"
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let (data, size) = (l.input(0), l.dtype().size() as isize);
        let offset = (data.offset + self.start as isize) / size;
        Ok(Data { buffer: data.buffer.clone(), offset, strides: row_major(l.shape()) })
    }

    fn part(&self) -> Option<usize> {
        Some(self.number)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let outputs = rule.inputs[0].call().filter(|call| call.op.get().is_together());
        match outputs.and_then(|call| call.inputs.get(self.number).cloned()) {
            Some(output) => Ok((output, 0)),
            None => Err(Error::value("vmap", "cannot batch an output without the other outputs of its op")),
        }
    }
}

/// Replaces a call with several outputs under `vmap`. Its inputs are these outputs, each with the new axis in
/// front.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Together(pub Vec<(Shape, Dtype)>);

impl Op for Together {
    fn name(&self) -> &'static str {
        "outputs"
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        Ok(Data::contiguous(l.stream().alloc(0)?, l.shape()))
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.0.clone())
    }

    fn is_together(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        Ok(rule.cotangents.iter().cloned().collect())
    }
}

/// The result of `vmap` for a call with several outputs, each with the new axis in front.
pub fn together(rule: &Batch<'_>, outputs: Vec<Array>) -> Result<(Array, usize)> {
    let op = Together(outputs.iter().map(|output| (output.0.shape.clone(), output.dtype())).collect());
    Ok((Array::lazy(smallvec![rule.size, 0], Dtype::Uint8, OpRef::new(op), outputs.into())?, 0))
}

impl Batch<'_> {
    /// The inputs of one slice along the batch axes.
    fn slice(&self, number: usize) -> Result<SmallVec<[Array; 3]>> {
        let number = number as isize;
        let one = |(input, axis): (&Array, &Option<usize>)| match axis {
            None => Ok(input.clone()),
            Some(axis) => input.slice_axis(*axis, number, number + 1, 1)?.squeeze(*axis as isize),
        };
        self.inputs.iter().zip(self.axes).map(one).collect()
    }

    /// The op on each slice along the batch axes, stacked.
    pub fn one_by_one(&self) -> Result<(Array, usize)> {
        if let Some(outputs) = self.op.get().outputs() {
            return self.each_with_parts(outputs);
        }
        let output = &self.output.0;
        if self.size == 0 {
            return Ok((Array::zeros(&self.shape(), output.dtype)?, 0));
        }
        let one = |number: usize| {
            Array::lazy(output.shape.clone(), output.dtype, self.op.clone(), self.slice(number)?)
        };
        let results = (0..self.size).map(one).collect::<Result<Vec<Array>>>()?;
        Ok((stack(&results, 0)?, 0))
    }

    /// The same for an op with several outputs.
    fn each_with_parts(&self, outputs: Vec<(Shape, Dtype)>) -> Result<(Array, usize)> {
        let parts = Parts::new(outputs)?;
        let calls = (0..self.size)
            .map(|number| parts.arrays(self.op.clone(), self.slice(number)?))
            .collect::<Result<Vec<Vec<Array>>>>()?;
        let whole = parts.outputs.iter().enumerate().map(|(at, (shape, dtype))| {
            if calls.is_empty() {
                let shape: Shape = std::iter::once(0).chain(shape.iter().copied()).collect();
                return Array::zeros(&shape, *dtype);
            }
            stack(&calls.iter().map(|outputs| outputs[at].clone()).collect::<Vec<Array>>(), 0)
        });
        together(self, whole.collect::<Result<Vec<Array>>>()?)
    }
}
