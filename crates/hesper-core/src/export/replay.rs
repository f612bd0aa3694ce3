//! Replays traced functions. Each step calls the constructor of its op, which checks the inputs.

use super::graph::{Graph, Step, ValueRef};
use crate::error::{Error, Result};
use crate::graph::scope::Opened;
use crate::graph::{Array, Reader, Replay};
use crate::ops::readers;
use crate::ops::source::placeholder;
use crate::shape::Shape;

/// Whether there is a reader for an op.
pub fn knows(name: &str) -> bool {
    readers::find(name).is_some()
}

impl Graph {
    /// The outputs for arguments that match the signature.
    pub fn replay(&self, arguments: &[Array]) -> Result<Vec<Array>> {
        self.run(arguments, self.signature.shapeless)
    }

    /// The same. Shapes other than the traced ones are allowed only if they are `free`.
    fn run(&self, arguments: &[Array], free: bool) -> Result<Vec<Array>> {
        let mut values: Vec<Array> = Vec::new();
        let mut traced: Vec<&Shape> = Vec::new();
        for step in &self.steps {
            let mut inputs = Vec::with_capacity(step.inputs.len());
            let mut shapes = Vec::with_capacity(step.inputs.len());
            for place in &step.inputs {
                let (array, shape) = match *place {
                    ValueRef::Argument(at) => {
                        (arguments.get(at), self.signature.arguments.get(at).map(|(shape, _)| shape))
                    }
                    ValueRef::Constant(at) => {
                        let found = self.constants.get(at);
                        (found, found.map(|array| &array.0.shape))
                    }
                    ValueRef::Value(at) => (values.get(at), traced.get(at).copied()),
                };
                let (Some(array), Some(shape)) = (array, shape) else {
                    return Err(Error::Export(format!(
                        "step `{}` reads a value that does not exist",
                        step.op
                    )));
                };
                inputs.push(array.clone());
                shapes.push(shape.clone());
            }
            values.extend(self.step(step, &inputs, &shapes, free)?);
            traced.extend(step.outputs.iter().map(|(shape, _)| shape));
        }
        self.outputs
            .iter()
            .map(|place| {
                let found = match *place {
                    ValueRef::Argument(at) => arguments.get(at),
                    ValueRef::Constant(at) => self.constants.get(at),
                    ValueRef::Value(at) => values.get(at),
                };
                found
                    .cloned()
                    .ok_or_else(|| Error::Export("an output refers to a value that does not exist".into()))
            })
            .collect()
    }

    fn step(&self, step: &Step, inputs: &[Array], traced: &[Shape], free: bool) -> Result<Vec<Array>> {
        let Some(reader) = readers::find(&step.op) else {
            return Err(Error::Export(format!(
                "cannot replay step `{}`: this build has no such op",
                step.op
            )));
        };
        let replay = Replay {
            op: &step.op,
            inputs,
            traced,
            attributes: &step.attributes,
            outputs: &step.outputs,
            free,
        };
        let values = match reader {
            Reader::One(read) => vec![read(&replay)?],
            Reader::Several(read) => read(&replay)?,
        };
        if values.len() != step.outputs.len() {
            return Err(replay.wrong(format!("{} outputs instead of {}", values.len(), step.outputs.len())));
        }
        for (array, (shape, dtype)) in values.iter().zip(&step.outputs) {
            let fits = if free { shape.len() == array.ndim() } else { shape[..] == *array.shape() };
            if !fits || array.dtype() != *dtype {
                let (given, other) = (array.shape(), array.dtype());
                let what =
                    format!("an output of shape {given:?} and type {other} instead of {shape:?} and {dtype}");
                return Err(replay.wrong(what));
            }
        }
        Ok(values)
    }

    /// Checks that a graph from a file can be replayed with the shapes that it was traced with.
    pub fn check(&self) -> Result<()> {
        let opened = Opened::new();
        let arguments = self
            .signature
            .arguments
            .iter()
            .map(|(shape, dtype)| placeholder(opened.scope(), "import_function", shape.clone(), *dtype))
            .collect::<Result<Vec<Array>>>()?;
        self.run(&arguments, false).map(|_| ())
    }
}
