//! Fourier transforms as MLX's primitive: over several axes at once, of arrays that have the transform's type
//! and lengths already.

use hesper::Dtype;
use hesper::export::Value;

use super::{Argument, Id, Operand, Primitive, Primitives, ints};

/// A transform of the graph, or several that follow each other.
struct Fft {
    kind: TransformKind,
    inverse: bool,
    /// Each axis with the number of elements that are transformed; that of real numbers is the last.
    axes: Vec<(usize, usize)>,
    scale: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransformKind {
    Complex,
    RealToComplex,
    ComplexToReal,
}

fn order(primitive: &Primitive) -> Option<&[i64]> {
    match primitive.arguments.first() {
        Some(Argument::Value(Value::Ints(list))) if primitive.name == "Transpose" => Some(list),
        _ => None,
    }
}

fn is_identity(order: &[i64]) -> bool {
    order.iter().enumerate().all(|(at, axis)| at as i64 == *axis)
}

/// The transform that a step is, along one axis of its input.
fn transform(primitive: &Primitive, axis: usize) -> Option<Fft> {
    use Argument::Value as Own;
    let [
        Own(Value::Text(kind)),
        Own(Value::Bool(inverse)),
        Own(Value::Int(length)),
        Own(Value::Float(scale)),
    ] = &primitive.arguments[..]
    else {
        return None;
    };
    let kind = match kind.as_str() {
        "real_to_complex" => TransformKind::RealToComplex,
        "complex_to_real" => TransformKind::ComplexToReal,
        _ => TransformKind::Complex,
    };
    Some(Fft { kind, inverse: *inverse, axes: vec![(axis, *length as usize)], scale: *scale })
}

impl Fft {
    /// Both as one, if there is such a transform.
    fn then(&self, next: &Fft) -> Option<Fft> {
        let known = |(axis, _): &(usize, usize)| self.axes.iter().any(|(own, _)| own == axis);
        let fits = self.kind != TransformKind::ComplexToReal && next.kind != TransformKind::RealToComplex;
        if !fits || self.inverse != next.inverse || next.axes.iter().any(known) {
            return None;
        }
        let kind = if next.kind == TransformKind::Complex { self.kind } else { next.kind };
        // The last of the axes is transformed first, but for that of a real result.
        let axes = match next.kind {
            TransformKind::ComplexToReal => self.axes.iter().chain(&next.axes).copied().collect(),
            _ => next.axes.iter().chain(&self.axes).copied().collect(),
        };
        Some(Fft { kind, inverse: self.inverse, axes, scale: self.scale * next.scale })
    }
}

impl Primitives {
    /// Replaces the transforms of rows, and the transpositions around them.
    pub fn combine_ffts(&mut self, outputs: &[Id]) -> hesper::Result<()> {
        let list = std::mem::take(&mut self.list);
        let uses = |id: Id| {
            let inputs = list.iter().flat_map(|primitive| &primitive.inputs);
            inputs.filter(|input| input.id == id).count() + outputs.iter().filter(|own| **own == id).count()
        };
        // A transform at a place of the list, its input and output, and how many primitives it is.
        let found = |at: usize| -> Option<(Fft, &Operand, &Operand, usize)> {
            let once = |own: &Primitive| uses(own.outputs[0].id) == 1;
            if let [there, row, back, ..] = &list[at..]
                && let (Some(to), Some(from)) = (order(there), order(back))
                && row.name == "Fft"
                && row.inputs[0].id == there.outputs[0].id
                && back.inputs[0].id == row.outputs[0].id
                && once(there)
                && once(row)
                && is_identity(&to.iter().map(|axis| from[*axis as usize]).collect::<Vec<i64>>())
            {
                let axis = *to.last()? as usize;
                return Some((transform(row, axis)?, &there.inputs[0], &back.outputs[0], 3));
            }
            let row = list.get(at).filter(|row| row.name == "Fft")?;
            let last = row.inputs[0].shape.len().checked_sub(1)?;
            Some((transform(row, last)?, &row.inputs[0], &row.outputs[0], 1))
        };
        let mut at = 0;
        while at < list.len() {
            let Some((mut fft, input, mut output, mut count)) = found(at) else {
                self.list.push(list[at].clone());
                at += 1;
                continue;
            };
            while let Some((next, from, to, more)) = found(at + count)
                && from.id == output.id
                && uses(output.id) == 1
                && let Some(both) = fft.then(&next)
            {
                (fft, output, count) = (both, to, count + more);
            }
            self.fft(&fft, input.clone(), output.clone())?;
            at += count;
        }
        Ok(())
    }

    fn fft(&mut self, fft: &Fft, mut x: Operand, output: Operand) -> hesper::Result<()> {
        let mut lengths = x.shape.clone();
        for (at, (axis, length)) in fft.axes.iter().enumerate() {
            let halved = fft.kind == TransformKind::ComplexToReal && at + 1 == fft.axes.len();
            lengths[*axis] = if halved { length / 2 + 1 } else { *length };
        }
        let list = |lengths: &[usize]| Argument::Shape(lengths.iter().map(|one| *one as i64).collect());
        let same = |number: usize| Argument::Shape(vec![number as i64; lengths.len()]);
        let cut: Vec<usize> = x.shape.iter().zip(&lengths).map(|(own, other)| *own.min(other)).collect();
        if cut != x.shape {
            let part = self.between(&cut, x.dtype);
            self.push("Slice", vec![same(0), list(&lengths), same(1)], vec![x], vec![part.clone()]);
            x = part;
        }
        if lengths != x.shape {
            let zero = self.number(0.0, x.dtype)?;
            let zeros = self.broadcast(zero, &lengths);
            let (full, filled) = (self.between(&lengths, x.dtype), self.between(&lengths, x.dtype));
            self.push("Full", Vec::new(), vec![zeros], vec![full.clone()]);
            let set = Argument::Value(Value::Int(4));
            let arguments = vec![set, same(0), list(&x.shape), same(1)];
            self.push("SliceUpdate", arguments, vec![full, x], vec![filled.clone()]);
            x = filled;
        }
        let dtype = if fft.kind == TransformKind::RealToComplex { Dtype::Float32 } else { Dtype::Complex64 };
        if x.dtype != dtype {
            let typed = self.between(&lengths, dtype);
            self.push("AsType", vec![Argument::Dtype(dtype)], vec![x], vec![typed.clone()]);
            x = typed;
        }
        let count: f64 = fft.axes.iter().map(|(_, length)| *length as f64).product();
        let scale = if fft.inverse { fft.scale * count } else { fft.scale };
        let scaled = (scale - 1.0).abs() > 1e-12;
        let result = if scaled { self.between(&output.shape, output.dtype) } else { output.clone() };
        let flag = |value: bool| Argument::Value(Value::Bool(value));
        let axes: Vec<i64> = fft.axes.iter().map(|(axis, _)| *axis as i64).collect();
        let arguments =
            vec![ints(&axes), flag(fft.inverse), flag(fft.kind != TransformKind::Complex), flag(false)];
        self.push("FFT", arguments, vec![x], vec![result.clone()]);
        if scaled {
            let factor = self.number(scale, output.dtype)?;
            self.elementwise("Multiply", Vec::new(), vec![result, factor], &output);
        }
        Ok(())
    }
}
