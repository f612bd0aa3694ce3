//! The fast CPU executor: IR to vector bytecode, run with SIMD over lanes.
//!
//! [`Program::compile`] turns a verified kernel into register bytecode; every register holds one scalar
//! component for a whole block of lanes, and every instruction is one tight loop compiled for several SIMD
//! levels. Blocks are as wide as their registers fit the L1 cache, so that many lanes share the cost of an
//! instruction. Threadgroups are independent: the caller distributes ranges of them over threads with
//! [`Program::run_groups`] or [`Program::run_parallel`]. Straight-line kernels also become machine code where
//! the processor has AVX2, AVX-512 or NEON (`jit`), which then runs instead of the bytecode.
//!
//! Promises: results equal the reference interpreter's bit for bit (up to the payload of NaN and
//! the order of atomics), at every SIMD level and for every split into ranges; nothing outside
//! the bound buffers is touched, whatever the kernel does; a launch can be cancelled at any loop.
//!
//! Relies on: a kernel that passed [`crate::ir::verify`], bindings whose writable ranges overlap
//! nothing ([`crate::launch::Bindings`]), and the scalar functions of [`crate::math`].

mod analyse;
mod atomic;
mod code;
mod compile;
mod control;
#[cfg(feature = "text")]
mod folds;
mod geometry;
mod groups;
#[cfg_attr(
    any(
        miri,
        not(any(
            all(target_arch = "x86_64", any(unix, windows)),
            all(target_arch = "aarch64", any(target_os = "linux", target_os = "macos"))
        ))
    ),
    path = "jit/none.rs"
)]
mod jit;
mod lanes;
mod level;
mod lower;
mod machine;
mod memory;
mod native;
mod program;
mod roots;
mod run;
mod stream;

#[cfg(test)]
mod tests;

pub use compile::CompileError;
pub use lanes::slices::map_doubles;
pub use level::SimdLevel;
pub use program::{Cancel, ExecError, Parallel, Program};
