//! Graphs in MLX's primitives: what `export_function` passes to a callback.
//!
//! Converters of exported functions know MLX's primitives by their names and the order of their arguments. A
//! step becomes one primitive or several: the inputs of an element-wise primitive are broadcast before, and a
//! reduction keeps its axes and is squeezed after. [`primitive_patterns`] combines several into one. A step
//! that MLX has no primitive for keeps its name, in MLX's spelling, and its attributes.

mod compose;
mod described;
mod eye;
mod fft;
mod names;
mod order;
mod patterns;

use std::collections::HashMap;

use hesper::export::{Graph, Step, Value, ValueRef};
use hesper::{Array, Category, Dtype};

use names::{ELEMENTWISE, Fixed};

pub use described::CHOSEN;
pub use names::name;

/// An array of the graph: one that the graph has a place for, or one between the primitives of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Id {
    /// In the graph.
    ValueRef(ValueRef),
    /// Between primitives.
    Between(usize),
}

/// An array with its shape and type.
#[derive(Clone)]
pub struct Operand {
    pub id: Id,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
}

/// An argument of a primitive.
#[derive(Debug, Clone)]
pub enum Argument {
    /// A value or a list.
    Value(Value),
    /// A tuple.
    Shape(Vec<i64>),
    /// An element type.
    Dtype(Dtype),
}

/// A primitive and what it is applied to.
#[derive(Clone)]
pub struct Primitive {
    pub name: String,
    pub arguments: Vec<Argument>,
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Operand>,
    /// Whether it is no part of a [pattern](patterns).
    pub fixed: bool,
}

/// The primitives of a graph, and its constants.
#[derive(Default)]
pub struct Primitives {
    pub list: Vec<Primitive>,
    pub constants: Vec<(Id, Array)>,
    pub outputs: Vec<Operand>,
    between: usize,
}

pub fn int(value: i64) -> Argument {
    Argument::Value(Value::Int(value))
}

pub fn float(value: f64) -> Argument {
    Argument::Value(Value::Float(value))
}

pub fn ints(list: &[i64]) -> Argument {
    Argument::Value(Value::Ints(list.to_vec()))
}

pub fn shape(lengths: &[usize]) -> Argument {
    Argument::Shape(lengths.iter().map(|length| *length as i64).collect())
}

/// The number of a way to combine elements.
fn combine(mode: &str) -> i64 {
    match mode {
        "max" => 0,
        "min" => 1,
        "add" => 2,
        "multiply" => 3,
        _ => 4,
    }
}

/// The attributes of a step.
pub struct Attributes<'a>(pub &'a Step);

impl Attributes<'_> {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.attributes.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    pub fn int(&self, name: &str) -> i64 {
        if let Some(Value::Int(value)) = self.get(name) { *value } else { 0 }
    }

    pub fn float(&self, name: &str) -> f64 {
        if let Some(Value::Float(value)) = self.get(name) { *value } else { 0.0 }
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Value::Bool(true)))
    }

    fn text(&self, name: &str) -> &str {
        if let Some(Value::Text(value)) = self.get(name) { value } else { "" }
    }

    pub fn ints(&self, name: &str) -> &[i64] {
        if let Some(Value::Ints(list)) = self.get(name) { list } else { &[] }
    }

    /// The group, the bits and the number of the mode of quantized weights.
    fn format(&self) -> [Argument; 3] {
        let mode = match self.text("mode") {
            "mxfp4" => 1,
            "mxfp8" => 2,
            "nvfp4" => 3,
            _ => 0,
        };
        [self.value("group"), self.value("bits"), int(mode)]
    }

    fn value(&self, name: &str) -> Argument {
        Argument::Value(self.get(name).cloned().unwrap_or(Value::Int(0)))
    }
}

impl Primitives {
    /// The primitives of all steps, in MLX's order, equal ones once.
    pub fn of(graph: &Graph) -> hesper::Result<Primitives> {
        let mut primitives = Primitives::lowered(graph, false)?;
        let returned: Vec<Id> = primitives.outputs.iter().map(|output| output.id).collect();
        order::merge(&mut primitives.list, &primitives.constants, &returned)?;
        order::sort(&mut primitives.list, &mut primitives.constants, &returned);
        Ok(primitives)
    }

