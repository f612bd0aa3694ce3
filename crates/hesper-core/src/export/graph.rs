//! Graphs of traced functions: what a file holds of each.

use std::borrow::Cow;

use super::replay;
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::scope::{Opened, outermost};
use crate::graph::{Array, Attributes, Export, Record};
use crate::guarded::guarded;
use crate::ids::IdMap;
use crate::ops::source::placeholder;
use crate::shape::{Shape, broadcast};
use crate::tape::Tape;

/// An input of a step, or an output of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueRef {
    /// An argument.
    Argument(usize),
    /// A constant.
    Constant(usize),
    /// An output of a step; those of all steps are counted through.
    Value(usize),
}

/// An op and its inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The op's name.
    pub op: Cow<'static, str>,
    /// Its attributes.
    pub attributes: Attributes,
    /// What it reads: only outputs of earlier steps.
    pub inputs: Vec<ValueRef>,
    /// Shapes and types of its outputs.
    pub outputs: Vec<(Shape, Dtype)>,
}

/// The arguments that a function was traced with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// How many arguments stand by place.
    pub positional: usize,
    /// The names of the others, in order.
    pub keywords: Vec<String>,
    /// Shapes and types of all, those by place first.
    pub arguments: Vec<(Shape, Dtype)>,
    /// Whether other shapes with as many axes will do.
    pub shapeless: bool,
}

#[cfg(feature = "files")]
impl Signature {
    /// Whether an array will do for an argument.
    pub(crate) fn takes(&self, at: usize, array: &Array) -> bool {
        let Some((shape, dtype)) = self.arguments.get(at) else { return false };
        let fits = if self.shapeless { shape.len() == array.ndim() } else { shape[..] == *array.shape() };
        fits && *dtype == array.dtype()
    }

    /// Whether both would be called with the same arrays.
    pub(crate) fn same(&self, other: &Signature) -> bool {
        let alike = |(a, b): (&(Shape, Dtype), &(Shape, Dtype))| {
            a.1 == b.1 && if self.shapeless { a.0.len() == b.0.len() } else { a.0 == b.0 }
        };
        self.positional == other.positional
            && self.keywords == other.keywords
            && self.shapeless == other.shapeless
            && self.arguments.len() == other.arguments.len()
            && self.arguments.iter().zip(&other.arguments).all(alike)
    }
}

/// A traced function.
#[derive(Debug, Clone)]
pub struct Graph {
    pub(crate) signature: Signature,
    pub(crate) constants: Vec<Array>,
    pub(crate) steps: Vec<Step>,
    pub(crate) outputs: Vec<ValueRef>,
}

impl Graph {
    /// The graph of a function: it is called once, with arguments that have no values. `named` arguments come
    /// after those by place, in the order of their names.
    pub fn trace<E: From<Error>>(
        positional: &[Array],
        named: &[(String, Array)],
        shapeless: bool,
        f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
    ) -> Result<Graph, E> {
        let mut named: Vec<&(String, Array)> = named.iter().collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(
                Error::value("export_function", format!("two arguments named {:?}", pair[0].0)).into()
            );
        }
        let all: Vec<&Array> = positional.iter().chain(named.iter().map(|(_, array)| array)).collect();
        let signature = Signature {
            positional: positional.len(),
            keywords: named.iter().map(|(name, _)| name.clone()).collect(),
            arguments: all.iter().map(|array| (array.0.shape.clone(), array.dtype())).collect(),
            shapeless,
        };
        let opened = Opened::exported(shapeless);
        let arguments = signature
            .arguments
            .iter()
            .map(|(shape, dtype)| placeholder(opened.scope(), "export_function", shape.clone(), *dtype))
            .collect::<Result<Vec<Array>>>()?;
        let outputs = guarded("the function to export", || f(&arguments))?;
        Ok(Builder::new(signature, &arguments).build(&outputs, &arguments)?)
    }

    /// The graph from arguments of a trace to its outputs, for other shapes too.
    pub(crate) fn recorded(arguments: &[Array], outputs: &[Array]) -> Result<Graph> {
        let signature = Signature {
            positional: arguments.len(),
            keywords: Vec::new(),
            arguments: arguments.iter().map(|one| (one.0.shape.clone(), one.dtype())).collect(),
            shapeless: true,
        };
        Builder::new(signature, arguments).build(outputs, arguments)
    }

    /// The graph between arrays of a trace. Others of the trace that it needs are its constants.
    pub(crate) fn between(sources: &[Array], outputs: &[Array]) -> Result<Graph> {
        let signature = Signature {
            positional: sources.len(),
            keywords: Vec::new(),
            arguments: sources.iter().map(|one| (one.0.shape.clone(), one.dtype())).collect(),
            shapeless: false,
        };
        Builder { sliced: true, ..Builder::new(signature, sources) }.part(outputs, sources)
    }

    /// The arguments that it was traced with.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The arrays that the function captured.
    pub fn constants(&self) -> &[Array] {
        &self.constants
    }

    /// Its ops, inputs first.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Its outputs.
    pub fn outputs(&self) -> &[ValueRef] {
        &self.outputs
    }

    /// Whether a step takes its shape from another array.
    pub(crate) fn takes_shapes(&self) -> bool {
        self.steps.iter().any(|step| step.op.ends_with("_like"))
    }

    /// The shape and type at a place. Values are counted through all steps.
    pub fn meta(&self, place: ValueRef) -> Option<(&[usize], Dtype)> {
        match place {
            ValueRef::Argument(at) => {
                self.signature.arguments.get(at).map(|(shape, dtype)| (&shape[..], *dtype))
            }
            ValueRef::Constant(at) => self.constants.get(at).map(|array| (array.shape(), array.dtype())),
            ValueRef::Value(at) => {
                let mut all = self.steps.iter().flat_map(|step| &step.outputs);
                all.nth(at).map(|(shape, dtype)| (&shape[..], *dtype))
            }
        }
    }
}

