//! A stub for platforms without a JIT: it compiles nothing, so [`Jit`] has no values.

use super::level::SimdLevel;
use super::machine::Dropped;
use super::program::Cancel;
use crate::ir::Kernel;
use crate::launch::{Bindings, Launch};

/// Machine code, which does not exist on this platform.
#[derive(Debug)]
pub(super) enum Jit {}

/// The outcome of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "the same type as with machine code")]
pub(super) enum RowOutcome {
    Done,
    Refused,
    Cancelled,
}

/// A launch on one thread.
pub(super) struct Session<'a> {
    jit: &'a Jit,
    pub streamed: bool,
}

/// Compiles nothing.
pub(super) fn compile(_: &Kernel, _: SimdLevel) -> Option<Jit> {
    None
}

impl Jit {
    pub fn size(&self) -> usize {
        match *self {}
    }

    pub fn least_row(&self) -> u64 {
        match *self {}
    }

    pub fn has_calls(&self) -> bool {
        match *self {}
    }
}

impl<'a> Session<'a> {
    pub fn new(jit: &'a Jit, _: &'a Bindings<'a>, _: &'a Launch, _: &'a Dropped) -> Session<'a> {
        Session { jit, streamed: false }
    }

    pub fn row(&mut self, _: u64, _: u64, _: u64, _: u64, _: &Cancel<'_>) -> RowOutcome {
        match *self.jit {}
    }

    pub fn rows(&mut self, _: [u64; 2], _: u64, _: u64, _: &Cancel<'_>) -> u64 {
        match *self.jit {}
    }
}
