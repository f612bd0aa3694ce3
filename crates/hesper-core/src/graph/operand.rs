//! Operands: the inputs of a lowering, owned or borrowed.
//!
//! Ownership is proven, never assumed. The array must be the only handle on its node and its memory the only
//! handle on its buffer; both are checked by conversions that only the sole holder can make
//! ([`Array::take_owned`], [`Buffer::into_unique`](hesper_runtime::Buffer::into_unique)). The memory leaves
//! the graph with the conversion, so no other reader can reach it. An op that overwrites an input needs an
//! [`Owned`], of which each owned operand gives one. Then the operand is spent: if the op fails, the array of
//! the operand cannot be computed again.

use std::cell::Cell;

#[cfg(doc)]
use super::Array;
use super::Data;

/// Memory without another handle. It may be overwritten.
#[derive(Debug)]
pub struct Owned(Data);

impl Owned {
    /// Takes ownership of memory. Returns the data as an error if there is another handle on it, or if it is
    /// read-only.
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

    /// Consumes it and returns the memory.
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
    /// It may have other readers.
    Borrowed,
    /// It has no other handle.
    Owned,
    /// It was owned, and a command overwrites it.
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

    /// Consumes it and returns the memory.
    pub fn into_data(self) -> Data {
        self.data
    }

    /// Whether [`take`](Operand::take) returns it.
    pub fn is_owned(&self) -> bool {
        self.hold.get() == Hold::Owned
    }

    /// Whether it was taken to be overwritten.
    pub fn is_spent(&self) -> bool {
        self.hold.get() == Hold::Spent
    }

    /// Takes the memory to overwrite it; the operand is spent then. `None` if it is not owned, or already
    /// spent.
    pub fn take(&self) -> Option<Owned> {
        if !self.is_owned() {
            return None;
        }
        self.hold.set(Hold::Spent);
        Some(Owned(self.data.clone()))
    }

    /// Lends the operand to a step inside of its op. The step owns it if it is owned here and no other step
    /// has a view of it; then it counts as spent until it is [settled](Operand::settle).
    pub fn lend(&mut self) -> Operand {
        let owned = self.is_owned() && self.data.buffer.is_sole();
        if owned {
            self.hold.set(Hold::Spent);
        }
        let hold = if owned { Hold::Owned } else { Hold::Borrowed };
        Operand { data: self.data.clone(), hold: Cell::new(hold) }
    }

    /// Takes back a lent operand. It is owned again if the step did not overwrite it.
    pub fn settle(&mut self, lent: &Operand) {
        if self.is_spent() && !lent.is_spent() {
            self.hold.set(Hold::Owned);
        }
    }

    /// Replaces the memory by a copy, which may have other readers.
    pub fn replace(&mut self, data: Data) {
        self.data = data;
        if self.is_owned() {
            self.hold.set(Hold::Borrowed);
        }
    }
}
