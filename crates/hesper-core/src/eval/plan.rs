//! The plan of a graph: which nodes become one kernel, in which order steps run, and where each value is read
//! last.
//!
//! Going from the results to the inputs, an element-wise node joins the group of its consumers if all
//! of them are in that one group and have its shape and stream. Then no path leads out of
//! the group and back in, so the group can be computed at once. A node that a user still holds becomes
//! an output of its group: it is computed once, and never left lazy.
//!
//! A node that nobody holds and that two or three groups read can join each of them: computing it again takes
//! a device with [`Fusion::recompute`](crate::registry::Fusion::recompute) less time than storing it and
//! reading it back. So the derivative of an activation reads the activation's input, and none of its
//! intermediate values go to memory. The values are the same bit for bit. Recomputed nodes are no outputs, so
//! groups still depend on each other through their outputs alone.
//!
//! An op that reads its first input row by row (a sum, a softmax, a norm) can be the end of a group too: its
//! rows are computed as it reads them, and never go to memory. A held node must go there, so it does not join
//! such a prologue.
//!
//! An op whose result only one group reads, with the shape of that group, can be computed with it: the group
//! is its epilogue, and the result never goes to memory. An epilogue stores one value.
//!
//! Nodes that [patterns](super::patterns) replace by a composite op join no group.
//!
//! The steps are drafted in the order of the walk and run in that of [`step_order`](super::step_order).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::{SmallVec, smallvec};

use super::expression::{Expression, Fused, Source};
use super::graph::{Graph, Role, Slot, SlotKind};
use super::patterns::Rewrites;
use super::program::{Input, Program, Step, Work};
use super::step_order::{StepOrder, StepRole};

/// Most nodes of a group.
pub(super) const MAX_GROUP: usize = 64;
/// Most groups that compute one node.
const MAX_READERS: usize = 3;
/// Most nodes of a group that other groups compute too.
const MAX_RECOMPUTED: u32 = 24;

static FUSION: AtomicU8 = AtomicU8::new(2);
static WAITS: AtomicU8 = AtomicU8::new(2);

/// Whether `HESPER_FUSION` has a value.
fn says(value: &str) -> bool {
    std::env::var_os("HESPER_FUSION").is_some_and(|given| given == value)
}

/// The value of a switch that its environment sets first.
fn switch(of: &AtomicU8, first: impl FnOnce() -> bool) -> bool {
    match of.load(Ordering::Relaxed) {
        0 => false,
        1 => true,
        _ => {
            let on = first();
            of.store(u8::from(on), Ordering::Relaxed);
            on
        }
    }
}

/// Whether element-wise ops are fused: yes, unless `HESPER_FUSION=0` or [`set_fusion`] says no.
///
/// ```
/// use hesper::{array, eval};
/// let y = array![1.0, 2.0].exp()?.sin()?;
/// assert_eq!(y.explain()?.launches(), if eval::fusion_enabled() { 1 } else { 2 });
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn fusion_enabled() -> bool {
    switch(&FUSION, || !says("0"))
}

/// Whether a GPU waits for the compilation of a kernel whose slot is filled. It does not, unless
/// `HESPER_FUSION=wait` or [`set_fusion_waits`] says so: it computes the group first, until the kernel is
/// ready, and only kernels that are needed again are compiled.
pub fn fusion_waits() -> bool {
    switch(&WAITS, || says("wait"))
}

/// Lets GPUs wait for kernels whose slots are filled, or not: for tests and measurements.
pub fn set_fusion_waits(on: bool) {
    WAITS.store(u8::from(on), Ordering::Relaxed);
}

/// Switches fusion on or off for the process.
///
/// ```
/// use hesper::eval;
/// eval::set_fusion(true); // with false, each op is a kernel of its own: to find out what fusion changes
/// assert!(eval::fusion_enabled());
/// ```
pub fn set_fusion(on: bool) {
    FUSION.store(u8::from(on), Ordering::Relaxed);
}

