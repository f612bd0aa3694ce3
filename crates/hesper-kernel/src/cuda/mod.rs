//! CUDA text: a kernel as complete C++ for NVRTC, with the meaning of the reference interpreter.
//!
//! [`emit`] relies on a verified kernel and promises text that depends on the kernel and the options alone:
//! it can be a cache key. It includes no header; a prelude in front of it, reduced to what the kernel uses,
//! defines the semantics of the language.
//!
//! * **Numbers.** Every operation rounds to its type; nothing is contracted
//!   ([`COMPILE_OPTIONS`] says so to the compiler). The f32 functions are the definitions of
//!   [`crate::math`], operation by operation, so they give the host's bits; the exceptions are
//!   the payload of NaNs, and the f64 functions, which are the device's.
//! * **Threads.** Blocks have the threadgroup's dimensions and cover the grid, rounded up.
//!   Threads outside the grid end at once, which CUDA's barriers allow for; the others are
//!   numbered within the actual group, so that SIMD groups are warps in partial groups, too.
//! * **Divergence.** Where a kernel uses operations of SIMD groups, the set of active lanes is
//!   computed at every structured fork and join (see `control`) and passed to each operation:
//!   it waits for exactly the lanes that take part, in whatever order the hardware runs them.
//! * **Memory.** Pointers are plain addresses unless [`Options::bounds`] is set: then accesses are checked,
//!   and the first write that is dropped is reported.
//!
//! ```
//! use hesper_kernel::cuda::{Options, emit};
//! use hesper_kernel::ir::{Access, Builder, Builtin, Space, Type};
//!
//! let mut b = Builder::new("twice");
//! let x = b.buffer("x", Space::Device, Type::F32, Access::ReadWrite);
//! let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
//! let p = b.ptr_offset(x, i, 4);
//! let v = b.load(p, Type::F32);
//! let v = b.add(v, v);
//! b.store(p, v);
//! let source = emit(&b.finish()?, &Options::default());
//! assert!(source.text.contains(&source.entry));
//! # Ok::<(), hesper_kernel::ir::IrError>(())
//! ```

mod analysis;
mod control;
mod instruction;
mod kernel;
mod memory;
mod prelude;

#[cfg(test)]
pub(crate) mod tests;

use crate::function::Function;
use crate::ir::Kernel;

/// Options of NVRTC besides the architecture: no contraction, IEEE division and root, subnormals kept.
/// Generated text has many unused values, so warnings are off.
pub const COMPILE_OPTIONS: [&str; 5] =
    ["--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--disable-warnings"];

/// Bytes of shared memory that a kernel may declare statically.
pub const STATIC_SHARED_LIMIT: u64 = 48 << 10;

/// Options of the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Pointers carry their object and every access is checked that is not [proven](crate::bounds::prove_any)
    /// to lie inside of it: reads outside give zero, writes outside (or to read-only memory) are dropped and
    /// reported, misaligned accesses go byte by byte. Each buffer takes a length with its pointer
    /// ([`Slot::Length`]), and the launch takes a report ([`Slot::Report`]). Off by default: an access
    /// outside is then as undefined as in any CUDA kernel.
    pub bounds: bool,
    /// Threadgroup and thread memory start as zeros, as on the host. On by default.
    pub zero_memory: bool,
    /// Blocks may all be numbered along x, for grids with more blocks along y or z than CUDA allows. On by
    /// default; the computation of positions takes longer to compile with it.
    pub flat: bool,
    /// The most threads of a threadgroup; the compiler limits registers to make them fit.
    pub max_threads: u32,
    /// Functions of half precision are the device's own, and exponentials use its approximate instructions:
    /// results may differ from the host's by one unit in the last place. Functions of single precision have
    /// first passes, with the same bits. Off by default.
    pub fast_half: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { bounds: false, zero_memory: true, flat: true, max_threads: 1024, fast_half: false }
    }
}

/// One parameter of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The address of buffer parameter `i` (8 bytes).
    Buffer(u32),
    /// The packed bytes of by-value parameter `i`, aligned like its scalar.
    Value(u32),
    /// The length in bytes of buffer parameter `i` (`u64`); with [`Options::bounds`] only.
    Length(u32),
    /// The address of the launch's report, four `u64` that are zero before the launch; with
    /// [`Options::bounds`] only. [`Violation::reported`](crate::bounds::Violation::reported) reads it
    /// afterwards.
    Report,
    /// The grid in threads (`u64[3]`). Always last.
    Grid,
}

/// The text of a kernel and how to launch it.
///
/// Launch with blocks of the threadgroup's dimensions and `ceil(grid / threadgroup)` blocks along each axis;
/// if that exceeds what CUDA allows along y or z and [`Options::flat`] is set, with all of them along x (x
/// fastest, then y): the kernel distinguishes the two by the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaSource {
    /// Complete C++.
    pub text: String,
    /// Name of the `extern "C"` entry.
    pub entry: String,
    /// Parameters of the entry: buffers, values, lengths, the report, the grid.
    pub slots: Vec<Slot>,
    /// Bytes of shared memory that the text declares.
    pub static_shared: u64,
    /// Bytes of dynamic shared memory to launch with; not 0 only above [`STATIC_SHARED_LIMIT`].
    pub dynamic_shared: u64,
    /// The most grid threads that one CUDA thread handles: the kernel may be launched with as few as `blocks
    /// / turns` blocks along x.
    pub turns: u32,
    /// Whether the text has no loops and calls no long functions: it is as fast if compiled with few
    /// optimisations.
    pub plain: bool,
}

/// Writes a verified kernel as CUDA C++.
pub fn emit(kernel: &Kernel, options: &Options) -> CudaSource {
    emit_proven(kernel, options, &[])
}

/// [`emit`] without checks of accesses that are proven in range, by instruction number
/// ([`bounds::Proof`](crate::bounds::Proof)).
pub fn emit_proven(kernel: &Kernel, options: &Options, proven: &[bool]) -> CudaSource {
    kernel::Emitter::new(kernel, *options, proven).run()
}

/// Writes named [functions](crate::function) with the prelude that they need. The text may stand in a
/// namespace; compile it with [`COMPILE_OPTIONS`].
pub fn emit_functions(functions: &[(&str, &Function)], options: &Options) -> String {
    kernel::functions(functions, *options)
}

impl CudaSource {
    /// The specialisation of a pipeline of the CUDA device, one item per line: entry, compiler options,
    /// dynamic shared memory, whether the text is plain, turns, and that the grid is a parameter.
    pub fn specialisation(&self) -> String {
        let mut lines = vec![format!("entry {}", self.entry)];
        lines.extend(COMPILE_OPTIONS.iter().map(|o| format!("option {o}")));
        if self.dynamic_shared > 0 {
            lines.push(format!("shared {}", self.dynamic_shared));
        }
        if self.plain {
            lines.push("plain".to_string());
        }
        if self.turns > 1 {
            lines.push(format!("turns {}", self.turns));
        }
        lines.push("grid".to_string());
        lines.join("\n")
    }
}