struct Builder {
    graph: Graph,
    known: IdMap<ValueRef>,
    constants: IdMap<usize>,
    /// The first output of nodes that stand for several.
    several: IdMap<usize>,
    values: usize,
    /// Whether slices of constants are steps, too.
    sliced: bool,
}

impl Builder {
    fn new(signature: Signature, arguments: &[Array]) -> Self {
        let graph = Graph { signature, constants: Vec::new(), steps: Vec::new(), outputs: Vec::new() };
        let known =
            arguments.iter().enumerate().map(|(at, one)| (one.0.id, ValueRef::Argument(at))).collect();
        Builder {
            graph,
            known,
            constants: IdMap::default(),
            several: IdMap::default(),
            values: 0,
            sliced: false,
        }
    }

    fn build(self, outputs: &[Array], arguments: &[Array]) -> Result<Graph> {
        let graph = self.part(outputs, arguments)?;
        if outermost(&graph.constants).is_some() {
            let what = "the function uses an array that another transformation varies";
            return Err(Error::value("export_function", what));
        }
        Ok(graph)
    }

    /// The graph, with constants that another transformation may vary.
    fn part(mut self, outputs: &[Array], arguments: &[Array]) -> Result<Graph> {
        let tape = Tape::new(outputs, arguments);
        for entry in &tape.entries {
            let (op, inputs, node) = (entry.call.op.get(), &entry.call.inputs, &entry.array.0);
            if let Some(number) = op.part()
                && let Some(first) = inputs.first().and_then(|whole| self.several.get(&whole.0.id))
            {
                self.known.insert(node.id, ValueRef::Value(first + number));
                continue;
            }
            // Nothing is stretched: the input itself.
            let same = |input: &Array| op.name() == "broadcast_to" && input.0.shape == node.shape;
            let export = if inputs.first().is_some_and(same) { Export::Input(0) } else { op.export() };
            match export {
                // An error only if something needs it.
                Export::Never => {}
                Export::Input(at) => {
                    if let Some(input) = inputs.get(at)
                        && let Ok(place) = self.place(&tape, input)
                    {
                        self.known.insert(node.id, place);
                    }
                }
                Export::Step(record) if replay::knows(record.name) => {
                    let Ok(inputs) = self.inputs(&tape, &record, inputs, &entry.array) else { continue };
                    let outputs = op.outputs();
                    if outputs.is_some() {
                        self.several.insert(node.id, self.values);
                    } else {
                        self.known.insert(node.id, ValueRef::Value(self.values));
                    }
                    let outputs = outputs.unwrap_or_else(|| vec![(node.shape.clone(), node.dtype)]);
                    self.values += outputs.len();
                    let (op, attributes) = (Cow::Borrowed(record.name), record.attributes);
                    self.graph.steps.push(Step { op, attributes, inputs, outputs });
                }
                Export::Step(_) => {}
            }
        }
        self.graph.outputs =
            outputs.iter().map(|output| self.place(&tape, output)).collect::<Result<Vec<ValueRef>>>()?;
        self.graph.prune();
        Ok(self.graph)
    }

    /// The places of a step's inputs.
    fn inputs(
        &mut self,
        tape: &Tape,
        record: &Record,
        inputs: &[Array],
        node: &Array,
    ) -> Result<Vec<ValueRef>> {
        let mut inputs: Vec<Array> = inputs.to_vec();
        if self.graph.signature.shapeless {
            if let Some(input) = record.stretched.and_then(|at| inputs.get_mut(at)) {
                *input = unstretched(input);
            }
            let elementwise = node.call().is_some_and(|call| call.op.is_elementwise());
            for at in 0..if elementwise { inputs.len() } else { 0 } {
                let mut others = inputs.clone();
                others[at] = unstretched(&inputs[at]);
                let whole =
                    others.iter().try_fold(Shape::new(), |shape, one| broadcast("", &shape, one.shape()));
                if whole.is_ok_and(|whole| whole == node.0.shape) {
                    inputs = others;
                }
            }
        }
        inputs.iter().map(|input| self.place(tape, input)).collect()
    }

