//! Language models beside plain loops and recordings.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod caches;
mod example_programs;
mod families;
mod generation;
mod gguf;
mod paged;
mod recorded;
mod smollm2;
