//! Claims: which evaluation computes a node.
//!
//! A claim moves the ops and inputs of lazy nodes to a [`Table`], which then has one handle on each node and
//! on each array that is read. No other thread can reach an input through the graph while the claim lasts. If
//! the table has the only handle on a node, nothing else in the process can reach the node or its memory. If
//! the evaluation fails, the nodes that were not computed get their ops and inputs back.
//!
//! Nodes are claimed one by one. A walk that meets a node of another evaluation gives back what it has
//! claimed, and is [repeated](turns) when a claim has ended.
//!
//! The same walk builds the [`Graph`] of the claimed nodes, since nodes are scattered over memory and each
//! visit is a cache miss. The key of the graph finds its [`Program`] in a cache: a known structure is not
//! planned again.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use smallvec::SmallVec;

use super::cache::Cache;
use super::graph::{Classes, Emit, Graph, Role, Slot, SlotKind};
use super::patterns::{self, Nodes};
use super::plan::fusion_enabled;
use super::program::{NodeView, Program, Store, missing};
use super::turns::{self, Refused, lock};
use crate::Dtype;
use crate::array::node_pool;
use crate::error::{Error, Result};
use crate::graph::{
    Array, Call, Data, KnownBytes, Node, OpKind, OpRef, Operand, PatternOp, State, Visit, failure,
};
use crate::ids::IdMap;
use crate::shape::Shape;

/// Most nodes of all cached programs together. A node takes about 200 bytes, so the cache takes a few
/// megabytes at most.
pub(super) const MAX_PLANNED_NODES: usize = 1 << 15;
/// Graphs of more nodes are planned each time: one of them would fill the cache.
pub(super) const MAX_CACHED_NODES: usize = MAX_PLANNED_NODES / 2;

