//! Encoding: commands of a submission as dispatches of one concurrent encoder.
//!
//! Copies and clears are kernels, too: a blit encoder would need a fence on each side. A fence orders the
//! encoders of a stream, and the submission's barriers order the dispatches of an encoder.

use std::ops::Range;

use hesper_runtime::{Binding, CommandRef, DeviceError, Dispatch, FaultKind, OpRef, Scope, Work};

use crate::compiler::Builtin;
use crate::edge::{Buffer, CommandBuffer, Encoder, Fence, Metal, Pipeline, Queue};
use crate::error::MetalError;
use crate::event_pool::Signal;
use crate::report::Reports;
use crate::shared::MetalShared;

/// The number of buffers that a kernel can have.
const MAX_BUFFERS: usize = 31;
/// The largest length of constants.
const MAX_CONSTANTS: usize = 4096;
/// The threads of one dispatch of a copy: positions in a grid have 32 bits.
const MAX_COPY_THREADS: usize = 1 << 30;
/// The threadgroup of copies and clears.
const COPY_THREADGROUP: u64 = 256;

/// What encoding a part of a submission takes.
pub(crate) struct Part<'a> {
    pub(crate) queue: Queue,
    pub(crate) fence: Fence,
    /// Whether a command buffer of the stream was committed, which updates the fence.
    pub(crate) fenced: bool,
    /// The commands.
    pub(crate) range: Range<usize>,
    /// What the part waits for.
    pub(crate) waits: &'a [Signal],
    /// What it signals at its end.
    pub(crate) signal: Option<Signal>,
}

/// A command buffer that is not committed yet, and the reports that its kernels write.
pub(crate) type Encoded = (CommandBuffer, Reports);

/// An encoder and the state that it has.
struct EncoderState<'a> {
    shared: &'a MetalShared,
    edge: &'a dyn Metal,
    reports: &'a mut Reports,
    encoder: Encoder,
    pipeline: Option<Pipeline>,
    buffers: [Option<(Buffer, usize)>; MAX_BUFFERS],
    /// Dispatches since the last barrier.
    dispatched: bool,
    counts: (u64, u64),
}

impl MetalShared {
    /// Encodes a part of a submission as a command buffer that is not committed yet. A command that cannot be
    /// dispatched fails; an error fails the part and leaves nothing behind.
    ///
    /// # Safety
    /// The queue and everything that the commands name are alive until the command buffer has completed.
    pub(crate) unsafe fn encode(&self, work: &mut Work, part: Part<'_>) -> Result<Encoded, DeviceError> {
        let mut outcome = Err(MetalError::Refused("an autorelease pool").into());
        // SAFETY: upheld by the caller.
        self.edge.pooled(&mut || outcome = unsafe { self.encode_part(work, &part) });
        outcome
    }

    /// # Safety
    /// As for `encode`.
    unsafe fn encode_part(&self, work: &mut Work, part: &Part<'_>) -> Result<Encoded, DeviceError> {
        let edge = &*self.edge;
        let mut reports = Reports::new(self.reports.clone());
        // SAFETY: the queue is alive. The command buffer is released here if it cannot be encoded.
        unsafe {
            let label = if part.range.len() == 1 { work.command(part.range.start).label } else { "hesper" };
            let commands =
                edge.command_buffer(part.queue, label).ok_or(MetalError::Refused("a command buffer"))?;
            if self.orders_streams() {
                part.waits.iter().for_each(|wait| edge.encode_wait(commands, wait.event, wait.value));
            }
            match self.encode_dispatches(work, part, commands, &mut reports) {
                Ok(()) => {
                    if let Some(signal) = part.signal {
                        edge.encode_signal(commands, signal.event, signal.value);
                    }
                    Ok((commands, reports))
                }
                Err(error) => {
                    edge.release(commands.into());
                    Err(error)
                }
            }
        }
    }

