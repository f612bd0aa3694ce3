//! Errors and faults.
//!
//! An [`Error`] answers a call: the call did nothing, and says why. A [`Fault`] is what became of
//! work that had been accepted: it keeps its first cause and its scope, and every result in that
//! scope gives it again each time it is read.

use std::fmt;
use std::sync::Arc;

/// The result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of the runtime was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory could not be had, after trimming, retiring and waiting.
    #[error(
        "out of memory on {device}: {requested} bytes asked for, {active} active, {cached} cached, limit {limit} ({cause})"
    )]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Bytes asked for.
        requested: usize,
        /// Bytes held by live buffers and work in flight.
        active: usize,
        /// Bytes in the pool.
        cached: usize,
        /// The memory limit in force.
        limit: usize,
        /// What refused: the limit, or the device and its words.
        cause: String,
    },
    /// A size does not fit the machine.
    #[error("a buffer of {requested} bytes is larger than {limit} bytes, the most that can be addressed")]
    SizeOverflow {
        /// Bytes asked for.
        requested: usize,
        /// The largest size that can be given.
        limit: usize,
    },
    /// A range lies outside its buffer.
    #[error("bytes {start}..{end} lie outside of buffer {buffer} of {len} bytes (in {command})")]
    OutOfRange {
        /// The buffer.
        buffer: String,
        /// Its length.
        len: usize,
        /// First byte of the range.
        start: usize,
        /// End of the range.
        end: usize,
        /// The command or call that named the range.
        command: String,
    },
    /// A write to memory that belongs to somebody else (a mapped file, a foreign array).
    #[error("{command} writes buffer {buffer}, which is read-only ({why})")]
    ReadOnly {
        /// The buffer.
        buffer: String,
        /// The command or call.
        command: String,
        /// What the memory is.
        why: &'static str,
    },
    /// A buffer or pipeline of one device was given to another.
    #[error("{command} names {what}, which belongs to device {owner}, not to {device}")]
    ForeignDevice {
        /// The buffer or pipeline.
        what: String,
        /// The command.
        command: String,
        /// The device it belongs to.
        owner: String,
        /// The device of the command.
        device: String,
    },
    /// Two bindings of one command overlap and one of them writes.
    #[error(
        "{command} binds overlapping bytes of buffer {buffer} twice, once to write (bind them once, with read_write)"
    )]
    Aliased {
        /// The buffer.
        buffer: String,
        /// The command.
        command: String,
    },
    /// A command reads memory that no work fills.
    #[error("{command} reads buffer {buffer}, which nothing has filled")]
    Unfilled {
        /// The buffer.
        buffer: String,
        /// The command or call.
        command: String,
    },
    /// The host holds a guard that the command or call would race with.
    #[error("{command} needs buffer {buffer} while a host {guard} guard on it is alive")]
    HostAccess {
        /// The buffer.
        buffer: String,
        /// The command or call.
        command: String,
        /// `read` or `write`.
        guard: &'static str,
    },
    /// A native command tried to wait, which could be for itself.
    #[error("{call} was called inside of a native command, which may not wait")]
    InsideCommand {
        /// The call.
        call: &'static str,
    },
    /// The stream was closed.
    #[error("stream {stream} is closed")]
    StreamClosed {
        /// The stream.
        stream: u64,
    },
    /// A kernel did not compile.
    #[error("kernel {label} does not compile for {device}: {message}")]
    Compile {
        /// The kernel's label.
        label: String,
        /// The device.
        device: String,
        /// The compiler's words.
        message: String,
    },
    /// A grid, threadgroup or argument that the device does not take.
    #[error("{command}: {message}")]
    Launch {
        /// The command.
        command: String,
        /// What is wrong.
        message: String,
    },
    /// The process was forked from one that had opened a runtime.
    #[error(
        "this process was forked from one that uses hesper, and the threads of its devices do not exist here: \
         start processes with the 'spawn' or 'forkserver' method, or fork before the first array is made"
    )]
    Forked,
    /// The device refused a call.
    #[error("{device} refused to {call}: {message}")]
    Device {
        /// The device.
        device: String,
        /// What was asked of it.
        call: &'static str,
        /// Its words.
        message: String,
    },
    /// Accepted work failed; this is its first cause.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Error {
    /// The fault inside, if this error reports one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Fault(fault) => Some(fault),
            _ => None,
        }
    }
}

/// How far a fault reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One command, and what was computed from its results.
    Command,
    /// All commands of one submission.
    Submission,
    /// The device: everything that lives on it.
    Device,
}

/// What kind of thing went wrong first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// A native command returned an error, or the device reported one.
    Failed,
    /// A native command panicked.
    Panicked,
    /// The work was cancelled before it ran.
    Cancelled,
    /// The device gave the work up without an answer, or was lost.
    Lost,
    /// Foreign memory behind the work went away (a truncated file).
    Source,
}

/// What became of work that failed: its first cause, where it happened and how far it reaches.
///
/// Cloning is cheap; every result in scope carries the same fault.
#[derive(Clone)]
pub struct Fault(Arc<FaultInner>);

struct FaultInner {
    kind: FaultKind,
    scope: Scope,
    command: String,
    stream: u64,
    submission: u64,
    message: String,
}

impl Fault {
    /// Records a first cause.
    pub fn new(
        kind: FaultKind,
        scope: Scope,
        command: impl Into<String>,
        stream: u64,
        submission: u64,
        message: impl Into<String>,
    ) -> Self {
        Fault(Arc::new(FaultInner {
            kind,
            scope,
            command: command.into(),
            stream,
            submission,
            message: message.into(),
        }))
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> FaultKind {
        self.0.kind
    }

    /// How far it reaches.
    pub fn scope(&self) -> Scope {
        self.0.scope
    }

    /// Label of the command that failed first.
    pub fn command(&self) -> &str {
        &self.0.command
    }

    /// The words of whoever failed.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Stream and submission in which it happened.
    pub fn place(&self) -> (u64, u64) {
        (self.0.stream, self.0.submission)
    }

    /// Whether both are the same occurrence.
    pub fn same(&self, other: &Fault) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        let what = match inner.kind {
            FaultKind::Failed => "failed",
            FaultKind::Panicked => "panicked",
            FaultKind::Cancelled => "was cancelled",
            FaultKind::Lost => "was lost with its device",
            FaultKind::Source => "lost its source",
        };
        write!(f, "{} {what} (stream {}, submission {})", inner.command, inner.stream, inner.submission)?;
        if !inner.message.is_empty() {
            write!(f, ": {}", inner.message)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({self}; scope {:?})", self.0.scope)
    }
}

impl std::error::Error for Fault {}
