//! Factorizations beside their definitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod complex;
mod factors;
mod general;
mod matrices;
mod spectra;