    /// # Safety
    /// As for `encode`.
    unsafe fn encode_dispatches(
        &self,
        work: &mut Work,
        part: &Part<'_>,
        commands: CommandBuffer,
        reports: &mut Reports,
    ) -> Result<(), DeviceError> {
        let edge = &*self.edge;
        // SAFETY: the command buffer has no other encoder, and this one is ended on every path.
        unsafe {
            let encoder = edge.compute_encoder(commands).ok_or(MetalError::Refused("a compute encoder"))?;
            let orders = self.orders_encoders();
            if orders && part.fenced {
                edge.wait_fence(encoder, part.fence);
            }
            let mut state = EncoderState {
                shared: self,
                edge,
                reports,
                encoder,
                pipeline: None,
                buffers: [None; MAX_BUFFERS],
                dispatched: false,
                counts: (0, 0),
            };
            let outcome = part.range.clone().try_for_each(|index| state.encode(work, index));
            let (dispatches, barriers) = state.counts;
            if orders {
                edge.update_fence(encoder, part.fence);
            }
            edge.end_encoding(encoder);
            edge.release(encoder.into());
            self.count(dispatches, barriers);
            outcome
        }
    }
}

impl EncoderState<'_> {
    /// # Safety
    /// As for [`MetalShared::encode`].
    unsafe fn encode(&mut self, work: &mut Work, index: usize) -> Result<(), DeviceError> {
        // Before the checks: later commands rely on the barrier of one that is not dispatched.
        if work.command(index).barrier && self.dispatched && self.shared.orders_dispatches() {
            // SAFETY: the encoder is open.
            unsafe { self.edge.barrier(self.encoder) };
            self.dispatched = false;
            self.counts.1 += 1;
        }
        if let Some(fault) = work.blocked_by(index) {
            work.fail_command(index, fault);
            return Ok(());
        }
        let command = work.command(index);
        // SAFETY: upheld by the caller.
        let outcome = unsafe { self.encode_command(index, &command) };
        match outcome {
            Ok(()) => Ok(()),
            Err(Refusal::Command(message)) => {
                let fault = work.fault_at(command.label, FaultKind::Failed, Scope::Command, message);
                work.fail_command(index, fault);
                Ok(())
            }
            Err(Refusal::Part(error)) => Err(error),
        }
    }

    /// # Safety
    /// As for [`MetalShared::encode`].
    unsafe fn encode_command(&mut self, index: usize, command: &CommandRef<'_>) -> Result<(), Refusal> {
        // SAFETY: upheld by the caller; the encoder is open.
        unsafe {
            if self.shared.options.signposts {
                self.edge.signpost(self.encoder, command.label);
            }
            match (command.op, command.bindings) {
                (OpRef::Dispatch(dispatch), bindings) => self.dispatch(index, dispatch, bindings),
                (OpRef::Copy, [from, to]) => self.move_bytes(Builtin::Copy, &[from, to], from.len()),
                (OpRef::Clear, [to]) => self.move_bytes(Builtin::Clear, &[to], to.len()),
                _ => Err(Refusal::Command("the command has the wrong number of bindings".into())),
            }
        }
    }

    /// # Safety
    /// As for [`MetalShared::encode`].
    unsafe fn dispatch(
        &mut self,
        index: usize,
        dispatch: &Dispatch,
        bindings: &[Binding],
    ) -> Result<(), Refusal> {
        let Dispatch { grid, threadgroup, constants, .. } = dispatch;
        let pipeline = Pipeline(dispatch.pipeline().0);
        let info = self.shared.compiler.info(pipeline);
        let refuse = |message: String| Err(Refusal::Command(message));
        let threads: u64 = threadgroup.iter().product();
        let report = info.as_ref().and_then(|info| info.report.clone());
        let mut constants = std::borrow::Cow::from(&constants[..]);
        if report.is_some() {
            let constants = constants.to_mut();
            constants.resize(constants.len().next_multiple_of(8), 0);
            bindings.iter().for_each(|binding| constants.extend((binding.len() as u64).to_le_bytes()));
        }
        if let Some(info) = info.as_ref().filter(|info| threads > info.max_threads as u64) {
            let most = info.max_threads;
            return refuse(format!(
                "a threadgroup of {threads} threads is too large: the kernel allows {most}"
            ));
        }
        if bindings.len() + usize::from(!constants.is_empty()) + usize::from(report.is_some()) > MAX_BUFFERS {
            let count = bindings.len();
            return refuse(format!(
                "a kernel cannot bind {count} ranges: Metal has {MAX_BUFFERS} buffers, and constants take one"
            ));
        }
        if constants.len() > MAX_CONSTANTS {
            let len = constants.len();
            return refuse(format!(
                "{len} bytes of constants are too many: Metal takes {MAX_CONSTANTS}; bind a buffer"
            ));
        }
        if grid.iter().any(|size| *size > u64::from(u32::MAX)) {
            return refuse(format!("the grid {grid:?} is too large: a position in Metal has 32 bits"));
        }
        // SAFETY: upheld by the caller; the encoder is open.
        unsafe {
            self.set_pipeline(pipeline);
            for (at, binding) in bindings.iter().enumerate() {
                self.bind(at, binding, 0);
            }
            if !constants.is_empty() {
                self.edge.set_bytes(self.encoder, &constants, bindings.len());
                self.buffers[bindings.len()] = None;
            }
            if let Some(reader) = report {
                let at = bindings.len() + usize::from(!constants.is_empty());
                let buffer = self.reports.add(index, reader)?;
                self.edge.set_buffer(self.encoder, Some(buffer), 0, at);
                self.buffers[at] = None;
            }
            if let Some(len) = info.map(|info| info.threadgroup).filter(|len| *len > 0) {
                self.edge.set_threadgroup_memory(self.encoder, len, 0);
            }
            self.launch(*grid, *threadgroup);
        }
        Ok(())
    }

    /// Copies or clears `len` bytes.
    ///
    /// # Safety
    /// As for [`MetalShared::encode`].
    unsafe fn move_bytes(
        &mut self,
        builtin: Builtin,
        bindings: &[&Binding],
        len: usize,
    ) -> Result<(), Refusal> {
        if len == 0 {
            return Ok(());
        }
        let places =
            bindings.iter().map(|binding| self.shared.memory.offset(binding.memory()) + binding.offset());
        let bits = places.fold(len, |bits, place| bits | place);
        let width = [16, 4].into_iter().find(|width| bits % width == 0).unwrap_or(1);
        let pipeline = self.shared.compiler.builtin(builtin, width)?;
        // SAFETY: upheld by the caller; the encoder is open.
        unsafe {
            self.set_pipeline(pipeline);
            let step = MAX_COPY_THREADS * width;
            for start in (0..len).step_by(step) {
                let threads = (len - start).min(step) / width;
                bindings.iter().enumerate().for_each(|(at, binding)| self.bind(at, binding, start));
                self.launch([threads as u64, 1, 1], [COPY_THREADGROUP.min(threads as u64), 1, 1]);
            }
        }
        Ok(())
    }

    /// # Safety
    /// The pipeline is alive until the command buffer has completed.
    unsafe fn set_pipeline(&mut self, pipeline: Pipeline) {
        if self.pipeline != Some(pipeline) {
            self.pipeline = Some(pipeline);
            // SAFETY: upheld by the caller; the encoder is open.
            unsafe { self.edge.set_pipeline(self.encoder, pipeline) };
        }
    }

    /// Binds a range from its byte `start` on.
    ///
    /// # Safety
    /// The memory is alive until the command buffer has completed.
    unsafe fn bind(&mut self, index: usize, binding: &Binding, start: usize) {
        let memory = binding.memory();
        // An empty range may lie at the end of its buffer, where Metal binds nothing.
        let offset = if binding.is_empty() { 0 } else { binding.offset() + start };
        let place = (Buffer(memory.id), self.shared.memory.offset(memory) + offset);
        if self.buffers[index] == Some(place) {
            return;
        }
        self.buffers[index] = Some(place);
        let buffer = self.shared.is_real(memory).then_some(place.0);
        // SAFETY: upheld by the caller; the encoder is open.
        unsafe { self.edge.set_buffer(self.encoder, buffer, place.1, index) };
    }

    /// # Safety
    /// The pipeline and its bindings are set.
    unsafe fn launch(&mut self, grid: [u64; 3], threadgroup: [u64; 3]) {
        // SAFETY: upheld by the caller; the encoder is open.
        unsafe { self.edge.dispatch(self.encoder, grid, threadgroup) };
        self.dispatched = true;
        self.counts.0 += 1;
    }
}

/// Why a command was not encoded.
enum Refusal {
    /// It is invalid; the others are encoded.
    Command(String),
    /// The whole part cannot be encoded.
    Part(DeviceError),
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Self {
        Refusal::Part(error)
    }
}
