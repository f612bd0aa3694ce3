//! Transformations of graphs in MLX's primitives: a derivative or `vmap` has other steps there, because MLX
//! has rules for other ops.
//!
//! While a function is traced for a callback, a transformation inside of it traces its function, turns the
//! graph into MLX's primitives and applies MLX's rule to each. The result is a graph of steps that are only
//! described ([`hesper::export::described`]). A graph with a primitive that has no rule here gets the rules
//! of Hesper's ops.

mod batch;
mod convolution;
mod forward;
mod fourier;
mod pointwise;
mod reverse;

use std::collections::{HashMap, HashSet};
use std::result::Result as StdResult;

use hesper::export::{Graph, ValueRef};
use hesper::transform::{self, Traced};
use hesper::{Array, Category};

use crate::primitives::{Argument, Id, Operand, Primitive, Primitives};

use super::step;

pub use batch::vmap_with;

/// A primitive, and the arrays that stand for its inputs and outputs.
struct Node {
    primitive: Primitive,
    inputs: Vec<Array>,
    outputs: Vec<Array>,
}

impl Node {
    fn name(&self) -> &str {
        &self.primitive.name
    }

    fn arguments(&self) -> &[Argument] {
        &self.primitive.arguments
    }

    fn x(&self) -> &Array {
        &self.inputs[0]
    }

    fn y(&self) -> &Array {
        &self.outputs[0]
    }

    /// The same primitive of other inputs, with outputs of other shapes.
    fn again(&self, inputs: &[Array], outputs: &[Array]) -> hesper::Result<Vec<Array>> {
        let like: Vec<_> = outputs.iter().map(|one| (one.shape(), one.dtype())).collect();
        self.primitive.describe(inputs, &like)
    }
}

/// The primitives between the sources of a transformation and the outputs of a function, inputs first.
struct Program {
    nodes: Vec<Node>,
    outputs: Vec<Id>,
    arrays: HashMap<Id, Array>,
    /// The arrays that depend on a source, and those that derivatives reach.
    varied: HashSet<Id>,
    smooth: HashSet<Id>,
}

fn source(at: usize) -> Id {
    Id::ValueRef(ValueRef::Argument(at))
}

impl Program {
    /// A program whose sources have these values.
    fn of(graph: &Graph, sources: &[Array]) -> hesper::Result<Program> {
        let primitives = Primitives::unmerged(graph)?;
        let mut arrays: HashMap<Id, Array> = primitives.constants.into_iter().collect();
        let sources = sources.iter().enumerate().map(|(at, array)| (source(at), array.clone()));
        arrays.extend(sources.clone());
        let (mut varied, mut smooth): (HashSet<Id>, HashSet<Id>) = sources.map(|(id, _)| (id, id)).unzip();
        let outputs: Vec<Id> = primitives.outputs.iter().map(|output| output.id).collect();
        let mut nodes = Vec::new();
        for primitive in primitives.list {
            let values: Option<Vec<Array>> =
                primitive.inputs.iter().map(|input| arrays.get(&input.id).cloned()).collect();
            let inputs = values.ok_or_else(|| hesper::Error::value("export_function", "an unknown array"))?;
            let like: Vec<_> = primitive.outputs.iter().map(|one| (&one.shape[..], one.dtype)).collect();
            let found = primitive.describe(&inputs, &like)?;
            let own = || primitive.outputs.iter().map(|output| output.id);
            arrays.extend(own().zip(found.iter().cloned()));
            if primitive.inputs.iter().any(|input| varied.contains(&input.id)) {
                varied.extend(own());
            }
            let stops = primitive.name == "StopGradient" || pointwise::is_place(&primitive.name);
            if !stops && primitive.inputs.iter().any(|input| smooth.contains(&input.id)) {
                smooth.extend(own());
            }
            nodes.push(Node { primitive, inputs, outputs: found });
        }
        Ok(Program { nodes, outputs, arrays, varied, smooth })
    }

    fn array(&self, id: Id) -> hesper::Result<Array> {
        let found = self.arrays.get(&id).cloned();
        found.ok_or_else(|| hesper::Error::value("export_function", "an unknown array"))
    }

    /// The outputs of the function, computed by the program.
    fn computed(&self) -> hesper::Result<Vec<Array>> {
        self.outputs.iter().map(|id| self.array(*id)).collect()
    }

    /// The cotangents of sources, if all primitives on the way have rules.
    fn backward(&self, seeds: &[Option<Array>], count: usize) -> hesper::Result<Option<Vec<Option<Array>>>> {
        let mut known: HashMap<Id, Array> = HashMap::new();
        for (id, seed) in self.outputs.iter().zip(seeds) {
            if let (Some(seed), true) = (seed, self.smooth.contains(id)) {
                add(&mut known, *id, seed.clone())?;
            }
        }
        for node in self.nodes.iter().rev() {
            let (inputs, outputs) = (&node.primitive.inputs, &node.primitive.outputs);
            let smooth = |operand: &Operand| self.smooth.contains(&operand.id);
            let wanted: Vec<usize> = (0..inputs.len()).filter(|at| smooth(&inputs[*at])).collect();
            let reached = outputs.iter().any(|output| known.contains_key(&output.id));
            if !reached || wanted.is_empty() || !outputs.iter().any(smooth) {
                continue;
            }
            let cotangents = outputs
                .iter()
                .zip(&node.outputs)
                .map(|(output, array)| known.remove(&output.id).map_or_else(|| array.zeros_like(), Ok));
            let cotangents = cotangents.collect::<hesper::Result<Vec<Array>>>()?;
            let Some(found) = reverse::rule(node, &cotangents, &wanted)? else { return Ok(None) };
            for (at, cotangent) in wanted.into_iter().zip(found) {
                add(&mut known, inputs[at].id, cotangent)?;
            }
        }
        Ok(Some((0..count).map(|at| known.remove(&source(at))).collect()))
    }

