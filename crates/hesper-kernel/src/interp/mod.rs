//! The reference interpreter (slow, deterministic and simple), and its checked mode.
//!
//! One threadgroup runs at a time, all its threads in lock step over the structured control
//! flow: an instruction is carried out for every active thread, in the order of thread index,
//! before the next begins. Barriers are then satisfied by construction, and operations of SIMD
//! groups see all their lanes. The results of this interpreter define the IR.
//!
//! With [`Options::checked`] every access is checked as well, and [`run`] returns the findings:
//! access out of bounds, misaligned or to read-only memory; races between threads, and with
//! asynchronous copies; reads of memory or variables never written; barriers not reached by all;
//! lanes read while inactive; division by zero. After a finding the kernel goes on with the
//! unchecked meaning, so one run can report several.
//!
//! Without it, a read out of bounds gives zero and a write out of bounds is dropped: nothing
//! outside the bound memory is ever touched.

#[cfg(feature = "text")]
mod access;
#[cfg(feature = "text")]
mod copies;
mod finding;
#[cfg(feature = "text")]
mod group;
#[cfg(feature = "text")]
mod liveness;
#[cfg(feature = "text")]
mod machine;
#[cfg(feature = "text")]
mod mask;
#[cfg(feature = "text")]
mod memory;
#[cfg(feature = "text")]
mod ops;
#[cfg(feature = "text")]
mod shadow;

use std::sync::atomic::AtomicBool;

pub(crate) use finding::write_trace;
pub use finding::{AccessKind, Finding, FindingKind, Memory, RacePartner, ThreadPosition};

use crate::ir::{IrError, Kernel, verify};
use crate::launch::{Bindings, Launch, LaunchError};

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Whether to check every access.
    pub checked: bool,
    /// Whether checked mode also reports shift counts not below the width.
    pub check_shifts: bool,
    /// Findings kept; later ones are only counted.
    pub max_findings: usize,
    /// Loop iterations allowed to each thread.
    pub max_iterations: u64,
    /// Set to true, from another thread, to stop the run at the next loop iteration or
    /// threadgroup.
    pub cancel: Option<&'a AtomicBool>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            checked: false,
            check_shifts: false,
            max_findings: 16,
            max_iterations: 1 << 24,
            cancel: None,
        }
    }
}

impl Options<'_> {
    /// The defaults with checked mode on.
    pub fn checked() -> Self {
        Options { checked: true, ..Options::default() }
    }
}

/// What checked mode found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The findings, in the order they were met; one per kind and source location.
    pub findings: Vec<Finding>,
    /// Findings not kept: repetitions and those beyond [`Options::max_findings`].
    pub suppressed: u64,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The kernel is not well formed.
    #[error(transparent)]
    Kernel(#[from] IrError),
    /// The launch or its bindings do not fit.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A thread used up its loop iterations.
    #[error("{0}")]
    Runaway(Box<Finding>),
    /// The cancel flag was set.
    #[error("the run of kernel {0} was cancelled")]
    Cancelled(String),
}

/// Runs a kernel over the bound memory. On an error the memory is partly written.
#[cfg(feature = "text")]
pub fn run(
    kernel: &Kernel,
    launch: &Launch,
    bindings: &mut Bindings<'_>,
    options: &Options<'_>,
) -> Result<Report, RunError> {
    verify(kernel)?;
    launch.check()?;
    bindings.check(kernel)?;
    let mut machine = machine::Machine::new(kernel, *launch, bindings, *options);
    for group in 0..launch.group_count() {
        machine.run_group(group)?;
    }
    Ok(machine.into_report())
}

#[cfg(test)]
mod tests;
