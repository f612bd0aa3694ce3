//! The runtime on the simulated device.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ablations;
mod faults;
mod memory;
mod misuse;
mod order;
mod recovery;
mod replicas;
mod watched;
