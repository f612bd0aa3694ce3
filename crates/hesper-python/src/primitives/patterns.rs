//! Primitives of MLX that are several steps of a graph here: `Pad`, and sorting along any axis.

use hesper::export::Value;

use super::{Argument, Id, Operand, Primitive, ints};

/// Replaces runs of primitives by the one that MLX has for them. `outputs` are the arrays that the graph
/// returns.
pub fn combine(list: &mut Vec<Primitive>, outputs: &[Id]) {
    let mut at = 0;
    while at < list.len() {
        let uses = |id: Id| {
            let inputs = list[at..].iter().flat_map(|primitive| &primitive.inputs);
            inputs.filter(|input| input.id == id).count() + outputs.iter().filter(|own| **own == id).count()
        };
        if list[at].fixed {
            at += 1;
            continue;
        }
        let found = kept(&list[at..])
            .filter(|(_, whole)| uses(list[at].outputs[0].id) == 1 && whole.name == "LogSumExp")
            .or_else(|| pad(&list[at..]).filter(|_| uses(list[at].outputs[0].id) == 1))
            .or_else(|| {
                let between =
                    |sorted: &Primitive| uses(sorted.inputs[0].id) == 1 && uses(sorted.outputs[0].id) == 1;
                sort(&list[at..]).filter(|_| between(&list[at + 1]))
            });
        if let Some((count, primitive)) = found {
            list.splice(at..at + count, [primitive]);
        }
        at += 1;
    }
}

/// How many primitives are replaced, and by which.
type Combined = Option<(usize, Primitive)>;

fn shape(primitive: &Primitive, at: usize) -> &[i64] {
    match primitive.arguments.get(at) {
        Some(Argument::Shape(list) | Argument::Value(Value::Ints(list))) => list,
        _ => &[],
    }
}

fn int(value: usize) -> Argument {
    Argument::Value(Value::Int(value as i64))
}

fn primitive(name: &str, arguments: Vec<Argument>, inputs: Vec<Operand>, outputs: Vec<Operand>) -> Primitive {
    Primitive { name: name.into(), arguments, inputs, outputs, fixed: false }
}

/// An update of a part of one number, repeated.
fn pad(list: &[Primitive]) -> Combined {
    let [fill, update, ..] = list else { return None };
    let set = matches!(update.arguments.first(), Some(Argument::Value(Value::Int(4))));
    if fill.name != "Broadcast" || update.name != "SliceUpdate" || !set || !fill.inputs[0].shape.is_empty() {
        return None;
    }
    if update.inputs[0].id != fill.outputs[0].id || shape(update, 3).iter().any(|step| *step != 1) {
        return None;
    }
    let (low, whole) = (shape(update, 1), &update.outputs[0].shape);
    let high = whole.iter().zip(shape(update, 2)).map(|(length, stop)| *length as i64 - stop).collect();
    let axes: Vec<i64> = (0..whole.len() as i64).collect();
    let arguments = vec![ints(&axes), Argument::Shape(low.to_vec()), Argument::Shape(high)];
    let inputs = vec![update.inputs[1].clone(), fill.inputs[0].clone()];
    Some((2, primitive("Pad", arguments, inputs, update.outputs.clone())))
}

/// A reduction whose axis comes back.
fn kept(list: &[Primitive]) -> Combined {
    let [reduced, squeeze, back, ..] = list else { return None };
    let linked = reduced.outputs.first()?.id == squeeze.inputs.first()?.id
        && squeeze.outputs[0].id == back.inputs.first()?.id;
    let names = squeeze.name == "Squeeze" && (back.name == "Reshape" || back.name == "ExpandDims");
    if !linked || !names || back.outputs[0].shape != reduced.outputs[0].shape {
        return None;
    }
    let arguments = reduced.arguments.clone();
    Some((3, primitive(&reduced.name, arguments, reduced.inputs.clone(), back.outputs.clone())))
}

/// A sort along the last axis, between transpositions that move an axis there and back.
fn sort(list: &[Primitive]) -> Combined {
    let [there, sorted, back, ..] = list else { return None };
    let kinds = ["Sort", "ArgSort", "Partition", "ArgPartition"];
    if there.name != "Transpose" || back.name != "Transpose" || !kinds.contains(&&*sorted.name) {
        return None;
    }
    let linked = there.outputs[0].id == sorted.inputs[0].id && sorted.outputs[0].id == back.inputs[0].id;
    let (to, from) = (shape(there, 0), shape(back, 0));
    let inverse = to.iter().enumerate().all(|(at, axis)| from.get(*axis as usize) == Some(&(at as i64)));
    if !linked || !inverse {
        return None;
    }
    let mut arguments: Vec<Argument> = match sorted.arguments.first() {
        Some(Argument::Value(kth)) if sorted.name.ends_with("Partition") => {
            vec![Argument::Value(kth.clone())]
        }
        _ => Vec::new(),
    };
    arguments.push(int(*to.last()? as usize));
    Some((3, primitive(&sorted.name, arguments, there.inputs.clone(), back.outputs.clone())))
}
