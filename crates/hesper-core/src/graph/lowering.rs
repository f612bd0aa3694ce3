//! Lowerings: what an op's implementation gets.

use hesper_runtime::{Buffer, Stream};
use smallvec::SmallVec;

use super::fused_rows::{Consumer, FusedRows, Producer};
use super::operand::{Operand, Owned};
use super::{Data, Slot};
use crate::dtype::Dtype;
use crate::error::Result;
use crate::shape::is_row_major;

/// What an op's lowering gets: its declared inputs, and nothing else.
pub struct Lowering<'a> {
    stream: &'a Stream,
    /// Replaces the stream if its device has no kernel for the op.
    pub(crate) host: Option<Stream>,
    pub(crate) shape: &'a [usize],
    dtype: Dtype,
    /// Where the inputs are, and their shapes and types.
    pub(crate) operands: &'a mut [Operand],
    pub(crate) inputs: SmallVec<[(&'a [usize], Dtype); 3]>,
    /// What computes the first input, which then has strides but no memory.
    producer: Option<&'a mut dyn Producer>,
    /// What is applied to the result before it is stored.
    consumer: Option<&'a mut dyn Consumer>,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(
        stream: &'a Stream,
        shape: &'a [usize],
        dtype: Dtype,
        operands: &'a mut [Operand],
    ) -> Self {
        let (inputs, producer, consumer) = (SmallVec::new(), None, None);
        Lowering { stream, host: None, shape, dtype, operands, inputs, producer, consumer }
    }

    /// The same with a first input that is computed as it is read.
    pub(crate) fn with_producer(self, producer: Option<&'a mut dyn Producer>) -> Self {
        Lowering { producer, ..self }
    }

    /// The same with an epilogue.
    pub(crate) fn with_consumer(self, consumer: Option<&'a mut dyn Consumer>) -> Self {
        Lowering { consumer, ..self }
    }

    /// What computes rows of the first input on the host, if that is not in memory. Implementations for the
    /// host whose `takes_rows` says yes ask for it; if they get none, the input is in memory.
    pub fn take_fused_rows(&mut self) -> Result<Option<FusedRows>> {
        let stream = self.stream().clone();
        let rows = self.producer.as_mut().map_or(Ok(None), |producer| producer.rows(&stream))?;
        if rows.is_none() {
            self.materialize()?;
        }
        Ok(rows)
    }

    /// What computes the first input in a kernel's slot, if that is not in memory: functions of an index, in
    /// the order of the input's strides or `row_major`, with `lanes` elements of a word. Implementations for
    /// GPUs whose `takes_rows` says yes ask for it; if they get none, the input is in memory.
    pub fn slot(&mut self, lanes: usize, row_major: bool) -> Result<Option<Slot>> {
        let stream = self.stream().clone();
        let slot =
            self.producer.as_mut().map_or(Ok(None), |producer| producer.slot(&stream, lanes, row_major))?;
        if slot.is_none() {
            self.materialize()?;
        }
        Ok(slot)
    }

    /// Computes the first input into memory, if it is not there.
    pub fn materialize(&mut self) -> Result<()> {
        if let Some(producer) = self.producer.take() {
            let data = producer.run()?;
            self.operands[0].replace(data);
        }
        Ok(())
    }

    /// The kernel of the epilogue for rows on the host, if there is an epilogue. An implementation for the
    /// host whose `takes_epilogue` says yes may ask for it, apply it to its result, and store that in the
    /// memory of [`Lowering::epilogue_output`]. Otherwise the result is stored and the epilogue is computed
    /// afterwards.
    pub fn epilogue_rows(&mut self) -> Result<Option<FusedRows>> {
        let stream = self.stream().clone();
        self.consumer.as_mut().map_or(Ok(None), |consumer| consumer.rows(&stream))
    }

    /// The same for the second slot of a GPU's kernel: functions of an element and its index in row-major
    /// order, with `lanes` elements of a word. The kernel binds `bound` buffers for its first slot.
    pub fn epilogue_slot(&mut self, lanes: usize, bound: usize) -> Result<Option<Slot>> {
        let stream = self.stream().clone();
        self.consumer.as_mut().map_or(Ok(None), |consumer| consumer.slot(&stream, lanes, bound))
    }

    /// Memory for the value of the epilogue. After this call the implementation's result is that value: call
    /// it after everything that can decline.
    pub fn epilogue_output(&mut self) -> Result<Buffer> {
        let dtype = self.epilogue_dtype();
        let size: usize = self.shape.iter().product();
        let buffer = self.stream().alloc(size * dtype.size())?;
        if let Some(consumer) = &mut self.consumer {
            consumer.take();
        }
        Ok(buffer)
    }

    /// The type of the epilogue's value, or of the output if there is no epilogue.
    pub fn epilogue_dtype(&self) -> Dtype {
        self.consumer.as_ref().map_or(self.dtype, |consumer| consumer.dtype())
    }

    /// Leaves the epilogue to a command of its own.
    pub fn without_epilogue(&mut self) {
        self.consumer = None;
    }

    /// The stream for the commands.
    pub fn stream(&self) -> &Stream {
        self.host.as_ref().unwrap_or(self.stream)
    }

    /// Moves all inputs to the device of the commands. The op may not overwrite an input that was moved.
    pub fn bring(&mut self) -> Result<()> {
        let runtime = self.stream().runtime();
        for operand in &mut *self.operands {
            if !operand.data().buffer.belongs_to(&runtime) {
                let moved = operand.data().on(&runtime)?;
                operand.replace(moved);
            }
        }
        Ok(())
    }

    /// Shape of the output.
    pub fn shape(&self) -> &[usize] {
        self.shape
    }

    /// Element type of the output.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many inputs there are.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Where an input is.
    pub fn input(&self, at: usize) -> &Data {
        self.operands[at].data()
    }

    /// All inputs, for steps inside of the op.
    pub fn operands(&mut self) -> impl Iterator<Item = &mut Operand> {
        self.operands.iter_mut()
    }

    /// The memory of the first input, to be overwritten with the output: if the input is owned and has the
    /// output's shape, type and layout. Call it after everything that can fail: an op that has taken an input
    /// cannot be retried.
    pub fn take_in_place(&self) -> Option<Owned> {
        self.take_in_place_if(|_| true)
    }

    /// The same if the op also accepts the layout.
    pub fn take_in_place_if(&self, can: impl FnOnce(&Data) -> bool) -> Option<Owned> {
        let (operand, (shape, dtype)) = (self.operands.first()?, *self.inputs.first()?);
        let fits =
            shape == self.shape && dtype == self.dtype && is_row_major(self.shape, &operand.data().strides);
        if fits && can(operand.data()) { operand.take() } else { None }
    }

    /// Shape of an input.
    pub fn input_shape(&self, at: usize) -> &[usize] {
        self.inputs[at].0
    }

    /// Element type of an input.
    pub fn input_dtype(&self, at: usize) -> Dtype {
        self.inputs[at].1
    }

    /// Memory for the output.
    pub fn output(&self) -> Result<Buffer> {
        let size: usize = self.shape.iter().product();
        Ok(self.stream().alloc(size * self.dtype.size())?)
    }
}
