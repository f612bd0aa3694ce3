//! The plan of a graph: which nodes become one kernel, in which order steps run, and where each value is read
//! last.
//!
//! Going from the results to the inputs, an element-wise node joins the group of its consumers if all
//! of them are in that one group and have its shape and stream. Then no path leads out of
//! the group and back in, so the group can be computed at once. A node that a user still holds becomes
//! an output of its group: it is computed once, and never left lazy.
//!
//! An op that reads its first input row by row (a sum, a softmax, a norm) can be the end of a group too: its
//! rows are computed as it reads them, and never go to memory. A held node must go there, so it does not join
//! such a group.
//!
//! Nodes that [patterns](super::patterns) replace by a composite op join no group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::expression::{Expression, Fused, Source};
use super::graph::{Graph, Role, Slot, SlotKind};
use super::patterns::Rewrites;
use super::program::{Input, Program, Step, Work};

/// Most nodes of a group.
pub(super) const MAX_GROUP: usize = 64;

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

/// How a node is joined with others. Nodes are named by their number in the graph.
struct Joined {
    /// Of an element-wise node what its group ends with: its last member, or the op that reads its rows.
    group: u32,
    /// How many nodes are in the group that it ends.
    size: u32,
    /// The one group that reads it, [`UNREAD`] or [`MANY`].
    reader: u32,
    /// Its number among the members of its group.
    number: u32,
    /// Of the end of a group: which of the groups that were begun it is, or [`UNREAD`].
    open: u32,
}

/// Of a node: nothing has read it yet.
const UNREAD: u32 = u32::MAX;
/// Of a node: it is read by more than one group, or by an op that is in none.
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
        let alone = |at| Joined { group: at as u32, size: 1, reader: UNREAD, number: 0, open: UNREAD };
        let mut joined: Vec<Joined> = (0..self.nodes.len()).map(alone).collect();
        for &at in order.iter().rev() {
            // A composite op reads its inputs from memory.
            let role = if rewrites.of(at).is_some() { Role::Other } else { self.nodes[at as usize].role };
            let at = at as usize;
            let (root, node) = (joined[at].reader, &self.nodes[at]);
            if role == Role::Elementwise && root < MANY && joined[root as usize].size < most {
                let end = root as usize;
                let joins = match self.nodes[end].role {
                    // All members have the shape of what the op reads.
                    Role::Rows => !node.held && self.first_class(end) == Some(node.class),
                    _ => self.nodes[end].class == node.class,
                };
                if joins {
                    joined[at].group = root;
                    joined[end].size += 1;
                }
            }
            let mut reader = match role {
                Role::Elementwise => joined[at].group,
                Role::Rows if most > 1 => at as u32,
                _ => MANY,
            };
            for input in self.read_nodes(at) {
                let input = &mut joined[input];
                if input.reader == UNREAD {
                    input.reader = reader;
                } else if input.reader != reader {
                    input.reader = MANY;
                }
                if role == Role::Rows {
                    // The other inputs are read from memory.
                    reader = MANY;
                }
            }
        }
        joined
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
        // The members of groups that are not complete.
        let mut open: Vec<Vec<u32>> = Vec::new();
        for &at in order {
            let node = at as usize;
            if self.rewrites.of(at).is_some() {
                self.composite(at);
                continue;
            }
            if self.graph.nodes[node].role != Role::Elementwise {
                let members = open.get_mut(self.joined[node].open as usize).map(std::mem::take);
                match members {
                    Some(members) => self.rows(&members, at),
                    None => self.op(Work::Op, at),
                }
                continue;
            }
            let group = self.joined[node].group;
            let end = &mut self.joined[group as usize];
            if end.size == 1 {
                self.fuse(&[at], at);
                continue;
            }
            if end.open == UNREAD {
                end.open = open.len() as u32;
                open.push(Vec::with_capacity(end.size as usize));
            }
            let members = &mut open[end.open as usize];
            self.joined[node].number = members.len() as u32;
            members.push(at);
            if group == at {
                let members = std::mem::take(members);
                self.fuse(&members, at);
            }
        }
    }

    /// The step of an op, which may follow the members of a group.
    fn op(&mut self, work: Work, at: u32) {
        let graph = self.graph;
        graph.reads(at as usize).iter().for_each(|slot| self.read(*slot));
        self.program.outputs.push(at);
        self.finish(work, &[at]);
    }

    /// The step of a composite op, if a node is where it runs.
    fn composite(&mut self, at: u32) {
        let Some(rewrite) = self.rewrites.of(at).filter(|rewrite| rewrite.at == at) else { return };
        let work = Work::Composite(rewrite.pattern.clone());
        let (inputs, members) = (rewrite.inputs.clone(), rewrite.members.clone());
        self.program.outputs.extend_from_slice(&rewrite.outputs);
        inputs.iter().for_each(|slot| self.read(*slot));
        self.finish(work, &members);
    }

    /// The step of a group that ends with `end`.
    fn fuse(&mut self, members: &[u32], end: u32) {
        let graph = self.graph;
        let is_output = |at: u32| at == end || graph.nodes[at as usize].held;
        let fused = self.expression(members, end, is_output);
        self.program.outputs.extend(members.iter().copied().filter(|at| is_output(*at)));
        self.finish(Work::Fused(fused), members);
    }

    /// The step of an op and the group whose value it reads row by row.
    fn rows(&mut self, members: &[u32], at: u32) {
        let last = members.last().copied();
        let fused = self.expression(members, at, |member| Some(member) == last);
        self.program.members.extend_from_slice(members);
        self.op(Work::Rows(fused), at);
    }

    /// The expression of the members of the group that ends with `end`; its inputs are read by the step.
    fn expression(&mut self, members: &[u32], end: u32, is_output: impl Fn(u32) -> bool) -> Arc<Fused> {
        let graph = self.graph;
        let begin = self.program.inputs.len();
        self.scratch.clear();
        for &at in members {
            let node = &graph.nodes[at as usize];
            let Some(emit) = node.emit else { continue };
            let first = self.scratch.sources.len();
            for slot in graph.reads(at as usize) {
                let source = match slot.kind() {
                    SlotKind::Node(input) if self.joined[input].group == end => {
                        Source::Member(self.joined[input].number)
                    }
                    kind => {
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
        members.extend_from_slice(nodes);
        let first = steps.last().map_or(0, |before| before.members);
        for at in &members[first as usize..] {
            self.nodes[*at as usize] = LastUse { step, twice: false };
        }
        steps.push(Step {
            work,
            inputs: inputs.len() as u32,
            members: members.len() as u32,
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
