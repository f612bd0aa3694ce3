//! Ops: what can be computed with arrays.
//!
//! An op is a value that says what it computes; it holds no array. Its inputs are declared in its call, and
//! its lowering sees only those: an input that was not declared cannot be used. Element-wise ops are entries
//! of a table ([`elementwise`]); the planner fuses them. Any other op is a type of its own that implements
//! [`Op`].

pub mod along_axis;
pub mod append;
pub mod arithmetic;
pub mod attention;
pub mod command;
pub mod complex;
pub mod composite;
pub mod concat;
pub mod conv;
pub mod creation;
#[cfg(feature = "kernels")]
pub mod custom;
pub mod diagonal;
pub mod domain;
pub mod einsum;
pub mod elementwise;
#[cfg(feature = "fft")]
pub mod fft;
pub mod functions;
pub mod gated_delta;
pub mod gather;
pub mod grouped;
pub mod hadamard;
pub mod index;
pub mod index_arrays;
mod like;
#[cfg(feature = "linalg")]
pub mod linalg;
pub mod logic;
pub mod matmul;
pub mod movement;
pub mod multi;
pub mod norm;
pub mod norm_gradient;
pub mod packed;
pub mod pad;
pub mod product;
pub mod quant;
pub mod random;
pub mod readers;
pub mod reduce;
pub mod reinterpret;
pub(crate) mod replay_shapes;
pub mod rope;
pub mod scan;
pub mod scatter;
pub mod slice_syntax;
pub mod slices;
pub mod sort;
pub mod source;
pub mod step;
#[cfg(feature = "fft")]
pub mod stft;
pub mod update_mode;
#[cfg(feature = "linalg")]
pub mod vector_norm;
pub mod view;

pub use crate::graph::{Op, OpKind, OpRef, PatternOp};
