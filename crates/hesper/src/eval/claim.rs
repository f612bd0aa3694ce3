//! Claims: which evaluation computes a node, and what it knows of the graph.
//!
//! A claim takes the calls out of the nodes: their ops and inputs move to a [`Table`], which then has one handle on each
//! node and on each array that is read. Nobody else can come by an input through the graph while the claim lasts. A node
//! that the table alone holds is out of reach for the rest of the program, and so is its memory. If the evaluation fails, the nodes that
//! were not lowered get their calls back.
//!
//! Nodes are scattered over memory, and a graph of thousands does not fit the near caches: what planning and lowering ask
//! of a node (its op, its type, what it reads, whether somebody holds it) is written to the table once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use hesper_kernel::ir::{Builder, ValueId};
use smallvec::SmallVec;

use super::operand::{Operand, Owned};
use super::plan::{Graph, Plan, Role};
use crate::Dtype;
use crate::array::{Array, Call, Data, KnownBytes, Node, State, failure, spare};
use crate::error::{Error, Result};
use crate::ops::{Kind, OpRef};

/// Held while claims are taken, so that they are taken all together.
static CLAIMING: Mutex<Claims> = Mutex::new(Claims { taken: 0, waiting: 0, spare: None });
/// Told when claims end, if somebody waits for that.
static ENDED: Condvar = Condvar::new();

struct Claims {
    /// How often claims were taken, or tried to be.
    taken: u64,
    /// How many evaluations wait for others to end.
    waiting: usize,
    /// The table of an evaluation that has ended, empty: the next one needs as much room.
    spare: Option<Table>,
}

fn claiming() -> MutexGuard<'static, Claims> {
    CLAIMING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The nodes that one evaluation has taken, inputs first. What it has not lowered is lazy again when it is dropped.
pub(super) struct Claim(Table);

/// The nodes of an evaluation, in the order in which they were met, and what it knows of them.
#[derive(Default)]
struct Table {
    nodes: Vec<Option<Array>>,
    entries: Vec<Entry>,
    /// What nodes read, in the order of their inputs, those of a node together.
    edges: Vec<Edge>,
    /// What is read and was computed before.
    outside: Vec<Outside>,
    /// The nodes in the order of evaluation, and the place of each in it.
    order: Vec<u32>,
    rank: Vec<u32>,
    /// Where the walk has to go yet.
    stack: Vec<Next>,
    /// Nodes that were let go of, for those to come.
    spares: Vec<Arc<Node>>,
}

enum Next {
    /// A node, and the edge that leads to it.
    Enter(Array, usize),
    /// All that the node reads has been met.
    Leave(u32),
}

/// A node as it was when it was claimed.
struct Entry {
    /// The first of its edges, and how many there are.
    first: u32,
    count: u32,
    /// Nodes of one class have one shape and stream; so may nodes of different classes.
    class: u32,
    /// How many edges lead to it from nodes that are not lowered yet.
    uses: u32,
    /// Whether somebody else holds the node: then it is wanted for itself.
    held: bool,
    dtype: Dtype,
    what: What,
    /// Its op, until it is lowered.
    op: Option<OpRef>,
}

#[derive(Clone, Copy)]
enum What {
    Elementwise(Emit),
    Commands,
    View,
}

/// The expression of an element-wise op.
#[derive(Clone, Copy)]
pub(super) struct Emit {
    pub(super) name: &'static str,
    pub(super) indexed: bool,
    pub(super) emit: fn(&mut Builder, &[ValueId]) -> ValueId,
}

/// An array that was computed before. It is held until the last node that reads it is lowered: its memory may then go
/// to what comes next.
struct Outside {
    array: Option<Array>,
    /// The number, if it is one that the host knows.
    known: Option<KnownBytes>,
    /// How many edges lead to it from nodes that are not lowered yet.
    uses: u32,
}

/// A node by where it was met, or an array that was computed before: then this bit is set.
type Edge = u32;
const OUTSIDE: Edge = 1 << 31;
/// Of an edge, while its end has not been met.
const OPEN: Edge = u32::MAX;

