//! How ops bind their outputs.
//!
//! The runtime clears fresh memory before a command may write it, because a command can leave bytes unwritten and its
//! reader would see the previous owner's. Op kernels cover their outputs, so clearing would be wasted bandwidth. This
//! module is the one place where the crate makes that promise. Custom kernels go through it only where the analysis of
//! their stores proves that they cover their outputs.

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
        // SAFETY: op kernels write each byte of their outputs and read none of it before. The op table runs on the
        // simulated device, whose fresh memory is poisoned: an uncovered byte is a wrong number there.
        // Scratch may stay unwritten in part: its handle goes with the command, so no other command can name it.
        unsafe { self.encode(label).covering() }
    }
}

/// Write access to a buffer that a file is read into. Not cleared: loading writes every byte, or drops the buffer.
pub fn for_loading(buffer: &Buffer) -> Result<HostWrite> {
    // SAFETY: `load_into` fills the whole buffer or fails, and the buffer of a failed load is dropped unread.
    Ok(unsafe { buffer.overwrite() }?)
}
