//! Evaluation: from a graph of lazy arrays to commands on streams.
//!
//! 1. [`claim`] takes all lazy nodes that the asked-for arrays need, in an order in which inputs come
//!    first. Claims are taken all together, so two threads that evaluate one graph run each node once,
//!    and neither holds anything while it waits for the other.
//! 2. [`plan`] puts element-wise nodes into groups that become one kernel.
//! 3. Each group or op is lowered: memory, then commands. A node that is lowered is ready: its
//!    memory exists and the runtime knows what fills it. Inputs come as [`operand`]s, owned or borrowed; an
//!    op may store its output in the place of one that it owns.
//! 4. If something fails, what was not lowered is lazy again, and can be tried again. A node whose op failed after it had
//!    been given an owned operand to overwrite has failed: it, and whatever reads it, gives the first cause each time.

mod claim;
mod explain;
pub(crate) mod fuse;
pub(crate) mod made;
mod operand;
pub(crate) mod plan;
mod short;
#[cfg(test)]
mod tests;
mod wide;

use std::panic::{AssertUnwindSafe, catch_unwind};

use smallvec::SmallVec;

use hesper_runtime::{Buffer, Stream};

use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::ops::{Kind, Op};
use crate::{Dtype, place};
use claim::{Claim, Read};
use fuse::{Expression, Operands};
use made::Made;
pub(crate) use operand::{Operand, Owned};
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
    let (mut claim, plan) = Claim::take(arrays)?;
    let mut memo = short::Memo::default();
    for (number, step) in plan.steps.iter().enumerate() {
        match step {
            plan::Step::Op(at) => {
                let data = lower(&mut claim, *at, None)?;
                claim.resolve(*at, data)?;
            }
            plan::Step::One(at) => {
                let only = std::slice::from_ref(at);
                let data = match short::lower(&mut claim, &plan, only, only, &mut memo)? {
                    Some(data) => data,
                    None => {
                        let group = Group { members: vec![*at], outputs: vec![*at] };
                        fuse::lower(&mut claim, &plan, &group)?
                    }
                };
                data.into_iter().try_for_each(|data| claim.resolve(*at, data))?;
            }
            plan::Step::Rows(group, at) => {
                let (expression, inputs, _) = fuse::gather(&claim, &plan, group, *at)?;
                let stream = &claim.node(*at)?.0.stream;
                let inputs = fuse::borrowed(&claim, &expression, &inputs)?;
                let rows = caught(FUSED, || Rows::of(&expression, stream, inputs))?;
                let data = lower(&mut claim, *at, Some(rows))?;
                claim.resolve(*at, data)?;
            }
            plan::Step::Group(group) => {
                let data = match short::lower(&mut claim, &plan, &group.members, &group.outputs, &mut memo)? {
                    Some(data) => data,
                    None => fuse::lower(&mut claim, &plan, group)?,
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

/// What the error of a kernel made of several ops names.
pub(crate) const FUSED: &str = "fused kernel";

/// Runs the code of an op; a panic is an error of its array.
pub(crate) fn caught<R>(op: &str, f: impl FnOnce() -> Result<R>) -> Result<R> {
    // What the closure leaves behind is looked at by `Claim::settle`, which trusts no operand that was handed out.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(Error::value(op, format!("panicked: {}", text.unwrap_or("no message"))))
    })
}

/// Lowers the op of a claimed array, whose first input may have been left to be made.
fn lower(claim: &mut Claim, at: usize, rows: Option<Rows>) -> Result<Data> {
    let op = claim.op(at)?.clone();
    let reads: SmallVec<[Read; 3]> = claim.reads(at).collect();
    let (mut first, made) = rows.map_or((None, None), |rows| (rows.data, rows.made));
    let mut operands: SmallVec<[Operand; 3]> = SmallVec::new();
    let gathered = reads.iter().try_for_each(|read| {
        operands.push(match first.take() {
            Some(data) => Operand::borrowed(data),
            None => claim.operand(*read, 1)?,
        });
        Ok(())
    });
    let lowered = gathered.and_then(|()| {
        let array = claim.node(at)?;
        let mut l = Lowering::new(&array.0.stream, &array.0.shape, array.0.dtype).with_made(made);
        for (read, operand) in reads.iter().zip(operands.drain(..)) {
            let input = claim.array(*read)?;
            l.add(input.shape(), input.dtype(), operand);
        }
        let lowered = caught(op.name(), || lower_op(op.get(), &mut l));
        operands = l.into_operands();
        lowered
    });
    if let Err(error) = &lowered {
        claim.settle(&[at], reads.into_iter().zip(operands), Some(error));
    }
    lowered
}

/// The first input of an op that goes through it row by row.
pub(crate) struct Rows {
    /// Where it is; an empty place if it is made as it is read.
    pub(crate) data: Option<Data>,
    pub(crate) made: Option<Made>,
}

impl Rows {
    /// The one value of an expression: left to be made, if that can be, or computed.
    pub(crate) fn of(expression: &Expression, stream: &Stream, mut inputs: Operands) -> Result<Rows> {
        fuse::bring(&mut inputs, &stream.runtime())?;
        Ok(match expression.made(&inputs)? {
            Some(made) => {
                let nowhere = Data::contiguous(stream.alloc(0)?, &[0]);
                Rows { data: Some(nowhere), made: Some(made) }
            }
            None => Rows { data: expression.run(stream, &mut inputs)?.pop(), made: None },
        })
    }
}

/// Lowers an op for the device of its stream, or for the host where that device has no kernels for it.
pub(crate) fn lower_op(op: &dyn Op, l: &mut Lowering<'_>) -> Result<Data> {
    // A view is one wherever its input lies.
    if matches!(op.kind(), Kind::View) {
        return op.lower(l);
    }
    if l.on_host() {
        l.bring()?;
        return op.lower(l);
    }
    if let Some(data) = op.lower_gpu(l)? {
        return Ok(data);
    }
    crate::gpu::count_fallback(op.name());
    l.host = Some(place::default_stream(place::Device::Cpu)?);
    l.bring()?;
    op.lower(l)
}

/// An input of an op, and where it is.
struct Bound<'a> {
    shape: &'a [usize],
    dtype: Dtype,
    operand: Operand,
}

/// What an op's lowering gets: its declared inputs, and nothing else.
pub(crate) struct Lowering<'a> {
    stream: &'a Stream,
    /// In the place of the stream, if its device has no kernels for the op.
    host: Option<Stream>,
    shape: &'a [usize],
    dtype: Dtype,
    inputs: SmallVec<[Bound<'a>; 3]>,
    /// What makes the first input, which then is nowhere.
    made: Option<Made>,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(stream: &'a Stream, shape: &'a [usize], dtype: Dtype) -> Self {
        Lowering { stream, host: None, shape, dtype, inputs: SmallVec::new(), made: None }
    }

    /// One more input.
    pub(crate) fn add(&mut self, shape: &'a [usize], dtype: Dtype, operand: Operand) {
        self.inputs.push(Bound { shape, dtype, operand });
    }

    /// What became of the inputs.
    pub(crate) fn into_operands(self) -> SmallVec<[Operand; 3]> {
        self.inputs.into_iter().map(|input| input.operand).collect()
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
        self.host.as_ref().unwrap_or(self.stream)
    }

    /// Whether commands run on the host.
    pub(crate) fn on_host(&self) -> bool {
        self.stream().runtime().info().host_visible
    }

    /// Moves all inputs to where the commands will run. What was moved is not this op's to overwrite.
    pub(crate) fn bring(&mut self) -> Result<()> {
        let runtime = self.stream().runtime();
        for input in &mut self.inputs {
            if !input.operand.data().buffer.belongs_to(&runtime) {
                let moved = input.operand.data().on(&runtime)?;
                input.operand.replace(moved);
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
        self.inputs[at].operand.data()
    }

    /// All inputs, for steps inside of the op.
    pub(crate) fn operands(&mut self) -> impl Iterator<Item = &mut Operand> {
        self.inputs.iter_mut().map(|input| &mut input.operand)
    }

    /// The memory of the first input, to be changed where it lies: if nobody else can ask for it again, and it lies as the
    /// output would. Whatever else can fail comes before: an op that has taken an input cannot be tried again.
    pub(crate) fn take_in_place(&self) -> Option<Owned> {
        self.take_in_place_if(|_| true)
    }

    /// The same if an op can change memory that lies so.
    pub(crate) fn take_in_place_if(&self, can: impl FnOnce(&Data) -> bool) -> Option<Owned> {
        let input = self.inputs.first()?;
        let lies = input.shape == self.shape
            && input.dtype == self.dtype
            && crate::shape::is_row_major(self.shape, &input.operand.data().strides);
        if lies && can(input.operand.data()) { input.operand.take() } else { None }
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
