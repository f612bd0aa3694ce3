//! Tests of the programs for GPU machines that need no GPU.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attention_gradient;
mod emulated;
mod metal;
mod stress;
