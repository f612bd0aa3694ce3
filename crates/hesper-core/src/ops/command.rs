//! How ops bind their outputs.
//!
//! The runtime clears fresh memory before a command writes it: a command may leave bytes unwritten, and a
//! reader would see those of the previous owner. Op kernels cover their outputs, so clearing would waste
//! bandwidth. Only this module makes that promise. A custom kernel uses it only if the analysis of its stores
//! proves that they cover its outputs.

#![allow(unsafe_code)]

use hesper_runtime::{Buffer, Encoder, HostWrite, Label, Stream};

use crate::error::Result;

/// Commands of op kernels.
pub trait Commands {
    /// Begins a command whose kernel writes every byte that it binds with `write`.
    fn command(&self, label: impl Into<Label>) -> Encoder<'_>;
}

impl Commands for Stream {
    #[inline]
    fn command(&self, label: impl Into<Label>) -> Encoder<'_> {
        // SAFETY: op kernels write each byte of their outputs and read none of it before. The op table runs
        // on the simulated device, whose fresh memory is poisoned: an uncovered byte gives a wrong result
        // there. Scratch may stay partly unwritten: its handle ends with the command, so no other command can
        // read it.
        unsafe { self.encode(label).covering() }
    }
}

/// Write access to a buffer that a file is read into. It is not cleared: loading writes every byte, or drops
/// the buffer.
pub fn for_loading(buffer: &Buffer) -> Result<HostWrite> {
    // SAFETY: `load_into` fills the whole buffer or fails, and the buffer of a failed load is dropped unread.
    Ok(unsafe { buffer.overwrite() }?)
}
