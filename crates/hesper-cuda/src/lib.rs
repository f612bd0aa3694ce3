//! The NVIDIA device of Hesper; every CUDA library is loaded at run time.
//!
//! [`CudaDevice`] implements the runtime's [`Device`](hesper_runtime::Device) on the CUDA driver API.
//! One binary runs with and without a GPU, and no CUDA toolkit is needed to build it. In three plain
//! steps: [`sys`] is the libraries' functions, [`context`] gives them results and lifetimes, and
//! everything above is the device.
//!
//! | module | responsible for |
//! |---|---|
//! | [`library`] | finding the libraries |
//! | [`context`] | a context of our own, the driver's calls |
//! | [`options`] | what a kernel's specialisation says |
//! | [`compiler`], [`disk`] | CUDA C++ to code, and code on disk |
//! | `kernel` | a loaded kernel, its parameters and its limits |
//! | `submit` | a submission as launches or as a graph |
//! | `topology`, `graph` | the shape of a submission, and executable graphs kept by shape |
//! | `event`, `flight`, `reap` | completion, in order |
//! | `report` | writes out of range that kernels of the kernel language dropped |
//! | `early` | kernels that begin before those they depend on have ended |
//! | `ending` | the end of the process, which the driver does not wait with; forked processes |
//! | [`inject`] | failures on demand, for checks |
//! | `staging` | host reads and writes |
//! | [`blas`] | matrix products by cuBLASLt |
//! | [`cudnn`] | convolutions by cuDNN |
//!
//! A fault of a kernel ends its context, as CUDA has it: the device is lost, everything in flight on it
//! fails with the first cause, the process lives, and a new [`CudaDevice`] can be opened.

pub mod blas;
pub mod compiler;
pub mod context;
pub mod cudnn;
mod device;
pub mod disk;
mod early;
mod ending;
mod error;
mod event;
#[cfg(test)]
mod fake;
mod flight;
mod graph;
#[doc(hidden)]
pub mod inject;
mod kernel;
pub mod library;
pub mod options;
mod queue;
mod reap;
mod report;
mod staging;
mod submit;
pub mod sys;
#[cfg(test)]
mod tests;
mod topology;

pub use context::{Properties, device_count};
pub use device::{CudaCounters, CudaDevice, CudaOptions, CudaShared};
pub use ending::end;
pub use error::{CudaError, Result, is_sticky};
pub use graph::GraphCounters;
pub use options::Specialisation;
pub use submit::NativeContext;
