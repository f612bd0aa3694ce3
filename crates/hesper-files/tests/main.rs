//! Reading and writing tensor files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/counting.rs"]
mod counting;

mod changing_files;
mod fuzz;
mod golden;
mod hostile;
mod large;
mod loading;
mod memory;
mod python;
mod writing;
