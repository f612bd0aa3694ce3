//! Claims: which evaluation computes a node.
//!
//! A claim moves the ops and inputs of lazy nodes to a [`Table`], which then has one handle on each node and
//! on each array that is read. No other thread can reach an input through the graph while the claim lasts. If
//! the table has the only handle on a node, nothing else in the process can reach the node or its memory. If
//! the evaluation fails, the nodes that were not computed get their ops and inputs back.
//!
//! The same walk builds the [`Graph`] of the claimed nodes, since nodes are scattered over memory and each
//! visit is a cache miss. The key of the graph finds its [`Program`] in a cache: a known structure is not
//! planned again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use smallvec::SmallVec;

use super::cache::Cache;
use super::graph::{Classes, Emit, Graph, Role, Slot, SlotKind};
use super::patterns::{self, Nodes};
use super::plan::fusion_enabled;
use super::program::{NodeView, Program, Store, missing};
use crate::Dtype;
use crate::array::node_pool;
use crate::error::{Error, Result};
use crate::graph::{Array, Call, Data, KnownBytes, Node, OpKind, OpRef, Operand, PatternOp, State, failure};
use crate::shape::Shape;

/// Held while claims are taken, so that they are taken all together.
static CLAIMING: Mutex<Claims> = Mutex::new(Claims { taken: 0, waiting: 0, tables: Vec::new() });
/// Notified when a claim ends, if an evaluation waits for that.
static ENDED: Condvar = Condvar::new();

struct Claims {
    /// How often claims were taken, or tried to be.
    taken: u64,
    /// How many evaluations wait for others to end.
    waiting: usize,
    /// Tables of evaluations that have ended, empty, for their capacity.
    tables: Vec<Table>,
}

impl Claims {
    /// Keeps an empty table: several small ones, for threads that evaluate at the same time, or one of medium
    /// size.
    fn keep(&mut self, table: Table) {
        const MAX_TABLES: usize = 16;
        const SMALL_NODES: usize = 1 << 11;
        const MAX_KEPT_NODES: usize = 1 << 16;
        let most = match table.nodes.capacity() {
            0..=SMALL_NODES => MAX_TABLES,
            _ => 1,
        };
        if table.nodes.capacity() <= MAX_KEPT_NODES && self.tables.len() < most {
            self.tables.push(table);
        }
    }
}

fn claiming() -> MutexGuard<'static, Claims> {
    CLAIMING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Most nodes of all cached programs together. A node takes about 200 bytes, so the cache takes a few
/// megabytes at most.
pub(super) const MAX_PLANNED_NODES: usize = 1 << 15;
/// Graphs of more nodes are planned each time: one of them would fill the cache.
pub(super) const MAX_CACHED_NODES: usize = MAX_PLANNED_NODES / 2;

fn programs() -> MutexGuard<'static, Cache<Box<[u64]>, Arc<Program>>> {
    static PROGRAMS: Mutex<Cache<Box<[u64]>, Arc<Program>>> = Mutex::new(Cache::new(MAX_PLANNED_NODES));
    PROGRAMS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// How many nodes the planned programs have together.
#[cfg(test)]
pub(super) fn planned_nodes() -> usize {
    programs().weight()
}

/// The nodes that one evaluation has taken. What it has not computed is lazy again when it is dropped.
pub(super) struct Claim(Table);

/// The nodes of an evaluation with their ops and inputs, in the order in which the walk met them.
#[derive(Default)]
struct Table {
    graph: Graph,
    nodes: Vec<Option<Array>>,
    /// The op of each node, until it is computed.
    ops: Vec<Option<OpRef>>,
    /// What is read and was computed before. It is held until its last use: its memory may then go to what
    /// comes next.
    externals: Vec<External>,
    classes: Classes,
    /// Where the walk has to go yet: an array, and the edge that leads to it.
    stack: Vec<(Array, usize)>,
    /// Room for the key of the graph.
    key: Vec<u64>,
    /// Nodes that were let go of, for the pool.
    recycled: Vec<Arc<Node>>,
}

struct External {
    array: Option<Array>,
    /// The number, if it is one that the host knows.
    known: Option<KnownBytes>,
}

