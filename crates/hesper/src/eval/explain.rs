//! Why two ops do not become one kernel.

use std::fmt;
use std::sync::Arc;

use super::plan::{Graph, MOST_NODES, Role, Step, fusion_enabled};
use crate::array::{Array, State};
use crate::ids::IdMap;

/// Why the ops of two arrays are not computed in one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Apart {
    /// One is computed already, or is no op: by its number, 0 for the first.
    Computed(usize),
    /// One is neither element-wise nor, being the second, an op that takes the first row by row: its name.
    NotElementwise(&'static str),
    /// The second takes rows as they are made, and somebody holds the first: it has to go to memory.
    Held,
    /// The second does not depend on the first.
    Unrelated,
    /// They have different shapes.
    Shapes(Vec<usize>, Vec<usize>),
    /// They run on different streams.
    Streams,
    /// Fusion is switched off.
    Off,
    /// An op that is not of the second's kernel reads the first as well: its name.
    OtherReader(&'static str),
    /// The kernel has as many ops as a kernel may have.
    Full,
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
            Apart::Full => write!(f, "a kernel has at most {MOST_NODES} ops"),
        }
    }
}

/// Why the op of `first` and that of `second`, which is computed from it, would not become one kernel if
/// `second` were evaluated now and the asker did not hold `first`; `None` if they would.
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
    let (nodes, places) = lazy_nodes(second);
    let Some(&start) = places.get(&first.0.id) else { return Some(Apart::Unrelated) };
    let end = nodes.len() - 1;
    let calls: Vec<_> = nodes.iter().map(Array::call).collect();
    let mut graph = Graph::default();
    let mut last = Role::Other;
    for (node, call) in nodes.iter().zip(&calls) {
        let inputs = call.iter().flat_map(|call| &call.inputs);
        let reads = inputs.filter_map(|input| places.get(&input.0.id).copied());
        let lazy = |input: &&Array| places.contains_key(&input.0.id);
        if let Some(call) = call {
            let first = call.inputs.first().filter(lazy).map(|input| &input.0);
            let first = first.map(|input| (&input.shape[..], input.dtype, &input.stream));
            last = Role::of(&call.op, &node.0.stream, first);
        }
        graph.push(reads, last);
    }
    if last == Role::Other {
        return calls[end].as_ref().map(|call| Apart::NotElementwise(call.op.name()));
    }
    // All of a group have the shape of what its end reads, or is.
    let like = if last == Role::Rows { &nodes[graph.reads(end)[0] as usize] } else { second };
    if first.shape() != like.shape() {
        return Some(Apart::Shapes(first.shape().to_vec(), like.shape().to_vec()));
    }
    if first.0.stream.id() != second.0.stream.id() {
        return Some(Apart::Streams);
    }
    if !fusion_enabled() {
        return Some(Apart::Off);
    }
    // Each use is a reference in a call and in its copy here; one is that of `nodes`, one the asker's. What is left are
    // holders. This is for people: an evaluation asks whether its own handle is the only one.
    let mut uses = vec![0; nodes.len()];
    (0..nodes.len()).flat_map(|at| graph.reads(at)).for_each(|read| uses[*read as usize] += 1);
    let counted = |at: usize| 2 * uses[at] + 1 + usize::from(at == start);
    let plan = graph.plan(
        |one, other| nodes[one].is_alike(&nodes[other]),
        |at| Arc::strong_count(&nodes[at].0) > counted(at),
    );
    let group: &[usize] = plan.steps.iter().find_map(|step| match step {
        Step::Group(group) if group.members.contains(&end) => Some(&group.members[..]),
        Step::Rows(group, op) if *op == end => Some(&group.members[..]),
        Step::One(only) if *only == end => Some(std::slice::from_ref(only)),
        Step::Op(op) if *op == end => Some(&[]),
        _ => None,
    })?;
    if group.contains(&start) {
        return None;
    }
    let inside = |at: &usize| *at == end || group.contains(at);
    let other = (0..nodes.len()).find(|at| graph.reads(*at).contains(&(start as u32)) && !inside(at));
    Some(match other.and_then(|at| calls[at].as_ref()) {
        Some(call) if group.len() < MOST_NODES => Apart::OtherReader(call.op.name()),
        None if last == Role::Rows && group.len() < MOST_NODES => Apart::Held,
        _ => Apart::Full,
    })
}

/// The nodes that an array needs and that are not computed, inputs first, and their places.
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