    /// The same, with equal ones and with those that end derivatives.
    pub fn unmerged(graph: &Graph) -> hesper::Result<Primitives> {
        let mut primitives = Primitives::lowered(graph, true)?;
        let returned: Vec<Id> = primitives.outputs.iter().map(|output| output.id).collect();
        order::join_divmods(&mut primitives.list);
        order::sort(&mut primitives.list, &mut primitives.constants, &returned);
        Ok(primitives)
    }

    /// The primitives of all steps; with those that end derivatives, or without.
    fn lowered(graph: &Graph, ends: bool) -> hesper::Result<Primitives> {
        let values: Vec<(&[usize], Dtype)> = graph
            .steps()
            .iter()
            .flat_map(|step| &step.outputs)
            .map(|(shape, dtype)| (&shape[..], *dtype))
            .collect();
        let operand = |place: ValueRef| {
            let found = match place {
                ValueRef::Value(at) => values.get(at).copied(),
                place => graph.meta(place),
            };
            let (shape, dtype) = found.unwrap_or((&[], Dtype::Float32));
            Operand { id: Id::ValueRef(place), shape: shape.to_vec(), dtype }
        };
        let mut primitives = Primitives::default();
        let mut same: HashMap<ValueRef, ValueRef> = HashMap::new();
        let mut number = 0;
        for step in graph.steps() {
            let places: Vec<ValueRef> =
                step.inputs.iter().map(|place| same.get(place).copied().unwrap_or(*place)).collect();
            let inputs: Vec<Operand> = places.iter().map(|place| operand(*place)).collect();
            // A step that changes nothing is no primitive.
            let own = ValueRef::Value(number);
            let still = match &*step.op {
                "stop_gradient" => primitives.whole_divmod(&inputs[0]) || !ends,
                "described" => described::name(step) == "StopGradient" && !ends,
                "broadcast_to" => inputs[0].shape[..] == step.outputs[0].0[..],
                "conjugate" | "real" => !inputs[0].dtype.is(Category::Complex),
                "trunc" => !inputs[0].dtype.is(Category::Inexact),
                "reduce" => is_still(step, &inputs[0]),
                _ => false,
            };
            if still {
                same.insert(own, places[0]);
                number += 1;
                continue;
            }
            let outputs: Vec<Operand> =
                (number..number + step.outputs.len()).map(|at| operand(ValueRef::Value(at))).collect();
            number += step.outputs.len();
            if step.op == "described" {
                primitives.described(step, inputs, outputs);
            } else if let "gather_mm" | "gather_qmm" = &*step.op {
                primitives.gathered_product(graph, step, inputs, outputs)?;
            } else {
                primitives.step(step, inputs, outputs)?;
            }
        }
        let returned = graph.outputs().iter().map(|place| same.get(place).copied().unwrap_or(*place));
        primitives.outputs = returned.map(operand).collect();
        let returned: Vec<Id> = primitives.outputs.iter().map(|output| output.id).collect();
        patterns::combine(&mut primitives.list, &returned);
        primitives.combine_ffts(&returned)?;
        primitives.scatter_identities()?;
        primitives.split_keys();
        let own = graph.constants().iter().enumerate();
        let own = own.map(|(at, array)| (Id::ValueRef(ValueRef::Constant(at)), array.clone()));
        primitives.constants.extend(own);
        Ok(primitives)
    }

    pub fn push(
        &mut self,
        name: &str,
        arguments: Vec<Argument>,
        inputs: Vec<Operand>,
        outputs: Vec<Operand>,
    ) {
        self.list.push(Primitive { name: name.into(), arguments, inputs, outputs, fixed: false });
    }

    /// A new array of a shape.
    pub fn between(&mut self, shape: &[usize], dtype: Dtype) -> Operand {
        self.between += 1;
        Operand { id: Id::Between(self.between), shape: shape.to_vec(), dtype }
    }

    /// A number.
    pub fn number(&mut self, value: f64, dtype: Dtype) -> hesper::Result<Operand> {
        let operand = self.between(&[], dtype);
        self.constants.push((operand.id, Array::scalar(value, dtype)?));
        Ok(operand)
    }

