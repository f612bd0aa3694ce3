//! Errors and faults.
//!
//! An [`Error`] answers a call that did nothing. A [`Fault`] is the failure of accepted work: it has a
//! first cause and a scope, and every read of a result in that scope returns it.

use std::fmt;
use std::sync::Arc;

/// The result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of the runtime was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Allocation failed after trimming, waiting and dropping replicas.
    #[error(
        "out of memory on {device}: {requested} bytes requested, {active} active, {cached} cached, limit {limit} ({cause})"
    )]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Bytes requested.
        requested: usize,
        /// Bytes held by live buffers and work in flight.
        active: usize,
        /// Bytes in the pool.
        cached: usize,
        /// The memory limit in force.
        limit: usize,
        /// The cause: the memory limit, or the device's message.
        cause: String,
    },
    /// A buffer is larger than the device supports.
    #[error("cannot allocate a buffer of {requested} bytes: the largest buffer has {limit} bytes")]
    SizeOverflow {
        /// Bytes requested.
        requested: usize,
        /// The largest buffer of the device.
        limit: usize,
    },
    /// A range lies outside its buffer.
    #[error("{command}: bytes {start}..{end} are outside of buffer {buffer} of {len} bytes")]
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
    /// A write to foreign memory (a mapped file, an array of another library).
    #[error("{command} cannot write buffer {buffer}: it is read-only ({why})")]
    ReadOnly {
        /// The buffer.
        buffer: String,
        /// The command or call.
        command: String,
        /// What the memory is.
        why: &'static str,
    },
    /// A buffer or pipeline of one device was given to another.
    #[error("{command} cannot use {what}: it belongs to device {owner}, not to {device}")]
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
        "{command} cannot bind overlapping bytes of buffer {buffer} twice, once to write: bind them once, with read_write"
    )]
    Aliased {
        /// The buffer.
        buffer: String,
        /// The command.
        command: String,
    },
    /// A command reads memory that nothing has written.
    #[error("{command} cannot read buffer {buffer}: nothing has written these bytes")]
    Unfilled {
        /// The buffer.
        buffer: String,
        /// The command or call.
        command: String,
    },
    /// The command or call would race with a live host guard.
    #[error(
        "{command} cannot use buffer {buffer} while a host {guard} guard on it is alive: drop the guard first"
    )]
    HostAccess {
        /// The buffer.
        buffer: String,
        /// The command or call.
        command: String,
        /// `read` or `write`.
        guard: &'static str,
    },
    /// A native command called something that may wait, possibly for itself.
    #[error("cannot call {call} inside of a native command: it may wait for that command")]
    InsideCommand {
        /// The call.
        call: &'static str,
    },
    /// The stream was closed.
    #[error("cannot encode on stream {stream}: it is closed")]
    StreamClosed {
        /// The stream.
        stream: u64,
    },
    /// A kernel did not compile.
    #[error("cannot compile kernel {label} for {device}: {message}")]
    Compile {
        /// The kernel's label.
        label: String,
        /// The device.
        device: String,
        /// The compiler's message.
        message: String,
    },
    /// An invalid grid, threadgroup or set of bindings.
    #[error("{command}: {message}")]
    Launch {
        /// The command.
        command: String,
        /// The reason.
        message: String,
    },
    /// The process was forked from one that had opened a runtime.
    #[error(
        "cannot use hesper in this process: it was forked from one that uses hesper, and the device threads do not exist \
         here; start processes with the 'spawn' or 'forkserver' method, or fork before the first array is made"
    )]
    Forked,
    /// The device refused a call.
    #[error("{device} cannot {call}: {message}")]
    Device {
        /// The device.
        device: String,
        /// The call.
        call: &'static str,
        /// The device's message.
        message: String,
    },
    /// Accepted work failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Error {
    /// The fault, if this error is one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Fault(fault) => Some(fault),
            _ => None,
        }
    }
}

/// The scope of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One command, and what was computed from its results.
    Command,
    /// All commands of one submission.
    Submission,
    /// Everything on the device.
    Device,
}

/// The kind of a fault's first cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// A native command returned an error, or the device reported one.
    Failed,
    /// A native command panicked.
    Panicked,
    /// The work was cancelled before it ran.
    Cancelled,
    /// The device was lost.
    Lost,
    /// Foreign memory that the work reads became invalid (a truncated file).
    Source,
}

/// The failure of accepted work: its first cause, origin and scope.
///
/// Cloning is cheap; every result in scope holds the same fault.
#[derive(Clone)]
pub struct Fault(Arc<FaultInner>);

struct FaultInner {
    kind: FaultKind,
    scope: Scope,
    command: String,
    stream: u64,
    submission: u64,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Fault {
    /// A fault with its first cause.
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
            source: None,
        }))
    }

    /// The same fault with the error that caused it. For the fault's first holder: one that was cloned keeps
    /// its source.
    pub(crate) fn with_source(mut self, source: Option<Arc<dyn std::error::Error + Send + Sync>>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.source = source;
        }
        self
    }

    /// The kind of the first cause.
    pub fn kind(&self) -> FaultKind {
        self.0.kind
    }

    /// The scope.
    pub fn scope(&self) -> Scope {
        self.0.scope
    }

    /// The label of the command that failed first.
    pub fn command(&self) -> &str {
        &self.0.command
    }

    /// The message of the first cause.
    pub fn message(&self) -> &str {
        &self.0.message
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

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
