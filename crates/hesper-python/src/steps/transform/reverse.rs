//! Reverse mode: the cotangents of a primitive's inputs.

use hesper::transform::stop_gradient;
use hesper::{Array, Axes, Dtype, axes, select};

use super::pointwise::{self, ints};
use super::{Node, step};
use crate::primitives::{Argument, int, shape};

type Found = hesper::Result<Option<Vec<Array>>>;

fn list(axes: &[i64]) -> Vec<isize> {
    axes.iter().map(|axis| *axis as isize).collect()
}

fn lengths(array: &Array) -> Vec<isize> {
    array.shape().iter().map(|length| *length as isize).collect()
}

fn transposed(x: &Array) -> hesper::Result<Array> {
    x.swapaxes(-1, -2)
}

/// A number of ways to combine elements.
const ADD: i64 = 2;
const SET: i64 = 4;

/// The cotangents of the wanted inputs. `None` without a rule.
pub fn rule(node: &Node, cotangents: &[Array], wanted: &[usize]) -> Found {
    let ct = &cotangents[0];
    let (x, arguments) = (node.x(), node.arguments());
    if node.name() == "Split" {
        let axis = node.primitive.int(1).unwrap_or_default();
        let joined = step("Concatenate", vec![int(axis)], &refs(cotangents), x.shape(), x.dtype())?;
        return Ok(Some(vec![joined]));
    }
    if node.name() == "Concatenate" {
        let axis = node.primitive.int(0).unwrap_or_default() as usize;
        let starts = node.inputs.iter().scan(0, |next, input| {
            let start = *next;
            *next += input.shape()[axis] as isize;
            Some((start, *next))
        });
        let starts: Vec<(isize, isize)> = starts.collect();
        let parts = wanted.iter().map(|at| {
            let own = node.inputs[*at].shape();
            let (mut start, mut stop) = (vec![0; own.len()], Vec::from_iter(own.iter().map(|n| *n as i64)));
            (start[axis], stop[axis]) = (starts[*at].0 as i64, starts[*at].1 as i64);
            let bounds = [start, stop, vec![1; own.len()]].map(Argument::Shape).to_vec();
            step("Slice", bounds, &[ct], own, ct.dtype())
        });
        return parts.collect::<hesper::Result<Vec<Array>>>().map(Some);
    }
    // Indices have no derivative.
    let indexed = ["Gather", "GatherAxis", "Scatter", "ScatterAxis", "DynamicSlice", "DynamicSliceUpdate"];
    let last = node.inputs.len() - 1;
    if indexed.contains(&node.name()) {
        let updated = if node.name() == "DynamicSliceUpdate" { 1 } else { last };
        let values = node.name().starts_with("Scatter") || node.name() == "DynamicSliceUpdate";
        if wanted.iter().any(|at| *at != 0 && !(values && *at == updated)) {
            return Ok(None);
        }
    }
    let mut found = Vec::new();
    for at in wanted {
        let one = match node.name() {
            "Matmul" | "AddMM" => product(node, ct, *at)?,
            "SliceUpdate" | "Scatter" | "ScatterAxis" | "DynamicSliceUpdate" => update(node, ct, *at)?,
            "Reduce" => reduced(node, ct)?,
            "Scan" => scanned(node, ct)?,
            "Convolution" => super::convolution::reverse(node, ct, *at)?,
            "Softmax" => {
                let share = node.y().multiply(ct)?;
                Some(share.subtract(node.y().multiply(share.sum(axes(-1).keepdims())?)?)?)
            }
            "LogSumExp" => {
                let shares = step("Softmax", vec![true.into()], &[x], x.shape(), x.dtype())?;
                Some(ct.multiply(shares)?)
            }
            "Sort" => Some(placed(x, &x.argsort(axis(node, 0))?, ct, axis(node, 0))?),
            "Partition" => {
                let kth = node.primitive.int(0).unwrap_or_default() as isize;
                Some(placed(x, &x.argpartition(kth, axis(node, 1))?, ct, axis(node, 1))?)
            }
            "Broadcast" => Some(unbroadcast(ct, x.shape())?),
            "ExpandDims" => Some(ct.squeeze(list(ints(arguments.first())))?),
            "Squeeze" => Some(ct.expand_dims(list(ints(arguments.first())))?),
            "Flatten" => {
                let (start, end) = (axis(node, 0) as usize, axis(node, 1) as usize);
                Some(ct.unflatten(start as isize, &lengths(x)[start..=end])?)
            }
            "Unflatten" => {
                let (start, count) = (axis(node, 0), ints(arguments.get(1)).len() as isize);
                Some(ct.flatten(start, start + count - 1)?)
            }
            "Reshape" if ct.shape() == x.shape() => Some(ct.clone()),
            "Reshape" => Some(step("Reshape", vec![shape(x.shape())], &[ct], x.shape(), x.dtype())?),
            "Transpose" => {
                let order = ints(arguments.first());
                let mut back = vec![0; order.len()];
                order.iter().enumerate().for_each(|(to, from)| back[*from as usize] = to as isize);
                Some(ct.transpose(&back)?)
            }
            "Slice" => {
                let bounds = std::iter::once(int(SET)).chain(arguments.iter().cloned()).collect();
                Some(step("SliceUpdate", bounds, &[&x.zeros_like()?, ct], x.shape(), x.dtype())?)
            }
            "Pad" if *at == 0 => {
                let (along, low) = (ints(arguments.first()), ints(arguments.get(1)));
                let mut start = vec![0; x.ndim()];
                along.iter().zip(low).for_each(|(axis, low)| start[*axis as usize] = *low as isize);
                let stop: Vec<isize> = start.iter().zip(lengths(x)).map(|(low, own)| low + own).collect();
                Some(ct.slice(&start, &stop, &vec![1; x.ndim()])?)
            }
            "Gather" => {
                let arguments = vec![int(ADD), arguments[0].clone()];
                let zeros = x.zeros_like()?;
                let inputs: Vec<&Array> =
                    std::iter::once(&zeros).chain(&node.inputs[1..]).chain([ct]).collect();
                Some(step("Scatter", arguments, &inputs, x.shape(), x.dtype())?)
            }
            "GatherAxis" => {
                let arguments = vec![int(0), arguments[0].clone()];
                let inputs = [&x.zeros_like()?, &node.inputs[1], ct];
                Some(step("ScatterAxis", arguments, &inputs, x.shape(), x.dtype())?)
            }
            "DynamicSlice" => {
                let inputs = [&x.zeros_like()?, ct, &node.inputs[1]];
                Some(step("DynamicSliceUpdate", vec![arguments[0].clone()], &inputs, x.shape(), x.dtype())?)
            }
            "AsStrided" => Some(strided(node, ct)?),
            "Hadamard" => Some(node.again(&[ct.clone()], &node.inputs)?.remove(0)),
            "View" => Some(step("View", vec![Argument::Dtype(x.dtype())], &[ct], x.shape(), x.dtype())?),
            "FFT" => super::fourier::reverse(node, ct)?,
            "QuantizedMatmul" if *at == 0 => {
                let mut arguments = arguments.to_vec();
                let flag = matches!(node.primitive.flag(3), Some(false));
                arguments[3] = flag.into();
                let inputs: Vec<&Array> = std::iter::once(ct).chain(&node.inputs[1..]).collect();
                Some(step("QuantizedMatmul", arguments, &inputs, x.shape(), x.dtype())?)
            }
            "GatherMM" => gathered(node, ct, *at)?,
            "Full" => Some(ct.multiply(x)?),
            "Real" => Some(ct.astype(x.dtype())?),
            name if pointwise::is_flat(name) => Some(node.inputs[*at].zeros_like()?),
            _ => pointwise::rule(node, ct, *at, true)?,
        };
        let Some(one) = one else { return Ok(None) };
        found.push(one);
    }
    Ok(Some(found))
}

