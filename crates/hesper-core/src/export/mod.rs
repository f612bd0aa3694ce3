//! Exported functions: traced, written to a file, and called again by another program.
//!
//! A file holds one function with one or several traces, each for arguments of one set of shapes and types,
//! or for all shapes with as many axes. A trace is a list of steps: an op's name, its attributes and its
//! inputs. Captured arrays (weights) are stored once, in their memory layout. `docs/exported-functions.md`
//! specifies the bytes.
//!
//! A call of an imported function builds its steps through the ops' own constructors, which check their
//! arguments. So a damaged or hostile file gives an error, never an op that a program could not have built.
//! The result is a graph like any other, and can be differentiated, vectorized and compiled.

mod described;
mod expand;
#[cfg(feature = "files")]
mod exporter;
#[cfg(feature = "files")]
mod format;
mod graph;
#[cfg(feature = "files")]
mod imported;
mod replay;

/// The names of all ops that a graph can have a step of, in no order.
pub fn op_names() -> impl Iterator<Item = &'static str> {
    crate::ops::readers::names()
}

pub use crate::graph::{Attributes, Value};
#[doc(hidden)]
pub use crate::graph::{Export, ReadOne, Reader, Record, Replay};
pub use described::described;
#[cfg(feature = "files")]
pub use exporter::{Exporter, export_function};
#[cfg(feature = "files")]
#[doc(hidden)]
pub use format::header as file_header;
pub use graph::{Graph, Signature, Step, ValueRef};
#[cfg(feature = "files")]
pub use imported::{Imported, import_function};
