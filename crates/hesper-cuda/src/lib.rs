//! NVIDIA GPUs as a device of Hesper; every CUDA library is loaded at run time.
//!
//! [`CudaDevice`] implements the runtime's [`Device`](hesper_runtime::Device) on the CUDA driver API. One
//! binary runs with and without a GPU, and building it needs no CUDA toolkit. The layers: [`sys`] has the
//! functions of the libraries, [`context`] adds results and lifetimes, and everything above is the device.
//!
//! | module | responsible for |
//! |---|---|
//! | [`library`] | finding the libraries |
//! | [`context`] | the CUDA context and the driver's calls |
//! | [`specialisation`] | the text format of a kernel's specialisation |
//! | [`compiler`], [`disk_cache`] | compiling CUDA C++, caching the code |
//! | `kernel` | a loaded kernel, its parameters and limits |
//! | `launch_queue` | the thread that launches |
//! | `submit` | launching a submission, one by one or as a graph |
//! | `topology`, `graph` | the shape of a submission, executable graphs cached by shape |
//! | `event`, `in_flight`, `completion` | completion, in order |
//! | `bounds_report` | out-of-range writes that kernels of the kernel language dropped |
//! | `dependent_launch` | kernels that start before those they depend on have ended |
//! | `shutdown` | process exit and forked processes |
//! | [`inject`] | fault injection for checks |
//! | `staging` | host reads and writes |
//! | [`blas`] | matrix products by cuBLASLt |
//! | [`cudnn`] | convolutions by cuDNN |
//! | [`solver`] | factorizations by cuSOLVER |
//!
//! A kernel fault is sticky: the device is lost, and everything in flight on it fails with the first cause.
//! The process and the host device continue, but no CUDA device can be opened in the process again.

mod bounds_report;
pub mod compiler;
pub mod context;
mod dependent_launch;
mod device;
pub mod disk_cache;
mod error;
mod event;
#[cfg(test)]
mod fake;
mod graph;
mod host;
mod in_flight;
#[doc(hidden)]
pub mod inject;
mod kernel;
pub mod library;
mod shutdown;
pub mod specialisation;
mod staging;
pub mod sys;
#[cfg(test)]
mod tests;
mod topology;

pub use context::{Properties, device_count};
pub use device::{CudaCounters, CudaDevice, CudaOptions, CudaShared, NativeContext, blas, cudnn, solver};
pub use error::{CudaError, Result, is_sticky};
pub use graph::GraphCounters;
pub use shutdown::shut_down;
pub use specialisation::Specialisation;
