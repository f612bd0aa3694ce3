//! The kernel language: Metal-dialect source to typed IR, a CPU executor, CUDA and Metal text.
//!
//! Everything meets in [`ir`]: the front end and the array library's planner build an [`ir::Kernel`] through
//! [`ir::Builder`], and the executors run it. [`launch`] describes one launch (grid, threadgroup, bound
//! memory) in terms every executor shares. [`custom`] is the kernel object that users call; [`front`] turns
//! its text into IR, [`cuda`] IR into CUDA C++, and [`metal`] into Metal. [`function`] is a kernel as a
//! function for the texts of other kernels. [`bounds`] reports accesses out of range and proves that there
//! are none.
//!
//! Without the feature `text` there are no kernels of text, only those that are built as IR; without `gpu`
//! there are no texts for GPUs.
#![cfg_attr(
    not(all(feature = "gpu", feature = "text")),
    allow(dead_code, unused_imports, reason = "what only the parts that are left out use")
)]

pub mod bounds;
#[cfg(feature = "gpu")]
mod cpp;
#[cfg(feature = "gpu")]
pub mod cuda;
#[cfg(feature = "text")]
pub mod custom;
pub mod exec;
#[cfg(feature = "text")]
pub mod front;
pub mod function;
pub mod interp;
pub mod ir;
pub mod launch;
pub mod math;
#[cfg(feature = "gpu")]
pub mod metal;

#[doc(hidden)]
pub mod testing;