    /// The place of an array: one that is known, or a constant.
    fn place(&mut self, tape: &Tape, array: &Array) -> Result<ValueRef> {
        if let Some(place) = self.known.get(&array.0.id) {
            return Ok(*place);
        }
        if tape.place(array).is_none() {
            return Ok(self.constant(array));
        }
        // The first on the way here that has no place itself is the culprit.
        let mut culprit = array.clone();
        while let Some(call) = culprit.call() {
            let next = call.inputs.iter().find(|input| {
                tape.place(input).is_some()
                    && !self.known.contains_key(&input.0.id)
                    && !self.several.contains_key(&input.0.id)
            });
            let Some(next) = next else { break };
            culprit = next.clone();
        }
        let name = culprit.call().map_or("an argument of another transformation", |call| call.op.name());
        Err(Error::value("export_function", format!("`{name}` cannot be written to a file here")))
    }
}

impl Builder {
    /// The place of a constant. One that is another way to look at an array is that array and a step: it is
    /// stored as it lies, and once for all ways to look at it.
    fn constant(&mut self, array: &Array) -> ValueRef {
        let mut views = Vec::new();
        let mut base = array.clone();
        while !base.is_evaluated()
            && !self.known.contains_key(&base.0.id)
            && let Some(call) = base.call()
            && (matches!(call.op.name(), "transpose" | "broadcast_to" | "reshape")
                || self.sliced && call.op.name() == "slice")
            && let Export::Step(record) = call.op.get().export()
        {
            let input = call.inputs[0].clone();
            views.push((base, record));
            base = input;
        }
        let mut place = match self.known.get(&base.0.id) {
            Some(place) => *place,
            None => {
                let fresh = self.graph.constants.len();
                let at = *self.constants.entry(base.0.id).or_insert(fresh);
                if at == fresh {
                    self.graph.constants.push(base);
                }
                ValueRef::Constant(at)
            }
        };
        for (view, record) in views.into_iter().rev() {
            let outputs = vec![(view.0.shape.clone(), view.dtype())];
            let (op, attributes) = (Cow::Borrowed(record.name), record.attributes);
            self.graph.steps.push(Step { op, attributes, inputs: vec![place], outputs });
            place = ValueRef::Value(self.values);
            self.values += 1;
            self.known.insert(view.0.id, place);
        }
        place
    }
}

/// An array before it was stretched to its shape.
fn unstretched(array: &Array) -> Array {
    let mut found = array.clone();
    loop {
        let call = if found.is_evaluated() { None } else { found.call() };
        match call {
            Some(call) if matches!(call.op.name(), "broadcast_to" | "full") => match call.inputs.first() {
                Some(input) if input.dtype() == array.dtype() => found = input.clone(),
                _ => return found,
            },
            // A number in any shape of size one is that number.
            Some(call) if call.op.name() == "reshape" => match call.inputs.first() {
                Some(input) if input.ndim() == 0 => found = input.clone(),
                _ => return found,
            },
            _ => return found,
        }
    }
}

impl Graph {
    /// Removes steps and constants that no output needs.
    fn prune(&mut self) {
        let firsts: Vec<usize> = self
            .steps
            .iter()
            .scan(0, |next, step| {
                let first = *next;
                *next += step.outputs.len();
                Some(first)
            })
            .collect();
        let count = self.steps.iter().map(|step| step.outputs.len()).sum();
        let (mut values, mut constants) = (vec![false; count], vec![false; self.constants.len()]);
        let mark = |place: &ValueRef, values: &mut [bool], constants: &mut [bool]| match place {
            ValueRef::Value(at) => values[*at] = true,
            ValueRef::Constant(at) => constants[*at] = true,
            ValueRef::Argument(_) => {}
        };
        self.outputs.iter().for_each(|place| mark(place, &mut values, &mut constants));
        let mut needed = vec![false; self.steps.len()];
        for (at, step) in self.steps.iter().enumerate().rev() {
            needed[at] = values[firsts[at]..firsts[at] + step.outputs.len()].contains(&true);
            if needed[at] {
                step.inputs.iter().for_each(|place| mark(place, &mut values, &mut constants));
            }
        }
        let mut moved = vec![0; count];
        let mut next = 0;
        for (at, step) in self.steps.iter().enumerate().filter(|(at, _)| needed[*at]) {
            for output in 0..step.outputs.len() {
                moved[firsts[at] + output] = next;
                next += 1;
            }
        }
        let mut kept = constants.iter().scan(0, |next, needed| {
            let at = *next;
            *next += usize::from(*needed);
            Some(at)
        });
        let kept: Vec<usize> = kept.by_ref().collect();
        let change = |place: &mut ValueRef| match place {
            ValueRef::Value(at) => *at = moved[*at],
            ValueRef::Constant(at) => *at = kept[*at],
            ValueRef::Argument(_) => {}
        };
        let mut number = 0..;
        self.steps.retain(|_| number.next().is_some_and(|at| needed[at]));
        self.steps.iter_mut().flat_map(|step| &mut step.inputs).for_each(change);
        self.outputs.iter_mut().for_each(change);
        let mut number = 0..;
        self.constants.retain(|_| number.next().is_some_and(|at: usize| constants[at]));
    }
}
