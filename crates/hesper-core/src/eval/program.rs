//! A planned program: the steps of a graph, in order, with explicit last uses.
//!
//! A step reads slots: external arrays and results of earlier steps. Each input says whether it is the last
//! use of its slot. Only then is it handed to an op as owned, if nothing else can reach the memory; only an
//! owned operand can be overwritten ([`Operand`](crate::graph::Operand)). After a step its list of ended
//! slots is released.
//!
//! A program names nodes by number. What they are during a run (ops, shapes, streams, memory) is asked of a
//! [`Store`]: the claim of an evaluation, or a compiled function with its arguments. So one program serves
//! all graphs of one structure, and both ways of running are this one.

use std::sync::Arc;

use hesper_runtime::Stream;
use smallvec::SmallVec;

use super::epilogue_fusion::Epilogue;
use super::expression::Fused;
use super::graph::Slot;
use super::patterns::Pattern;
use super::producer_fusion::RowInput;
use super::{FUSED, Lowering, Operand, caught, fast_path, fuse, lower_op};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{Consumer, Data, KnownBytes, OpKind, OpRef, Producer};
use crate::shape::Shape;

/// What a step does.
pub(super) enum Work {
    /// One op that is not fused.
    Op,
    /// Element-wise ops as one kernel.
    Fused(Arc<Fused>),
    /// An op with its prologue, the group whose value it reads row by row as its first input, and its
    /// epilogue, a group that is applied to its result. The inputs of the prologue come first, then those of
    /// the op, then those of the epilogue: the op's result, and others.
    Rows { op: u32, prologue: Option<Arc<Fused>>, epilogue: Option<Arc<Fused>> },
    /// Several ops as one.
    Composite(Pattern),
}

/// A step. Its inputs, members and so on are those of the program up to these ends, from where the step
/// before it ends.
pub(super) struct Step {
    pub(super) work: Work,
    pub(super) inputs: u32,
    pub(super) members: u32,
    /// How many of its members, the last ones, a later step computes again.
    pub(super) again: u32,
    pub(super) outputs: u32,
    pub(super) ends: u32,
}

/// What a step reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input {
    pub(super) slot: Slot,
    /// Whether this is the only use of the slot in its last step.
    pub(super) last: bool,
}

/// The steps of a graph.
#[derive(Default)]
pub(crate) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) inputs: Vec<Input>,
    /// The nodes that steps compute.
    pub(super) members: Vec<u32>,
    /// Those of them that go to memory.
    pub(super) outputs: Vec<u32>,
    /// What nothing needs after a step.
    pub(super) ends: Vec<Slot>,
}

/// A step with its lists.
pub(super) struct StepView<'a> {
    pub(super) work: &'a Work,
    pub(super) inputs: &'a [Input],
    pub(super) members: &'a [u32],
    /// The members that no later step computes.
    computed: &'a [u32],
    pub(super) outputs: &'a [u32],
    ends: &'a [Slot],
}

/// A node during a run.
pub(crate) struct NodeView<'a> {
    pub(crate) op: &'a OpRef,
    pub(crate) shape: &'a Shape,
    pub(crate) dtype: Dtype,
    pub(crate) stream: &'a Stream,
}

/// The values of a run.
pub(crate) trait Store {
    /// A node that is not computed yet.
    fn node(&self, at: usize) -> Result<NodeView<'_>>;

    /// The shape and type of a slot.
    fn meta(&self, slot: Slot) -> Result<(&Shape, Dtype)>;

    /// The number in a slot that the plan takes by value.
    fn known(&self, slot: Slot) -> Option<KnownBytes>;

    /// What `f` says of the memory of a slot, if it has some.
    fn with_data<R>(&self, slot: Slot, f: impl FnOnce(&Data) -> R) -> Option<R>;

    /// A slot as an operand: owned if this is its `last` use and nothing else can reach its memory.
    fn operand(&mut self, slot: Slot, last: bool) -> Result<Operand>;

    /// Takes back an operand of a step that is over. If the step `failed`, a slot that was not overwritten
    /// has its memory again.
    fn settle(&mut self, slot: Slot, operand: &Operand, failed: bool);

