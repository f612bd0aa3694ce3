//! Forward mode: the tangents of a primitive's outputs.

use hesper::{Array, axes};

use super::pointwise::{self, ints};
use super::{Node, step};
use crate::primitives::int;

/// The tangents of the outputs, from those of the inputs. `None` without a rule.
pub fn rule(node: &Node, tangents: &[Option<Array>]) -> hesper::Result<Option<Vec<Array>>> {
    let one = |found: hesper::Result<Array>| found.map(|found| Some(vec![found]));
    let full = |at: usize| tangents[at].clone().map_or_else(|| node.inputs[at].zeros_like(), Ok);
    match node.name() {
        // Linear in the inputs that have tangents.
        "Broadcast" | "Reshape" | "ExpandDims" | "Squeeze" | "Flatten" | "Unflatten" | "Transpose"
        | "Slice" | "Pad" | "Concatenate" | "Split" | "Gather" | "GatherAxis" | "FFT" | "Hadamard"
        | "AsStrided" | "View" | "DynamicSlice" | "DynamicSliceUpdate" | "SliceUpdate" | "ScatterAxis"
        | "Full" | "QuantizedMatmul" => {
            // What is not linear is indices and codes.
            let values = match node.name() {
                "Concatenate" => node.inputs.len(),
                "SliceUpdate" | "DynamicSliceUpdate" => 2,
                _ => 1,
            };
            let last = node.inputs.len() - 1;
            let is_value = |at: usize| at < values || (node.name() == "ScatterAxis" && at == last);
            if tangents.iter().enumerate().any(|(at, tangent)| tangent.is_some() && !is_value(at)) {
                return Ok(None);
            }
            let inputs =
                (0..=last).map(|at| if is_value(at) { full(at) } else { Ok(node.inputs[at].clone()) });
            let inputs = inputs.collect::<hesper::Result<Vec<Array>>>()?;
            node.again(&inputs, &node.outputs).map(Some)
        }
        "Matmul" | "AddMM" => one(product(node, tangents)),
        "Reduce" => Ok(reduced(node, &full(0)?)?.map(|found| vec![found])),
        "Scan" if node.primitive.int(0) == Some(2) => node.again(&[full(0)?], &node.outputs).map(Some),
        "Softmax" => {
            let share = node.y().multiply(full(0)?)?;
            one(share.subtract(node.y().multiply(share.sum(axes(-1).keepdims())?)?))
        }
        "LogSumExp" => {
            let x = node.x();
            let shares = step("Softmax", vec![true.into()], &[x], x.shape(), x.dtype())?;
            one(full(0)?.multiply(shares)?.sum(axes(-1).keepdims()))
        }
        "Sort" | "Partition" => {
            let x = node.x();
            let axis = ints_or(node, usize::from(node.name() == "Partition"));
            let places = match node.name() {
                "Sort" => x.argsort(axis)?,
                _ => x.argpartition(ints_or(node, 0), axis)?,
            };
            one(full(0)?.take_along_axis(&places, axis))
        }
        "ArcTan2" => {
            let [a, b] = [&node.inputs[0], &node.inputs[1]];
            let change = match (&tangents[0], &tangents[1]) {
                (Some(first), None) => b.multiply(first)?,
                (None, Some(second)) => a.multiply(second)?.negative()?,
                _ => b.multiply(full(0)?)?.subtract(a.multiply(full(1)?)?)?,
            };
            one(change.divide(a.square()?.add(b.square()?)?))
        }
        "Real" if super::complex(node.x()) => one(full(0)?.real()),
        name if pointwise::is_flat(name) => {
            node.outputs.iter().map(Array::zeros_like).collect::<hesper::Result<Vec<Array>>>().map(Some)
        }
        _ => {
            let mut sum: Option<Array> = None;
            for (at, tangent) in tangents.iter().enumerate() {
                let Some(tangent) = tangent else { continue };
                let Some(part) = pointwise::rule(node, tangent, at, false)? else { return Ok(None) };
                sum = Some(match sum {
                    Some(sum) => sum.add(&part)?,
                    None => part,
                });
            }
            Ok(sum.map(|sum| vec![sum]))
        }
    }
}

fn ints_or(node: &Node, at: usize) -> isize {
    node.primitive.int(at).unwrap_or_default() as isize
}

fn product(node: &Node, tangents: &[Option<Array>]) -> hesper::Result<Array> {
    let [a, b] = [&node.inputs[0], &node.inputs[1]];
    let y = node.y();
    let product = match (&tangents[0], &tangents[1]) {
        (Some(da), Some(db)) => {
            let first = da.matmul(b)?;
            let factors = [1.0, 1.0].map(crate::primitives::float).to_vec();
            step("AddMM", factors, &[a, db, &first], y.shape(), y.dtype())?
        }
        (Some(da), None) => da.matmul(b)?,
        (None, Some(db)) => a.matmul(db)?,
        (None, None) => y.zeros_like()?,
    };
    match tangents.get(2) {
        Some(Some(dc)) if tangents[0].is_none() && tangents[1].is_none() => Ok(dc.clone()),
        Some(Some(dc)) => product.add(dc),
        _ => Ok(product),
    }
}

fn reduced(node: &Node, t: &Array) -> hesper::Result<Option<Array>> {
    let (x, y) = (node.x(), node.y());
    let over = ints(node.arguments().get(1));
    let kind = node.primitive.int(0).unwrap_or_default();
    let along = |x: &Array, t: &Array, axis: i64| -> hesper::Result<Array> {
        let mut to = x.shape().to_vec();
        to[axis as usize] = 1;
        if kind == 3 {
            let before = x.cumprod(Some(axis as isize), false, false)?;
            let others = before.multiply(x.cumprod(Some(axis as isize), true, false)?)?;
            return others.multiply(t)?.sum(axes(axis as isize).keepdims());
        }
        let arguments = vec![int(i64::from(kind == 5)), int(axis)];
        let place = step("ArgReduce", arguments, &[x], &to, hesper::Dtype::Uint32)?;
        step("GatherAxis", vec![int(axis)], &[t, &place], &to, t.dtype())
    };
    Ok(Some(match (kind, over) {
        (2, _) => node.again(&[t.clone()], &node.outputs)?.remove(0),
        (3..=5, [axis]) => along(x, t, *axis)?,
        (3..=5, _) => {
            let rest = (0..x.ndim() as i64).filter(|at| !over.contains(at));
            let order: Vec<isize> = rest.chain(over.iter().copied()).map(|at| at as isize).collect();
            let kept = (x.ndim() - over.len()) as i64;
            let rows = |x: &Array| x.transpose(&order)?.flatten(kept as isize, -1);
            let found = along(&rows(x)?, &rows(t)?, kept)?.squeeze(kept as isize)?;
            found.expand_dims(over.iter().map(|axis| *axis as isize).collect::<Vec<_>>())?
        }
        _ => y.zeros_like()?,
    }))
}