    /// The array with a shape that it broadcasts to.
    pub fn broadcast(&mut self, from: Operand, to: &[usize]) -> Operand {
        if from.shape == to {
            return from;
        }
        let stretched = self.between(to, from.dtype);
        self.push("Broadcast", vec![shape(to)], vec![from], vec![stretched.clone()]);
        stretched
    }

    /// An element-wise primitive.
    pub fn elementwise(
        &mut self,
        name: &str,
        arguments: Vec<Argument>,
        inputs: Vec<Operand>,
        output: &Operand,
    ) {
        let inputs = inputs.into_iter().map(|input| self.broadcast(input, &output.shape)).collect();
        self.push(name, arguments, inputs, vec![output.clone()]);
    }

    /// Gives a result the place of `output`: the primitive that makes it makes that.
    pub fn rename(&mut self, last: &Operand, output: &Operand) {
        if let Some(primitive) = self.list.iter_mut().rfind(|one| one.outputs[0].id == last.id) {
            primitive.outputs = vec![output.clone()];
        }
    }

    /// A quotient or a remainder whose derivatives end is one of both that `divmod` gives.
    fn whole_divmod(&mut self, operand: &Operand) -> bool {
        let other = self.between(&operand.shape, operand.dtype);
        let Some(primitive) = self.list.iter_mut().rfind(|one| one.outputs[0].id == operand.id) else {
            return false;
        };
        let part = match &*primitive.name {
            "FloorDivide" => 0,
            "Remainder" => 1,
            _ => return false,
        };
        primitive.outputs.insert(1 - part, other);
        primitive.name = order::DIVMOD[part].into();
        true
    }

    /// A key of two that one is split into: MLX has a name for the other, too.
    fn split_keys(&mut self) {
        let keys: Vec<Id> = (self.list.iter())
            .filter(|one| one.name == "RandomBits" && one.outputs[0].shape == [2, 2])
            .map(|one| one.outputs[0].id)
            .collect();
        for at in 0..self.list.len() {
            let slice = &self.list[at];
            if slice.name != "Slice"
                || slice.outputs[0].shape != [1, 2]
                || !keys.contains(&slice.inputs[0].id)
            {
                continue;
            }
            let Some(Argument::Shape(starts)) = slice.arguments.first() else { continue };
            let second = starts[0] == 1;
            let other = self.between(&[1, 2], Dtype::Uint32);
            let split = &mut self.list[at];
            split.name = "Split".into();
            split.arguments = vec![Argument::Shape(vec![1]), int(0)];
            split.outputs.insert(usize::from(!second), other);
        }
    }

    /// An element-wise primitive with a new result.
    fn apply(&mut self, name: &str, inputs: Vec<Operand>) -> Operand {
        let like = &inputs[0];
        let (to, dtype) = (like.shape.clone(), like.dtype);
        let output = self.between(&to, dtype);
        self.elementwise(name, Vec::new(), inputs, &output);
        output
    }

    /// A primitive that reduces axes to length one, and the squeeze that removes them: `output`, or the input
    /// if there is nothing to do.
    fn reduced(
        &mut self,
        name: &str,
        arguments: Vec<Argument>,
        axes: &[i64],
        input: Operand,
        output: &Operand,
    ) -> Operand {
        let mut kept = input.shape.clone();
        axes.iter().for_each(|axis| kept[*axis as usize] = 1);
        let squeezed = kept != output.shape;
        // A reduction over axes of length one changes the type at most.
        let still = name == "Reduce" && kept == input.shape;
        let mut whole = input;
        if !still || whole.dtype != output.dtype {
            let reduced = if squeezed { self.between(&kept, output.dtype) } else { output.clone() };
            let (name, arguments) =
                if still { ("AsType", vec![Argument::Dtype(output.dtype)]) } else { (name, arguments) };
            self.push(name, arguments, vec![whole], vec![reduced.clone()]);
            whole = reduced;
        }
        if squeezed {
            self.push("Squeeze", vec![ints(axes)], vec![whole], vec![output.clone()]);
            return output.clone();
        }
        whole
    }

