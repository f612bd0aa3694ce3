//! The order of primitives, and which of them are the same: as MLX's traces have them.

use std::collections::{HashMap, HashSet};

use hesper::export::ValueRef;
use hesper::{Array, Category, Dtype};

use super::{Id, Primitive};

/// A `DivMod` of which only the quotient, or only the remainder, is used.
pub const DIVMOD: [&str; 2] = ["DivMod, quotient", "DivMod, remainder"];

/// Merges numbers and primitives that are equal.
pub fn merge(list: &mut [Primitive], constants: &[(Id, Array)], outputs: &[Id]) -> hesper::Result<()> {
    let mut same: HashMap<Id, Id> = HashMap::new();
    let mut numbers = HashMap::new();
    // What is returned keeps its name.
    for returned in [true, false] {
        for (id, array) in constants.iter().filter(|(id, _)| outputs.contains(id) == returned) {
            if let Some(number) = number(array)? {
                let first = *numbers.entry((array.dtype(), number)).or_insert(*id);
                same.insert(*id, if returned { *id } else { first });
            }
        }
    }
    let (mut seen, mut later, mut varied) = (HashMap::new(), HashMap::new(), HashSet::new());
    for primitive in list.iter_mut() {
        for input in &mut primitive.inputs {
            input.id = same.get(&input.id).copied().unwrap_or(input.id);
        }
        if primitive.inputs.is_empty() {
            continue;
        }
        let inputs: Vec<Id> = primitive.inputs.iter().map(|input| input.id).collect();
        let is_argument = |id: &Id| matches!(id, Id::ValueRef(ValueRef::Argument(_)));
        let depends = inputs.iter().any(|id| is_argument(id) || varied.contains(id));
        if depends {
            varied.extend(primitive.outputs.iter().map(|output| output.id));
        }
        let key = (primitive.name.clone(), format!("{:?}", primitive.arguments), inputs);
        let own: Vec<Id> = primitive.outputs.iter().map(|output| output.id).collect();
        let first = seen.entry(key).or_insert_with(|| own.clone());
        // What is returned stays, also beside its equal.
        let is_returned = |ids: &[Id]| ids.iter().any(|id| outputs.contains(id));
        if *first != own && !is_returned(&own) {
            same.extend(own.into_iter().zip(first.iter().copied()));
        } else if *first != own && !is_returned(first) && !depends {
            // A constant that is returned, and that other constants are computed from.
            later.extend(std::mem::replace(first, own.clone()).into_iter().zip(own));
        }
    }
    for input in list.iter_mut().flat_map(|primitive| &mut primitive.inputs) {
        input.id = later.get(&input.id).copied().unwrap_or(input.id);
    }
    join_divmods(list);
    Ok(())
}

/// Drops what no output needs, and puts the rest in the order in which the outputs reach it: inputs first,
/// depth first.
pub fn sort(list: &mut Vec<Primitive>, constants: &mut Vec<(Id, Array)>, outputs: &[Id]) {
    let makers: HashMap<Id, usize> = (list.iter().enumerate())
        .flat_map(|(at, primitive)| primitive.outputs.iter().map(move |output| (output.id, at)))
        .collect();
    let (mut order, mut reached, mut done) = (Vec::new(), Vec::new(), HashSet::new());
    let mut stack: Vec<Id> = outputs.iter().rev().copied().collect();
    while let Some(id) = stack.last().copied() {
        if done.contains(&id) {
            stack.pop();
            continue;
        }
        let maker = makers.get(&id);
        let inputs = maker.map_or(&[][..], |at| &list[*at].inputs);
        let before = stack.len();
        stack.extend(inputs.iter().rev().map(|input| input.id).filter(|input| !done.contains(input)));
        if stack.len() > before {
            continue;
        }
        match maker {
            Some(at) => {
                order.push(*at);
                done.extend(list[*at].outputs.iter().map(|output| output.id));
            }
            None => {
                reached.push(id);
                done.insert(id);
            }
        }
    }
    let mut kept: Vec<Option<Primitive>> = list.drain(..).map(Some).collect();
    list.extend(order.into_iter().filter_map(|at| kept[at].take()));
    let arrays: HashMap<Id, Array> = constants.drain(..).collect();
    constants.extend(reached.into_iter().filter_map(|id| Some((id, arrays.get(&id)?.clone()))));
}

/// Makes one `DivMod` of a quotient and a remainder of the same arrays.
pub fn join_divmods(list: &mut [Primitive]) {
    let mut whole: HashMap<Vec<Id>, usize> = HashMap::new();
    for at in 0..list.len() {
        let Some(part) = DIVMOD.iter().position(|name| list[at].name == *name) else { continue };
        list[at].name = "DivMod".into();
        let inputs = list[at].inputs.iter().map(|input| input.id).collect();
        match whole.get(&inputs) {
            Some(first) => {
                let mut own = std::mem::take(&mut list[at].outputs);
                list[*first].outputs[part] = own.swap_remove(part);
            }
            None => {
                whole.insert(inputs, at);
            }
        }
    }
}

/// The bits of a number.
fn number(array: &Array) -> hesper::Result<Option<[u64; 2]>> {
    if array.ndim() > 0 || !array.is_evaluated() {
        return Ok(None);
    }
    let bits = |x: Array| Ok::<_, hesper::Error>(x.astype(Dtype::Float64)?.item::<f64>()?.to_bits());
    Ok(Some(if array.dtype().is(Category::Complex) {
        [bits(array.real()?)?, bits(array.imag()?)?]
    } else if array.dtype().is(Category::Floating) {
        [bits(array.clone())?, 0]
    } else {
        [array.astype(Dtype::Int64)?.item::<i64>()? as u64, 0]
    }))
}