fn refs(arrays: &[Array]) -> Vec<&Array> {
    arrays.iter().collect()
}

fn axis(node: &Node, at: usize) -> isize {
    node.primitive.int(at).unwrap_or_default() as isize
}

/// A cotangent at the places of the sorted elements.
fn placed(x: &Array, places: &Array, ct: &Array, axis: isize) -> hesper::Result<Array> {
    let arguments = vec![int(1), int(axis as i64)];
    step("ScatterAxis", arguments, &[&x.zeros_like()?, places, ct], x.shape(), x.dtype())
}

fn unbroadcast(ct: &Array, to: &[usize]) -> hesper::Result<Array> {
    let missing = ct.ndim() - to.len();
    let stretched = |at: &usize| *at < missing || (to[at - missing] == 1 && ct.shape()[*at] != 1);
    let over: Vec<isize> = (0..ct.ndim()).filter(stretched).map(|at| at as isize).collect();
    let sum = if over.is_empty() { ct.clone() } else { ct.sum(axes(over).keepdims())?.astype(ct.dtype())? };
    if missing == 0 { Ok(sum) } else { sum.squeeze((0..missing as isize).collect::<Vec<_>>()) }
}

fn product(node: &Node, ct: &Array, at: usize) -> hesper::Result<Option<Array>> {
    let (mut ct, [a, b]) = (ct.clone(), [&node.inputs[0], &node.inputs[1]]);
    let factor = |at: usize| node.primitive.float(at).unwrap_or(1.0);
    if node.name() == "AddMM" {
        let by = factor(usize::from(at == 2));
        if by != 1.0 {
            ct = Array::scalar(by, ct.dtype())?.multiply(&ct)?;
        }
    }
    Ok(Some(match at {
        0 => ct.matmul(&transposed(b)?)?,
        1 => transposed(a)?.matmul(&ct)?,
        _ => ct,
    }))
}