    fn reduce(&mut self, attributes: &Attributes<'_>, input: Operand, output: Operand) -> hesper::Result<()> {
        let axes = attributes.ints("axes");
        let code = |kind: &str| match kind {
            "all" => 0,
            "any" => 1,
            "prod" => 3,
            "min" => 4,
            "max" => 5,
            _ => 2,
        };
        let sum = || vec![int(2), ints(axes)];
        match attributes.text("kind") {
            "sum" if attributes.float("scale") != 1.0 => {
                let sums = self.between(&output.shape, output.dtype);
                let sums = self.reduced("Reduce", sum(), axes, input, &sums);
                let scale = self.number(attributes.float("scale"), output.dtype)?;
                self.elementwise("Multiply", Vec::new(), vec![sums, scale], &output);
            }
            kind @ ("var" | "std") => {
                let count: f64 = axes.iter().map(|axis| input.shape[*axis as usize] as f64).product();
                let mut kept = input.shape.clone();
                axes.iter().for_each(|axis| kept[*axis as usize] = 1);
                let sums = self.between(&kept, input.dtype);
                let sums = self.reduced("Reduce", sum(), axes, input.clone(), &sums);
                let share = self.number(1.0 / count, input.dtype)?;
                let mean = self.apply("Multiply", vec![sums, share]);
                let distance = self.apply("Subtract", vec![input, mean]);
                let square = self.apply("Square", vec![distance]);
                let squares = self.between(&output.shape, output.dtype);
                let squares = self.reduced("Reduce", sum(), axes, square, &squares);
                let ddof = attributes.float("ddof");
                let (divided, by) = if ddof == 0.0 {
                    ("Multiply", self.number(1.0 / count, output.dtype)?)
                } else {
                    let [count, ddof, zero] = [count, ddof, 0.0].map(|x| self.number(x, output.dtype));
                    let rest = self.apply("Subtract", vec![count?, ddof?]);
                    ("Divide", self.apply("Maximum", vec![rest, zero?]))
                };
                if kind == "var" {
                    self.elementwise(divided, Vec::new(), vec![squares, by], &output);
                } else {
                    let variance = self.apply(divided, vec![squares, by]);
                    self.push("Sqrt", vec![Fixed::Bool(false).into()], vec![variance], vec![output]);
                }
            }
            kind @ ("argmax" | "argmin") => {
                // Over all axes, or over one.
                let (input, axis) = match axes {
                    [axis] => (input, *axis),
                    _ => {
                        let flat = self.between(&[input.shape.iter().product()], input.dtype);
                        let last = input.shape.len().saturating_sub(1) as i64;
                        self.push("Flatten", vec![int(0), int(last)], vec![input], vec![flat.clone()]);
                        (flat, 0)
                    }
                };
                if input.shape[axis as usize] == 1 {
                    let zero = self.number(0.0, output.dtype)?;
                    let zeros = self.broadcast(zero, &input.shape);
                    let first = self.between(&input.shape, output.dtype);
                    self.push("Full", Vec::new(), vec![zeros], vec![first.clone()]);
                    if first.shape == output.shape {
                        self.rename(&first, &output);
                    } else {
                        self.push("Squeeze", vec![ints(&[axis])], vec![first], vec![output]);
                    }
                    return Ok(());
                }
                let arguments = vec![int(i64::from(kind == "argmax")), int(axis)];
                self.reduced("ArgReduce", arguments, &[axis], input, &output);
            }
            "count_nonzero" if input.dtype != Dtype::Bool => {
                let zero = self.number(0.0, input.dtype)?;
                let [marks, ones] =
                    [Dtype::Bool, output.dtype].map(|dtype| self.between(&input.shape, dtype));
                self.elementwise("NotEqual", Vec::new(), vec![input, zero], &marks);
                self.push("AsType", vec![Argument::Dtype(output.dtype)], vec![marks], vec![ones.clone()]);
                let counts = self.reduced("Reduce", sum(), axes, ones, &output);
                self.rename(&counts, &output);
            }
            kind => {
                self.reduced("Reduce", vec![int(code(kind)), ints(axes)], axes, input, &output);
            }
        }
        Ok(())
    }

