//! The plan of a graph as a report: what is computed together, what is not and why, bytes and overwritten
//! inputs.

use std::fmt;

use super::explain::{Apart, Planned};
use super::graph::SlotKind;
use super::program::{StepView, Work};
use crate::error::{Error, Result};
use crate::graph::{Array, OpKind};

/// What evaluating an array would do now. Prints as a list.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<PlanStep>,
}

/// How a step computes its ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// One op with commands of its own.
    Op,
    /// Element-wise ops as one kernel.
    Kernel,
    /// An op together with element-wise ops: it reads rows as they compute them, or they change its result
    /// before it is stored.
    Rows,
    /// Several ops as one: its name.
    Composite(&'static str),
    /// The memory of its input with another shape or other strides: no work, unless it has to be copied.
    View,
}

/// A step of a [`Plan`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlanStep {
    /// How it computes.
    pub kind: StepKind,
    /// The names of its ops, in order.
    pub ops: Vec<&'static str>,
    /// Of [`StepKind::Rows`]: how many of its ops compute what the op reads. The op follows, then those of
    /// its epilogue.
    pub prologue: usize,
    /// Shape and type of each array that it stores.
    pub outputs: Vec<String>,
    /// Bytes of the arrays that it reads. A view reads nothing.
    pub reads: usize,
    /// Bytes of the arrays that it stores.
    pub writes: usize,
    /// How many of its inputs nothing needs afterwards, so that the step may store its output in their
    /// memory.
    pub donated: usize,
    /// Element-wise ops that it reads from memory, and why they are not part of it.
    pub apart: Vec<(&'static str, Apart)>,
}

impl Plan {
    /// How many steps run kernels or commands.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1.0, 2.0], [3.0, 4.0]];
    /// assert_eq!(x.t()?.explain()?.launches(), 0); // a view
    /// assert_eq!(x.exp()?.sin()?.matmul(&x)?.explain()?.launches(), 2); // one for exp and sin
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn launches(&self) -> usize {
        self.steps.iter().filter(|step| step.kind != StepKind::View).count()
    }
}

impl Array {
    /// What evaluating the array would do now: the steps, which ops are fused, why others are not, and the
    /// bytes that each step reads and stores. An array that is computed has no steps.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1.0, 2.0], [3.0, 4.0]];
    /// let y = (x.matmul(&x)? * 2.0 + 1.0).tanh()?;
    /// let plan = y.explain()?;
    /// assert_eq!(plan.launches(), 2);
    /// assert_eq!(plan.steps[1].ops, ["multiply", "add", "tanh"]);
    /// println!("{plan}");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn explain(&self) -> Result<Plan> {
        let planned = Planned::of(self, None).ok_or_else(|| {
            Error::value("explain", "another thread evaluates the array; call it before or after")
        })?;
        Ok(Plan { steps: planned.program.steps().map(|step| planned.describe(&step)).collect() })
    }
}

impl Planned {
    fn describe(&self, step: &StepView<'_>) -> PlanStep {
        let op = |at: u32| self.calls[at as usize].op.get();
        let is_view = matches!(step.members, [only] if matches!(op(*only).kind(), OpKind::View));
        let kind = match step.work {
            Work::Op if is_view => StepKind::View,
            Work::Op => StepKind::Op,
            Work::Fused(_) => StepKind::Kernel,
            Work::Rows { .. } => StepKind::Rows,
            Work::Composite(pattern) => StepKind::Composite(pattern.name()),
        };
        let outputs: Vec<&Array> = step.outputs.iter().map(|at| &self.nodes[*at as usize]).collect();
        let mut read = Vec::new();
        let mut donated = 0;
        let inside = |at: usize| step.members.contains(&(at as u32));
        for input in step.inputs {
            let computed = matches!(input.slot.kind(), SlotKind::Node(at) if inside(at));
            if !computed && !read.contains(&input.slot) {
                read.push(input.slot);
                let free = match input.slot.kind() {
                    SlotKind::Node(at) => !self.held[at],
                    // Besides the graph and the list here, the caller holds it.
                    SlotKind::External(_) => false,
                };
                let bytes = self.array(input.slot).nbytes();
                let fits = outputs.iter().any(|output| output.nbytes() == bytes);
                donated += usize::from(kind != StepKind::View && input.last && free && fits);
            }
        }
        let mut apart: Vec<(&'static str, Apart)> = Vec::new();
        for member in step.members.iter().filter(|_| kind != StepKind::View) {
            for start in self.graph.read_nodes(*member as usize).filter(|start| !inside(*start)) {
                let op = &self.calls[start].op;
                if op.is_elementwise()
                    && let Some(why) = self.apart(start, *member as usize)
                    && !apart.contains(&(op.name(), why.clone()))
                {
                    apart.push((op.name(), why));
                }
            }
        }
        let prologue = match step.work {
            Work::Rows { op, .. } => step.members.iter().position(|member| member == op).unwrap_or(0),
            _ => 0,
        };
        PlanStep {
            kind,
            prologue,
            ops: step.members.iter().map(|at| op(*at).name()).collect(),
            outputs: outputs.iter().map(|array| format!("{:?} {}", array.shape(), array.dtype())).collect(),
            reads: if is_view { 0 } else { read.iter().map(|slot| self.array(*slot).nbytes()).sum() },
            writes: if is_view { 0 } else { outputs.iter().map(|array| array.nbytes()).sum() },
            donated,
            apart,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("nothing to compute");
        }
        let sum = |of: fn(&PlanStep) -> usize| Bytes(self.steps.iter().map(of).sum());
        let (reads, writes) = (sum(|step| step.reads), sum(|step| step.writes));
        write!(f, "{} launches, {reads} read, {writes} written", self.launches())?;
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "\n{:>3}. {step}", at + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ops, stored) = (self.ops.join(", "), self.outputs.join(" and "));
        match self.kind {
            StepKind::View => return write!(f, "view {ops} -> {stored}"),
            StepKind::Op => write!(f, "op {ops}")?,
            StepKind::Kernel => write!(f, "kernel of {}", ops)?,
            StepKind::Rows => {
                let (prologue, rest) = self.ops.split_at(self.prologue.min(self.ops.len()));
                if let Some((op, epilogue)) = rest.split_first() {
                    f.write_str(op)?;
                    if !prologue.is_empty() {
                        write!(f, " of rows of a kernel of {}", prologue.join(", "))?;
                    }
                    if !epilogue.is_empty() {
                        write!(f, " with an epilogue of {}", epilogue.join(", "))?;
                    }
                }
            }
            StepKind::Composite(name) => write!(f, "{name} of {ops}")?,
        }
        write!(f, " -> {stored}: {} read, {} written", Bytes(self.reads), Bytes(self.writes))?;
        if self.donated > 0 {
            write!(f, ", may overwrite {} input{}", self.donated, if self.donated > 1 { "s" } else { "" })?;
        }
        self.apart.iter().try_for_each(|(op, why)| write!(f, "\n     apart from {op}: {why}"))
    }
}

/// A number of bytes in a unit that fits.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(size, _)| self.0 >= *size) {
            Some((size, unit)) => write!(f, "{:.1} {unit}", self.0 as f64 / size as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}
