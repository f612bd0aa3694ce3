//! Functions in files: traced, written, and called again without the program that made them.
//!
//! A file holds one function with one or several traces of it, each for arguments of its own shapes and
//! types, or for all shapes with as many axes. A trace is a list of steps: an op's name, its attributes and
//! what it reads. What the function took from around it (weights) is stored once, as it lies in memory. The
//! bytes are described in `docs/exported-functions.md`.
//!
//! A call of an imported function puts its steps together again through the ops' own constructors, which
//! check all that they get: a damaged or hostile file is an error and never an op that could not have been
//! built. The result is a graph like any other, and can be differentiated, vectorised and compiled.

mod expand;
#[cfg(feature = "files")]
mod exporter;
#[cfg(feature = "files")]
mod format;
mod graph;
#[cfg(feature = "files")]
mod imported;
mod record;
mod replay;
pub(crate) mod shapes;

/// The names of all ops that a graph can have a step of, in no order.
pub fn op_names() -> impl Iterator<Item = &'static str> {
    crate::ops::readers::names()
}

#[cfg(feature = "files")]
pub use exporter::{Exporter, export_function};
#[cfg(feature = "files")]
#[doc(hidden)]
#[doc(hidden)]
pub use format::header as file_header;
pub use graph::{Graph, Signature, Step, ValueRef};
#[cfg(feature = "files")]
pub use imported::{Imported, import_function};
pub use record::{Attributes, Value};
#[doc(hidden)]
pub use record::{Export, ReadOne, Reader, Record, Replay};
