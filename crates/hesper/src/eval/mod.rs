//! Evaluation: from a graph of lazy arrays to commands on streams.
//!
//! 1. [`claim`] takes all lazy nodes that the asked-for arrays need, in an order in which inputs come
//!    first. Claims are taken all together, so two threads that evaluate one graph run each node once,
//!    and neither holds anything while it waits for the other.
//! 2. [`plan`] puts element-wise nodes into groups that become one kernel.
//! 3. Each group or op is lowered: memory, then commands. A node that is lowered is ready: its
//!    memory exists and the runtime knows what fills it. If something fails, what was not lowered is
//!    lazy again, and can be tried again.

mod claim;
mod fuse;
mod plan;

use std::sync::Arc;

use smallvec::SmallVec;

use hesper_runtime::{Buffer, Stream};

use crate::Dtype;
use crate::array::{Array, Data, State};
use crate::error::Result;
use crate::ops::Kind;
use claim::Claim;

pub use plan::{fusion_enabled, set_fusion};

/// Computes arrays; returns when all are computed. An error is the first array's that failed.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    schedule(&arrays)?;
    for array in arrays {
        // A guard waits for whatever fills the memory, and tells its fault.
        drop(array.data()?.buffer.read()?);
    }
    Ok(())
}

/// Starts computing arrays and returns at once. What goes wrong later is told by the arrays.
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    schedule(&arrays)?;
    for array in arrays {
        array.0.stream.commit()?;
    }
    Ok(())
}

/// Encodes everything that the arrays need.
pub(crate) fn schedule(arrays: &[&Array]) -> Result<()> {
    if arrays.iter().all(|array| array.is_evaluated()) {
        return Ok(());
    }
    let mut claim = Claim::take(arrays);
    let plan = plan::plan(claim.nodes());
    for step in &plan.steps {
        match step {
            plan::Step::Op(at) => {
                let array = &claim.nodes()[*at];
                let data = lower(array)?;
                claim.resolve(*at, data);
            }
            plan::Step::Group(group) => {
                for (at, data) in fuse::lower(claim.nodes(), group)? {
                    claim.resolve(at, data);
                }
            }
        }
    }
    Ok(())
}

fn lower(array: &Array) -> Result<Data> {
    let call = match &*array.state() {
        State::Claimed(call) => call.clone(),
        _ => return array.data(),
    };
    let op = call.op.get();
    debug_assert!(!matches!(op.kind(), Kind::Elementwise(_)));
    let inputs = call.inputs.iter().map(Array::data).collect::<Result<_>>()?;
    op.lower(&mut Lowering { array, arrays: &call.inputs, inputs })
}

/// What an op's lowering gets: its declared inputs, and nothing else.
pub(crate) struct Lowering<'a> {
    array: &'a Array,
    arrays: &'a [Array],
    inputs: SmallVec<[Data; 3]>,
}

impl Lowering<'_> {
    /// The stream for the commands.
    pub(crate) fn stream(&self) -> &Stream {
        &self.array.0.stream
    }

    /// Shape of the output.
    pub(crate) fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    /// Element type of the output.
    pub(crate) fn dtype(&self) -> Dtype {
        self.array.dtype()
    }

    /// How many inputs there are.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Where an input is.
    pub(crate) fn input(&self, at: usize) -> &Data {
        &self.inputs[at]
    }

    /// Whether nobody but this op can ask for an input again, so that its memory may be overwritten.
    pub(crate) fn is_donated(&self, at: usize) -> bool {
        // The array is held by the claimed call and its copy; the memory by the array and by `inputs`.
        let buffer = &self.inputs[at].buffer;
        Arc::strong_count(&self.arrays[at].0) == 2 && buffer.writable() && buffer.handles() == 2
    }

    /// Shape of an input.
    pub(crate) fn input_shape(&self, at: usize) -> &[usize] {
        self.arrays[at].shape()
    }

    /// Element type of an input.
    pub(crate) fn input_dtype(&self, at: usize) -> Dtype {
        self.arrays[at].dtype()
    }

    /// An input row by row: itself, or a copy made on the op's stream.
    pub(crate) fn row_major(&self, at: usize) -> Result<Data> {
        let (data, shape) = (&self.inputs[at], self.input_shape(at));
        if crate::shape::is_row_major(shape, &data.strides) {
            return Ok(data.clone());
        }
        let buffer = crate::ops::copy::copy(self.stream(), data, shape, self.input_dtype(at))?;
        Ok(Data::contiguous(buffer, shape))
    }

    /// Memory for the output.
    pub(crate) fn output(&self) -> Result<Buffer> {
        Ok(self.stream().alloc(self.array.nbytes())?)
    }

    /// The output, copied from strided memory.
    pub(crate) fn copy_of(&self, at: usize) -> Result<Data> {
        let buffer = crate::ops::copy::copy(
            self.stream(),
            self.input(at),
            self.input_shape(at),
            self.input_dtype(at),
        )?;
        Ok(Data::contiguous(buffer, self.shape()))
    }
}