/// What a node reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// A node of the evaluation, by its place.
    Node(usize),
    /// An array that was computed before.
    Outside(usize),
}

impl Claim {
    /// Takes everything lazy that `roots` need. If another evaluation has some of it, waits until that
    /// one has ended, holding nothing. An error is that of an array that has failed.
    pub(super) fn take(roots: &[&Array]) -> Result<(Claim, Plan)> {
        let mut claims = claiming();
        let mut table = claims.spare.take().unwrap_or_default();
        loop {
            claims.taken += 1;
            match table.collect(roots, claims.taken) {
                Ok(()) => {
                    drop(claims);
                    let mut claim = Claim(table);
                    let plan = claim.plan();
                    return Ok((claim, plan));
                }
                Err(Refused::Failed(error)) => {
                    claims.spare = Some(table);
                    return Err(error);
                }
                Err(Refused::Busy) => {}
            }
            claims.waiting += 1;
            claims = ENDED.wait(claims).unwrap_or_else(|poisoned| poisoned.into_inner());
            claims.waiting -= 1;
        }
    }

    fn plan(&mut self) -> Plan {
        if let [only] = &self.0.entries[..] {
            let elementwise = matches!(only.what, What::Elementwise(_));
            return Plan::of_one(if elementwise { Role::Elementwise } else { Role::Other });
        }
        // All calls are in the table by now: whatever else refers to a node is a holder.
        for (entry, node) in self.0.entries.iter_mut().zip(&mut self.0.nodes) {
            let read = matches!(entry.what, What::Elementwise(_)) && entry.uses > 0;
            entry.held = !read || !node.as_mut().is_some_and(Array::is_sole);
        }
        let table = &self.0;
        let mut graph = Graph::with_capacity(table.order.len(), table.edges.len());
        for (at, met) in table.order.iter().enumerate() {
            let entry = &table.entries[*met as usize];
            let role = match entry.what {
                What::Elementwise(_) => Role::Elementwise,
                What::Commands => self.role(at),
                What::View => Role::Other,
            };
            let inside = table.edges(entry).iter().filter(|edge| **edge & OUTSIDE == 0);
            graph.push(inside.map(|edge| table.rank[*edge as usize] as usize), role);
        }
        let entry = |at: usize| &table.entries[table.order[at] as usize];
        graph.plan(
            |one, other| {
                entry(one).class == entry(other).class
                    || match (self.node(one), self.node(other)) {
                        (Ok(one), Ok(other)) => one.is_alike(other),
                        _ => false,
                    }
            },
            |at| entry(at).held,
        )
    }

    /// The role of an op that has commands of its own.
    fn role(&self, at: usize) -> Role {
        let (Ok(node), Ok(op), Some(Read::Node(first))) = (self.node(at), self.op(at), self.reads(at).next())
        else {
            return Role::Other;
        };
        let Ok(first) = self.node(first) else { return Role::Other };
        let first = &first.0;
        Role::of(op, &node.0.stream, Some((&first.shape[..], first.dtype, &first.stream)))
    }

    fn entry(&self, at: usize) -> &Entry {
        &self.0.entries[self.0.order[at] as usize]
    }

    /// The op of a node that is not lowered yet.
    pub(super) fn op(&self, at: usize) -> Result<&OpRef> {
        self.entry(at).op.as_ref().ok_or_else(early)
    }

    /// A node that is still needed.
    pub(super) fn node(&self, at: usize) -> Result<&Array> {
        let table = &self.0;
        table.nodes[table.order[at] as usize].as_ref().ok_or_else(early)
    }

    /// What a node reads, in the order of its inputs.
    pub(super) fn reads(&self, at: usize) -> impl Iterator<Item = Read> {
        let table = &self.0;
        let edges = table.edges(self.entry(at));
        edges.iter().map(|edge| match edge & OUTSIDE {
            0 => Read::Node(table.rank[*edge as usize] as usize),
            _ => Read::Outside((edge & !OUTSIDE) as usize),
        })
    }

    /// The expression and the type of an element-wise node.
    pub(super) fn emit(&self, at: usize) -> Result<(Emit, Dtype)> {
        let entry = self.entry(at);
        match entry.what {
            What::Elementwise(emit) => Ok((emit, entry.dtype)),
            _ => Err(Error::value("evaluation", "a member of a group is not element-wise")),
        }
    }

