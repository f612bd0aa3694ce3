//! Arguments and results of the rules of ops: reverse mode, forward mode and `vmap`.

use smallvec::{SmallVec, smallvec};

use super::{Array, Call, OpRef};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::Result;
use crate::shape::Shape;

/// The cotangent of each input, if it has one.
pub type Cotangents = SmallVec<[Option<Array>; 3]>;

/// The tangent of each output, if it has one.
pub type Tangents = SmallVec<[Option<Array>; 1]>;

/// The arguments of a reverse-mode rule.
pub struct Backward<'a> {
    /// The inputs of the op.
    pub inputs: &'a [Array],
    /// The output of the op.
    pub output: &'a Array,
    /// The cotangent of each output. The rule of an op with one output is called only if it has one.
    pub cotangents: &'a [Option<Array>],
    /// Whether the cotangent of each input is needed.
    pub wanted: &'a [bool],
}

impl Backward<'_> {
    /// The cotangent of the first output; zeros if it has none.
    pub fn cotangent(&self) -> Result<Array> {
        match &self.cotangents[0] {
            Some(cotangent) => Ok(cotangent.clone()),
            None => zeros_like(self.output),
        }
    }

    /// Calls `rule` for each input whose cotangent is needed.
    pub fn each(&self, mut rule: impl FnMut(usize) -> Result<Option<Array>>) -> Result<Cotangents> {
        (0..self.inputs.len()).map(|at| if self.wanted[at] { rule(at) } else { Ok(None) }).collect()
    }

    /// The cotangent of the first input; the others have none.
    pub fn only(&self, cotangent: Result<Array>) -> Result<Cotangents> {
        Ok(std::iter::once(Some(cotangent?)).chain((1..self.inputs.len()).map(|_| None)).collect())
    }
}

/// The arguments of a forward-mode rule.
pub struct Forward<'a> {
    /// The op and its inputs.
    pub call: &'a Call,
    /// The output of the op.
    pub output: &'a Array,
    /// The tangent of each input; at least one input has one.
    pub tangents: &'a [Option<Array>],
}

impl Forward<'_> {
    /// The op applied to the tangents, with zeros for missing ones. Correct for linear ops.
    pub fn linear(&self) -> Result<Tangents> {
        let output = &self.output.0;
        // Fractions as tangents of integers, which all tangents become then.
        let given = self.tangents.iter().flatten().map(Array::dtype);
        let fraction = given.filter(|dtype| dtype.is(Category::Inexact)).reduce(Dtype::promote);
        let fraction = fraction.filter(|_| !output.dtype.is(Category::Inexact));
        let inputs = self
            .tangents
            .iter()
            .zip(&self.call.inputs)
            .map(|(tangent, input)| {
                let tangent = tangent.clone().map_or_else(|| zeros_like(input), Ok)?;
                fraction.map_or_else(|| Ok(tangent.clone()), |dtype| tangent.astype(dtype))
            })
            .collect::<Result<_>>()?;
        let dtype = fraction.unwrap_or(output.dtype);
        Ok(smallvec![Some(Array::lazy(output.shape.clone(), dtype, self.call.op.clone(), inputs)?)])
    }
}

/// The arguments of a `vmap` rule.
pub struct Batch<'a> {
    /// The op, as it is applied to one slice.
    pub op: &'a OpRef,
    /// The inputs; some have a batch axis.
    pub inputs: &'a [Array],
    /// The batch axis of each input; at least one input has one.
    pub axes: &'a [Option<usize>],
    /// The length of the batch axes.
    pub size: usize,
    /// The output of the op for one slice.
    pub output: &'a Array,
}

impl Batch<'_> {
    /// Whether an input has a batch axis.
    pub fn is_batched(&self, at: usize) -> bool {
        self.axes[at].is_some()
    }

    /// An input with its batch axis in front, if it has one.
    pub fn front(&self, at: usize) -> Result<Array> {
        match self.axes[at] {
            Some(axis) if axis > 0 => self.inputs[at].moveaxis(axis as isize, 0),
            _ => Ok(self.inputs[at].clone()),
        }
    }

    /// An input with a batch axis in front; an unbatched one is broadcast.
    pub fn full(&self, at: usize) -> Result<Array> {
        if self.is_batched(at) {
            return self.front(at);
        }
        let input = &self.inputs[at];
        let shape: Shape = std::iter::once(self.size).chain(input.shape().iter().copied()).collect();
        input.broadcast_to(&shape)
    }

    /// An input with its batch axis in front, followed by axes of length one up to `rank` without the batch
    /// axis. An unbatched input is unchanged.
    pub fn aligned(&self, at: usize, rank: usize) -> Result<Array> {
        let input = self.front(at)?;
        let Some(size) = self.axes[at].map(|_| input.shape()[0]) else { return Ok(input) };
        let missing = (rank + 1).saturating_sub(input.ndim());
        if missing == 0 {
            return Ok(input);
        }
        let shape: SmallVec<[isize; 6]> = std::iter::once(size as isize)
            .chain(std::iter::repeat_n(1, missing))
            .chain(input.shape()[1..].iter().map(|length| *length as isize))
            .collect();
        input.reshape(&shape)
    }

    /// The shape of the output with the batch axis in front.
    pub fn shape(&self) -> Shape {
        std::iter::once(self.size).chain(self.output.shape().iter().copied()).collect()
    }

    /// An op on inputs with the batch axis in front. The output has it in front, too.
    pub fn apply(&self, op: OpRef, inputs: SmallVec<[Array; 3]>) -> Result<(Array, usize)> {
        Ok((Array::lazy(self.shape(), self.output.dtype(), op, inputs)?, 0))
    }
}

/// Zeros of an array's shape and type.
pub fn zeros_like(array: &Array) -> Result<Array> {
    array.zeros_like()
}

/// Sums a cotangent over the axes that were broadcast.
pub fn unbroadcast(cotangent: &Array, shape: &[usize]) -> Result<Array> {
    if cotangent.shape() == shape {
        return Ok(cotangent.clone());
    }
    let missing = cotangent.ndim() - shape.len();
    let broadcast: SmallVec<[isize; 6]> = (0..cotangent.ndim())
        .filter(|axis| *axis < missing || shape[axis - missing] == 1 && cotangent.shape()[*axis] != 1)
        .map(|axis| axis as isize)
        .collect();
    let sum = if broadcast.is_empty() { cotangent.clone() } else { cotangent.sum(&broadcast)? };
    let shape: SmallVec<[isize; 6]> = shape.iter().map(|length| *length as isize).collect();
    sum.reshape(&shape)?.astype(cotangent.dtype())
}
