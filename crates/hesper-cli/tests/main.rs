//! The program, run as a user runs it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench_serve;
mod files;
mod program;
mod serve;