fn update(node: &Node, ct: &Array, at: usize) -> hesper::Result<Option<Array>> {
    let (arguments, inputs) = (node.arguments(), &node.inputs);
    let last = inputs.len() - 1;
    let values = if node.name() == "DynamicSliceUpdate" { &inputs[1] } else { &inputs[last] };
    let (sum, set) = match node.name() {
        "ScatterAxis" => (0, 1),
        "DynamicSliceUpdate" => (-1, 0),
        _ => (ADD, SET),
    };
    let mode = if set == 0 { 0 } else { node.primitive.int(0).unwrap_or_default() };
    if mode != sum && mode != set {
        return Ok(None);
    }
    if at == 0 {
        if mode == sum {
            return Ok(Some(ct.clone()));
        }
        let mut inputs = inputs.clone();
        inputs[0] = ct.clone();
        let place = if node.name() == "DynamicSliceUpdate" { 1 } else { last };
        inputs[place] = values.zeros_like()?;
        return Ok(Some(node.again(&inputs, &node.outputs)?.remove(0)));
    }
    let (to, dtype) = (values.shape(), values.dtype());
    Ok(Some(match node.name() {
        "SliceUpdate" => step("Slice", arguments[1..].to_vec(), &[ct], to, dtype)?,
        "Scatter" => {
            let points = inputs[1].ndim();
            let arguments = vec![arguments[1].clone(), shape(&to[points..])];
            let inputs: Vec<&Array> = std::iter::once(ct).chain(&inputs[1..last]).collect();
            step("Gather", arguments, &inputs, to, dtype)?
        }
        "ScatterAxis" => step("GatherAxis", vec![arguments[1].clone()], &[ct, &inputs[1]], to, dtype)?,
        _ => {
            let arguments = vec![arguments[0].clone(), shape(to)];
            step("DynamicSlice", arguments, &[ct, &inputs[2]], to, dtype)?
        }
    }))
}

fn reduced(node: &Node, ct: &Array) -> hesper::Result<Option<Array>> {
    let (x, over) = (node.x(), list(ints(node.arguments().get(1))));
    let kept = || Axes::from(&over[..]).keepdims();
    Ok(Some(match node.primitive.int(0) {
        Some(2) => ct.broadcast_to(x.shape())?,
        Some(3) => {
            // The product of all others, of the elements before and of those behind.
            let others = |rows: &Array, axis: isize| {
                let before = rows.cumprod(Some(axis), false, false)?;
                before.multiply(rows.cumprod(Some(axis), true, false)?)
            };
            if let [axis] = over[..] {
                return others(x, axis)?.multiply(ct).map(Some);
            }
            let rest = (0..x.ndim() as isize).filter(|at| !over.contains(at));
            let order: Vec<isize> = rest.chain(over.iter().copied()).collect();
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(to, from)| back[*from as usize] = to as isize);
            let kept = x.ndim() - over.len();
            let outer: Vec<usize> = order[..kept].iter().map(|axis| x.shape()[*axis as usize]).collect();
            let joined = |turned: &Array| {
                let size = turned.size() / outer.iter().product::<usize>().max(1);
                let to = [&outer[..], &[size]].concat();
                let open: Vec<i64> = outer.iter().map(|length| *length as i64).chain([-1]).collect();
                step("Reshape", vec![Argument::Shape(open)], &[turned], &to, turned.dtype())
            };
            let turned = x.transpose(&order)?;
            let found = others(&joined(&turned)?, kept as isize)?.multiply(joined(ct)?)?;
            let to = turned.shape();
            step("Reshape", vec![shape(to)], &[&found], to, found.dtype())?.transpose(&back)?
        }
        Some(4 | 5) => {
            let mask = x.equal(node.y())?;
            let count = mask.sum(kept())?.astype(ct.dtype())?;
            ct.divide(count)?.multiply(mask.astype(ct.dtype())?)?
        }
        _ => x.zeros_like()?,
    }))
}

