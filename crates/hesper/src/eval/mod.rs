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
mod explain;
pub(crate) mod fuse;
pub(crate) mod made;
pub(crate) mod plan;
mod short;
mod wide;

use std::sync::Arc;

use smallvec::SmallVec;

use hesper_runtime::{Buffer, Stream};

use crate::array::{Array, Data, State};
use crate::error::Result;
use crate::ops::{Kind, Op};
use crate::{Dtype, place};
use claim::Claim;
use fuse::Expression;
use made::Made;
use plan::Group;

pub use explain::{Apart, why_apart};
pub use plan::{fusion_enabled, set_fusion};

/// Computes arrays; returns when all are computed. An error is the first array's that failed.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    schedule(&arrays)?;
    for array in arrays {
        // Waits for whatever fills the memory, and tells its fault.
        array.data()?.buffer.wait()?;
    }
    Ok(())
}

/// Starts computing arrays and returns at once. What goes wrong later is told by the arrays.
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    schedule(&arrays)?;
    for array in arrays {
        array.0.stream.commit()?;
        // What its device has no kernels for runs on the host.
        if !array.0.stream.runtime().info().host_visible {
            place::default_stream(place::Device::Cpu)?.commit()?;
        }
    }
    Ok(())
}

/// Encodes everything that the arrays need.
pub(crate) fn schedule(arrays: &[&Array]) -> Result<()> {
    // Before any lock: in a forked process other threads may seem to hold them.
    hesper_runtime::fork::check()?;
    if arrays.iter().all(|array| array.is_evaluated()) {
        return Ok(());
    }
    let (mut claim, plan) = Claim::take(arrays);
    let mut memo = short::Memo::default();
    for (number, step) in plan.steps.iter().enumerate() {
        match step {
            plan::Step::Op(at) => {
                let data = lower(claim.node(*at)?, None)?;
                claim.resolve(*at, data)?;
            }
            plan::Step::One(at) => {
                let only = std::slice::from_ref(at);
                let data = match short::lower(&claim, &plan, only, only, &mut memo)? {
                    Some(data) => data,
                    None => {
                        let group = Group { members: vec![*at], outputs: vec![*at] };
                        fuse::lower(&claim, &plan, &group)?
                    }
                };
                data.into_iter().try_for_each(|data| claim.resolve(*at, data))?;
            }
            plan::Step::Rows(group, at) => {
                let (expression, inputs, _) = fuse::gather(&claim, &plan, group, *at)?;
                let node = claim.node(*at)?;
                let rows = Rows::of(&expression, &node.0.stream, &inputs)?;
                let data = lower(node, Some(rows))?;
                claim.resolve(*at, data)?;
            }
            plan::Step::Group(group) => {
                let data = match short::lower(&claim, &plan, &group.members, &group.outputs, &mut memo)? {
                    Some(data) => data,
                    None => fuse::lower(&claim, &plan, group)?,
                };
                for (at, data) in group.outputs.iter().zip(data) {
                    claim.resolve(*at, data)?;
                }
            }
        }
        match step {
            plan::Step::Op(at) | plan::Step::One(at) => claim.lowered(&[*at]),
            plan::Step::Group(group) => claim.lowered(&group.members),
            plan::Step::Rows(group, at) => {
                claim.lowered(&group.members);
                claim.lowered(&[*at]);
            }
        }
        plan.over(number).for_each(|at| claim.release(at));
    }
    Ok(())
}

/// Lowers the op of a claimed array, whose first input may have been left to be made.
fn lower(array: &Array, mut rows: Option<Rows>) -> Result<Data> {
    let call = match &*array.state() {
        State::Lazy { call, .. } => call.clone(),
        _ => return array.data(),
    };
    // A transformation may ask for everything again.
    let kept = array.is_varied();
    let inputs = call
        .inputs
        .iter()
        .map(|input| {
            if let Some(data) = rows.as_mut().and_then(|rows| rows.data.take()) {
                return Ok(Bound { shape: input.shape(), dtype: input.dtype(), data, donated: false });
            }
            let data = input.data()?;
            // The array is held by the call and its copy here, and by the claim; its memory by the array and by `data`.
            let donated = !kept
                && Arc::strong_count(&input.0) == 3
                && data.buffer.writable()
                && data.buffer.handles() == 2;
            Ok(Bound { shape: input.shape(), dtype: input.dtype(), data, donated })
        })
        .collect::<Result<_>>()?;
    let node = &array.0;
    let made = rows.and_then(|rows| rows.made);
    lower_op(call.op.get(), Lowering::new(&node.stream, &node.shape, node.dtype, inputs).with_made(made))
}

/// The first input of an op that goes through it row by row.
pub(crate) struct Rows {
    /// Where it is; an empty place if it is made as it is read.
    pub(crate) data: Option<Data>,
    pub(crate) made: Option<Made>,
}