/// Numbers of groups or of members.
type Numbers = SmallVec<[u32; 2]>;

/// How a node is joined with others. Nodes are named by their number in the graph.
struct Joined {
    /// Of an element-wise node what its groups end with: their last member, or the op that reads their rows.
    groups: Numbers,
    /// Its number among the members of each of them.
    numbers: Numbers,
    /// How many of them have no step yet.
    open_groups: u32,
    /// How many nodes are in the group that it ends, and how many of them are in other groups too.
    size: u32,
    recomputed: u32,
    /// The groups that read it, or [`MANY`].
    readers: Numbers,
    /// Of the end of a group: which of the groups that were begun it is, or [`NONE`].
    open: u32,
    /// Of the end of a group: how many other members are held.
    held: u32,
    /// Of the end of an epilogue its op, of such an op the end of its epilogue; else [`NONE`].
    partner: u32,
}

impl Joined {
    fn alone(at: usize) -> Self {
        Joined {
            groups: smallvec![at as u32],
            numbers: smallvec![0],
            open_groups: 1,
            size: 1,
            recomputed: 0,
            readers: Numbers::new(),
            open: NONE,
            held: 0,
            partner: NONE,
        }
    }

    /// Groups read it.
    fn add_readers(&mut self, groups: &[u32]) {
        for group in groups {
            if !self.readers.contains(group) {
                self.readers.push(*group);
            }
        }
        if self.readers.len() > MAX_READERS || self.readers.contains(&MANY) {
            self.readers = smallvec![MANY];
        }
    }

    /// Its number among the members of a group.
    fn number_in(&self, group: u32) -> Option<u32> {
        self.groups.iter().position(|other| *other == group).map(|at| self.numbers[at])
    }
}

/// Of the end of a group: it has no list of members yet, or no partner.
const NONE: u32 = u32::MAX;
/// Of a node: more groups read it than may compute it, or an op that is in none.
const MANY: u32 = u32::MAX - 1;
/// Of a slot: no step computes or reads it.
const NEVER: u32 = u32::MAX;

impl Graph {
    /// Plans the graph, with groups of several nodes if `fusion`.
    pub(crate) fn plan(&self, fusion: bool) -> Program {
        let order = self.order();
        let rewrites = Rewrites::find(self, &order);
        let mut planner = Planner {
            graph: self,
            joined: self.join(&order, &rewrites, if fusion { MAX_GROUP as u32 } else { 1 }),
            rewrites,
            program: Program::with_capacity(self.nodes.len(), self.edges.len()),
            nodes: vec![LastUse::default(); self.nodes.len()],
            externals: vec![LastUse::default(); self.externals.len()],
            scratch: Expression::default(),
            fused: Vec::new(),
        };
        planner.steps(&order);
        planner.last_uses();
        planner.ends(&order);
        planner.program
    }

    /// The nodes, inputs first: as a walk from the first node on leaves them.
    fn order(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut met = vec![false; self.nodes.len()];
        // A node, and which of its edges comes next.
        let mut stack: Vec<(u32, u32)> = Vec::new();
        for root in 0..self.nodes.len() {
            if met[root] {
                continue;
            }
            met[root] = true;
            stack.push((root as u32, self.nodes[root].first));
            while let Some((at, next)) = stack.last_mut() {
                let node = &self.nodes[*at as usize];
                if *next == node.first + node.count {
                    order.push(*at);
                    stack.pop();
                    continue;
                }
                let slot = self.edges[*next as usize];
                *next += 1;
                if let SlotKind::Node(input) = slot.kind()
                    && !met[input]
                {
                    met[input] = true;
                    stack.push((input as u32, self.nodes[input].first));
                }
            }
        }
        order
    }

