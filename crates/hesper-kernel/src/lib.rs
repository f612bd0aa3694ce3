//! The kernel language: Metal-dialect source to typed IR, a CPU executor and CUDA text.
//!
//! Everything meets in [`ir`]: the front end and the array library's planner build an
//! [`ir::Kernel`] through [`ir::Builder`], and the executors run it. [`launch`] describes one
//! launch (grid, threadgroup, bound memory) in terms every executor shares. [`custom`] is the
//! kernel object that users call; [`front`] turns its text into IR.

pub mod custom;
pub mod exec;
pub mod front;
pub mod interp;
pub mod ir;
pub mod launch;
pub mod math;

#[cfg(test)]
pub(crate) mod testing;