    /// What is read, as an array.
    pub(super) fn array(&self, read: Read) -> Result<&Array> {
        match read {
            Read::Node(at) => self.node(at),
            Read::Outside(at) => self.0.outside[at].array.as_ref().ok_or_else(early),
        }
    }

    /// The number that is read, if it is one that the host knows.
    pub(super) fn known(&self, read: Read) -> Option<KnownBytes> {
        match read {
            Read::Node(_) => None,
            Read::Outside(at) => self.0.outside[at].known,
        }
    }

    /// Whether nothing but `count` edges, which a step is about to lower, leads to what is read.
    pub(super) fn is_last(&self, read: Read, count: u32) -> bool {
        match read {
            Read::Node(at) => self.entry(at).uses == count,
            Read::Outside(at) => self.0.outside[at].uses == count,
        }
    }

    /// The memory of what is read, if nobody else can ask for it: `count` edges are all that lead to it, the table has the
    /// only handle on it, and it has the only handle on its memory.
    pub(super) fn own(&mut self, read: Read, count: u32) -> Option<Owned> {
        if !self.is_last(read, count) {
            return None;
        }
        let table = &mut self.0;
        let array = match read {
            Read::Node(at) => table.nodes[table.order[at] as usize].as_mut(),
            Read::Outside(at) => table.outside[at].array.as_mut(),
        };
        array?.take_owned()
    }

    /// What is read as an operand of a step that `count` edges lead to it from.
    pub(super) fn operand(&mut self, read: Read, count: u32) -> Result<Operand> {
        match self.own(read, count) {
            Some(owned) => Ok(Operand::owned(owned)),
            None => self.array(read)?.data().map(Operand::borrowed),
        }
    }

    /// A step was not lowered. What it did not overwrite goes back to where it came from, and the nodes can be tried again;
    /// if it may have overwritten an operand, its nodes have failed for good.
    pub(super) fn settle(
        &mut self,
        nodes: &[usize],
        operands: impl Iterator<Item = (Read, Operand)>,
        error: Option<&Error>,
    ) {
        let mut spent = false;
        for (read, operand) in operands {
            if operand.is_spent() {
                spent = true;
            } else if let Ok(array) = self.array(read) {
                array.give_back(operand.into_data());
            }
        }
        let Some(error) = error.filter(|_| spent) else { return };
        for at in nodes {
            if let Ok(node) = self.node(*at) {
                let failed = State::Failed(Some(Box::new(error.clone())));
                let old = std::mem::replace(&mut *node.state(), failed);
                drop(old);
            }
            let met = self.0.order[*at] as usize;
            self.0.entries[met].op = None;
        }
    }

    /// Nodes were lowered: what was computed before and only they still had to read is let go.
    pub(super) fn lowered(&mut self, nodes: &[usize]) {
        let Table { entries, edges, outside, order, spares, .. } = &mut self.0;
        for at in nodes {
            let entry = &mut entries[order[*at] as usize];
            entry.op = None;
            for edge in edges_of(edges, entry) {
                if edge & OUTSIDE == 0 {
                    entries[*edge as usize].uses -= 1;
                    continue;
                }
                let outside = &mut outside[(edge & !OUTSIDE) as usize];
                outside.uses -= 1;
                if outside.uses == 0 {
                    spares.extend(outside.array.take().and_then(spare::emptied));
                }
            }
        }
    }

    /// A node has its memory.
    pub(super) fn resolve(&mut self, at: usize, data: Data) -> Result<()> {
        let node = self.node(at)?;
        let kept = node.is_varied();
        let mut state = node.state();
        let old = std::mem::replace(&mut *state, State::Claimed);
        *state = match (old, kept) {
            (State::Lazy { call, .. }, true) => State::Kept(Box::new((data, call))),
            (old, _) => {
                *state = State::Ready(data);
                // A transformation that has ended meanwhile may have left a call: the lock is not held when it goes.
                drop(state);
                drop(old);
                return Ok(());
            }
        };
        Ok(())
    }

