//! Fuzz targets on stable Rust, and a soak test.
//!
//! * [`engine`]: generates inputs from a seed and a corpus, runs them in a child process, shrinks findings
//!   and writes them to files that can be replayed.
//! * [`targets`]: the fuzz targets, one file each.
//! * [`soak`]: threads that run every kind of work while resident memory and all counters are sampled.
//!
//! `corpus/TARGET` holds inputs that run first, including every finding.

pub mod choices;
pub mod engine;
pub mod executors;
pub mod heap;
pub mod mutate;
pub mod soak;
pub mod targets;