    /// From results to inputs: the group of each node, named by its end, of at most `most` nodes.
    fn join(&self, order: &[u32], rewrites: &Rewrites<'_>, most: u32) -> Vec<Joined> {
        let mut joined: Vec<Joined> = (0..self.nodes.len()).map(Joined::alone).collect();
        for &at in order.iter().rev() {
            // A composite op reads its inputs from memory.
            let role = if rewrites.of(at).is_some() { Role::PLAIN } else { self.nodes[at as usize].role };
            let at = at as usize;
            let readers = std::mem::take(&mut joined[at].readers);
            if role == Role::Elementwise {
                if self.joins(at, &readers, &joined, most) {
                    for end in &readers {
                        let end = &mut joined[*end as usize];
                        end.size += 1;
                        end.held += u32::from(self.nodes[at].held);
                        end.recomputed += u32::from(readers.len() > 1);
                    }
                    joined[at].numbers = smallvec![0; readers.len()];
                    joined[at].open_groups = readers.len() as u32;
                    joined[at].groups = readers;
                }
            } else if let [end] = readers[..]
                && role.has_epilogue()
                && self.takes_epilogue(at, end, &joined, most)
            {
                joined[end as usize].size += 1;
                joined[end as usize].partner = at as u32;
                joined[at].partner = end;
            }
            let mut reads: Numbers = match role {
                Role::Elementwise => joined[at].groups.clone(),
                _ if role.reads_rows() && most > 1 => smallvec![at as u32],
                _ => smallvec![MANY],
            };
            for input in self.read_nodes(at) {
                joined[input].add_readers(&reads);
                if role != Role::Elementwise {
                    // The other inputs are read from memory.
                    reads = smallvec![MANY];
                }
            }
        }
        joined
    }

    /// Whether an element-wise node joins the groups that read it.
    fn joins(&self, at: usize, readers: &[u32], joined: &[Joined], most: u32) -> bool {
        let node = &self.nodes[at];
        if readers.is_empty() || readers == [MANY] {
            return false;
        }
        let fits = |end: &u32| {
            let end = *end as usize;
            joined[end].size < most
                && match self.nodes[end].role {
                    // An epilogue stores one value.
                    Role::Elementwise => {
                        self.nodes[end].class == node.class && !(node.held && joined[end].partner != NONE)
                    }
                    // All members have the shape of what the op reads.
                    _ => !node.held && self.first_class(end) == Some(node.class),
                }
        };
        if !readers.iter().all(fits) {
            return false;
        }
        if readers.len() == 1 {
            return true;
        }
        // Storing an array and reading it back takes more than reading what it is computed from once more.
        let whole = |slot: &&Slot| match slot.kind() {
            SlotKind::Node(input) => self.nodes[input].class == node.class,
            SlotKind::External(input) => !self.externals[input].known,
        };
        let inputs = self.reads(at).iter().filter(whole).count();
        let worth = inputs * (readers.len() - 1) <= 2;
        let room = |end: &u32| joined[*end as usize].recomputed < MAX_RECOMPUTED;
        self.recompute && !node.held && worth && readers.iter().all(room)
    }

    /// Whether the one group that reads the result of an op becomes its epilogue.
    fn takes_epilogue(&self, at: usize, end: u32, joined: &[Joined], most: u32) -> bool {
        let Some(of_end) = joined.get(end as usize) else { return false };
        let (node, end) = (&self.nodes[at], &self.nodes[end as usize]);
        let alone = of_end.partner == NONE && of_end.held == 0 && !node.held;
        end.role == Role::Elementwise && alone && end.class == node.class && of_end.size < most
    }

    /// The class of the first input of a node, if that is a node.
    fn first_class(&self, at: usize) -> Option<u32> {
        match self.reads(at).first()?.kind() {
            SlotKind::Node(first) => Some(self.nodes[first].class),
            SlotKind::External(_) => None,
        }
    }
}

/// The step that computes or reads a slot last, as far as the planner has come, and whether that reads it
/// more than once.
#[derive(Clone, Copy)]
struct LastUse {
    step: u32,
    twice: bool,
}

impl Default for LastUse {
    fn default() -> Self {
        LastUse { step: NEVER, twice: false }
    }
}

/// Nodes of a group.
type Members = SmallVec<[u32; 4]>;

