//! The host kernels against plain loops.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod attention;
mod conv;
mod fft;
mod gemm;
mod memory;
mod panels;
mod quant;
mod rows;
mod small;
mod sort;
mod streaming_stores;
mod transposed;
