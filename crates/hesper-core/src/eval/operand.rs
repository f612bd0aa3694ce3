//! Operands: an input as a lowering gets it, owned or borrowed.
//!
//! Ownership is proven, never assumed. The array must be the only handle on its node and its memory the only handle on its
//! buffer; both are checked by conversions that only the sole holder can make ([`Array::take_owned`],
//! [`Buffer::into_unique`](hesper_runtime::Buffer::into_unique)). The memory leaves the graph with the conversion, so no
//! other reader can reach it. An op that overwrites an input needs an [`Owned`], and there is one for each owned operand. Once
//! it is handed out the operand is spent: if the op then fails, its array cannot be computed any more.

use std::cell::Cell;

#[cfg(doc)]
use crate::array::Array;
use crate::array::Data;

/// Memory without any other handle: it may be overwritten.
#[derive(Debug)]
pub struct Owned(Data);

impl Owned {
    /// The memory as the caller's own; the same data as an error if there is another handle on it, or if it is read-only.
    pub fn of(data: Data) -> Result<Owned, Data> {
        let Data { buffer, offset, strides } = data;
        match buffer.into_unique() {
            Ok(unique) => Ok(Owned(Data { buffer: unique.into_shared(), offset, strides })),
            Err(buffer) => Err(Data { buffer, offset, strides }),
        }
    }

    /// The memory.
    pub fn data(&self) -> &Data {
        &self.0
    }

    /// The memory, given up.
    pub fn into_data(self) -> Data {
        self.0
    }
}

/// An input of a step.
#[derive(Debug)]
pub struct Operand {
    data: Data,
    hold: Cell<Hold>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// There may be other readers.
    Borrowed,
    /// There is no other handle.
    Owned,
    /// It was owned, and was handed to a command that overwrites it.
    Spent,
}

impl Operand {
    /// An operand that others may read.
    pub fn borrowed(data: Data) -> Self {
        Operand { data, hold: Cell::new(Hold::Borrowed) }
    }

    /// An operand that nothing else can name.
    pub fn owned(owned: Owned) -> Self {
        Operand { data: owned.0, hold: Cell::new(Hold::Owned) }
    }

    /// Owned if this is the only handle on the memory.
    pub fn of(data: Data) -> Self {
        Owned::of(data).map_or_else(Operand::borrowed, Operand::owned)
    }

    /// The memory.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The memory, given up.
    pub fn into_data(self) -> Data {
        self.data
    }

    /// Whether [`take`](Operand::take) gives it.
    pub fn is_owned(&self) -> bool {
        self.hold.get() == Hold::Owned
    }

    /// Whether it was given out to be overwritten.
    pub fn is_spent(&self) -> bool {
        self.hold.get() == Hold::Spent
    }

    /// The memory, to be overwritten; the operand is spent then. `None` if it is not owned, or spent already.
    pub fn take(&self) -> Option<Owned> {
        if !self.is_owned() {
            return None;
        }
        self.hold.set(Hold::Spent);
        Some(Owned(self.data.clone()))
    }

    /// The operand for a step inside of the op that has it. It is owned there if it is owned here and no other step has a
    /// view of it; then it counts as spent until it is [settled](Operand::settle).
    pub fn lend(&mut self) -> Operand {
        let owned = self.is_owned() && self.data.buffer.is_sole();
        if owned {
            self.hold.set(Hold::Spent);
        }
        let hold = if owned { Hold::Owned } else { Hold::Borrowed };
        Operand { data: self.data.clone(), hold: Cell::new(hold) }
    }

    /// Takes back what was lent: still owned if the step did not overwrite it.
    pub fn settle(&mut self, lent: &Operand) {
        if self.is_spent() && !lent.is_spent() {
            self.hold.set(Hold::Owned);
        }
    }

    /// The elements are in other memory now, which others may read.
    pub fn replace(&mut self, data: Data) {
        self.data = data;
        if self.is_owned() {
            self.hold.set(Hold::Borrowed);
        }
    }
}