impl Claim {
    /// Takes everything lazy that `roots` need, and plans it. If another evaluation has some of it, waits
    /// until that one has ended, holding nothing. An error is that of an array that has failed. `composites`
    /// says whether nodes may become composite ops.
    pub(super) fn take(roots: &[&Array], composites: bool) -> Result<(Claim, Arc<Program>)> {
        let mut claims = claiming();
        let mut table = claims.tables.pop().unwrap_or_default();
        loop {
            claims.taken += 1;
            match table.collect(roots, claims.taken) {
                Ok(()) => {
                    drop(claims);
                    let mut claim = Claim(table);
                    let program = claim.plan(composites);
                    return Ok((claim, program));
                }
                Err(Refused::Failed(error)) => {
                    claims.keep(table);
                    return Err(error);
                }
                Err(Refused::Busy) => {}
            }
            claims.waiting += 1;
            claims = ENDED.wait(claims).unwrap_or_else(|poisoned| poisoned.into_inner());
            claims.waiting -= 1;
        }
    }

    /// The program of the graph: found, or planned now.
    fn plan(&mut self, composites: bool) -> Arc<Program> {
        let table = &mut self.0;
        let fusion = fusion_enabled();
        table.finish_graph(fusion && composites);
        let Table { graph, key, .. } = table;
        if graph.nodes.len() > MAX_CACHED_NODES || !graph.key(fusion, key) {
            return Arc::new(graph.plan(fusion));
        }
        if let Some(found) = programs().get(&key[..]) {
            return found;
        }
        let program = Arc::new(graph.plan(fusion));
        programs().insert(key[..].into(), program.clone(), graph.nodes.len());
        program
    }

    /// What is in a slot, as an array.
    fn array(&self, slot: Slot) -> Result<&Array> {
        let array = match slot.kind() {
            SlotKind::Node(at) => self.0.nodes[at].as_ref(),
            SlotKind::External(at) => self.0.externals[at].array.as_ref(),
        };
        array.ok_or_else(missing)
    }
}

impl Store for Claim {
    fn node(&self, at: usize) -> Result<NodeView<'_>> {
        self.0.view(at).ok_or_else(missing)
    }

    fn meta(&self, slot: Slot) -> Result<(&Shape, Dtype)> {
        self.array(slot).map(|array| (&array.0.shape, array.0.dtype))
    }

    fn known(&self, slot: Slot) -> Option<KnownBytes> {
        match slot.kind() {
            SlotKind::Node(_) => None,
            SlotKind::External(at) => self.0.externals[at].known,
        }
    }

    fn with_data<R>(&self, slot: Slot, f: impl FnOnce(&Data) -> R) -> Option<R> {
        self.array(slot).ok()?.with_data(f)
    }

    /// The table has to have the only handle on the array, and the array the only handle on its memory.
    fn operand(&mut self, slot: Slot, last: bool) -> Result<Operand> {
        if last {
            let array = match slot.kind() {
                SlotKind::Node(at) => &mut self.0.nodes[at],
                SlotKind::External(at) => &mut self.0.externals[at].array,
            };
            if let Some(owned) = array.as_mut().and_then(Array::take_owned) {
                return Ok(Operand::owned(owned));
            }
        }
        self.array(slot)?.data().map(Operand::borrowed)
    }

    fn settle(&mut self, slot: Slot, operand: &Operand, failed: bool) {
        if failed
            && !operand.is_spent()
            && let Ok(array) = self.array(slot)
        {
            array.give_back(operand.data().clone());
        }
    }

    fn fail(&mut self, nodes: &[u32], error: &Error) {
        for at in nodes {
            if let Some(node) = &self.0.nodes[*at as usize] {
                let failed = State::Failed(Some(Box::new(error.clone())));
                let old = std::mem::replace(&mut *node.state(), failed);
                drop(old);
            }
            self.0.ops[*at as usize] = None;
        }
    }

    fn resolve(&mut self, at: usize, data: Data) -> Result<()> {
        let node = self.0.nodes[at].as_ref().ok_or_else(missing)?;
        let kept = node.is_varied();
        let mut state = node.state();
        let old = std::mem::replace(&mut *state, State::Claimed);
        *state = match (old, kept) {
            (State::Lazy { call, .. }, true) => State::Kept(Box::new((data, call))),
            (old, _) => {
                *state = State::Ready(data);
                // A transformation that has ended meanwhile may have left a call: the lock is not held when
                // it is dropped.
                drop(state);
                drop(old);
                return Ok(());
            }
        };
        Ok(())
    }

    fn computed(&mut self, nodes: &[u32]) {
        for at in nodes {
            self.0.ops[*at as usize] = None;
        }
    }

    /// The memory goes with the array, unless there is another handle on it.
    fn release(&mut self, slot: Slot) {
        let array = match slot.kind() {
            SlotKind::Node(at) => self.0.nodes[at].take(),
            SlotKind::External(at) => self.0.externals[at].array.take(),
        };
        self.0.recycled.extend(array.and_then(node_pool::recycle));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = std::mem::take(&mut self.0);
        table.give_free();
        table.clear();
        node_pool::give(&mut table.recycled);
        let mut claims = claiming();
        claims.keep(table);
        let waiting = claims.waiting > 0;
        drop(claims);
        if waiting {
            ENDED.notify_all();
        }
    }
}

