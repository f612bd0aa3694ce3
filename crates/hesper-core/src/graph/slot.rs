//! Slots: the first input of an op as functions that a GPU backend puts into the text of its kernel.
//! [`producer_fusion`](crate::eval::producer_fusion) makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hesper_kernel::function::Function;
use hesper_runtime::Encoder;

use super::Data;

/// A group of element-wise ops as functions of the index of an element. The index counts elements in the
/// order in which the value would be stored.
#[derive(Debug)]
pub struct SlotFunctions {
    id: u64,
    /// Gives the element at an index.
    pub one: Function,
    /// Gives as many elements as the backend asked for, from an index on that is a multiple of their number.
    /// `None` if the inputs cannot be loaded so.
    pub word: Option<Function>,
    /// The number of ops.
    pub ops: usize,
}

impl SlotFunctions {
    pub(crate) fn new(one: Function, word: Option<Function>, ops: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        SlotFunctions { id: NEXT.fetch_add(1, Ordering::Relaxed), one, word, ops }
    }

    /// A number that no other functions of the process have, and that is not 0.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// What fills the slot of a kernel.
#[derive(Debug)]
pub struct Slot {
    /// The functions.
    pub functions: Arc<SlotFunctions>,
    /// The memory that they read, in the order of their buffers.
    pub memory: Vec<Data>,
    /// Their constants, of eight bytes each.
    pub constants: Vec<u8>,
}

impl Slot {
    /// Binds the memory that the functions read.
    pub fn bind<'a>(&'a self, command: Encoder<'a>) -> Encoder<'a> {
        self.memory.iter().fold(command, |command, data| command.read(&data.buffer))
    }
}