fn scanned(node: &Node, ct: &Array) -> hesper::Result<Option<Array>> {
    let (x, y, along) = (node.x(), node.y(), node.primitive.int(1).unwrap_or_default() as isize);
    let [reverse, inclusive] = [2, 3].map(|at| matches!(node.primitive.flag(at), Some(true)));
    let scan = |kind: i64, x: &Array, reverse: bool, inclusive: bool| {
        let arguments = vec![int(kind), int(along as i64), reverse.into(), inclusive.into()];
        step("Scan", arguments, &[x], x.shape(), x.dtype())
    };
    let number = |value: f64| Array::scalar(value, x.dtype());
    Ok(Some(match node.primitive.int(0) {
        Some(2) => scan(2, ct, !reverse, inclusive)?,
        Some(3) => {
            let zero = || number(0.0);
            let zeros = scan(3, x, reverse, true)?.equal(zero()?)?;
            let first = scan(3, x, reverse, false)?.not_equal(zero()?)?;
            let first = zeros.logical_and(first)?;
            let whole = scan(2, &y.multiply(ct)?, !reverse, inclusive)?.divide(x)?;
            let rest = select(&zeros, zero()?, whole)?;
            let without = scan(3, &select(&first, number(1.0)?, x)?, reverse, inclusive)?;
            select(&first, scan(2, &without.multiply(ct)?, !reverse, inclusive)?, rest)?
        }
        Some(0 | 1) if inclusive => {
            let length = x.shape()[along as usize];
            let mut to = vec![1; x.ndim()];
            to[along as usize] = length as isize;
            let places = Array::arange(0..length as i64, Some(Dtype::Int32))?;
            let places = if x.ndim() == 1 { places } else { places.reshape(&to)? };
            // The last one that was met, in the order of the scan.
            let (none, kind) = if reverse { (length as i64, 1) } else { (-1, 0) };
            let met = select(&x.equal(y)?, places, Array::integer(none, Dtype::Int32)?)?;
            let met = stop_gradient(&scan(kind, &met, reverse, true)?.astype(Dtype::Uint32)?)?;
            let arguments = vec![int(0), int(along as i64)];
            step("ScatterAxis", arguments, &[&x.zeros_like()?, &met, ct], x.shape(), x.dtype())?
        }
        _ => return Ok(None),
    }))
}

/// The elements of a row that strided windows take, summed.
fn strided(node: &Node, ct: &Array) -> hesper::Result<Array> {
    let (x, to) = (node.x(), node.y().shape());
    let row = x.size();
    let count: usize = to.iter().product();
    let places = Array::arange(0..row as i64, Some(Dtype::Int32))?;
    let places = step("AsStrided", node.arguments().to_vec(), &[&places], to, Dtype::Int32)?;
    let places = step("Reshape", vec![shape(&[count])], &[&places], &[count], Dtype::Int32)?;
    let values = step("Reshape", vec![shape(&[count, 1])], &[ct], &[count, 1], ct.dtype())?;
    let arguments = vec![int(ADD), crate::primitives::ints(&[0])];
    step("Scatter", arguments, &[&x.zeros_like()?, &places, &values], x.shape(), x.dtype())
}

/// The cotangent of a product of matrices that indices choose.
fn gathered(node: &Node, ct: &Array, at: usize) -> hesper::Result<Option<Array>> {
    let [a, b, left, right] = &node.inputs[..] else { return Ok(None) };
    if at > 1 || left.ndim() != 1 {
        return Ok(None);
    }
    let count = left.shape()[0];
    let all = || Array::arange(0..count as i64, Some(Dtype::Uint32));
    let (x, own) = if at == 0 { (a, left) } else { (b, right) };
    let mut to = vec![count];
    to.extend(&x.shape()[1..]);
    let flags = vec![false.into(), false.into()];
    let parts = if at == 0 {
        step("GatherMM", flags, &[ct, &transposed(b)?, &all()?, right], &to, x.dtype())?
    } else {
        // The transposed product, which is transposed back.
        to.swap(1, 2);
        step("GatherMM", flags, &[&transposed(ct)?, a, &all()?, left], &to, x.dtype())?
    };
    let zeros = if at == 0 { x.zeros_like()? } else { Array::zeros(transposed(x)?.shape(), x.dtype())? };
    let arguments = vec![int(ADD), crate::primitives::ints(&[0])];
    let found = step("Scatter", arguments, &[&zeros, own, &parts.expand_dims(1)?], zeros.shape(), x.dtype())?;
    if at == 0 { Ok(Some(found)) } else { transposed(&found).map(Some) }
}