impl Table {
    /// An edge leads to a slot.
    fn lead(&mut self, edge: usize, slot: Slot) {
        if let Some(open) = self.graph.edges.get_mut(edge) {
            *open = slot;
            if let SlotKind::Node(at) = slot.kind() {
                self.graph.nodes[at].read = true;
            }
        }
    }

    /// One more array that was computed before.
    fn external(&mut self, array: Array, known: Option<KnownBytes>) -> Slot {
        self.graph.push_external(array.0.dtype, known.is_some());
        self.externals.push(External { array: Some(array), known });
        Slot::external(self.externals.len() - 1)
    }

    /// Clears everything and keeps the capacity.
    fn clear(&mut self) {
        self.graph.clear();
        self.nodes.clear();
        self.ops.clear();
        self.externals.clear();
        self.classes.clear();
        self.stack.clear();
    }

    /// Completes what the walk has written of each node; marks nodes for patterns if `marks`.
    fn finish_graph(&mut self, marks: bool) {
        self.graph.set_recompute(self.nodes.first().and_then(Option::as_ref).map(|node| &node.0.stream));
        let mut marked = false;
        for at in 0..self.nodes.len() {
            let (Some(node), Some(op)) = (&self.nodes[at], &self.ops[at]) else { continue };
            let before = at.checked_sub(1).and_then(|before| self.nodes[before].as_ref());
            let class = match before {
                Some(before) if before.is_alike(node) => self.graph.nodes[at - 1].class,
                _ => self.classes.of(&node.0.shape, &node.0.stream),
            };
            let (role, emit, pattern) = match op.get().kind() {
                OpKind::Elementwise(op) => (Role::Elementwise, Some(Emit::new(op)), PatternOp::None),
                OpKind::Commands => (self.role(at), None, op.get().pattern()),
                OpKind::View => (Role::PLAIN, None, op.get().pattern()),
            };
            self.graph.describe(at, class, role, emit);
            if role == Role::Elementwise || role.has_epilogue() {
                self.find_holders(at);
            }
            if marks && pattern != PatternOp::None {
                marked |= self.mark(at);
            }
        }
        // Sums are part of patterns with other ops only.
        if marked {
            for at in 0..self.nodes.len() {
                if self.graph.is_named(at, "add") {
                    self.mark(at);
                }
            }
        }
    }

    /// All calls are in the table by now: whatever else refers to a node is a holder.
    fn find_holders(&mut self, at: usize) {
        let read = self.graph.nodes[at].read;
        self.graph.nodes[at].held = !read || !self.nodes[at].as_mut().is_some_and(Array::is_sole);
    }

    /// Marks a node for patterns, if it is to be.
    fn mark(&mut self, at: usize) -> bool {
        let mark = patterns::mark(&self.graph, self, at);
        if !mark.is_none() {
            self.graph.set_mark(at, mark);
            self.find_holders(at);
        }
        !mark.is_none()
    }

    /// The role of an op that has commands of its own.
    fn role(&self, at: usize) -> Role {
        let (Some(node), Some(op)) = (&self.nodes[at], &self.ops[at]) else { return Role::PLAIN };
        let first = match self.graph.reads(at).first().map(|slot| slot.kind()) {
            Some(SlotKind::Node(first)) => self.nodes[first].as_ref(),
            _ => None,
        };
        Role::of_commands(op.get(), node.like(), first.map(Array::like))
    }

    /// What an edge leads to.
    fn end(&self, slot: Slot) -> Option<Array> {
        match slot.kind() {
            SlotKind::Node(at) => self.nodes.get(at)?.clone(),
            SlotKind::External(at) => self.externals.get(at)?.array.clone(),
        }
    }

    /// Gives the nodes that were not computed their calls back.
    fn give_free(&mut self) {
        for at in 0..self.ops.len() {
            let (Some(op), Some(node)) = (self.ops[at].take(), &self.nodes[at]) else { continue };
            let ends = self.graph.reads(at).iter().map(|slot| self.end(*slot));
            let inputs: Option<SmallVec<[Array; 3]>> = ends.collect();
            let mut state = node.state();
            match (&mut *state, inputs) {
                (State::Lazy { claimed, .. }, _) => *claimed = false,
                (State::Claimed, Some(inputs)) => {
                    *state = State::Lazy { call: Call { op, inputs }, claimed: false };
                }
                (State::Claimed, None) => *state = State::Failed(Some(Box::new(missing()))),
                _ => {}
            }
        }
    }