    /// Lets go of a node that nothing in the plan needs any more, and its memory with it, unless somebody
    /// else holds it.
    pub(super) fn release(&mut self, at: usize) {
        let Table { nodes, order, spares, .. } = &mut self.0;
        spares.extend(nodes[order[at] as usize].take().and_then(spare::emptied));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        /// Tables for more nodes are not kept.
        const MOST: usize = 1 << 16;
        let mut table = std::mem::take(&mut self.0);
        table.give_free();
        table.clear();
        spare::give(&mut table.spares);
        let mut claims = claiming();
        if table.nodes.capacity() <= MOST {
            claims.spare = Some(table);
        }
        let waiting = claims.waiting > 0;
        drop(claims);
        if waiting {
            ENDED.notify_all();
        }
    }
}

fn early() -> Error {
    Error::value("evaluation", "a node was let go too early")
}

fn edges_of<'a>(edges: &'a [Edge], entry: &Entry) -> &'a [Edge] {
    &edges[entry.first as usize..(entry.first + entry.count) as usize]
}

impl Table {
    fn edges(&self, entry: &Entry) -> &[Edge] {
        edges_of(&self.edges, entry)
    }

    /// An edge leads to a place.
    fn lead(&mut self, edge: usize, place: Edge) {
        if let Some(open) = self.edges.get_mut(edge) {
            *open = place;
            if let Some(entry) = self.entries.get_mut(place as usize) {
                entry.uses += 1;
            } else if let Some(outside) = self.outside.get_mut((place ^ OUTSIDE) as usize) {
                outside.uses += 1;
            }
        }
    }

    /// Forgets everything and keeps the room.
    fn clear(&mut self) {
        self.nodes.clear();
        self.entries.clear();
        self.edges.clear();
        self.outside.clear();
        self.order.clear();
        self.rank.clear();
        self.stack.clear();
    }

    /// What an edge leads to.
    fn end(&self, edge: Edge) -> Option<Array> {
        match edge & OUTSIDE {
            0 => self.nodes.get(edge as usize)?.clone(),
            _ => self.outside.get((edge & !OUTSIDE) as usize)?.array.clone(),
        }
    }

    /// Gives the nodes that were not lowered their calls back.
    fn give_free(&mut self) {
        for met in 0..self.entries.len() {
            let (Some(op), Some(node)) = (self.entries[met].op.take(), &self.nodes[met]) else { continue };
            let ends = self.edges(&self.entries[met]).iter().map(|edge| self.end(*edge));
            let inputs: Option<SmallVec<[Array; 3]>> = ends.collect();
            let mut state = node.state();
            match (&mut *state, inputs) {
                (State::Lazy { claimed, .. }, _) => *claimed = false,
                (State::Claimed, Some(inputs)) => {
                    *state = State::Lazy { call: Call { op, inputs }, claimed: false };
                }
                (State::Claimed, None) => *state = State::Failed(Some(Box::new(early()))),
                _ => {}
            }
        }
    }

    /// Gives up a walk that is not at its end: what it has not entered yet is read as it is.
    fn give_up(&mut self, array: Array, edge: usize) {
        let rest = std::mem::take(&mut self.stack);
        for next in std::iter::once(Next::Enter(array, edge)).chain(rest) {
            let Next::Enter(array, edge) = next else { continue };
            let place = OUTSIDE | self.outside.len() as u32;
            self.outside.push(Outside { array: Some(array), known: None, uses: 0 });
            self.lead(edge, place);
        }
        self.give_free();
        self.clear();
    }

