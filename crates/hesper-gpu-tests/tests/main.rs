//! The programs for GPU machines, as far as they run without one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attention_gradient;
mod emulated;
mod metal;
mod stress;
