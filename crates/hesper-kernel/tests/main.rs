//! The kernel language: front end, executors, printers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/jit.rs"]
mod jit;
#[path = "support/samples.rs"]
mod samples;
mod support;

mod async_copies;
mod bounds_proof;
mod bounds_report;
mod exec_behaviour;
mod exec_corpus;
mod exec_jit;
mod exec_jit_random;
mod exec_ops;
mod front_corpus;
mod front_custom;
mod front_diagnostics;
mod front_language;
mod front_library_style;
mod front_limits;
mod metal_clang;
mod metal_round_trip;
