//! The lines of a kernel's text, and the facts about a kernel that every printer needs.

use crate::bounds::{InstNumbers, prove_any};
use crate::ir::registry::reduce_ops;
use crate::ir::*;

/// Writes lines.
pub(crate) struct Writer<'a> {
    pub kernel: &'a Kernel,
    pub indent: usize,
    /// The offset of each variable in threadgroup memory.
    pub shared_offsets: Vec<u64>,
    /// Pointers may be null, and stay so under arithmetic.
    pub has_null: bool,
    /// The numbers of the instructions, and that of the current one.
    pub numbers: InstNumbers,
    pub number: usize,
    /// The accesses that need no check; `None` if none is checked.
    proven: Option<Vec<bool>>,
    pub text: String,
    next: u32,
}

impl<'a> Writer<'a> {
    /// With `bounds`, accesses are checked unless they are `proven` to be in range.
    pub fn new(kernel: &'a Kernel, bounds: bool, proven: &[bool]) -> Self {
        Writer {
            kernel,
            indent: 0,
            shared_offsets: kernel.threadgroup_layout().1,
            has_null: kernel.blocks.iter().flat_map(|b| &b.insts).any(|i| matches!(i.op, Op::NullPtr)),
            numbers: InstNumbers::new(kernel),
            number: 0,
            // A caller's proof includes what holds in every launch.
            proven: bounds.then(|| if proven.is_empty() { prove_any(kernel) } else { proven.to_vec() }),
            text: String::new(),
            next: 0,
        }
    }

    /// Whether the current instruction checks its access.
    pub fn is_checked(&self) -> bool {
        self.proven.as_ref().is_some_and(|proven| !proven.get(self.number).is_some_and(|proven| *proven))
    }

    /// Appends a line.
    pub fn line(&mut self, line: &str) {
        for _ in 0..self.indent {
            self.text.push_str("  ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A number not used in names before.
    pub fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// An identifier that is no keyword and no name of the prelude, from any kernel name.
    pub fn entry_name(&self) -> String {
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("hesper_{}", self.kernel.name.chars().map(clean).take(200).collect::<String>())
    }
}

/// Makes an emitter dereference to its field `writer`. `line` is a method of the emitter itself, so that a
/// line may borrow the emitter.
macro_rules! writes_by {
    ($Emitter:ident) => {
        impl<'a> std::ops::Deref for $Emitter<'a> {
            type Target = Writer<'a>;

            fn deref(&self) -> &Writer<'a> {
                &self.writer
            }
        }

        impl std::ops::DerefMut for $Emitter<'_> {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.writer
            }
        }

        impl $Emitter<'_> {
            /// Appends a line.
            pub fn line(&mut self, line: &str) {
                self.writer.line(line);
            }
        }
    };
}
pub(crate) use writes_by;

/// The parameters of a kernel that are buffers, or those that are not.
pub(crate) fn parameters(kernel: &Kernel, buffers: bool) -> impl Iterator<Item = u32> + '_ {
    let params = kernel.params.iter().enumerate();
    params.filter(move |(_, p)| matches!(p.kind, ParamKind::Buffer { .. }) == buffers).map(|(i, _)| i as u32)
}

/// An op over the active lanes `m` of a SIMD group or quad that no printer writes in its own way.
pub(crate) fn lane_value(op: &Op, m: &str) -> String {
    let width = |g: Group| g.width();
    match *op {
        Op::GroupBallot { group, value } => format!("ballot<{}>({m}, v{})", width(group), value.0),
        Op::GroupAll { group, value } => format!("all_of<{}>({m}, v{})", width(group), value.0),
        Op::GroupAny { group, value } => format!("any_of<{}>({m}, v{})", width(group), value.0),
        Op::GroupIsFirst { group } => format!("is_first<{}>({m})", width(group)),
        Op::GroupActiveMask { group } => format!("active_in<{}>({m})", width(group)),
        Op::SimdMatMulAcc { a, b, c } => format!("matrix_fma({m}, v{}, v{}, v{})", a.0, b.0, c.0),
        // Each printer writes these itself.
        Op::GroupReduce { .. }
        | Op::GroupScan { .. }
        | Op::GroupShuffle { .. }
        | Op::GroupBroadcastFirst { .. } => String::new(),
        Op::Get(_) | Op::Set(..) | Op::Load { .. } | Op::Store { .. } => String::new(),
        value_op!() | atomic_op!() | sync_op!() | control_op!() => String::new(),
    }
}

macro_rules! reduce_names {
    ($($(#[$doc:meta])* $Name:ident = $Binary:ident, $text:literal;)*) => {
        /// The name of a reduction in the preludes.
        pub(crate) fn reduce_name(op: ReduceOp) -> &'static str {
            match op { $(ReduceOp::$Name => $text,)* }
        }
    };
}
reduce_ops!(reduce_names);
