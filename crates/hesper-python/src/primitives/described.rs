//! Primitives as steps of a trace, which hold their names and arguments and are not computed.

use std::borrow::Cow;

use hesper::export::{Attributes, Step, Value, described};
use hesper::{Array, Dtype};

use super::{Argument, Operand, Primitive, Primitives};

impl From<bool> for Argument {
    fn from(value: bool) -> Self {
        Argument::Value(Value::Bool(value))
    }
}

impl Primitive {
    /// The outputs of the primitive applied to arrays.
    pub fn describe(&self, inputs: &[Array], outputs: &[(&[usize], Dtype)]) -> hesper::Result<Vec<Array>> {
        let mut attributes: Attributes = vec![("name".into(), Value::Text(self.name.clone()))];
        attributes.extend(self.arguments.iter().map(|argument| match argument {
            Argument::Value(value) => (Cow::Borrowed("value"), value.clone()),
            Argument::Shape(lengths) => (Cow::Borrowed("shape"), Value::Ints(lengths.clone())),
            Argument::Dtype(dtype) => (Cow::Borrowed("dtype"), Value::Text(dtype.name().into())),
        }));
        let outputs = outputs.iter().map(|(shape, dtype)| ((*shape).into(), *dtype)).collect();
        described(attributes, inputs, outputs)
    }

    /// An integer argument.
    pub fn int(&self, at: usize) -> Option<i64> {
        if let Some(Argument::Value(Value::Int(value))) = self.arguments.get(at) {
            Some(*value)
        } else {
            None
        }
    }

    /// A float argument.
    pub fn float(&self, at: usize) -> Option<f64> {
        if let Some(Argument::Value(Value::Float(value))) = self.arguments.get(at) {
            Some(*value)
        } else {
            None
        }
    }

    /// A bool argument.
    pub fn flag(&self, at: usize) -> Option<bool> {
        if let Some(Argument::Value(Value::Bool(value))) = self.arguments.get(at) {
            Some(*value)
        } else {
            None
        }
    }
}

/// A product of matrices that indices choose: its left matrices and both indices as they are given, and
/// whether the indices are in order.
pub const CHOSEN: &str = "product of chosen matrices";

/// The name of a primitive that a step describes.
pub fn name(step: &Step) -> &str {
    match step.attributes.first() {
        Some((_, Value::Text(name))) => name,
        _ => "",
    }
}

impl Primitives {
    /// The primitive that a step describes.
    pub fn described(&mut self, step: &Step, inputs: Vec<Operand>, outputs: Vec<Operand>) {
        let arguments = step.attributes.iter().skip(1).map(|(kind, value)| match (&**kind, value) {
            ("shape", Value::Ints(lengths)) => Argument::Shape(lengths.clone()),
            ("dtype", Value::Text(name)) => {
                let named = Dtype::ALL.into_iter().find(|dtype| dtype.name() == name);
                Argument::Dtype(named.unwrap_or(Dtype::Float32))
            }
            _ => Argument::Value(value.clone()),
        });
        let arguments: Vec<Argument> = arguments.collect();
        let name: String = name(step).into();
        if name == CHOSEN {
            return self.chosen(&arguments, inputs, &outputs[0]);
        }
        self.list.push(Primitive { name, arguments, inputs, outputs, fixed: true });
    }

    /// Gives a product its operands and flags.
    fn chosen(&mut self, flags: &[Argument], mut inputs: Vec<Operand>, output: &Operand) {
        let product = inputs.remove(0);
        let made = |one: &&mut Primitive| one.outputs.first().is_some_and(|made| made.id == product.id);
        let Some(mut primitive) = self.list.iter_mut().rfind(made).cloned() else { return };
        let (flag, index) = (primitive.arguments.len(), primitive.inputs.len());
        if primitive.name.starts_with("Gather") && flag >= 2 && index >= 3 {
            primitive.arguments[flag - 2..].clone_from_slice(flags);
            primitive.inputs[index - 2..].clone_from_slice(&inputs[1..]);
            primitive.inputs[0] = inputs.remove(0);
        }
        primitive.outputs = vec![output.clone()];
        primitive.fixed = true;
        self.list.push(primitive);
    }
}