fn programs() -> MutexGuard<'static, Cache<Box<[u64]>, Arc<Program>>> {
    static PROGRAMS: Mutex<Cache<Box<[u64]>, Arc<Program>>> = Mutex::new(Cache::new(MAX_PLANNED_NODES));
    lock(&PROGRAMS)
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
    /// The first of them by the ids of their arrays, as far as that was needed.
    index: IdMap<u32>,
    indexed: usize,
    classes: Classes,
    /// Where the walk has to go yet: an array, and the edge that leads to it.
    stack: Vec<(Array, usize)>,
    /// Room for the key of the graph.
    key: Vec<u64>,
    /// The last program with its key. Threads that evaluate equal graphs again and again do not all look it
    /// up.
    last: Option<(Box<[u64]>, Arc<Program>)>,
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
        let mut table = take_table();
        if let Err(error) = turns::walk(|number| table.collect(roots, number)) {
            keep_table(table);
            return Err(error);
        }
        let mut claim = Claim(table);
        let program = claim.plan(composites);
        Ok((claim, program))
    }

    /// The program of the graph: found, or planned now.
    fn plan(&mut self, composites: bool) -> Arc<Program> {
        let table = &mut self.0;
        let fusion = fusion_enabled();
        table.finish_graph(fusion && composites);
        let Table { graph, key, last, .. } = table;
        if graph.nodes.len() > MAX_CACHED_NODES || !graph.key(fusion, key) {
            return Arc::new(graph.plan(fusion));
        }
        if let Some((of, program)) = last
            && of[..] == key[..]
        {
            return program.clone();
        }
        let found = programs().get(&key[..]);
        let program = found.unwrap_or_else(|| {
            let program = Arc::new(graph.plan(fusion));
            programs().insert(key[..].into(), program.clone(), graph.nodes.len());
            program
        });
        *last = Some((key[..].into(), program.clone()));
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
        turns::ended();
        keep_table(table);
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
        self.index.clear();
        self.indexed = 0;
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
                OpKind::View => (Role::View, None, op.get().pattern()),
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
            if let Some(slot) = self.met(&array, number) {
                self.lead(edge, slot);
                continue;
            }
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
                    // Nobody else marks the node: it is claimed.
                    array.0.visit.number.store(number, Ordering::Relaxed);
                    array.0.visit.slot.store(slot.to_bits(), Ordering::Relaxed);
                    self.enter(array, call, number);
                    slot
                }
                State::Ready(_) | State::Kept(..) | State::Known(_) => {
                    let known = if let State::Known(known) = &*state { Some(*known) } else { None };
                    drop(state);
                    let slot = Slot::external(self.externals.len());
                    if array.0.visit.number.fetch_max(number, Ordering::Relaxed) < number {
                        array.0.visit.slot.store(slot.to_bits(), Ordering::Relaxed);
                    }
                    self.external(array, known)
                }
            };
            self.lead(edge, slot);
        }
        Ok(())
    }

    /// The slot of an array that the walk has met.
    fn met(&mut self, array: &Array, number: u64) -> Option<Slot> {
        let Visit { number: last, slot } = &array.0.visit;
        // The number of a mark grows, but for nodes that are claimed.
        let last = last.load(Ordering::Relaxed);
        if last < number {
            return None;
        }
        let slot = Slot::from_bits(slot.load(Ordering::Relaxed));
        let marked = match slot.kind() {
            SlotKind::Node(at) => self.nodes.get(at).and_then(Option::as_ref),
            SlotKind::External(at) => self.externals.get(at).and_then(|external| external.array.as_ref()),
        };
        if marked.is_some_and(|marked| marked.ptr_eq(array)) {
            return Some(slot);
        }
        // A walk that began later has marked it, too.
        for at in self.indexed..self.externals.len() {
            if let Some(array) = &self.externals[at].array {
                self.index.insert(array.0.id, at as u32);
            }
        }
        self.indexed = self.externals.len();
        self.index.get(&array.0.id).map(|at| Slot::external(*at as usize))
    }

    /// One more node, whose inputs come next.
    fn enter(&mut self, array: Array, call: Call, number: u64) {
        // What a node is to the planner is found out after the walk: it depends on handles that the walk
        // drops.
        let (first, count) = (self.graph.edges.len(), call.inputs.len());
        let open = std::iter::repeat_n(Slot::OPEN, count);
        self.graph.push(open, 0, array.0.dtype, Role::PLAIN, None);
        for (input, edge) in call.inputs.into_iter().zip(first..first + count).rev() {
            match self.met(&input, number) {
                Some(slot) => self.lead(edge, slot),
                None => self.stack.push((input, edge)),
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

/// Tables of evaluations that have ended, empty, for their capacity: lists of small ones, among which threads
/// are divided, and one of medium size.
static SMALL_TABLES: [Mutex<Vec<Table>>; TABLE_LISTS] = [const { Mutex::new(Vec::new()) }; TABLE_LISTS];
static MEDIUM_TABLE: Mutex<Option<Table>> = Mutex::new(None);

const TABLE_LISTS: usize = 16;
/// Most tables of a list: for threads that share one, and for evaluations inside of others.
const MAX_SMALL_TABLES: usize = 2;
/// Most nodes of a small table, and of one that is kept.
const SMALL_NODES: usize = 1 << 11;
const MAX_KEPT_NODES: usize = 1 << 16;

/// The list of the current thread.
fn small_tables() -> MutexGuard<'static, Vec<Table>> {
    thread_local! {
        static LIST: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let list = LIST.get();
    if list < TABLE_LISTS {
        return lock(&SMALL_TABLES[list]);
    }
    let list = THREADS.fetch_add(1, Ordering::Relaxed) % TABLE_LISTS;
    LIST.set(list);
    lock(&SMALL_TABLES[list])
}

fn take_table() -> Table {
    let small = small_tables().pop();
    small.or_else(|| lock(&MEDIUM_TABLE).take()).unwrap_or_default()
}

fn keep_table(table: Table) {
    let nodes = table.nodes.capacity();
    let surplus = if nodes <= SMALL_NODES {
        let mut small = small_tables();
        if small.len() < MAX_SMALL_TABLES {
            small.push(table);
            return;
        }
        Some(table)
    } else if nodes <= MAX_KEPT_NODES {
        lock(&MEDIUM_TABLE).replace(table)
    } else {
        Some(table)
    };
    // Outside of the locks.
    drop(surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_that_a_later_walk_has_marked_are_met_once() {
        let (x, other) = (Array::from_slice(&[1.0f32, 2.0]), Array::from_slice(&[3.0f32, 4.0]));
        // Twenty reads of each of two arrays.
        let mut sum = x.add(&other).unwrap();
        for _ in 0..19 {
            sum = sum.add(&x).unwrap().add(&other).unwrap();
        }
        for array in [&x, &other] {
            array.0.visit.number.store(u64::MAX, Ordering::Relaxed);
            array.0.visit.slot.store(Slot::external(1).to_bits(), Ordering::Relaxed);
        }
        let mut table = Table::default();
        assert!(table.collect(&[&sum], 7).is_ok());
        assert_eq!((table.nodes.len(), table.externals.len()), (39, 2));
        drop(Claim(table));
        assert_eq!(sum.to_vec::<f32>().unwrap(), [80.0, 120.0]);
    }

    #[test]
    fn a_walk_that_meets_claimed_nodes_leaves_the_claim_alone() {
        let x = Array::from_slice(&[1.0f32]).add(1.0).unwrap();
        let y = x.exp().unwrap();
        let other = y.multiply(2.0).unwrap();
        let (claim, _) = Claim::take(&[&y], true).unwrap();
        assert!(Table::default().collect(&[&other], u64::MAX).is_err());
        let [first, second] = &claim.0.nodes[..] else { panic!("two nodes are claimed") };
        assert_eq!(claim.0.graph.reads(0), [Slot::node(1)]);
        assert!(first.as_ref().is_some_and(|node| node.ptr_eq(&y)));
        assert!(second.as_ref().is_some_and(|node| node.ptr_eq(&x)));
    }
}