    /// Abandons an unfinished walk: nodes that it has not entered are read as external arrays.
    fn abandon(&mut self, array: Array, edge: usize) {
        let rest = std::mem::take(&mut self.stack);
        for (array, edge) in std::iter::once((array, edge)).chain(rest) {
            let slot = self.external(array, None);
            self.lead(edge, slot);
        }
        self.give_free();
        self.clear();
    }

    /// Claims the lazy nodes that `roots` need; claims none and stays empty if another evaluation has
    /// claimed one of them, or if one has failed. Goes through the graph without recursion.
    fn collect(&mut self, roots: &[&Array], number: u64) -> std::result::Result<(), Refused> {
        self.stack.extend(roots.iter().rev().map(|root| ((*root).clone(), usize::MAX)));
        while let Some((array, edge)) = self.stack.pop() {
            let visit = &array.0.visit;
            if visit.number.load(Ordering::Relaxed) == number {
                let slot = Slot::from_bits(visit.slot.load(Ordering::Relaxed));
                self.lead(edge, slot);
                continue;
            }
            visit.number.store(number, Ordering::Relaxed);
            let mut state = array.state();
            let slot = match &mut *state {
                State::Lazy { claimed: true, .. } | State::Claimed => {
                    drop(state);
                    self.abandon(array, edge);
                    return Err(Refused::Busy);
                }
                State::Failed(cause) => {
                    let error = failure(cause);
                    drop(state);
                    self.abandon(array, edge);
                    return Err(Refused::Failed(error));
                }
                lazy @ State::Lazy { .. } => {
                    let call = claim(lazy, array.is_varied());
                    drop(state);
                    let Some(call) = call else { continue };
                    let slot = Slot::node(self.nodes.len());
                    visit.slot.store(slot.to_bits(), Ordering::Relaxed);
                    self.enter(array, call, number);
                    slot
                }
                State::Ready(_) | State::Kept(..) | State::Known(_) => {
                    let known = if let State::Known(known) = &*state { Some(*known) } else { None };
                    drop(state);
                    let slot = Slot::external(self.externals.len());
                    visit.slot.store(slot.to_bits(), Ordering::Relaxed);
                    self.external(array, known)
                }
            };
            self.lead(edge, slot);
        }
        Ok(())
    }

    /// One more node, whose inputs come next.
    fn enter(&mut self, array: Array, call: Call, number: u64) {
        // Other evaluations wait for the end of the walk: what a node is to the planner is found out after
        // it.
        let (first, count) = (self.graph.edges.len(), call.inputs.len());
        let open = std::iter::repeat_n(Slot::OPEN, count);
        self.graph.push(open, 0, array.0.dtype, Role::PLAIN, None);
        for (input, edge) in call.inputs.into_iter().zip(first..first + count).rev() {
            let visit = &input.0.visit;
            if visit.number.load(Ordering::Relaxed) == number {
                self.lead(edge, Slot::from_bits(visit.slot.load(Ordering::Relaxed)));
            } else {
                self.stack.push((input, edge));
            }
        }
        self.ops.push(Some(call.op));
        self.nodes.push(Some(array));
    }
}

impl Nodes for Table {
    fn view(&self, at: usize) -> Option<NodeView<'_>> {
        let (node, op) = (self.nodes[at].as_ref()?, self.ops[at].as_ref()?);
        Some(NodeView { op, shape: &node.0.shape, dtype: node.0.dtype, stream: &node.0.stream })
    }

    fn like(&self, slot: Slot) -> Option<(&[usize], Dtype)> {
        let array = match slot.kind() {
            SlotKind::Node(at) => self.nodes[at].as_ref(),
            SlotKind::External(at) => self.externals[at].array.as_ref(),
        };
        array.map(|array| (array.shape(), array.dtype()))
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
        let (claim, _) = Claim::take(&[&y], true).unwrap();
        let number = {
            let mut claims = claiming();
            claims.taken += 1;
            claims.taken
        };
        assert!(Table::default().collect(&[&other], number).is_err());
        let [first, second] = &claim.0.nodes[..] else { panic!("two nodes are claimed") };
        assert_eq!(claim.0.graph.reads(0), [Slot::node(1)]);
        assert!(first.as_ref().is_some_and(|node| node.ptr_eq(&y)));
        assert!(second.as_ref().is_some_and(|node| node.ptr_eq(&x)));
    }
}