    /// The tangents of outputs, if all primitives on the way have rules.
    fn forward(&self, seeds: &[Array]) -> hesper::Result<Option<Vec<Option<Array>>>> {
        let mut known: HashMap<Id, Array> =
            seeds.iter().enumerate().map(|(at, seed)| (source(at), seed.clone())).collect();
        for node in &self.nodes {
            let (inputs, outputs) = (&node.primitive.inputs, &node.primitive.outputs);
            let tangents: Vec<Option<Array>> =
                inputs.iter().map(|input| known.get(&input.id).cloned()).collect();
            let stops = node.name() == "StopGradient" || pointwise::is_place(node.name());
            if stops || tangents.iter().all(Option::is_none) {
                continue;
            }
            let Some(found) = forward::rule(node, &tangents)? else { return Ok(None) };
            known.extend(outputs.iter().map(|output| output.id).zip(found));
        }
        Ok(Some(self.outputs.iter().map(|id| known.get(id).cloned()).collect()))
    }
}

fn add(known: &mut HashMap<Id, Array>, id: Id, cotangent: Array) -> hesper::Result<()> {
    let sum = match known.remove(&id) {
        Some(before) => before.add(&cotangent)?,
        None => cotangent,
    };
    known.insert(id, sum);
    Ok(())
}

/// The graph of a function, if it is part of a trace around it.
fn traced_graph(traced: &Traced, sources: &[Array]) -> Option<Graph> {
    let graph = traced.graph(traced.outputs()).ok()?;
    (transform::is_varied(sources) || transform::is_varied(graph.constants())).then_some(graph)
}

/// [`hesper::transform::vjp_with`], with MLX's steps while a trace is described. The outputs that it returns
/// are computed by the described steps.
pub fn vjp_with<E: From<hesper::Error>>(
    f: impl FnOnce(&[Array]) -> StdResult<Vec<Array>, E>,
    primals: &[Array],
    cotangents: impl FnOnce(&[Array]) -> StdResult<Vec<Option<Array>>, E>,
) -> StdResult<(Vec<Array>, Vec<Array>), E> {
    if !super::described() {
        return transform::vjp_with(f, primals, cotangents);
    }
    let traced = Traced::watch(f, primals)?;
    let mut seeds = cotangents(traced.outputs())?;
    for (seed, output) in seeds.iter_mut().zip(traced.outputs()) {
        *seed = seed.take().map(|seed| seed.astype(output.dtype())).transpose()?;
    }
    let (outputs, found) = match traced_graph(&traced, primals) {
        Some(graph) => {
            let program = Program::of(&graph, primals)?;
            // Where a rule does not fit, those of Hesper's ops do.
            (Some(program.computed()?), program.backward(&seeds, primals.len()).unwrap_or_default())
        }
        None => (None, None),
    };
    let found = found.map_or_else(|| traced.backward(&seeds), Ok)?;
    let found = found.into_iter().chain(std::iter::repeat(None)).zip(primals);
    let found = found.map(|(one, primal)| one.map_or_else(|| primal.zeros_like(), Ok));
    let found = found.collect::<hesper::Result<Vec<Array>>>()?;
    let own = traced.close();
    Ok((outputs.unwrap_or(own), found))
}

/// [`hesper::transform::jvp_with`], with MLX's steps while a trace is described.
pub fn jvp_with<E: From<hesper::Error>>(
    f: impl FnOnce(&[Array]) -> StdResult<Vec<Array>, E>,
    primals: &[Array],
    tangents: &[Array],
) -> StdResult<(Vec<Array>, Vec<Array>), E> {
    let alike = |(a, b): (&Array, &Array)| a.shape() == b.shape() && a.dtype() == b.dtype();
    let fits = primals.len() == tangents.len() && primals.iter().zip(tangents).all(alike);
    if !super::described() || !fits {
        return transform::jvp_with(f, primals, tangents);
    }
    let traced = Traced::watch(f, primals)?;
    let (outputs, found) = match traced_graph(&traced, primals) {
        Some(graph) => {
            let program = Program::of(&graph, primals)?;
            (Some(program.computed()?), program.forward(tangents).unwrap_or_default())
        }
        None => (None, None),
    };
    let found = found.map_or_else(|| traced.forward(tangents), Ok)?.into_iter().zip(traced.outputs());
    let found = found.map(|(one, output)| one.map_or_else(|| output.zeros_like(), Ok));
    let found = found.collect::<hesper::Result<Vec<Array>>>()?;
    let own = traced.close();
    Ok((outputs.unwrap_or(own), found))
}

/// Whether an array has complex elements.
fn complex(array: &Array) -> bool {
    array.dtype().is(Category::Complex)
}
