//! The host as a device of Hesper.
//!
//! [`CpuDevice`] implements the runtime's `Device`: streams are queues of dependency-counted work on one
//! fixed pool of compute threads ([`Compute`]), shared by the whole process. Ten thousand streams start
//! no thread, and 64 evaluating threads do not oversubscribe two cores: who waits for work that can run
//! takes a place of the pool and runs it himself, or, if all places are taken, sleeps.

mod compute;
mod device;
mod kernel;
mod memory;
mod schedule;

pub use compute::{Compute, Cores};
pub use device::CpuDevice;
pub use kernel::{HostKernel, KernelArgs};
