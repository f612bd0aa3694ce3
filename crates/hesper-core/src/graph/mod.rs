//! The lazy graph: arrays are handles on its nodes, and a node is an op with its inputs, or memory.
//!
//! An [`Array`] is a shape, an element type and either the op that will compute it or the memory that
//! holds it. Ops check their arguments at once and compute nothing; evaluation (see
//! [`eval`](crate::eval)) turns ops into commands, and an array that has been evaluated drops the op
//! and the inputs that made it.
//!
//! What an op is to the rest of the crate is the trait [`Op`]. The arguments and results of its methods are
//! here, too: those of lowerings, of the rules of transformations, and of records in files. Methods of these
//! types that need other modules are in those.

mod elementwise;
mod fused_rows;
mod lowering;
mod node;
mod op;
mod operand;
mod record;
pub mod rule;
pub(crate) mod scope;
mod slot;
mod unlink;

pub use elementwise::{Derivative, Elementwise, Factor, Types};
pub(crate) use fused_rows::{Consumer, KernelInput, Producer};
pub use fused_rows::{FusedRows, RowKernel};
pub use lowering::Lowering;
pub use node::{Array, Call, Data};
pub(crate) use node::{KnownBytes, Node, State, Visit, failure};
pub use op::{CompositeSet, Op, OpKind, OpRef, PatternOp};
pub use operand::{Operand, Owned};
pub use record::{Attributes, Export, ReadOne, Reader, Record, Replay, Value};
pub use slot::{Slot, SlotFunctions};
