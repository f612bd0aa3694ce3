//! The kernel language: Metal-dialect source to typed IR, a CPU executor, CUDA and Metal text.
//!
//! Everything meets in [`ir`]: the front end and the array library's planner build an [`ir::Kernel`] through
//! [`ir::Builder`], and the executors run it. [`launch`] describes one launch (grid, threadgroup, bound
//! memory) in terms every executor shares. [`custom`] is the kernel object that users call; [`front`] turns
//! its text into IR, [`cuda`] IR into CUDA C++, and [`metal`] into Metal. [`function`] is a kernel as a
//! function for the texts of other kernels. [`bounds`] reports accesses out of range and proves that there
//! are none.

pub mod bounds;
mod cpp;
pub mod cuda;
pub mod custom;
pub mod exec;
pub mod front;
pub mod function;
pub mod interp;
pub mod ir;
pub mod launch;
pub mod math;
pub mod metal;

#[doc(hidden)]
pub mod testing;
