//! The host as a device.
//!
//! [`CpuDevice`] implements the runtime's `Device`. Streams are queues of work on one fixed pool of compute
//! threads ([`Compute`]), shared by the whole process: streams start no threads, and evaluating threads do
//! not oversubscribe the cores. A thread that waits for runnable work takes a slot of the pool and runs it,
//! or sleeps if all slots are taken.

mod compute;
mod device;
mod kernel;
mod memory;
mod schedule;

pub use compute::{Compute, Cores};
pub use device::CpuDevice;
