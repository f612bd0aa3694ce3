//! What checked mode reports, as values and as text.

use std::fmt;

use crate::ir::{Scope, SourceLoc, Space, Type};

/// One finding of checked mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The kernel.
    pub kernel: String,
    /// The name of the source text.
    pub source_name: String,
    /// Where, innermost first, then the chain of inlined call sites. Empty if unknown.
    pub trace: Vec<SourceLoc>,
    /// Which thread.
    pub thread: ThreadPosition,
}

/// The position of a thread in the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPosition {
    /// Position in the grid.
    pub in_grid: [u64; 3],
    /// Position of its threadgroup.
    pub threadgroup: [u64; 3],
    /// Position in its threadgroup.
    pub in_threadgroup: [u64; 3],
}

/// A way to touch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic load.
    AtomicRead,
    /// An atomic store or update.
    AtomicWrite,
}

impl AccessKind {
    /// Whether two unordered accesses of these kinds to one byte are a race.
    pub fn conflicts(self, other: AccessKind) -> bool {
        use AccessKind::*;
        match (self, other) {
            (Read, Read) => false,
            (Write, _) | (_, Write) => true,
            (Read, AtomicWrite) | (AtomicWrite, Read) => true,
            _ => false,
        }
    }

    /// Whether memory changes.
    pub fn writes(self) -> bool {
        matches!(self, AccessKind::Write | AccessKind::AtomicWrite)
    }
}

/// A piece of memory, as messages name it.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Its address space.
    pub space: Space,
    /// Name of the parameter or variable.
    pub name: String,
    /// Element type of a buffer.
    pub elem: Option<Type>,
    /// Length in bytes.
    pub len: u64,
}

/// The other side of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct RacePartner {
    /// What it did.
    pub access: AccessKind,
    /// Which thread.
    pub thread: ThreadPosition,
    /// Where in the source.
    pub trace: Vec<SourceLoc>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FindingKind {
    /// An access outside its memory.
    OutOfBounds {
        /// What was tried.
        access: AccessKind,
        /// On what.
        memory: Memory,
        /// First byte, relative to the memory's start.
        offset: i64,
        /// Bytes touched.
        size: u64,
    },
    /// An access through a null pointer.
    NullPointer {
        /// What was tried.
        access: AccessKind,
        /// The pointer's space.
        space: Space,
    },
    /// An access not aligned as its type demands.
    Misaligned {
        /// What was tried.
        access: AccessKind,
        /// On what.
        memory: Memory,
        /// First byte.
        offset: i64,
        /// Alignment needed.
        align: u32,
    },
    /// A write to read-only memory.
    ReadOnly {
        /// On what.
        memory: Memory,
        /// First byte.
        offset: i64,
    },
    /// A read of bytes nothing has written.
    Uninitialised {
        /// Of what.
        memory: Memory,
        /// First byte of the access.
        offset: i64,
        /// Bytes read.
        size: u64,
        /// First byte that was not written.
        byte: u64,
    },
    /// A read of a variable nothing has set.
    UninitialisedVariable {
        /// Its name.
        name: String,
    },
    /// Two threads touch one byte, at least one writes, nothing orders them.
    Race {
        /// What this thread did.
        access: AccessKind,
        /// On what.
        memory: Memory,
        /// The byte.
        byte: u64,
        /// What the earlier thread did.
        other: Box<RacePartner>,
    },
    /// An access that conflicts with an asynchronous copy in flight.
    CopyInFlight {
        /// What this thread did.
        access: AccessKind,
        /// On what.
        memory: Memory,
        /// The byte.
        byte: u64,
        /// What the copy does there.
        copy: Box<RacePartner>,
    },
    /// An asynchronous copy that nothing waited for.
    CopyNotAwaited {
        /// What it writes.
        memory: Memory,
    },
    /// A barrier that not every live thread of its scope reached.
    DivergentBarrier {
        /// The scope.
        scope: Scope,
        /// Threads that reached it.
        reached: usize,
        /// Live threads that did not.
        missing: usize,
        /// The first of those.
        first_missing: ThreadPosition,
    },
    /// A lane read the value of a lane that did not take part.
    InactiveLane {
        /// The reading lane.
        lane: u32,
        /// The lane read.
        source: u32,
    },
    /// A matrix operation in which not all 32 lanes took part.
    PartialMatrix {
        /// Mask of the lanes that did.
        active: u32,
    },
    /// Integer division or remainder by zero.
    DivisionByZero {
        /// The dividend.
        dividend: i128,
    },
    /// A shift count not below the width.
    ShiftCount {
        /// The count.
        count: i128,
        /// The width.
        width: u32,
    },
    /// A vector component that does not exist.
    ComponentIndex {
        /// The index.
        index: i64,
        /// Components there are.
        components: u8,
    },
    /// A thread used up its loop iterations.
    Runaway {
        /// How many it was allowed.
        iterations: u64,
    },
}