    /// Claims the lazy nodes that `roots` need, inputs first; claims none and stays empty if somebody else has
    /// claimed one of them, or if one has failed. Goes through the graph without recursion.
    fn collect(&mut self, roots: &[&Array], number: u64) -> std::result::Result<(), Refused> {
        self.stack.extend(roots.iter().rev().map(|root| Next::Enter((*root).clone(), usize::MAX)));
        while let Some(next) = self.stack.pop() {
            let (array, edge) = match next {
                Next::Enter(array, edge) => (array, edge),
                Next::Leave(met) => {
                    self.rank[met as usize] = self.order.len() as u32;
                    self.order.push(met);
                    continue;
                }
            };
            let visit = &array.0.visit;
            let mut place = visit.place.load(Ordering::Relaxed);
            if visit.number.load(Ordering::Relaxed) != number {
                visit.number.store(number, Ordering::Relaxed);
                let mut state = array.state();
                match &mut *state {
                    State::Lazy { claimed: true, .. } | State::Claimed => {
                        drop(state);
                        self.give_up(array, edge);
                        return Err(Refused::Busy);
                    }
                    State::Failed(cause) => {
                        let error = failure(cause);
                        drop(state);
                        self.give_up(array, edge);
                        return Err(Refused::Failed(error));
                    }
                    lazy @ State::Lazy { .. } => {
                        let call = claim(lazy, array.is_varied());
                        drop(state);
                        let Some(call) = call else { continue };
                        place = self.nodes.len() as u32;
                        self.stack.push(Next::Leave(place));
                        let (first, count) = (self.edges.len(), call.inputs.len());
                        self.edges.resize(first + count, OPEN);
                        for (input, edge) in call.inputs.into_iter().zip(first..first + count).rev() {
                            let visit = &input.0.visit;
                            if visit.number.load(Ordering::Relaxed) == number {
                                self.lead(edge, visit.place.load(Ordering::Relaxed));
                            } else {
                                self.stack.push(Next::Enter(input, edge));
                            }
                        }
                        let what = match call.op.get().kind() {
                            Kind::Elementwise(op) => {
                                What::Elementwise(Emit { name: op.name, indexed: op.indexed, emit: op.emit })
                            }
                            Kind::Commands => What::Commands,
                            Kind::View => What::View,
                        };
                        let before = self.nodes.last().and_then(Option::as_ref).zip(self.entries.last());
                        let class =
                            before.filter(|(node, _)| node.is_alike(&array)).map(|(_, entry)| entry.class);
                        self.entries.push(Entry {
                            first: first as u32,
                            count: count as u32,
                            class: class.unwrap_or(place),
                            uses: 0,
                            held: true,
                            dtype: array.0.dtype,
                            what,
                            op: Some(call.op),
                        });
                        self.rank.push(0);
                        visit.place.store(place, Ordering::Relaxed);
                        self.nodes.push(Some(array));
                    }
                    State::Ready(_) | State::Kept(..) | State::Known(_) => {
                        let known = if let State::Known(known) = &*state { Some(*known) } else { None };
                        drop(state);
                        place = OUTSIDE | self.outside.len() as u32;
                        visit.place.store(place, Ordering::Relaxed);
                        self.outside.push(Outside { array: Some(array), known, uses: 0 });
                    }
                }
            }
            self.lead(edge, place);
        }
        Ok(())
    }
}

/// Takes the call out of a lazy node; if a transformation may ask for that, a copy.
fn claim(state: &mut State, varied: bool) -> Option<Call> {
    if let State::Lazy { call, claimed } = state
        && varied
    {
        *claimed = true;
        return Some(call.clone());
    }
    match std::mem::replace(state, State::Claimed) {
        State::Lazy { call, .. } => Some(call),
        other => {
            *state = other;
            None
        }
    }
}

/// Why nothing was claimed.
enum Refused {
    /// Another evaluation has claimed some of it.
    Busy,
    /// An array cannot be computed any more.
    Failed(Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_that_meets_claimed_nodes_leaves_the_claim_alone() {
        let x = Array::from_slice(&[1.0f32]).add(1.0).unwrap();
        let y = x.exp().unwrap();
        let other = y.multiply(2.0).unwrap();
        let (claim, _) = Claim::take(&[&y]).unwrap();
        let number = {
            let mut claims = claiming();
            claims.taken += 1;
            claims.taken
        };
        assert!(Table::default().collect(&[&other], number).is_err());
        assert_eq!(claim.reads(1).collect::<Vec<_>>(), [Read::Node(0)]);
        assert!(Arc::ptr_eq(&claim.node(0).unwrap().0, &x.0) && Arc::ptr_eq(&claim.node(1).unwrap().0, &y.0));
    }
}
