//! Why two ops do not become one kernel, and which composite op they become part of.

use std::fmt;
use std::sync::Arc;

use super::graph::{Classes, Emit, Graph, Role, Slot, SlotKind};
use super::patterns::{self, Nodes};
use super::plan::{MAX_GROUP, fusion_enabled};
use super::program::{NodeView, Program, Work};
use crate::Dtype;
use crate::graph::{Array, Call, State};
use crate::ids::IdMap;

/// Why the ops of two arrays are not computed in one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Apart {
    /// One is computed already, or has no op: its number, 0 for the first.
    Computed(usize),
    /// One is neither element-wise nor, as the second, an op that reads the first row by row: its name.
    NotElementwise(&'static str),
    /// The second reads rows as they are computed, but the first is held elsewhere: it has to go to memory.
    Held,
    /// The second does not depend on the first.
    Unrelated,
    /// They have different shapes.
    Shapes(Vec<usize>, Vec<usize>),
    /// They run on different streams.
    Streams,
    /// Fusion is switched off.
    Off,
    /// An op outside of the second's kernel reads the first as well: its name.
    OtherReader(&'static str),
    /// The kernel has the most ops that a kernel may have.
    Full,
    /// One of them becomes part of a composite op, which the other is not part of: its name.
    Composite(&'static str),
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Apart::Computed(0) => f.write_str("the first array is computed already"),
            Apart::Computed(_) => f.write_str("the second array is computed already"),
            Apart::NotElementwise(op) => write!(f, "{op} is not element-wise"),
            Apart::Held => f.write_str("the first array is held, so it has to go to memory"),
            Apart::Unrelated => f.write_str("the second array is not computed from the first"),
            Apart::Shapes(first, second) => write!(f, "shapes {first:?} and {second:?} differ"),
            Apart::Streams => f.write_str("they run on different streams"),
            Apart::Off => f.write_str("fusion is switched off"),
            Apart::OtherReader(op) => {
                write!(f, "{op}, which is in another kernel, reads the first array too")
            }
            Apart::Full => write!(f, "a kernel has at most {MAX_GROUP} ops"),
            Apart::Composite(op) => write!(f, "one of them is part of {op}"),
        }
    }
}

/// Why the op of `first` and that of `second`, which is computed from it, would not become one kernel if
/// `second` were evaluated now and the caller did not hold `first`; `None` if they would.
///
/// ```
/// use hesper::{Array, eval};
/// let x = Array::from_slice(&[1.0f32, 2.0]);
/// let y = x.exp()?;
/// assert_eq!(eval::why_apart(&y, &y.add(1.0)?), None);
/// let sorted = y.sort(Some(0))?;
/// assert_eq!(eval::why_apart(&y, &sorted).map(|why| why.to_string()), Some("sort is not element-wise".into()));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn why_apart(first: &Array, second: &Array) -> Option<Apart> {
    for (number, array) in [first, second].into_iter().enumerate() {
        match &*array.state() {
            State::Lazy { call, .. } => {
                if number == 0 && !call.op.is_elementwise() {
                    return Some(Apart::NotElementwise(call.op.name()));
                }
            }
            _ => return Some(Apart::Computed(number)),
        }
    }
    let Some(planned) = Planned::of(second, Some(first)) else { return Some(Apart::Computed(1)) };
    match planned.nodes.iter().position(|node| node.ptr_eq(first)) {
        Some(start) => planned.apart(start, planned.nodes.len() - 1),
        None => Some(Apart::Unrelated),
    }
}

/// A graph that is not computed, and the program that would compute it now.
pub(super) struct Planned {
    /// What is not computed, inputs first.
    pub(super) nodes: Vec<Array>,
    pub(super) calls: Vec<Call>,
    /// The computed arrays that nodes read.
    pub(super) externals: Vec<Array>,
    pub(super) graph: Graph,
    roles: Vec<Role>,
    /// Nodes with another handle.
    pub(super) held: Vec<bool>,
    pub(super) program: Program,
}