impl Rows {
    /// The one value of an expression: left to be made, if that can be, or computed.
    pub(crate) fn of(expression: &Expression, stream: &Stream, inputs: &[Option<Data>]) -> Result<Rows> {
        if let Some(moved) = fuse::moved(inputs, &stream.runtime())? {
            return Rows::of(expression, stream, &moved);
        }
        Ok(match expression.made(inputs)? {
            Some(made) => {
                let nowhere = Data::contiguous(stream.alloc(0)?, &[0]);
                Rows { data: Some(nowhere), made: Some(made) }
            }
            None => Rows { data: expression.run(stream, inputs, &|_| false)?.pop(), made: None },
        })
    }
}

/// Lowers an op for the device of its stream, or for the host where that device has no kernels for it.
pub(crate) fn lower_op(op: &dyn Op, mut l: Lowering<'_>) -> Result<Data> {
    // A view is one wherever its input lies.
    if matches!(op.kind(), Kind::View) {
        return op.lower(&mut l);
    }
    if l.on_host() {
        l.bring()?;
        return op.lower(&mut l);
    }
    if let Some(data) = op.lower_gpu(&mut l)? {
        return Ok(data);
    }
    crate::gpu::count_fallback(op.name());
    let host = place::default_stream(place::Device::Cpu)?;
    let inputs = l.inputs.into_iter().map(|Bound { shape, dtype, data, donated }| Bound {
        shape,
        dtype,
        data,
        donated,
    });
    let mut l = Lowering::new(&host, l.shape, l.dtype, inputs.collect());
    l.bring()?;
    op.lower(&mut l)
}

/// An input of an op, and where it is.
pub(crate) struct Bound<'a> {
    pub(crate) shape: &'a [usize],
    pub(crate) dtype: Dtype,
    pub(crate) data: Data,
    /// Whether nobody can ask for it again.
    pub(crate) donated: bool,
}

/// What an op's lowering gets: its declared inputs, and nothing else.
pub(crate) struct Lowering<'a> {
    stream: &'a Stream,
    shape: &'a [usize],
    dtype: Dtype,
    inputs: SmallVec<[Bound<'a>; 3]>,
    /// What makes the first input, which then is nowhere.
    made: Option<Made>,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(
        stream: &'a Stream,
        shape: &'a [usize],
        dtype: Dtype,
        inputs: SmallVec<[Bound<'a>; 3]>,
    ) -> Self {
        Lowering { stream, shape, dtype, inputs, made: None }
    }

    /// The same with a first input that is left to be made.
    pub(crate) fn with_made(self, made: Option<Made>) -> Self {
        Lowering { made, ..self }
    }

    /// What makes the first input, if it is not in memory. Ops that said that they take rows ask for it.
    pub(crate) fn take_made(&mut self) -> Option<Made> {
        self.made.take()
    }

    /// The stream for the commands.
    pub(crate) fn stream(&self) -> &Stream {
        self.stream
    }

    /// Whether commands run on the host.
    pub(crate) fn on_host(&self) -> bool {
        self.stream.runtime().info().host_visible
    }

    /// Moves all inputs to where the commands will run. What was moved is not this op's to overwrite.
    pub(crate) fn bring(&mut self) -> Result<()> {
        let runtime = self.stream.runtime();
        for input in &mut self.inputs {
            if !input.data.buffer.belongs_to(&runtime) {
                input.data = input.data.on(&runtime)?;
                input.donated = false;
            }
        }
        Ok(())
    }

    /// Shape of the output.
    pub(crate) fn shape(&self) -> &[usize] {
        self.shape
    }

    /// Element type of the output.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many inputs there are.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Where an input is.
    pub(crate) fn input(&self, at: usize) -> &Data {
        &self.inputs[at].data
    }

    /// Whether nobody but this op can ask for an input again, so that its memory may be overwritten.
    pub(crate) fn is_donated(&self, at: usize) -> bool {
        self.inputs[at].donated
    }

    /// Whether the op may change its first input where it lies: nobody else can ask for that again, and it lies as the
    /// output would.
    pub(crate) fn in_place(&self) -> bool {
        let lies = |input: &Bound<'_>| {
            input.shape == self.shape
                && input.dtype == self.dtype
                && crate::shape::is_row_major(self.shape, &input.data.strides)
        };
        self.is_donated(0) && lies(&self.inputs[0])
    }

    /// Shape of an input.
    pub(crate) fn input_shape(&self, at: usize) -> &[usize] {
        self.inputs[at].shape
    }

    /// Element type of an input.
    pub(crate) fn input_dtype(&self, at: usize) -> Dtype {
        self.inputs[at].dtype
    }

    /// An input row by row: itself, or a copy made on the op's stream.
    pub(crate) fn row_major(&self, at: usize) -> Result<Data> {
        let (data, shape) = (self.input(at), self.input_shape(at));
        if crate::shape::is_row_major(shape, &data.strides) {
            return Ok(data.clone());
        }
        let buffer = crate::ops::copy::copy(self.stream(), data, shape, self.input_dtype(at))?;
        Ok(Data::contiguous(buffer, shape))
    }

    /// Memory for the output.
    pub(crate) fn output(&self) -> Result<Buffer> {
        let size: usize = self.shape.iter().product();
        Ok(self.stream().alloc(size * self.dtype.size())?)
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
