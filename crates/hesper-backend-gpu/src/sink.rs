//! Where a kernel with a second slot stores its elements.

use hesper_core::Result;
use hesper_core::backend::{Lowering, Slot};
use hesper_runtime::{Buffer, Encoder};

use crate::source::WORD;

/// The target of an op's elements: memory as they are, or with the epilogue that fills the slot.
pub struct Sink(Option<Slot>);

impl Sink {
    /// The target of an op whose kernel binds `bound` buffers of its source. Words are of sixteen bytes.
    pub fn of(l: &mut Lowering<'_>, bound: usize) -> Result<Sink> {
        let lanes = WORD / l.dtype().size();
        Ok(Sink(l.epilogue_slot(lanes, bound)?))
    }

    /// Memory for the elements as they are.
    pub fn memory() -> Sink {
        Sink(None)
    }

    /// What fills the slot of the kernel.
    pub fn slot(&self) -> Option<&Slot> {
        self.0.as_ref()
    }

    /// Memory for what the kernel stores. Call it after everything that can decline.
    pub fn output(&self, l: &mut Lowering<'_>) -> Result<Buffer> {
        match self.0 {
            Some(_) => l.epilogue_output(),
            None => l.output(),
        }
    }

    /// Binds what the epilogue reads, then the output.
    pub fn bind<'a>(&'a self, command: Encoder<'a>, output: &'a Buffer) -> Encoder<'a> {
        let command = match &self.0 {
            Some(slot) => slot.bind(command),
            None => command,
        };
        command.write(output)
    }
}