    /// A reshape: the primitive for what it does to axes, where there is one.
    fn reshape(&mut self, attributes: &Attributes<'_>, input: Operand, output: Operand) {
        let list = |name: &str| attributes.get(name).map(|_| attributes.ints(name));
        let (name, arguments) = if let Some(axes) = list("squeeze") {
            ("Squeeze", vec![ints(axes)])
        } else if let Some(axes) = list("expand_dims") {
            ("ExpandDims", vec![ints(axes)])
        } else if let (Some([start, end]), false) = (list("flatten"), input.shape.is_empty()) {
            ("Flatten", vec![int(*start), int(*end)])
        } else if let Some([axis, lengths @ ..]) = list("unflatten") {
            let axes = *axis as usize..*axis as usize + lengths.len();
            ("Unflatten", vec![int(*axis), shape(&output.shape[axes])])
        } else {
            let mut lengths: Vec<i64> = output.shape.iter().map(|length| *length as i64).collect();
            if attributes.get("open").is_some()
                && let Some(length) = lengths.get_mut(attributes.int("open") as usize)
            {
                *length = -1;
            }
            ("Reshape", vec![Argument::Shape(lengths)])
        };
        self.push(name, arguments, vec![input], vec![output]);
    }

    /// The graph of a step that MLX computes with several element-wise primitives.
    fn composite(&mut self, op: &str, x: &Operand, output: &Operand) -> hesper::Result<bool> {
        let like = |own: &mut Self, name: &str, inputs: Vec<Operand>| {
            let result = own.between(&output.shape, output.dtype);
            let arguments = if name == "Equal" { vec![Fixed::Bool(false).into()] } else { Vec::new() };
            own.elementwise(name, arguments, inputs, &result);
            result
        };
        if op != "trunc" && !x.dtype.is(Category::Inexact) {
            // All integers are finite.
            let flag = self.number(f64::from(u8::from(op == "isfinite")), Dtype::Bool)?;
            let flags = self.broadcast(flag, &output.shape);
            self.push("Full", Vec::new(), vec![flags], vec![output.clone()]);
            return Ok(true);
        }
        let is = |own: &mut Self, number: f64| -> hesper::Result<Operand> {
            let number = own.number(number, x.dtype)?;
            Ok(like(own, "Equal", vec![x.clone(), number]))
        };
        let last = match op {
            "isnan" => like(self, "NotEqual", vec![x.clone(), x.clone()]),
            "isposinf" => is(self, f64::INFINITY)?,
            "isneginf" => is(self, f64::NEG_INFINITY)?,
            "isinf" | "isfinite" => {
                let either = vec![is(self, f64::INFINITY)?, is(self, f64::NEG_INFINITY)?];
                let infinite = like(self, "LogicalOr", either);
                if op == "isfinite" {
                    let unknown = like(self, "NotEqual", vec![x.clone(), x.clone()]);
                    let neither = like(self, "LogicalOr", vec![infinite, unknown]);
                    like(self, "LogicalNot", vec![neither])
                } else {
                    infinite
                }
            }
            "trunc" => {
                let zero = self.number(0.0, x.dtype)?;
                let negative = self.between(&output.shape, Dtype::Bool);
                self.elementwise("Less", Vec::new(), vec![x.clone(), zero], &negative);
                let parts = ["Ceil", "Floor"].map(|name| self.apply(name, vec![x.clone()]));
                like(self, "Select", std::iter::once(negative).chain(parts).collect())
            }
            _ => return Ok(false),
        };
        self.rename(&last, output);
        Ok(true)
    }

    /// The weights that a slice reverses along all spatial axes.
    fn flipped(&self, weights: &Operand) -> Option<Operand> {
        let slice = self.list.iter().rfind(|one| one.outputs[0].id == weights.id && one.name == "Slice")?;
        let Some(Argument::Shape(steps)) = slice.arguments.get(2) else { return None };
        let spatial = 1..weights.shape.len() - 1;
        let reversed = spatial.clone().all(|axis| steps[axis] == -1 || weights.shape[axis] == 1);
        let any = spatial.clone().any(|axis| steps[axis] == -1);
        let whole = slice.inputs[0].shape == weights.shape;
        (reversed && any && whole).then(|| slice.inputs[0].clone())
    }

