//! Kernels that must be refused: what is wrong, when it is found and on which line.
//!
//! Line numbers count from one in the text they belong to (body or header). Where two lines are equally good
//! places to point at, a range is given. [`InvalidCase::judge`] compares a report with the expectation.

use crate::array::{Array, DType};
use crate::case::Case;

mod checked;
mod compile;
mod launch;

/// When a fault is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// From the text alone.
    Compile,
    /// From the call's arguments, before any thread runs.
    Launch,
    /// While the kernel runs in checked mode; unchecked, such a kernel may give any values but must end or be
    /// cancelled, and touches nothing outside its buffers.
    Checked,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each name says it all")]
pub enum Fault {
    Syntax,
    Preprocessor,
    UnknownFunction,
    UnknownName,
    UnknownType,
    UnknownMember,
    WrongType,
    WrongArguments,
    NotWritable,
    AddressSpace,
    Redefinition,
    MisplacedJump,
    NotConstant,
    Recursion,
    TemplateInstantiation,
    UnsupportedType,
    ThreadgroupMemory,
    BadName,
    ZeroGrid,
    ThreadgroupSize,
    AtomicType,
    OutOfBoundsRead,
    OutOfBoundsWrite,
    Race,
    UninitialisedRead,
    DivergentBarrier,
    InactiveLane,
    DivisionByZero,
    EndlessLoop,
}

/// Which text a line number counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePart {
    /// The kernel's body.
    Body,
    /// The header.
    Header,
}

/// A kernel that must be refused.
#[derive(Clone)]
pub struct InvalidCase {
    /// The call; its reference is empty.
    pub case: Case,
    /// When it is found.
    pub phase: Phase,
    /// What is found.
    pub fault: Fault,
    /// First and last acceptable line, where the fault has a place in the text.
    pub lines: Option<(usize, usize)>,
    /// The text that the lines count in.
    pub part: SourcePart,
    /// What a good message contains.
    pub mentions: Vec<&'static str>,
}

impl InvalidCase {
    /// Compares what an executor reported with what is expected.
    pub fn judge(&self, phase: Phase, line: Option<usize>, message: &str) -> Result<(), String> {
        let name = self.case.name;
        if phase != self.phase {
            return Err(format!("{name}: found at {phase:?}, expected at {:?}: {message}", self.phase));
        }
        if let Some((first, last)) = self.lines {
            match line {
                Some(line) if (first..=last).contains(&line) => {}
                other => {
                    return Err(format!("{name}: line {other:?} instead of {first}..={last}: {message}"));
                }
            }
        }
        match self.mentions.iter().find(|word| !message.contains(**word)) {
            Some(word) => Err(format!("{name}: the message does not mention `{word}`: {message}")),
            None => Ok(()),
        }
    }

    /// Gives the words a message must contain.
    fn mentions(mut self, words: &[&'static str]) -> Self {
        self.mentions = words.to_vec();
        self
    }

    /// The fault lies between two lines.
    fn between(mut self, first: usize, last: usize) -> Self {
        self.lines = Some((first, last));
        self
    }

    /// The fault lies in the header.
    fn header(mut self, header: &'static str) -> Self {
        self.case.header = header;
        self.part = SourcePart::Header;
        self
    }

    /// The fault lies in the body, which uses this header.
    fn with_header(mut self, header: &'static str) -> Self {
        self.case.header = header;
        self
    }

    /// Sets another grid and threadgroup.
    fn launch(mut self, grid: [usize; 3], threadgroup: [usize; 3]) -> Self {
        self.case = self.case.launch(grid, threadgroup);
        self
    }
}

/// A kernel of one float input `x` and one float output `out` of 64 elements, 64 threads in groups of 32,
/// with a fault on `line` (zero: the fault has no line).
fn faulty(name: &'static str, phase: Phase, fault: Fault, line: usize, source: &'static str) -> InvalidCase {
    let values: Vec<f64> = (0..64).map(|i| f64::from(i) * 0.25).collect();
    let case = Case::new(name, (name, source), |_| Vec::new())
        .with("x", Array::floats(DType::F32, &[64], &values))
        .close("out", DType::F32, &[64], 0.0, 0.0)
        .launch([64, 1, 1], [32, 1, 1]);
    let lines = if line == 0 { None } else { Some((line, line)) };
    InvalidCase { case, phase, fault, lines, part: SourcePart::Body, mentions: Vec::new() }
}

/// Every kernel that must be refused.
pub fn invalid_cases() -> Vec<InvalidCase> {
    let mut all = compile::cases();
    all.extend(launch::cases());
    all.extend(checked::cases());
    all
}