/// A step that has no place in the program yet.
enum Draft {
    /// The composite op that the node is in.
    Composite(u32),
    Op {
        at: u32,
        prologue: Members,
        epilogue: Members,
    },
    /// The last member is the end of the group.
    Group(Members),
}

/// A program under construction.
struct Planner<'a> {
    graph: &'a Graph,
    rewrites: Rewrites<'a>,
    joined: Vec<Joined>,
    program: Program,
    nodes: Vec<LastUse>,
    externals: Vec<LastUse>,
    /// Room for the expression of a group, and the expressions that the program has.
    scratch: Expression,
    fused: Vec<Arc<Fused>>,
}

impl Planner<'_> {
    /// Puts the nodes into steps.
    fn steps(&mut self, order: &[u32]) {
        let drafts = self.drafts(order);
        for number in self.step_order(&drafts) {
            match &drafts[number as usize] {
                Draft::Composite(at) => self.composite(*at),
                Draft::Op { at, prologue, epilogue } => self.op(*at, prologue, epilogue),
                Draft::Group(members) => self.fuse(members),
            }
        }
    }

    /// The steps in the order of the walk: each where its last node is.
    fn drafts(&mut self, order: &[u32]) -> Vec<Draft> {
        let mut drafts = Vec::with_capacity(order.len());
        // The members of groups that are not complete.
        let mut open: Vec<Members> = Vec::new();
        for &at in order {
            let node = at as usize;
            if let Some(rewrite) = self.rewrites.of(at) {
                drafts.extend((rewrite.at == at).then_some(Draft::Composite(at)));
                continue;
            }
            if self.graph.nodes[node].role != Role::Elementwise {
                // An op with an epilogue runs when that is complete.
                if self.joined[node].partner == NONE {
                    let prologue = self.members_before(at, &mut open);
                    drafts.push(Draft::Op { at, prologue, epilogue: Members::new() });
                }
                continue;
            }
            for number in 0..self.joined[node].groups.len() {
                let group = self.joined[node].groups[number];
                let end = &mut self.joined[group as usize];
                if end.size == 1 {
                    drafts.push(Draft::Group(smallvec![at]));
                    continue;
                }
                if end.open == NONE {
                    end.open = open.len() as u32;
                    open.push(Members::with_capacity(end.size as usize));
                }
                let members = &mut open[end.open as usize];
                self.joined[node].numbers[number] = members.len() as u32;
                members.push(at);
                if group != at {
                    continue;
                }
                let members = std::mem::take(members);
                drafts.push(match self.joined[node].partner {
                    NONE => Draft::Group(members),
                    op => {
                        let prologue = self.members_before(op, &mut open);
                        Draft::Op { at: op, prologue, epilogue: members }
                    }
                });
            }
        }
        drafts
    }

    /// The members of the prologue of an op, if it has one.
    fn members_before(&self, op: u32, open: &mut [Members]) -> Members {
        open.get_mut(self.joined[op as usize].open as usize).map(std::mem::take).unwrap_or_default()
    }

    /// The order in which steps run.
    fn step_order(&self, drafts: &[Draft]) -> Vec<u32> {
        let graph = self.graph;
        let mut order = StepOrder::new(graph.nodes.len());
        let mut read = vec![false; graph.nodes.len()];
        graph.edges.iter().filter_map(|slot| slot.as_node()).for_each(|node| read[node] = true);
        // Whether an op without an epilogue is held is not known: if something reads it, it is taken for not
        // held.
        let held = |at: u32| {
            let node = &graph.nodes[at as usize];
            let known = node.role == Role::Elementwise || node.role.has_epilogue();
            (at, node.held && (known || !read[at as usize]))
        };
        for draft in drafts {
            match draft {
                Draft::Composite(at) => {
                    let Some(rewrite) = self.rewrites.of(*at) else { continue };
                    rewrite.inputs.iter().filter_map(|slot| slot.as_node()).for_each(|node| order.read(node));
                    order.push(StepRole::Op, rewrite.outputs.iter().map(|at| held(*at)));
                }
                // What is a member is not in memory, and has no producer yet or none at all.
                Draft::Op { at, prologue, epilogue } => {
                    let nodes = prologue.iter().chain([at]).chain(epilogue);
                    nodes.flat_map(|at| graph.read_nodes(*at as usize)).for_each(|node| order.read(node));
                    let role = if graph.nodes[*at as usize].role == Role::View {
                        StepRole::View
                    } else {
                        StepRole::Op
                    };
                    order.push(role, [held(*epilogue.last().unwrap_or(at))]);
                }
                Draft::Group(members) => {
                    let reads = members.iter().flat_map(|at| graph.read_nodes(*at as usize));
                    reads.for_each(|node| order.read(node));
                    let end = members.last().copied();
                    let outputs =
                        members.iter().filter(|at| Some(**at) == end || graph.nodes[**at as usize].held);
                    order.push(StepRole::Group, outputs.map(|at| held(*at)));
                }
            }
        }
        order.order()
    }

    /// The step of an op: after the members of its prologue, before those of its epilogue.
    fn op(&mut self, at: u32, prologue: &[u32], epilogue: &[u32]) {
        let graph = self.graph;
        let before =
            prologue.last().map(|last| self.expression(prologue, at, None, |member| member == *last));
        graph.reads(at as usize).iter().for_each(|slot| self.read(*slot));
        let end = epilogue.last();
        let after = end.map(|end| self.expression(epilogue, *end, Some(at), |member| member == *end));
        self.program.outputs.push(*end.unwrap_or(&at));
        let work = match (before, after) {
            (None, None) => Work::Op,
            (prologue, epilogue) => Work::Rows { op: at, prologue, epilogue },
        };
        let members: SmallVec<[u32; 16]> = [prologue, &[at], epilogue].concat().into();
        self.finish(work, &members);
    }

    /// The step of the composite op that a node is in.
    fn composite(&mut self, at: u32) {
        let Some(rewrite) = self.rewrites.of(at) else { return };
        let work = Work::Composite(rewrite.pattern.clone());
        let (inputs, members) = (rewrite.inputs.clone(), rewrite.members.clone());
        self.program.outputs.extend_from_slice(&rewrite.outputs);
        inputs.iter().for_each(|slot| self.read(*slot));
        self.finish(work, &members);
    }

    /// The step of a group.
    fn fuse(&mut self, members: &[u32]) {
        let graph = self.graph;
        let Some(&end) = members.last() else { return };
        let is_output = |at: u32| at == end || graph.nodes[at as usize].held;
        let fused = self.expression(members, end, None, is_output);
        self.program.outputs.extend(members.iter().copied().filter(|at| is_output(*at)));
        self.finish(Work::Fused(fused), members);
    }

    /// The expression of the members of the group that ends with `end`; its inputs are read by the step. The
    /// first input of an epilogue is the result of its op.
    fn expression(
        &mut self,
        members: &[u32],
        end: u32,
        op: Option<u32>,
        is_output: impl Fn(u32) -> bool,
    ) -> Arc<Fused> {
        let graph = self.graph;
        let begin = self.program.inputs.len();
        self.scratch.clear();
        if let Some(op) = op {
            self.scratch.input(graph.nodes[op as usize].dtype, false);
            self.program.inputs.push(Input { slot: Slot::node(op as usize), last: false });
        }
        for &at in members {
            let node = &graph.nodes[at as usize];
            let Some(emit) = node.emit else { continue };
            let first = self.scratch.sources.len();
            for slot in graph.reads(at as usize) {
                let number = match slot.kind() {
                    SlotKind::Node(input) => self.joined[input].number_in(end),
                    SlotKind::External(_) => None,
                };
                let source = match (number, slot.kind()) {
                    (Some(number), _) => Source::Member(number),
                    (None, kind) => {
                        let inputs = &self.program.inputs[begin..];
                        let met = inputs.iter().position(|input| input.slot == *slot);
                        Source::Input(met.unwrap_or_else(|| {
                            let (dtype, known) = match kind {
                                SlotKind::Node(at) => (graph.nodes[at].dtype, false),
                                SlotKind::External(at) => {
                                    (graph.externals[at].dtype, graph.externals[at].known)
                                }
                            };
                            self.scratch.input(dtype, known);
                            self.read(*slot);
                            self.program.inputs.len() - begin - 1
                        }) as u32)
                    }
                };
                self.scratch.sources.push(source);
            }
            self.scratch.member(emit, first, node.dtype, is_output(at));
        }
        self.intern()
    }

    /// The expression in `scratch`: a program often repeats one of the last few.
    fn intern(&mut self) -> Arc<Fused> {
        const COMPARED: usize = 8;
        let mut recent = self.fused.iter().rev().take(COMPARED);
        if let Some(found) = recent.find(|fused| fused.expression == self.scratch) {
            return found.clone();
        }
        let fused = Arc::new(Fused::new(self.scratch.clone()));
        self.fused.push(fused.clone());
        fused
    }

    fn last_use(&mut self, slot: Slot) -> &mut LastUse {
        match slot.kind() {
            SlotKind::Node(at) => &mut self.nodes[at],
            SlotKind::External(at) => &mut self.externals[at],
        }
    }

    /// The step reads a slot.
    fn read(&mut self, slot: Slot) {
        let step = self.program.steps.len() as u32;
        let last = self.last_use(slot);
        *last = LastUse { step, twice: last.step == step };
        self.program.inputs.push(Input { slot, last: false });
    }

    /// The step is complete.
    fn finish(&mut self, work: Work, nodes: &[u32]) {
        let step = self.program.steps.len() as u32;
        let Program { steps, inputs, members, outputs, .. } = &mut self.program;
        // Nodes that a later step computes again come last.
        let mut again: SmallVec<[u32; 8]> = SmallVec::new();
        for at in nodes {
            self.nodes[*at as usize] = LastUse { step, twice: false };
            let joined = &mut self.joined[*at as usize];
            joined.open_groups = joined.open_groups.saturating_sub(1);
            if joined.open_groups > 0 { again.push(*at) } else { members.push(*at) }
        }
        members.extend_from_slice(&again);
        steps.push(Step {
            work,
            inputs: inputs.len() as u32,
            members: members.len() as u32,
            again: again.len() as u32,
            outputs: outputs.len() as u32,
            ends: 0,
        });
    }

    /// Marks the inputs that nothing reads after their step, and that their step reads once.
    fn last_uses(&mut self) {
        let mut begin = 0;
        for step in 0..self.program.steps.len() {
            let end = self.program.steps[step].inputs as usize;
            for at in begin..end {
                let last = *self.last_use(self.program.inputs[at].slot);
                self.program.inputs[at].last = last.step == step as u32 && !last.twice;
            }
            begin = end;
        }
    }

    /// Lists for each step what nothing needs after it: external arrays, then nodes, consumers first.
    fn ends(&mut self, order: &[u32]) {
        let Planner { program: Program { steps, ends, .. }, nodes, externals, .. } = self;
        let externals = externals.iter().enumerate().map(|(at, last)| (Slot::external(at), last.step));
        let nodes = order.iter().rev().map(|at| (Slot::node(*at as usize), nodes[*at as usize].step));
        let all = || externals.clone().chain(nodes.clone()).filter(|(_, last)| *last != NEVER);
        // Counted, then put in their places.
        all().for_each(|(_, last)| steps[last as usize].ends += 1);
        let mut begin = 0;
        for step in steps.iter_mut() {
            begin += std::mem::replace(&mut step.ends, begin);
        }
        ends.resize(begin as usize, Slot::OPEN);
        for (slot, last) in all() {
            let end = &mut steps[last as usize].ends;
            ends[*end as usize] = slot;
            *end += 1;
        }
    }
}