    /// Nodes whose step failed after it had been given an operand to overwrite: they cannot be computed any
    /// more.
    fn fail(&mut self, nodes: &[u32], error: &Error);

    /// A node has its memory.
    fn resolve(&mut self, at: usize, data: Data) -> Result<()>;

    /// Nodes are computed: their ops are not needed any more.
    fn computed(&mut self, nodes: &[u32]);

    /// Nothing needs a slot any more.
    fn release(&mut self, slot: Slot);
}

impl Program {
    pub(super) fn with_capacity(nodes: usize, edges: usize) -> Self {
        Program {
            steps: Vec::with_capacity(nodes),
            inputs: Vec::with_capacity(edges),
            members: Vec::with_capacity(nodes),
            outputs: Vec::with_capacity(nodes),
            ends: Vec::new(),
        }
    }

    /// The steps, in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = StepView<'_>> {
        let (mut inputs, mut members, mut outputs, mut ends) = (0, 0, 0, 0);
        fn next<'a, T>(all: &'a [T], begin: &mut usize, end: u32) -> &'a [T] {
            &all[std::mem::replace(begin, end as usize)..end as usize]
        }
        self.steps.iter().map(move |step| {
            let members = next(&self.members, &mut members, step.members);
            StepView {
                work: &step.work,
                inputs: next(&self.inputs, &mut inputs, step.inputs),
                members,
                computed: &members[..members.len() - step.again as usize],
                outputs: next(&self.outputs, &mut outputs, step.outputs),
                ends: next(&self.ends, &mut ends, step.ends),
            }
        })
    }

    /// Encodes all steps. If one fails, the values that it did not overwrite are in their slots again.
    pub(crate) fn run(&self, store: &mut impl Store) -> Result<()> {
        let mut memo = fast_path::Memo::default();
        for step in self.steps() {
            match step.work {
                Work::Op => {
                    let data = match view(store, &step)? {
                        Some(data) => data,
                        None => lower(store, step.outputs[0], &step, None, None)?,
                    };
                    store.resolve(step.outputs[0] as usize, data)?;
                }
                Work::Fused(fused) => {
                    let data = match fast_path::lower(store, fused, &step, &mut memo)? {
                        Some(data) => data,
                        None => fuse::lower(store, fused, &step)?,
                    };
                    for (at, data) in step.outputs.iter().zip(data) {
                        store.resolve(*at as usize, data)?;
                    }
                }
                Work::Rows { op, prologue, epilogue } => {
                    let data = lower(store, *op, &step, prologue.as_ref(), epilogue.as_ref())?;
                    store.resolve(step.outputs[0] as usize, data)?;
                }
                Work::Composite(pattern) => {
                    let data = composite(store, pattern, &step)?;
                    for (at, data) in step.outputs.iter().zip(data) {
                        store.resolve(*at as usize, data)?;
                    }
                }
            }
            store.computed(step.computed);
            step.ends.iter().for_each(|slot| store.release(*slot));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a program of {} nodes in {} steps", self.members.len(), self.steps.len())
    }
}

/// The value of a group as the first input of the op that reads it row by row.
fn rows(store: &mut impl Store, fused: &Arc<Fused>, group: &[Input], op: &[Input]) -> Result<RowInput> {
    let values = fuse::gather(store, fused, group, None)?;
    let Some(first) = op.first() else { return Err(missing()) };
    let super::graph::SlotKind::Node(last) = first.slot.kind() else { return Err(missing()) };
    let node = store.node(last)?;
    Ok(RowInput::new(fused, node.stream, node.shape, values))
}

/// A group as the epilogue of an op.
fn epilogue_of(store: &mut impl Store, fused: &Arc<Fused>, group: &[Input], op: u32) -> Result<Epilogue> {
    let node = store.node(op as usize)?;
    let (stream, shape) = (node.stream.clone(), node.shape.clone());
    let values = fuse::gather(store, fused, group, Some(shape.clone()))?;
    Ok(Epilogue::new(fused, &stream, shape, values))
}

