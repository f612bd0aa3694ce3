//! The kernel IR: typed, fully monomorphic, with structured control flow.
//!
//! A [`Kernel`] owns arenas of values, variables and blocks; ids index into them. [`Op`] is a
//! plain `Copy` value, so that an executor can walk a kernel without holding borrows.
//!
//! * Values ([`ValueId`]) are SSA: each is produced by exactly one [`Inst`] and visible to the
//!   later instructions of the same block and to blocks nested in those. There are no phis:
//!   what crosses a join travels through a typed variable ([`VarId`], [`Op::Get`]/[`Op::Set`]).
//! * Control flow is [`Op::If`], [`Op::Loop`], [`Op::Break`], [`Op::Continue`], [`Op::Return`].
//! * Memory is reached through opaque byte pointers ([`Type::Ptr`]); loads, stores and pointer
//!   arithmetic carry the element type, the stride and the alignment.
//!
//! The meaning of each operation is documented on it and is the same on every device; the
//! reference interpreter is its definition in code. [`verify`] says whether a kernel is well
//! formed; executors may rely on a verified kernel. `Display` on a kernel prints it as text.

mod builder;
mod control;
mod inst;
mod kernel;
mod ops;
mod print;
pub(crate) mod registry;
mod types;
mod verify;

pub use builder::Builder;
pub use inst::*;
pub(crate) use inst::{atomic_op, control_op, group_op, sync_op, value_op};
pub use kernel::*;
pub(crate) use ops::operands;
pub use ops::*;
pub use types::{Scalar, Space, Type};
pub use verify::verify;

#[cfg(test)]
mod tests;
