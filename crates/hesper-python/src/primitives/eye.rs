//! Matrices with ones on a diagonal, which MLX scatters into zeros: here they compare the numbers of columns
//! with those of rows.

use std::collections::HashMap;

use hesper::export::Value;

use super::{Argument, Id, Operand, Primitive, Primitives, int, ints, shape};

/// What makes each array.
type Makers = HashMap<Id, usize>;

impl Primitives {
    /// Replaces comparisons of columns with rows by scatters.
    pub fn scatter_identities(&mut self) -> hesper::Result<()> {
        let makers: Makers = (self.list.iter().enumerate())
            .flat_map(|(at, primitive)| primitive.outputs.iter().map(move |output| (output.id, at)))
            .collect();
        let found: Vec<(usize, i64)> =
            (0..self.list.len()).filter_map(|at| Some((at, diagonal(&self.list, &makers, at)?))).collect();
        for (at, k) in found.into_iter().rev() {
            let rest = self.list.split_off(at + 1);
            let output = self.list.remove(at).outputs.remove(0);
            self.eye(k, &output)?;
            self.list.extend(rest);
        }
        Ok(())
    }

    fn eye(&mut self, k: i64, output: &Operand) -> hesper::Result<()> {
        let [rows, columns] = [0, 1].map(|axis| output.shape[axis] as i64);
        let count = (rows - (-k).max(0)).min(columns - k.max(0)).max(0) as usize;
        let zeros = self.filled(0.0, &output.shape, output)?;
        if count == 0 {
            self.rename(&zeros, output);
            return Ok(());
        }
        let places = [(-k).max(0), k.max(0)].map(|start| self.arange(start, 1, count, hesper::Dtype::Int32));
        let ones = self.filled(1.0, &[count, 1, 1], output)?;
        let inputs = std::iter::once(zeros).chain(places).chain([ones]).collect();
        self.push("Scatter", vec![int(4), ints(&[0, 1])], inputs, vec![output.clone()]);
        Ok(())
    }

    /// An array of one number, of the type of another.
    fn filled(&mut self, number: f64, to: &[usize], like: &Operand) -> hesper::Result<Operand> {
        let number = self.number(number, like.dtype)?;
        let stretched = self.between(to, like.dtype);
        self.push("Broadcast", vec![shape(to)], vec![number], vec![stretched.clone()]);
        let filled = self.between(to, like.dtype);
        self.push("Full", Vec::new(), vec![stretched], vec![filled.clone()]);
        Ok(filled)
    }
}

/// The diagonal whose ones a conversion of `columns == rows` makes.
fn diagonal(list: &[Primitive], makers: &Makers, at: usize) -> Option<i64> {
    let made = |operand: &Operand, name: &str| {
        let primitive = &list[*makers.get(&operand.id)?];
        (primitive.name == name).then_some(primitive)
    };
    let cast = &list[at];
    if cast.name != "AsType" || cast.outputs[0].shape.len() != 2 {
        return None;
    }
    let equal = made(&cast.inputs[0], "Equal")?;
    // The first number of a row or a column.
    let start = |side: usize, axis: i64| {
        let operand =
            made(&equal.inputs[side], "Broadcast").map_or(&equal.inputs[side], |one| &one.inputs[0]);
        let expanded = made(operand, "ExpandDims")?;
        let counted = made(&expanded.inputs[0], "Arange")?;
        let axes =
            matches!(&expanded.arguments[..], [Argument::Value(Value::Ints(axes))] if axes[..] == [axis]);
        match counted.arguments[..] {
            [Argument::Value(Value::Float(start)), _, Argument::Value(Value::Float(1.0))] if axes => {
                Some(start)
            }
            _ => None,
        }
    };
    let (columns, rows) = (start(0, 0)?, start(1, 1)?);
    (rows == 0.0).then_some(-columns as i64)
}