/// The result of an op that is a view of its input.
fn view(store: &impl Store, step: &StepView<'_>) -> Result<Option<Data>> {
    let [input] = step.inputs else { return Ok(None) };
    let node = store.node(step.outputs[0] as usize)?;
    let op = node.op.get();
    if !matches!(op.kind(), OpKind::View) {
        return Ok(None);
    }
    let from = store.meta(input.slot)?.0;
    Ok(store.with_data(input.slot, |data| op.view(data, from, node.shape)).flatten())
}

/// Lowers the op of a step; its first input may be computed as it is read, and its result changed before it
/// is stored.
fn lower(
    store: &mut impl Store,
    op: u32,
    step: &StepView<'_>,
    prologue: Option<&Arc<Fused>>,
    epilogue: Option<&Arc<Fused>>,
) -> Result<Data> {
    let count = |group: Option<&Arc<Fused>>| group.map_or(0, |group| group.expression.inputs.len());
    let (before, rest) = step.inputs.split_at(count(prologue));
    let (inputs, after) = rest.split_at(rest.len() - count(epilogue));
    let mut rows = prologue.map(|group| rows(store, group, before, inputs)).transpose()?;
    let mut epilogue = epilogue.map(|group| epilogue_of(store, group, after, op)).transpose()?;
    let first = rows.as_ref().map(|rows| rows.data()).transpose()?;
    with_operands(store, inputs, step.outputs, first, |store, operands| {
        let node = store.node(op as usize)?;
        let mut l = Lowering::new(node.stream, node.shape, node.dtype, operands)
            .with_producer(rows.as_mut().map(|rows| rows as &mut dyn Producer))
            .with_consumer(epilogue.as_mut().map(|epilogue| epilogue as &mut dyn Consumer));
        l.describe(store, inputs)?;
        let data = caught(node.op.name(), || lower_op(node.op.get(), &mut l))?;
        drop(l);
        match epilogue {
            Some(epilogue) => caught(FUSED, || epilogue.complete(data)),
            None => Ok(data),
        }
    })
}

/// Lowers a composite op; gives the memory of each output.
fn composite(store: &mut impl Store, pattern: &Pattern, step: &StepView<'_>) -> Result<SmallVec<[Data; 3]>> {
    with_operands(store, step.inputs, step.outputs, None, |store, operands| {
        let (op, shape) = pattern.op(store, step.outputs)?;
        let node = store.node(step.outputs[0] as usize)?;
        let mut l = Lowering::new(node.stream, &shape, node.dtype, operands);
        l.describe(store, step.inputs)?;
        caught(pattern.name(), || pattern.lower(&*op, store, step.outputs, &mut l))
    })
}

type Operands = SmallVec<[Operand; 3]>;

/// Gathers the operands of a step, lowers it and gives them back. The first operand may be given.
fn with_operands<S: Store, R>(
    store: &mut S,
    inputs: &[Input],
    outputs: &[u32],
    mut first: Option<Data>,
    lower: impl FnOnce(&S, &mut [Operand]) -> Result<R>,
) -> Result<R> {
    let mut operands = Operands::new();
    let gathered = inputs.iter().try_for_each(|input| {
        operands.push(match first.take() {
            Some(data) => Operand::borrowed(data),
            None => store.operand(input.slot, input.last)?,
        });
        Ok(())
    });
    let lowered = gathered.and_then(|()| lower(store, &mut operands));
    let operands = inputs.iter().map(|input| input.slot).zip(&operands);
    settle(store, outputs, operands, lowered.as_ref().err());
    lowered
}

/// Gives the operands of a step back. If it failed after it may have overwritten one, its nodes have failed
/// for good.
pub(super) fn settle<'a>(
    store: &mut impl Store,
    nodes: &[u32],
    operands: impl Iterator<Item = (Slot, &'a Operand)>,
    error: Option<&Error>,
) {
    let mut spent = false;
    for (slot, operand) in operands {
        spent |= operand.is_spent();
        store.settle(slot, operand, error.is_some());
    }
    if let Some(error) = error.filter(|_| spent) {
        store.fail(nodes, error);
    }
}

/// A plan asked for what a run does not have.
pub(crate) fn missing() -> Error {
    Error::value("evaluation", "internal error: a value was released before its last use")
}
