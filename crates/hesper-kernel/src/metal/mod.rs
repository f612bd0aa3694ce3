//! Metal text: a kernel as Metal Shading Language, with the meaning of the reference interpreter.
//!
//! [`emit`] relies on a verified kernel and promises text that depends on the kernel and the options alone:
//! it can be a cache key. A prelude in front of it, reduced to what the kernel uses, defines the semantics of
//! the language. The text is also in the dialect of [`crate::front`], so the tests run it on the reference
//! interpreter. It has not been compiled or run by Apple's tools.
//!
//! * **Numbers.** Compile with math mode safe (fast math off); the text also says so. The f32 functions are
//!   the definitions of [`crate::math`]; those that compute in f64 do so in integers, as Metal has no
//!   `double`. A kernel with values of f64 is refused. Bits differ from the host's in the payload of NaNs,
//!   and where a device flushes subnormal f32, which Metal allows.
//! * **Threads.** Dispatch threads, not threadgroups: Metal makes the last groups smaller. SIMD groups have
//!   32 lanes.
//! * **Divergence.** Metal's SIMD-group functions work on the active lanes of structured control flow, as the
//!   IR's do.
//! * **Memory.** Pointers carry their address space. With [`Options::bounds`] they also carry their object;
//!   accesses are checked, and the first write that is dropped is reported.
//!
//! ```
//! use hesper_kernel::ir::{Access, Builder, Builtin, Space, Type};
//! use hesper_kernel::metal::{Options, emit};
//!
//! let mut b = Builder::new("twice");
//! let x = b.buffer("x", Space::Device, Type::F32, Access::ReadWrite);
//! let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
//! let p = b.ptr_offset(x, i, 4);
//! let v = b.load(p, Type::F32);
//! let v = b.add(v, v);
//! b.store(p, v);
//! let source = emit(&b.finish()?, &Options::default())?;
//! assert!(source.text.contains("kernel void hesper_twice("));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod control;
mod instruction;
mod kernel;
mod memory;
mod prelude;

#[cfg(test)]
mod tests;

use crate::function::Function;
use crate::ir::Kernel;

/// Bytes of threadgroup memory of a Metal threadgroup.
pub const THREADGROUP_LIMIT: u64 = 32 << 10;
/// Buffers that a Metal kernel can take.
pub const MAX_BUFFERS: usize = 31;

/// Options of the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Pointers carry their object and every access is checked that is not [proven](crate::bounds::prove_any)
    /// to lie inside of it: reads outside give zero, writes outside (or to read-only memory) are dropped and
    /// reported, accesses misaligned within their object go byte by byte. Adds lengths to
    /// [`Slot::Constants`], and [`Slot::Report`]. Off by default: an access outside is then as undefined as
    /// in any Metal kernel.
    pub bounds: bool,
    /// Threadgroup and thread memory start as zeros, as on the host. On by default.
    pub zero_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { bounds: false, zero_memory: true }
    }
}

/// One parameter of the entry; its place in [`MetalSource::slots`] is its buffer index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Buffer parameter `i`, bound at an offset that is a multiple of its element's size.
    Buffer(u32),
    /// The bytes of the by-value parameters, each at a multiple of eight; with [`Options::bounds`] then the
    /// length in bytes of each [`Slot::Buffer`] (`u64`). Absent if there are none.
    Constants,
    /// The launch's report, four `u64` that are zero before the launch; with [`Options::bounds`] only.
    /// [`Violation::reported`](crate::bounds::Violation::reported) reads it afterwards.
    Report,
}

/// The text of a kernel and how to launch it: `dispatchThreads` with the grid and the threadgroup of the
/// launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetalSource {
    /// Complete Metal Shading Language, of Metal 2.3 (3.2 where the kernel has a fence).
    pub text: String,
    /// Name of the kernel function.
    pub entry: String,
    /// Parameters of the entry: buffers, constants, the report.
    pub slots: Vec<Slot>,
    /// Bytes of threadgroup memory that the text declares.
    pub threadgroup_bytes: u64,
}

/// Why a kernel has no Metal text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// A value of f64.
    #[error("kernel {kernel} cannot be written for Metal, which has no double: {value} is f64; use f32")]
    Double {
        /// The kernel.
        kernel: String,
        /// Which value: a parameter, a variable, or where it is computed.
        value: String,
    },
    /// An atomic of 64 bits.
    #[error(
        "kernel {kernel} cannot be written for Metal, which has no 64-bit atomics: {value} is one; use 32 bits"
    )]
    WideAtomic {
        /// The kernel.
        kernel: String,
        /// Where the atomic is.
        value: String,
    },
    /// Too many parameters.
    #[error("kernel {kernel} takes {count} buffers; Metal allows {MAX_BUFFERS}")]
    TooManyBuffers {
        /// The kernel.
        kernel: String,
        /// Buffers that the text would take.
        count: usize,
    },
    /// Too much threadgroup memory.
    #[error("kernel {kernel} declares {bytes} bytes of threadgroup memory; Metal allows {THREADGROUP_LIMIT}")]
    ThreadgroupMemory {
        /// The kernel.
        kernel: String,
        /// Bytes that it declares.
        bytes: u64,
    },
}

/// Writes a verified kernel in Metal Shading Language.
pub fn emit(kernel: &Kernel, options: &Options) -> Result<MetalSource, EmitError> {
    emit_proven(kernel, options, &[])
}

/// Writes named [functions](crate::function) with the prelude that they need, for a text that includes
/// Metal's library. The text may stand in a namespace.
pub fn emit_functions(functions: &[(&str, &Function)]) -> Result<String, EmitError> {
    kernel::functions(functions)
}

/// Whether [`emit`] can write a kernel, without writing it.
pub fn check(kernel: &Kernel, options: &Options) -> Result<(), EmitError> {
    kernel::frame(kernel, *options).map(|_| ())
}

/// [`emit`] without checks of accesses that are proven in range, by instruction number
/// ([`bounds::Proof`](crate::bounds::Proof)).
pub fn emit_proven(kernel: &Kernel, options: &Options, proven: &[bool]) -> Result<MetalSource, EmitError> {
    kernel::Emitter::new(kernel, *options, proven).run()
}
