//! Evaluation: from a graph of lazy arrays to commands on streams.
//!
//! 1. `claim` takes all lazy nodes that the asked-for arrays need, or none of them: two threads that evaluate
//!    one graph run each node once, and neither holds anything while it waits for the other. Threads with
//!    graphs of their own share no lock there.
//! 2. `plan` makes the `graph` into a `program`: nodes that match one of the `patterns` become a composite
//!    op, element-wise nodes are grouped into kernels, the order of steps and the last use of each value are
//!    fixed. A graph of a structure that was met before is not planned again.
//! 3. The program runs step by step: memory, then commands. A node that is lowered is ready: its memory
//!    exists and the runtime knows what fills it. Inputs come as `operand`s, owned or borrowed; an op may
//!    store its output in the place of one that it owns. Compiled functions run their programs the same way.
//! 4. If something fails, what was not lowered is lazy again, and can be tried again. A node whose op failed
//!    after it had been given an owned operand to overwrite has failed: it, and whatever reads it, gives the
//!    first cause each time.

mod cache;
mod claim;
pub(crate) mod compose;
pub(crate) mod dot;
mod drawing;
mod epilogue_fusion;
mod explain;
mod expression;
mod fast_path;
mod fuse;
pub(crate) mod graph;
pub(crate) mod patterns;
mod plan;
#[doc(hidden)]
pub mod producer_fusion;
pub(crate) mod program;
mod quick;
mod read;
mod report;
mod step_order;
#[cfg(test)]
mod tests;
mod turns;
mod vectorize;

use smallvec::SmallVec;

use hesper_runtime::{Stream, Submission, panics};

use crate::error::{Error, Result};
use crate::graph::{Array, Data, Op};
use crate::placement;
use crate::registry;
use claim::Claim;
use program::{Input, Store};

pub use crate::graph::{Lowering, Operand, Owned};
pub use drawing::GraphPicture;
pub use explain::{Apart, why_apart};
pub use plan::{fusion_enabled, fusion_waits, set_fusion, set_fusion_waits};
pub use quick::is_quick;
pub use report::{Plan, PlanStep, StepKind};

/// Computes arrays and waits for all of them. An error is that of the first array that failed.
///
/// ```
/// use hesper::{array, eval};
/// let x = array![1.0, 2.0];
/// let (y, z) = (x.exp()?, x.sin()?);
/// eval([&y, &z])?; // both at once: one kernel
/// assert!(y.is_evaluated() && z.is_evaluated());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    schedule(&arrays)?;
    for array in &arrays {
        // Waits for whatever fills the memory, and reports its fault.
        if let Err(error) = array.data().and_then(|data| Ok(data.buffer.wait()?)) {
            // Later submissions do not report the fault again.
            let _ = submissions(&arrays);
            return Err(error);
        }
    }
    Ok(())
}

/// Starts computing arrays and returns without waiting. A later failure is reported by the arrays, and by the
/// submissions that compute them, which are returned.
///
/// ```
/// use hesper::{array, async_eval};
/// let x = array![1.0, 2.0].exp()?;
/// for submission in async_eval([&x])? {
///     // Other work of the host comes here.
///     submission.wait()?;
/// }
/// assert!(x.is_evaluated());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<Vec<Submission>> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    schedule(&arrays)?;
    submissions(&arrays)
}

/// Submits what computes the arrays: one submission for each stream.
fn submissions(arrays: &[&Array]) -> Result<Vec<Submission>> {
    let mut streams: SmallVec<[&Stream; 2]> = SmallVec::new();
    for array in arrays {
        if streams.iter().all(|stream| stream.id() != array.0.stream.id()) {
            streams.push(&array.0.stream);
        }
    }
    let mut submissions = Vec::with_capacity(2 * streams.len());
    for stream in streams {
        submissions.push(stream.commit()?);
        // Ops without a kernel for the device run on the host. What was submitted there before has been
        // reported.
        if !registry::of_stream(stream)?.has_every_op() {
            submissions.extend(placement::default_stream(placement::Device::Cpu)?.commit_new()?);
        }
    }
    Ok(submissions)
}

/// Encodes everything that the arrays need.
pub(crate) fn schedule(arrays: &[&Array]) -> Result<()> {
    schedule_with(arrays, true)
}

/// The same without composite ops.
pub(crate) fn schedule_plain(arrays: &[&Array]) -> Result<()> {
    schedule_with(arrays, false)
}

fn schedule_with(arrays: &[&Array], composites: bool) -> Result<()> {
    // Before any lock: in a forked process locks may be held by threads that do not exist.
    hesper_runtime::fork::check()?;
    if arrays.iter().all(|array| array.is_evaluated()) {
        return Ok(());
    }
    let (mut claim, program) = Claim::take(arrays, composites)?;
    program.run(&mut claim)
}

/// The op that errors of fused kernels name.
pub(crate) const FUSED: &str = "fused kernel";

/// Runs the code of an op; a panic becomes an error of its array.
pub(crate) fn caught<R>(op: &str, f: impl FnOnce() -> Result<R>) -> Result<R> {
    // An operand that was given out to be overwritten counts as spent, whatever the closure left behind.
    panics::catch(f).unwrap_or_else(|message| Err(Error::value(op, format!("panicked: {message}"))))
}

/// Lowers an op for the device of its stream, or for the host where that device has no implementation of it.
pub(crate) fn lower_op(op: &dyn Op, l: &mut Lowering<'_>) -> Result<Data> {
    if op.is_everywhere() {
        let first = l.operands.first().zip(l.inputs.first());
        let view = first.and_then(|(operand, (shape, _))| op.view(operand.data(), shape, l.shape));
        return view.map_or_else(|| op.lower(l), Ok);
    }
    let backend = registry::of_stream(l.stream())?;
    if backend.has_every_op() {
        l.bring()?;
    }
    let takes = backend.takes(l.dtype()) && l.inputs.iter().all(|(_, dtype)| backend.takes(*dtype));
    if takes && let Some(data) = backend.ops().lower(op, l)? {
        return Ok(data);
    }
    if backend.has_every_op() {
        let what = format!(
            "the {} backend has no implementation of {op:?} for these inputs; it may need a feature of the crate hesper",
            backend.name()
        );
        return Err(Error::value(op.name(), what));
    }
    registry::count_fallback(op.name());
    l.materialize()?;
    l.without_epilogue();
    l.host = Some(placement::default_stream(placement::Device::Cpu)?);
    lower_op(op, l)
}

impl<'a> Lowering<'a> {
    /// Looks up the shapes and types of the inputs.
    fn describe(&mut self, store: &'a impl Store, inputs: &[Input]) -> Result<()> {
        for input in inputs {
            let (shape, dtype) = store.meta(input.slot)?;
            self.inputs.push((shape, dtype));
        }
        Ok(())
    }
}