impl fmt::Display for ThreadPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = |v: [u64; 3]| format!("({}, {}, {})", v[0], v[1], v[2]);
        write!(
            f,
            "thread {} of the grid (threadgroup {}, thread {} in it)",
            p(self.in_grid),
            p(self.threadgroup),
            p(self.in_threadgroup)
        )
    }
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessKind::Read => "read",
            AccessKind::Write => "write",
            AccessKind::AtomicRead => "atomic read",
            AccessKind::AtomicWrite => "atomic update",
        })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} memory `{}`", self.space, self.name)
    }
}

impl Memory {
    /// The element of a buffer that a byte belongs to, and how many there are.
    fn element(&self, offset: i64) -> Option<(i64, u64)> {
        let size = self.elem?.size().max(1);
        Some((offset.div_euclid(size as i64), self.len / size))
    }

    fn describe(&self, offset: i64) -> String {
        match self.element(offset) {
            Some((index, count)) => format!("index {index} of {count}, byte {offset}"),
            None => format!("byte {offset} of {}", self.len),
        }
    }
}

/// Writes the lines of a trace, innermost first.
pub(crate) fn write_trace(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    trace: &[SourceLoc],
    indent: &str,
) -> fmt::Result {
    for (i, l) in trace.iter().enumerate() {
        let lead = if i == 0 { "at" } else { "inlined at" };
        let (line, column) = (l.line, l.column);
        match l.file.as_deref().unwrap_or(name) {
            "" => write!(f, "\n{indent}{lead} line {line}:{column}")?,
            text => write!(f, "\n{indent}{lead} {text}:{line}:{column}")?,
        }
        if let Some(function) = &l.function {
            write!(f, " in {function}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}: {}", self.kernel, self.kind)?;
        write_trace(f, &self.source_name, &self.trace, "  ")?;
        write!(f, "\n  by {}", self.thread)?;
        let (what, other) = match &self.kind {
            FindingKind::Race { other, .. } => ("other", other),
            FindingKind::CopyInFlight { copy, .. } => ("copy's", copy),
            _ => return Ok(()),
        };
        write!(f, "\n  the {what} {}", other.access)?;
        write_trace(f, &self.source_name, &other.trace, "    ")?;
        write!(f, "\n    by {}", other.thread)?;
        Ok(())
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FindingKind::OutOfBounds { access, memory, offset, size } => write!(
                f,
                "{access} of {size} bytes out of bounds of {memory} ({} bytes): {}",
                memory.len,
                memory.describe(*offset)
            ),
            FindingKind::NullPointer { access, space } => {
                write!(f, "{access} through a null pointer to {space} memory")
            }
            FindingKind::Misaligned { access, memory, offset, align } => {
                write!(f, "{access} of {memory} at byte {offset}, which is not aligned to {align} bytes")
            }
            FindingKind::ReadOnly { memory, offset } => {
                write!(f, "write to read-only {memory}: {}", memory.describe(*offset))
            }
            FindingKind::Uninitialised { memory, offset, size, byte } => write!(
                f,
                "read of {size} bytes of {memory} before they were written: {}, first unwritten byte {byte}",
                memory.describe(*offset)
            ),
            FindingKind::UninitialisedVariable { name } => {
                write!(f, "read of variable `{name}` before it was set")
            }
            FindingKind::Race { access, memory, byte, other } => write!(
                f,
                "race: {access} of {memory} without a barrier after another thread's {}: {}",
                other.access,
                memory.describe(*byte as i64)
            ),
            FindingKind::CopyInFlight { access, memory, byte, copy } => {
                let does = if copy.access.writes() { "writes" } else { "reads" };
                write!(
                    f,
                    "race: {access} of {memory} while an asynchronous copy {does} it: {}; wait for the copy first",
                    memory.describe(*byte as i64)
                )
            }
            FindingKind::CopyNotAwaited { memory } => {
                write!(f, "an asynchronous copy to {memory} that nothing waits for")
            }
            FindingKind::DivergentBarrier { scope, reached, missing, first_missing } => {
                let scope = match scope {
                    Scope::Threadgroup => "threadgroup",
                    Scope::Simdgroup => "simdgroup",
                };
                write!(
                    f,
                    "{scope} barrier reached by {reached} threads but not by {missing} others, first {first_missing}"
                )
            }
            FindingKind::InactiveLane { lane, source } => {
                write!(f, "lane {lane} reads the value of lane {source}, which is not active here")
            }
            FindingKind::PartialMatrix { active } => write!(
                f,
                "matrix operation with {} of 32 lanes active (mask {active:#010x})",
                active.count_ones()
            ),
            FindingKind::DivisionByZero { dividend } => write!(f, "division of {dividend} by zero"),
            FindingKind::ShiftCount { count, width } => {
                write!(f, "shift of a {width}-bit integer by {count}")
            }
            FindingKind::ComponentIndex { index, components } => {
                write!(f, "component {index} of a vector of {components}")
            }
            FindingKind::Runaway { iterations } => {
                write!(f, "a thread ran more than {iterations} loop iterations")
            }
        }
    }
}