    /// A gather, which has the axes of the indices first in MLX.
    fn gather(&mut self, attributes: &Attributes<'_>, inputs: Vec<Operand>, output: Operand) {
        let (sizes, before) = (attributes.ints("sizes"), attributes.int("before") as usize);
        let arguments = vec![attributes.value("axes"), Argument::Shape(sizes.to_vec())];
        let points = output.shape.len().saturating_sub(sizes.len());
        let axes: Vec<usize> =
            (points..points + before).chain(0..points).chain(points + before..output.shape.len()).collect();
        if before == 0 || points == 0 {
            return self.push("Gather", arguments, inputs, vec![output]);
        }
        let mut first = vec![0; axes.len()];
        axes.iter().zip(&output.shape).for_each(|(axis, length)| first[*axis] = *length);
        let first = self.between(&first, output.dtype);
        self.push("Gather", arguments, inputs, vec![first.clone()]);
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        self.push("Transpose", vec![ints(&axes)], vec![first], vec![output]);
    }

    /// A product of matrices that indices choose, which MLX has last and as `uint32`. All matrices in order
    /// are counted.
    fn gathered_product(
        &mut self,
        graph: &Graph,
        step: &Step,
        mut inputs: Vec<Operand>,
        outputs: Vec<Operand>,
    ) -> hesper::Result<()> {
        let attributes = Attributes(step);
        let (first, quantized) = (if step.op == "gather_mm" { 2 } else { 1 }, step.op == "gather_qmm");
        for list in inputs.drain(first..first + 2).collect::<Vec<_>>() {
            let constant = match list.id {
                Id::ValueRef(ValueRef::Constant(at)) if list.dtype == Dtype::Int64 => {
                    graph.constants().get(at)
                }
                _ => None,
            };
            let numbers = constant.map(|array| array.flatten(0, -1)?.to_vec::<i64>()).transpose()?;
            let counted = numbers.filter(|list| list.iter().zip(0..).all(|(number, at)| *number == at));
            inputs.push(match counted {
                Some(numbers) => self.counted(numbers.len(), &list.shape),
                None => self.cast(&list, Dtype::Uint32),
            });
        }
        let sorted = [false, false].map(|flag| Fixed::Bool(flag).into());
        if quantized {
            let format = attributes.format().into_iter().chain([attributes.value("transpose")]);
            self.push("GatherQMM", format.chain(sorted).collect(), inputs, outputs);
        } else {
            self.push("GatherMM", sorted.into(), inputs, outputs);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, mut inputs: Vec<Operand>, outputs: Vec<Operand>) -> hesper::Result<()> {
        let attributes = Attributes(step);
        let op = step.op.as_ref();
        let output = outputs[0].clone();
        let inverted = op == "bitwise_invert" && output.dtype == Dtype::Bool;
        let op = if inverted { "logical_not" } else { op };
        let complex = inputs.first().is_some_and(|input| input.dtype.is(Category::Complex));
        if op == "abs" && complex {
            let like = self.apply("Abs", inputs);
            self.push("AsType", vec![Argument::Dtype(output.dtype)], vec![like], vec![output]);
            return Ok(());
        }
        if op == "imag" && !complex {
            let zero = self.number(0.0, output.dtype)?;
            let zeros = self.broadcast(zero, &output.shape);
            self.push("Full", Vec::new(), vec![zeros], vec![output]);
            return Ok(());
        }
        if let Some((_, name, fixed)) = ELEMENTWISE.iter().find(|(own, ..)| *own == op) {
            let arguments = fixed.iter().map(|one| (*one).into()).collect();
            self.elementwise(name, arguments, inputs, &output);
            return Ok(());
        }
        if self.compose(step, &inputs, &output)? {
            return Ok(());
        }
        let last = output.shape.len().saturating_sub(1) as i64;
        let (name, arguments) = match op {
            "reduce" => return self.reduce(&attributes, inputs.remove(0), output),
            "reshape" => {
                self.reshape(&attributes, inputs.remove(0), output);
                return Ok(());
            }
            "isnan" | "isinf" | "isposinf" | "isneginf" | "isfinite" | "trunc"
                if self.composite(op, &inputs[0], &output)? =>
            {
                return Ok(());
            }
            "arange" => {
                let (start, step) = (attributes.float("start"), attributes.float("step"));
                let bounds = [start, start + step * output.shape[0] as f64, step];
                ("Arange", bounds.map(|bound| Argument::Value(Value::Float(bound))).into())
            }
            "quantize" | "quantized_matmul" => {
                let flag =
                    if op == "quantize" { Fixed::Bool(false).into() } else { attributes.value("transpose") };
                let name = if op == "quantize" { "Quantize" } else { "QuantizedMatmul" };
                (name, attributes.format().into_iter().chain([flag]).collect())
            }
            "reciprocal" => {
                let one = self.number(1.0, output.dtype)?;
                inputs.insert(0, one);
                self.elementwise("Divide", Vec::new(), inputs, &output);
                return Ok(());
            }
            "logsumexp" => {
                let axis = inputs[0].shape.len() as i64 - 1;
                self.reduced("LogSumExp", Vec::new(), &[axis], inputs.remove(0), &output);
                return Ok(());
            }
            "astype" => ("AsType", vec![Argument::Dtype(output.dtype)]),
            "view" => ("View", vec![Argument::Dtype(output.dtype)]),
            "transpose" => ("Transpose", vec![attributes.value("axes")]),
            "broadcast_to" => ("Broadcast", vec![shape(&output.shape)]),
            // The shape of the other array is known.
            "broadcast_like" | "reshape_like" => {
                inputs.truncate(1);
                let name = if op == "broadcast_like" { "Broadcast" } else { "Reshape" };
                (name, vec![shape(&output.shape)])
            }
            "full" => {
                inputs[0] = self.broadcast(inputs[0].clone(), &output.shape);
                ("Full", Vec::new())
            }
            "slice" => {
                let (starts, steps) = (attributes.ints("starts"), attributes.ints("steps"));
                let stops = stops(starts, steps, &output.shape, &inputs[0].shape);
                let (starts, steps) = (starts.to_vec(), steps.to_vec());
                ("Slice", vec![Argument::Shape(starts), Argument::Shape(stops), Argument::Shape(steps)])
            }
            "slice_update" => {
                let (starts, steps) = (attributes.ints("starts"), attributes.ints("steps"));
                let stops = stops(starts, steps, &inputs[1].shape, &inputs[0].shape);
                let (starts, steps) = (starts.to_vec(), steps.to_vec());
                let mode = int(combine(attributes.text("mode")));
                let bounds = [starts, stops, steps].map(Argument::Shape);
                ("SliceUpdate", std::iter::once(mode).chain(bounds).collect())
            }
            "dynamic_slice" => ("DynamicSlice", vec![attributes.value("axes"), shape(&output.shape)]),
            "dynamic_slice_update" => ("DynamicSliceUpdate", vec![attributes.value("axes")]),
            "gather" => {
                self.gather(&attributes, inputs, output);
                return Ok(());
            }
            "scatter" => {
                // MLX has the updates last.
                let updates = inputs.remove(1);
                inputs.push(updates);
                ("Scatter", vec![int(combine(attributes.text("mode"))), attributes.value("axes")])
            }
            "take_along_axis" => ("GatherAxis", vec![attributes.value("axis")]),
            "put_along_axis" => {
                let mode = i64::from(attributes.text("mode") == "set");
                ("ScatterAxis", vec![int(mode), attributes.value("axis")])
            }
            "concatenate" => ("Concatenate", vec![attributes.value("axis")]),
            "sort" => match (attributes.text("order"), attributes.flag("places")) {
                ("sorted", false) => ("Sort", vec![int(last)]),
                ("sorted", true) => ("ArgSort", vec![int(last)]),
                ("around", false) => ("Partition", vec![attributes.value("kth"), int(last)]),
                ("around", true) => ("ArgPartition", vec![attributes.value("kth"), int(last)]),
                _ => return Err(hesper::Error::value("sort", "an order without primitives")),
            },
            "scan" => {
                let code = match attributes.text("kind") {
                    "cummax" => 0,
                    "cummin" => 1,
                    "cumsum" => 2,
                    "cumprod" => 3,
                    _ => 4,
                };
                let rest = ["axis", "reverse", "inclusive"].map(|name| attributes.value(name));
                ("Scan", std::iter::once(int(code)).chain(rest).collect())
            }
            "matmul" => ("Matmul", Vec::new()),
            "addmm" => {
                ("AddMM", step.attributes.iter().map(|(_, value)| Argument::Value(value.clone())).collect())
            }
            "softmax" => ("Softmax", vec![Fixed::Bool(false).into()]),
            "conv" => {
                let lists = ["stride", "low", "high", "kernel_dilation", "input_dilation", "groups"];
                let lists = lists.map(|name| attributes.value(name));
                let flipped = self.flipped(&inputs[1]);
                let flip = Fixed::Bool(flipped.is_some()).into();
                inputs[1] = flipped.unwrap_or_else(|| inputs[1].clone());
                ("Convolution", lists.into_iter().chain([flip]).collect())
            }
            "random_bits" => {
                let width = output.dtype.size() as i64;
                ("RandomBits", vec![shape(&output.shape), int(width)])
            }
            "as_strided" => {
                // MLX takes the elements in a row.
                let copied = inputs[0].id;
                let copy = |one: &Primitive| one.name == "Contiguous" && one.outputs[0].id == copied;
                let copy = self.list.iter_mut().rfind(|one| copy(one));
                match copy {
                    Some(copy) if inputs[0].shape.len() == 1 => inputs[0] = copy.inputs[0].clone(),
                    Some(copy) => {
                        let last = inputs[0].shape.len().saturating_sub(1) as i64;
                        inputs[0].shape = vec![inputs[0].shape.iter().product()];
                        copy.outputs[0].shape = inputs[0].shape.clone();
                        (copy.name, copy.arguments) = ("Flatten".into(), vec![int(0), int(last)]);
                    }
                    None => {}
                }
                let strides = Argument::Shape(attributes.ints("strides").to_vec());
                ("AsStrided", vec![shape(&output.shape), strides, attributes.value("offset")])
            }
            "hadamard_transform" => ("Hadamard", vec![attributes.value("scale")]),
            "inv" => ("Inverse", vec![Fixed::Bool(false).into(), Fixed::Bool(true).into()]),
            "tri_inv" => ("Inverse", vec![Fixed::Bool(true).into(), attributes.value("upper")]),
            "qr" => ("QRF", Vec::new()),
            "svd" => ("SVD", vec![Fixed::Bool(true).into()]),
            "singular_values" => ("SVD", vec![Fixed::Bool(false).into()]),
            "eig" => ("Eig", vec![Fixed::Bool(true).into()]),
            "eigvals" => ("Eig", vec![Fixed::Bool(false).into()]),
            "eigh" | "eigvalsh" => {
                let half = if attributes.flag("upper") { "U" } else { "L" };
                ("Eigh", vec![Argument::Value(Value::Text(half.into())), Fixed::Bool(op == "eigh").into()])
            }
            "stop_gradient" => ("StopGradient", Vec::new()),
            "contiguous" => ("Contiguous", Vec::new()),
            own => {
                let arguments = step.attributes.iter().map(|(_, value)| Argument::Value(value.clone()));
                self.push(&self::name(own), arguments.collect(), inputs, outputs);
                return Ok(());
            }
        };
        self.push(name, arguments, inputs, outputs);
        Ok(())
    }
}

/// Whether a reduction keeps axes of length one, and gives its input.
fn is_still(step: &Step, input: &Operand) -> bool {
    let attributes = Attributes(step);
    let kind = matches!(attributes.text("kind"), "sum" | "prod" | "max" | "min" | "all" | "any");
    let (shape, dtype) = &step.outputs[0];
    let scaled = attributes.get("scale").is_some() && attributes.float("scale") != 1.0;
    kind && !scaled && shape[..] == input.shape[..] && *dtype == input.dtype
}

/// Where slices stop.
fn stops(starts: &[i64], steps: &[i64], lengths: &[usize], of: &[usize]) -> Vec<i64> {
    let each = starts.iter().zip(steps).zip(lengths.iter().zip(of));
    each.map(|((start, step), (length, of))| {
        let (length, of) = (*length as i64, *of as i64);
        let stop = start.saturating_add(step.saturating_mul(length));
        if stop < 0 { -of - 1 } else { stop.min(of) }
    })
    .collect()
}