impl Planned {
    /// The graph of an array; `None` if another thread evaluates it now. The caller's handle on `named` does
    /// not count.
    pub(super) fn of(root: &Array, named: Option<&Array>) -> Option<Planned> {
        let (nodes, places) = lazy_nodes(root);
        let calls: Vec<Call> = nodes.iter().map(Array::call).collect::<Option<_>>()?;
        let (mut graph, mut classes) = (Graph::default(), Classes::default());
        let (mut externals, mut numbers, mut roles) = (Vec::new(), IdMap::default(), Vec::new());
        for (node, call) in nodes.iter().zip(&calls) {
            let mut reads = Vec::new();
            for input in &call.inputs {
                reads.push(match places.get(&input.0.id) {
                    Some(at) => Slot::node(*at),
                    None => *numbers.entry(input.0.id).or_insert_with(|| {
                        graph.push_external(input.dtype(), false);
                        externals.push(input.clone());
                        Slot::external(externals.len() - 1)
                    }),
                });
            }
            let first = call.inputs.first().filter(|input| places.contains_key(&input.0.id));
            let role = Role::of(&call.op, node.like(), first.map(Array::like));
            let class = classes.of(&node.0.shape, &node.0.stream);
            graph.push(reads, class, node.dtype(), role, Emit::of(&call.op));
            roles.push(role);
        }
        // Each use is a reference in a call and in its copy here; one is that of `nodes`, one the caller's.
        // The rest are other holders. Counts may change meanwhile: an evaluation checks that its own handle
        // is the only one instead.
        let mut uses = vec![0; nodes.len()];
        (0..nodes.len()).flat_map(|at| graph.read_nodes(at)).for_each(|read| uses[read] += 1);
        let mut held = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let counted = 2 * uses[at] + 1 + usize::from(named.is_some_and(|named| named.ptr_eq(node)));
            held.push(Arc::strong_count(&node.0) > counted);
            graph.set_held(at, held[at]);
        }
        let lazy = Lazy { nodes: &nodes, calls: &calls, externals: &externals };
        if fusion_enabled() {
            for at in 0..nodes.len() {
                graph.set_mark(at, patterns::mark(&graph, &lazy, at));
            }
        }
        graph.set_recompute(nodes.first().map(|node| &node.0.stream));
        let program = graph.plan(fusion_enabled());
        Some(Planned { nodes, calls, externals, graph, roles, held, program })
    }

    /// The array in a slot.
    pub(super) fn array(&self, slot: Slot) -> &Array {
        match slot.kind() {
            SlotKind::Node(at) => &self.nodes[at],
            SlotKind::External(at) => &self.externals[at],
        }
    }

    /// Why the node `start` is not in the step of `end`, which reads it, directly or not; `None` if it is.
    pub(super) fn apart(&self, start: usize, end: usize) -> Option<Apart> {
        let (first, second) = (&self.nodes[start], &self.nodes[end]);
        let step_of = |at: usize| self.program.steps().find(|step| step.members.contains(&(at as u32)));
        let step = step_of(end)?;
        let inside = |at: usize| step.members.contains(&(at as u32));
        for step in [step_of(start), step_of(end)].into_iter().flatten() {
            if let Work::Composite(pattern) = step.work {
                return (!inside(start)).then(|| Apart::Composite(pattern.name()));
            }
        }
        let role = self.roles[end];
        if role != Role::Elementwise && !role.reads_rows() {
            return Some(Apart::NotElementwise(self.calls[end].op.name()));
        }
        // All members of a group have the shape of its end, or of what its end reads row by row.
        let like = match self.graph.reads(end).first().map(|slot| slot.kind()) {
            Some(SlotKind::Node(first)) if role.reads_rows() => &self.nodes[first],
            _ => second,
        };
        if first.shape() != like.shape() {
            return Some(Apart::Shapes(first.shape().to_vec(), like.shape().to_vec()));
        }
        if first.0.stream.id() != second.0.stream.id() {
            return Some(Apart::Streams);
        }
        if !fusion_enabled() {
            return Some(Apart::Off);
        }
        if inside(start) {
            return None;
        }
        let reads = |at: usize| self.graph.read_nodes(at).any(|read| read == start);
        let other = (0..self.nodes.len()).find(|at| reads(*at) && !inside(*at));
        Some(match other.map(|at| &self.calls[at]) {
            Some(call) if step.members.len() < MAX_GROUP => Apart::OtherReader(call.op.name()),
            None if step.members.len() < MAX_GROUP => Apart::Held,
            _ => Apart::Full,
        })
    }
}

/// Nodes that are not computed, their calls, and the computed arrays that they read.
struct Lazy<'a> {
    nodes: &'a [Array],
    calls: &'a [Call],
    externals: &'a [Array],
}

impl Nodes for Lazy<'_> {
    fn view(&self, at: usize) -> Option<NodeView<'_>> {
        let (node, call) = (self.nodes.get(at)?, self.calls.get(at)?);
        Some(NodeView { op: &call.op, shape: &node.0.shape, dtype: node.0.dtype, stream: &node.0.stream })
    }

    fn like(&self, slot: Slot) -> Option<(&[usize], Dtype)> {
        let array = match slot.kind() {
            SlotKind::Node(at) => self.nodes.get(at)?,
            SlotKind::External(at) => self.externals.get(at)?,
        };
        Some((array.shape(), array.dtype()))
    }
}

/// The nodes that an array needs and that are not computed, inputs first, and their positions.
fn lazy_nodes(root: &Array) -> (Vec<Array>, IdMap<usize>) {
    let (mut nodes, mut places) = (Vec::new(), IdMap::default());
    let mut stack = vec![(root.clone(), false)];
    while let Some((array, done)) = stack.pop() {
        if places.contains_key(&array.0.id) || array.is_evaluated() {
            continue;
        }
        if done {
            places.insert(array.0.id, nodes.len());
            nodes.push(array);
            continue;
        }
        let inputs = array.call().map(|call| call.inputs).unwrap_or_default();
        stack.push((array, true));
        stack.extend(inputs.into_iter().rev().map(|input| (input, false)));
    }
    (nodes, places)
}
