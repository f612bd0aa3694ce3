//! Backends: how a kind of device computes ops.
//!
//! This crate says what an op computes; a [`Backend`] says how. A backend is a crate of its own. It opens
//! devices, holds a table of implementations by op type, and tells the planner by name what it can do. An op
//! that its table does not have, or whose implementation declines the inputs, is computed by the host's
//! backend, and counted ([`fallbacks`]).
//!
//! A backend registers itself when it is linked: it adds a function to [`BACKENDS`]. One that is made at run
//! time is added by [`register`].
//!
//! ```ignore
//! pub struct Toy;
//!
//! impl Lower<Softmax> for Toy {
//!     fn lower(op: &Softmax, l: &mut Lowering<'_>) -> Result<Option<Data>> { ... }
//! }
//!
//! static OPS: LazyLock<OpTable> = LazyLock::new(|| OpTable::of::<Toy>().with::<Softmax>());
//! ```

pub use crate::eval::compose::compose;
pub use crate::graph::{CompositeSet, Data, Lowering, Op, OpRef, Operand, Owned, Slot, SlotFunctions};
pub use crate::ops::multi::Parts;
pub use crate::registry::{
    BACKENDS, Backend, BackendKind, Fusion, Lower, OpTable, OpTableBuilder, backends, copy, fallbacks,
    of_runtime, of_stream, reach, register,
};
