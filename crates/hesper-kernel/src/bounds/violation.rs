//! The report of a write that an executor dropped.

use std::fmt;

use super::InstNumbers;
use crate::interp::{AccessKind, FindingKind, Memory, write_trace};
use crate::ir::{Kernel, Loc, Op, ParamKind, SourceLoc, Space};

/// A write that did not go to memory: out of range, through a null pointer, to read-only memory, or an atomic
/// that is not aligned. Displays as a message with the kernel, the memory, the index and the line.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// What is wrong.
    pub kind: FindingKind,
    /// The kernel.
    pub kernel: String,
    /// The name of the source text.
    pub source_name: String,
    /// Where, innermost first, then the chain of inlined call sites. Empty if unknown.
    pub trace: Vec<SourceLoc>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}: {}", self.kernel, self.kind)?;
        write_trace(f, &self.source_name, &self.trace, "  ")
    }
}

/// An instruction that writes memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteSite {
    /// Its source location.
    pub loc: Loc,
    /// `Write` or `AtomicWrite`.
    pub access: AccessKind,
    /// The address space of its pointer.
    pub space: Space,
    /// Bytes written.
    pub size: u64,
}

impl WriteSite {
    /// The site of an instruction, if it writes memory.
    pub fn of(kernel: &Kernel, op: &Op, loc: Loc) -> Option<WriteSite> {
        let (access, ptr, value) = match *op {
            Op::Store { ptr, value, .. } => (AccessKind::Write, ptr, value),
            Op::AtomicRmw { ptr, value, .. } | Op::AtomicStore { ptr, value } => {
                (AccessKind::AtomicWrite, ptr, value)
            }
            Op::AtomicCompareExchange { ptr, desired, .. } => (AccessKind::AtomicWrite, ptr, desired),
            _ => return None,
        };
        let space = kernel.ty(ptr).space()?;
        Some(WriteSite { loc, access, space, size: kernel.ty(value).size() })
    }
}

/// Where a dropped write would have gone. Objects are numbered: 0 is null, then the parameters, the constant
/// tables, the threadgroup variables and the thread variables of the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The number of the object.
    pub object: u64,
    /// The object's bytes.
    pub len: u64,
    /// The first byte of the write, relative to the start of the object.
    pub offset: i64,
}

impl Violation {
    /// The violation in the [report](crate::cuda::Slot::Report) of a launch on a CUDA or Metal device; `None`
    /// if the launch reported none.
    pub fn reported(kernel: &Kernel, report: &[u64; 4]) -> Option<Violation> {
        let [number, object, len, offset] = *report;
        let (op, loc) =
            InstNumbers::new(kernel).find(kernel, usize::try_from(number).ok()?.checked_sub(1)?)?;
        let site = WriteSite::of(kernel, op, loc)?;
        Some(Violation::new(kernel, &site, &Target { object, len, offset: offset as i64 }))
    }

    /// The violation of a site. Reads only the names, parameters, variables and source locations of the
    /// kernel.
    pub fn new(kernel: &Kernel, site: &WriteSite, target: &Target) -> Violation {
        let WriteSite { loc, access, space, size } = *site;
        let Target { len, offset, .. } = *target;
        let inside = size <= len && offset as u64 <= len - size;
        let kind = match memory(kernel, target) {
            None => FindingKind::NullPointer { access, space },
            Some((memory, _)) if !inside => FindingKind::OutOfBounds { access, memory, offset, size },
            Some((memory, false)) => FindingKind::ReadOnly { memory, offset },
            Some((memory, true)) => FindingKind::Misaligned { access, memory, offset, align: size as u32 },
        };
        Violation {
            kind,
            kernel: kernel.name.clone(),
            source_name: kernel.source_name.clone(),
            trace: kernel.loc_chain(loc),
        }
    }
}

/// An object, and whether it may be written.
fn memory(kernel: &Kernel, target: &Target) -> Option<(Memory, bool)> {
    let len = target.len;
    let describe = |space, name: &str, elem| Memory { space, name: name.to_string(), elem, len };
    let mut at = usize::try_from(target.object).ok()?.checked_sub(1)?;
    if let Some(param) = kernel.params.get(at) {
        let (space, elem, writable) = match param.kind {
            ParamKind::Buffer { space, elem, access } => (space, elem, access.writes()),
            ParamKind::Value(ty) => (Space::Constant, ty, false),
        };
        return Some((describe(space, &param.name, Some(elem)), writable));
    }
    at -= kernel.params.len();
    if let Some(table) = kernel.const_vars.get(at) {
        return Some((describe(Space::Constant, &table.name, None), false));
    }
    at -= kernel.const_vars.len();
    if let Some(var) = kernel.threadgroup_vars.get(at) {
        return Some((describe(Space::Threadgroup, &var.name, None), true));
    }
    at -= kernel.threadgroup_vars.len();
    kernel.thread_vars.get(at).map(|var| (describe(Space::Thread, &var.name, None), true))
}
