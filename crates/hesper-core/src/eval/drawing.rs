//! The graph of an array as a picture: ops in layers from the inputs down, those of one kernel in one colour.

use super::dot::to_dot;
use super::explain::Planned;
use super::graph::SlotKind;
use crate::error::{Error, Result};
use crate::graph::Array;

mod layout;

use layout::{Layout, Node};

/// The graph that computes an array; see [`Array::graph`].
#[derive(Debug, Clone)]
pub struct GraphPicture {
    nodes: Vec<Node>,
    /// Of each node the step that computes it, if that has several ops.
    groups: Vec<Option<usize>>,
    edges: Vec<(usize, usize)>,
    dot: String,
}

const FILLS: [&str; 8] =
    ["#cfe3ff", "#ffe2c4", "#d4f1d0", "#f3d3ea", "#fff3b8", "#d8d5f7", "#c9f0ee", "#f8d0cf"];

impl Array {
    /// The graph that computes the array, to be drawn. Computed arrays are its inputs.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1.0, 2.0];
    /// let svg = (x.exp()? + 1.0).sum(())?.graph()?.svg();
    /// assert!(svg.starts_with("<svg") && svg.contains("exp"));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn graph(&self) -> Result<GraphPicture> {
        let planned = Planned::of(self, None).ok_or_else(|| {
            Error::value("graph", "another thread evaluates the array; call it before or after")
        })?;
        let like = |array: &Array| format!("{:?} {}", array.shape(), array.dtype());
        let inputs = if planned.nodes.is_empty() { std::slice::from_ref(self) } else { &planned.externals };
        let mut nodes: Vec<Node> =
            inputs.iter().map(|array| Node { lines: vec![like(array)], is_input: true }).collect();
        let first = nodes.len();
        let mut edges = Vec::new();
        for (at, (node, call)) in planned.nodes.iter().zip(&planned.calls).enumerate() {
            nodes.push(Node { lines: vec![call.op.name().to_string(), like(node)], is_input: false });
            for slot in planned.graph.reads(at) {
                let edge = match slot.kind() {
                    SlotKind::Node(from) => (first + from, first + at),
                    SlotKind::External(from) => (from, first + at),
                };
                if !edges.contains(&edge) {
                    edges.push(edge);
                }
            }
        }
        let mut groups = vec![None; nodes.len()];
        let several = planned.program.steps().filter(|step| step.members.len() > 1);
        for (number, step) in several.enumerate() {
            step.members.iter().for_each(|at| groups[first + *at as usize] = Some(number));
        }
        Ok(GraphPicture { nodes, groups, edges, dot: to_dot(std::slice::from_ref(self)) })
    }
}

impl GraphPicture {
    /// The picture as SVG. Ops of one colour are one kernel; white boxes are commands of their own or views;
    /// rounded boxes are arrays that are computed already.
    ///
    /// ```
    /// use hesper::array;
    /// let picture = array![1.0, 2.0].exp()?.sum(())?.graph()?;
    /// assert!(picture.svg().starts_with("<svg"));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn svg(&self) -> String {
        let layout = Layout::new(&self.nodes, &self.edges);
        let fill = |at: usize| match self.groups[at] {
            Some(number) => FILLS[number % FILLS.len()],
            None => "#ffffff",
        };
        layout.svg(&self.nodes, fill)
    }

    /// The graph in the language of Graphviz, as [`to_dot`] gives it.
    ///
    /// ```
    /// use hesper::array;
    /// let picture = array![1.0, 2.0].exp()?.sum(())?.graph()?;
    /// assert!(picture.dot().starts_with("digraph"));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dot(&self) -> &str {
        &self.dot
    }
}
