//! Claims: which evaluation computes a node, and what it knows of the graph.
//!
//! Nodes are scattered over memory, and a graph of thousands does not fit the near caches: each is looked at once, when it
//! is claimed. What planning and lowering ask of it (its op, its type, what it reads, who holds it) is written to a
//! [`Table`] then.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use hesper_kernel::ir::{Builder, ValueId};

use super::plan::{Graph, Plan, Role};
use crate::Dtype;
use crate::array::{Array, Data, KnownBytes, Node, State, spare};
use crate::error::{Error, Result};
use crate::ops::Kind;

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

/// The nodes that one evaluation has taken, inputs first. Whatever it does not resolve is lazy again when it
/// is dropped: what was not lowered, and what was computed inside of a kernel and is held by nobody.
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
    /// References to the node, that of the table included.
    holders: u32,
    dtype: Dtype,
    what: What,
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
    /// one has ended, holding nothing.
    pub(super) fn take(roots: &[&Array]) -> (Claim, Plan) {
        let mut claims = claiming();
        let mut table = claims.spare.take().unwrap_or_default();
        loop {
            claims.taken += 1;
            if table.collect(roots, claims.taken) {
                drop(claims);
                let claim = Claim(table);
                let plan = claim.plan();
                return (claim, plan);
            }
            claims.waiting += 1;
            claims = ENDED.wait(claims).unwrap_or_else(|poisoned| poisoned.into_inner());
            claims.waiting -= 1;
        }
    }

    fn plan(&self) -> Plan {
        let table = &self.0;
        if let [only] = &table.entries[..] {
            let elementwise = matches!(only.what, What::Elementwise(_));
            return Plan::of_one(if elementwise { Role::Elementwise } else { Role::Other });
        }
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
            // Each use is a reference, and one is that of the table.
            |at, uses| entry(at).holders as usize > uses + 1,
        )
    }

    /// The role of an op that has commands of its own.
    fn role(&self, at: usize) -> Role {
        let (Ok(node), Some(Read::Node(first))) = (self.node(at), self.reads(at).next()) else {
            return Role::Other;
        };
        let (Ok(first), State::Lazy { call, .. }) = (self.node(first), &*node.state()) else {
            return Role::Other;
        };
        let first = &first.0;
        Role::of(&call.op, &node.0.stream, Some((&first.shape[..], first.dtype, &first.stream)))
    }

    /// A node that is still needed.
    pub(super) fn node(&self, at: usize) -> Result<&Array> {
        let table = &self.0;
        table.nodes[table.order[at] as usize].as_ref().ok_or_else(early)
    }

    /// What a node reads, in the order of its inputs.
    pub(super) fn reads(&self, at: usize) -> impl Iterator<Item = Read> {
        let table = &self.0;
        let edges = table.edges(&table.entries[table.order[at] as usize]);
        edges.iter().map(|edge| match edge & OUTSIDE {
            0 => Read::Node(table.rank[*edge as usize] as usize),
            _ => Read::Outside((edge & !OUTSIDE) as usize),
        })
    }

    /// The expression and the type of an element-wise node.
    pub(super) fn emit(&self, at: usize) -> Result<(Emit, Dtype)> {
        let entry = &self.0.entries[self.0.order[at] as usize];
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

    /// Whether nobody can ask for what is read again once the members of a group, some of which are its outputs, are
    /// lowered: the table and their calls hold it, and the calls go.
    pub(super) fn is_spare(&self, read: Read, members: &[usize], outputs: &[usize]) -> bool {
        let Read::Node(at) = read else { return false };
        let Ok(node) = self.node(at) else { return false };
        let uses =
            || members.iter().flat_map(|member| self.reads(*member)).filter(|other| *other == read).count();
        // A transformation may ask for everything again.
        let is_kept = |at: &usize| self.node(*at).is_ok_and(Array::is_varied);
        !outputs.iter().any(is_kept) && Arc::strong_count(&node.0) == 1 + uses()
    }

    /// Nodes were lowered: what was computed before and only they still had to read is let go.
    pub(super) fn lowered(&mut self, nodes: &[usize]) {
        let Table { entries, edges, outside, order, spares, .. } = &mut self.0;
        for at in nodes {
            let entry = &entries[order[*at] as usize];
            for edge in edges_of(edges, entry).iter().filter(|edge| **edge & OUTSIDE != 0) {
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
        let old = std::mem::replace(&mut *state, State::Known(KnownBytes::default()));
        *state = match (old, kept) {
            (State::Lazy { call, .. }, true) => State::Kept(Box::new((data, call))),
            (old, _) => {
                *state = State::Ready(data);
                // The inputs of the call may go with it; the lock is not held then.
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
        let node = &mut nodes[order[at] as usize];
        if let Some(node) = node.take_if(|node| Arc::strong_count(&node.0) == 1) {
            spares.extend(spare::emptied(node));
        }
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
            if let Some(outside) = self.outside.get_mut((place ^ OUTSIDE) as usize) {
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

    /// Ends the claims on what is still there.
    fn give_free(&self) {
        for node in self.nodes.iter().flatten() {
            if let State::Lazy { claimed, .. } = &mut *node.state() {
                *claimed = false;
            }
        }
    }

    /// Claims the lazy nodes that `roots` need, inputs first; claims none and stays empty if somebody else has
    /// claimed one of them. Goes through the graph without recursion.
    fn collect(&mut self, roots: &[&Array], number: u64) -> bool {
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
            if visit.number.load(Ordering::Relaxed) == number {
                // The reference that waited here was counted when the node was met.
                if let Some(entry) = self.entries.get_mut(place as usize) {
                    entry.holders -= 1;
                }
            } else {
                visit.number.store(number, Ordering::Relaxed);
                let mut state = array.state();
                match &mut *state {
                    State::Lazy { claimed: true, .. } => {
                        drop(state);
                        self.give_free();
                        self.clear();
                        return false;
                    }
                    State::Lazy { call, claimed } => {
                        *claimed = true;
                        place = self.nodes.len() as u32;
                        self.stack.push(Next::Leave(place));
                        let (first, count) = (self.edges.len(), call.inputs.len());
                        self.edges.resize(first + count, OPEN);
                        for (input, edge) in call.inputs.iter().zip(first..first + count).rev() {
                            let visit = &input.0.visit;
                            if visit.number.load(Ordering::Relaxed) == number {
                                self.lead(edge, visit.place.load(Ordering::Relaxed));
                            } else {
                                self.stack.push(Next::Enter(input.clone(), edge));
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
                            holders: Arc::strong_count(&array.0) as u32,
                            dtype: array.0.dtype,
                            what,
                        });
                        self.rank.push(0);
                        visit.place.store(place, Ordering::Relaxed);
                        drop(state);
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
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_that_meets_claimed_nodes_leaves_the_claim_alone() {
        let x = Array::from_slice(&[1.0f32]).add(1.0).unwrap();
        let y = x.exp().unwrap();
        let other = y.multiply(2.0).unwrap();
        let (claim, _) = Claim::take(&[&y]);
        let number = {
            let mut claims = claiming();
            claims.taken += 1;
            claims.taken
        };
        assert!(!Table::default().collect(&[&other], number));
        assert_eq!(claim.reads(1).collect::<Vec<_>>(), [Read::Node(0)]);
        assert!(Arc::ptr_eq(&claim.node(0).unwrap().0, &x.0) && Arc::ptr_eq(&claim.node(1).unwrap().0, &y.0));
    }
}
