//! Fuzz targets on stable Rust, and a soak.
//!
//! * [`engine`]: makes inputs from a seed and a corpus, runs them in a process of their own, cuts findings down and writes
//!   them to files that can be run again.
//! * [`targets`]: what is fuzzed, a file for each.
//! * [`soak`]: threads that do everything for as long as one wishes while resident memory and all counters are sampled.
//!
//! `corpus/TARGET` holds inputs that are run first, every finding among them.

pub mod engine;
pub mod heap;
pub mod launch;
pub mod mutate;
pub mod random;
pub mod soak;
pub mod targets;
