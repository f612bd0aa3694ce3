//! Lazy constants of a traced function, as the steps that compute them.

use std::borrow::Cow;

use super::graph::{Graph, Step, ValueRef};
use super::replay;
use crate::graph::{Array, Export, Record};
use crate::ids::IdMap;

#[derive(Default)]
struct Expansion {
    constants: Vec<Array>,
    steps: Vec<Step>,
    known: IdMap<ValueRef>,
    /// The first output of nodes that stand for several.
    several: IdMap<usize>,
    values: usize,
}

impl Graph {
    /// The same graph without constants that are not computed yet, where there are steps for what computes
    /// them. A file holds the values instead.
    pub fn expanded(&self) -> Graph {
        let mut expansion = Expansion::default();
        let places: Vec<ValueRef> = self.constants.iter().map(|constant| expansion.place(constant)).collect();
        let first = expansion.values;
        let moved = |place: &ValueRef| match *place {
            ValueRef::Constant(at) => places[at],
            ValueRef::Value(at) => ValueRef::Value(first + at),
            argument @ ValueRef::Argument(_) => argument,
        };
        let own = self
            .steps
            .iter()
            .map(|step| Step { inputs: step.inputs.iter().map(moved).collect(), ..step.clone() });
        expansion.steps.extend(own);
        Graph {
            signature: self.signature.clone(),
            constants: expansion.constants,
            steps: expansion.steps,
            outputs: self.outputs.iter().map(moved).collect(),
        }
    }
}

/// How a node that is not computed yet can be written.
fn record(array: &Array) -> Option<Export> {
    let call = if array.is_evaluated() { None } else { array.call() }?;
    if call.op.get().part().is_some() {
        return Some(Export::Input(0));
    }
    if let "count" | "range" | "short range" = call.op.name() {
        let [start, step, ..] = &call.inputs[..] else { return None };
        let number = |x: &Array| x.astype(crate::Dtype::Float64).ok()?.item::<f64>().ok();
        return Some(Record::new("arange").with("start", number(start)?).with("step", number(step)?).into());
    }
    match call.op.get().export() {
        Export::Step(record) if replay::knows(record.name) => Some(Export::Step(record)),
        Export::Input(at) if at < call.inputs.len() => Some(Export::Input(at)),
        _ => None,
    }
}

impl Expansion {
    /// The place of an array, after the steps that compute it. Graphs are deep: no recursion.
    fn place(&mut self, array: &Array) -> ValueRef {
        let mut stack = vec![array.clone()];
        while let Some(node) = stack.last().cloned() {
            let id = node.0.id;
            if self.known.contains_key(&id) || self.several.contains_key(&id) {
                stack.pop();
                continue;
            }
            let (Some(export), Some(call)) = (record(&node), node.call()) else {
                self.known.insert(id, ValueRef::Constant(self.constants.len()));
                self.constants.push(node);
                continue;
            };
            let ranges = matches!(&export, Export::Step(record) if record.name == "arange");
            let inputs = if ranges { &[] } else { &call.inputs[..] };
            let missing = |input: &&Array| {
                !self.known.contains_key(&input.0.id) && !self.several.contains_key(&input.0.id)
            };
            let before = stack.len();
            stack.extend(inputs.iter().rev().filter(missing).cloned());
            if stack.len() > before {
                continue;
            }
            let place = |input: &Array| self.known.get(&input.0.id).copied();
            match (export, call.op.get().part()) {
                (_, Some(number)) => {
                    let first = inputs.first().and_then(|whole| self.several.get(&whole.0.id)).copied();
                    self.known.insert(id, ValueRef::Value(first.unwrap_or_default() + number));
                }
                (Export::Input(at), None) => {
                    let same = place(&inputs[at]).unwrap_or(ValueRef::Value(0));
                    self.known.insert(id, same);
                }
                (Export::Step(record), None) => {
                    let inputs = inputs.iter().filter_map(place).collect();
                    let outputs = call.op.get().outputs();
                    if outputs.is_some() {
                        self.several.insert(id, self.values);
                    } else {
                        self.known.insert(id, ValueRef::Value(self.values));
                    }
                    let outputs = outputs.unwrap_or_else(|| vec![(node.0.shape.clone(), node.dtype())]);
                    self.values += outputs.len();
                    let (op, attributes) = (Cow::Borrowed(record.name), record.attributes);
                    self.steps.push(Step { op, attributes, inputs, outputs });
                }
                (Export::Never, None) => {}
            }
        }
        self.known.get(&array.0.id).copied().unwrap_or(ValueRef::Constant(0))
    }
}
