//! Operands: an input as a lowering gets it, owned or borrowed.
//!
//! Ownership is taken, never guessed. The array must be the only handle on its node and its memory the only handle on its
//! buffer; both are asked for by conversions that only the sole holder can make ([`Array::take_owned`],
//! [`Buffer::into_unique`](hesper_runtime::Buffer::into_unique)). What was taken is gone from the graph, so nobody can ask
//! for it again. An op that overwrites an input needs an [`Owned`], and there is one for each owned operand. Once it is
//! handed out the operand is spent: if the op then fails, its array cannot be computed any more.

use std::cell::Cell;

#[cfg(doc)]
use crate::array::Array;
use crate::array::Data;

/// Memory that nobody else can name: it may be overwritten.
#[derive(Debug)]
pub(crate) struct Owned(Data);

impl Owned {
    /// The memory as the caller's own; itself again if somebody else has a handle on it, or if it may not be written.
    pub(crate) fn of(data: Data) -> Result<Owned, Data> {
        let Data { buffer, offset, strides } = data;
        match buffer.into_unique() {
            Ok(unique) => Ok(Owned(Data { buffer: unique.into_shared(), offset, strides })),
            Err(buffer) => Err(Data { buffer, offset, strides }),
        }
    }

    pub(crate) fn data(&self) -> &Data {
        &self.0
    }

    pub(crate) fn into_data(self) -> Data {
        self.0
    }
}

/// An input of a step.
#[derive(Debug)]
pub(crate) struct Operand {
    data: Data,
    hold: Cell<Hold>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Others may read it.
    Borrowed,
    /// Nobody else can ask for it.
    Owned,
    /// It was owned, and a command that overwrites it has been given it.
    Spent,
}

impl Operand {
    pub(crate) fn borrowed(data: Data) -> Self {
        Operand { data, hold: Cell::new(Hold::Borrowed) }
    }

    pub(crate) fn owned(owned: Owned) -> Self {
        Operand { data: owned.0, hold: Cell::new(Hold::Owned) }
    }

    /// Owned if this is the only handle on the memory.
    pub(crate) fn of(data: Data) -> Self {
        Owned::of(data).map_or_else(Operand::borrowed, Operand::owned)
    }

    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    pub(crate) fn into_data(self) -> Data {
        self.data
    }

    /// Whether [`take`](Operand::take) would give it.
    pub(crate) fn is_owned(&self) -> bool {
        self.hold.get() == Hold::Owned
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.hold.get() == Hold::Spent
    }

    /// The memory, to be overwritten; from here on the operand is spent. `None` if it is not owned, or spent already.
    pub(crate) fn take(&self) -> Option<Owned> {
        if !self.is_owned() {
            return None;
        }
        self.hold.set(Hold::Spent);
        Some(Owned(self.data.clone()))
    }

    /// The operand for a step inside of the op that has it. It is owned there if it is owned here and no other step has a
    /// view of it; then it counts as spent until it is [settled](Operand::settle).
    pub(crate) fn lend(&mut self) -> Operand {
        let owned = self.is_owned() && self.data.buffer.is_sole();
        if owned {
            self.hold.set(Hold::Spent);
        }
        let hold = if owned { Hold::Owned } else { Hold::Borrowed };
        Operand { data: self.data.clone(), hold: Cell::new(hold) }
    }

    /// Takes back what was lent: still owned if the step did not overwrite it.
    pub(crate) fn settle(&mut self, lent: &Operand) {
        if self.is_spent() && !lent.is_spent() {
            self.hold.set(Hold::Owned);
        }
    }

    /// The elements lie elsewhere by now, in memory that others may read.
    pub(crate) fn replace(&mut self, data: Data) {
        self.data = data;
        if self.is_owned() {
            self.hold.set(Hold::Borrowed);
        }
    }
}
