//! Arrays: ops, transforms, files, kernels.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod folder;
mod generated;
mod golden;
mod sim;
mod table;

mod append;
mod arrays;
mod attention;
mod batches;
mod compile;
mod conv;
mod deep;
mod devices;
mod elementwise;
mod ergonomics;
mod example_programs;
mod export;
mod file_formats;
mod files;
mod fourier;
mod grouped;
mod host_parts;
mod indexing;
mod kernels;
mod linalg;
mod norm_gradients;
mod print;
mod programs;
mod quantized;
mod recorded_ops;
mod reductions;
mod simulated;
mod transforms;
mod trees;
mod updates;
