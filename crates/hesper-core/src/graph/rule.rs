//! Arguments and results of the rules of ops: reverse mode, forward mode and `vmap`.

use smallvec::{SmallVec, smallvec};

use super::reverse::backward;
use super::scope::Opened;
use super::source::placeholder;
use super::tape::Tape;
use crate::Dtype;
use crate::array::{Array, Call};
use crate::dtype::Category;
use crate::error::Result;
use crate::ops::OpRef;
use crate::ops::multi::{Parts, together};
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
    /// The needed cotangents, derived from the same function composed of other ops.
    pub fn through(&self, composed: impl Fn(&[Array]) -> Result<Array>) -> Result<Cotangents> {
        let varied: SmallVec<[usize; 5]> = (0..self.inputs.len()).filter(|at| self.wanted[*at]).collect();
        let primals: Vec<Array> = varied.iter().map(|at| self.inputs[*at].clone()).collect();
        let again = |arrays: &[Array]| {
            let mut inputs = self.inputs.to_vec();
            for (at, array) in varied.iter().zip(arrays) {
                inputs[*at] = array.clone();
            }
            Ok(vec![composed(&inputs)?])
        };
        let (_, found) = crate::transform::vjp(again, &primals, &[self.cotangent()?])?;
        let mut found = found.into_iter();
        self.each(|_| Ok(found.next()))
    }

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
        let inputs = self
            .tangents
            .iter()
            .zip(&self.call.inputs)
            .map(|(tangent, input)| tangent.clone().map_or_else(|| zeros_like(input), Ok))
            .collect::<Result<_>>()?;
        let output = &self.output.0;
        Ok(smallvec![Some(Array::lazy(output.shape.clone(), output.dtype, self.call.op.clone(), inputs)?)])
    }

    /// The tangents by double transposition: the reverse-mode rule is linear in its cotangents, so its own
    /// reverse mode maps tangents forward.
    pub fn transposed_twice(&self) -> Result<Tangents> {
        let op = self.call.op.get();
        if op.is_linear() {
            return self.linear();
        }
        let opened = Opened::new();
        let outputs =
            op.outputs().unwrap_or_else(|| vec![(self.output.0.shape.clone(), self.output.dtype())]);
        let sources = outputs
            .into_iter()
            .map(|(shape, dtype)| placeholder(opened.scope(), "a derivative", shape, dtype))
            .collect::<Result<Vec<Array>>>()?;
        let cotangents: Vec<Option<Array>> = sources
            .iter()
            .map(|source| source.dtype().is(Category::Number).then(|| source.clone()))
            .collect();
        let wanted: SmallVec<[bool; 4]> = self.tangents.iter().map(Option::is_some).collect();
        let rule = Backward {
            inputs: &self.call.inputs,
            output: self.output,
            cotangents: &cotangents,
            wanted: &wanted,
        };
        let (mut given, mut seeds) = (Vec::new(), Vec::new());
        for (cotangent, tangent) in op.vjp(&rule)?.into_iter().zip(self.tangents) {
            if let (Some(cotangent), Some(tangent)) = (cotangent, tangent) {
                seeds.push(Some(tangent.astype(cotangent.dtype())?));
                given.push(cotangent);
            }
        }
        let tape = Tape::new(&given, &sources);
        Ok(backward(&tape, &given, &seeds)?.into_iter().take(sources.len()).collect())
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
            Some(axis) => self.inputs[at].moveaxis(axis as isize, 0),
            None => Ok(self.inputs[at].clone()),
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
        Ok((crate::stack(&results, 0)?, 0))
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
            crate::stack(&calls.iter().map(|outputs| outputs[at].clone()).collect::<Vec<Array>>(), 0)
        });
        together(self, whole.collect::<Result<Vec<Array>>>()?)
    }
}

/// Zeros of an array's shape and type.
pub fn zeros_like(array: &Array) -> Result<Array> {
    Array::zeros(array.shape(), array.dtype())
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
