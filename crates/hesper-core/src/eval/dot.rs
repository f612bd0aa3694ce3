//! Graphs as text for Graphviz.

use std::fmt::Write as _;

use crate::graph::{Array, Call};
use crate::ids::IdMap;

/// The graph that computes arrays, in the language of Graphviz: ops as boxes with their names, arrays that
/// are there already as ellipses, and on the edges shapes and types.
///
/// ```
/// use hesper::{Array, transform};
/// let x = Array::from_slice(&[1.0f32, 2.0]);
/// let text = transform::to_dot(&[x.exp()?.add(1.0)?]);
/// assert!(text.starts_with("digraph {") && text.contains("exp") && text.contains("[2] float32"));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn to_dot(arrays: &[Array]) -> String {
    named_dot(arrays, |_| None, str::to_string)
}

/// The same with names for some arrays, as ellipses behind their ops, and with other names for ops.
///
/// ```
/// use hesper::{Array, array, transform};
/// let x = array![1.0, 2.0];
/// let y = x.exp()?;
/// let name = |array: &Array| array.ptr_eq(&x).then(|| "x".to_string());
/// assert!(transform::named_dot(&[y.clone()], name, str::to_uppercase).contains("EXP"));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn named_dot(
    arrays: &[Array],
    name: impl Fn(&Array) -> Option<String>,
    op: impl Fn(&str) -> String,
) -> String {
    let mut text = String::from("digraph {\n  node [shape=box];\n");
    let mut places: IdMap<usize> = IdMap::default();
    let mut stack: Vec<(Array, Option<Call>)> = arrays.iter().rev().map(|one| (one.clone(), None)).collect();
    while let Some((array, made)) = stack.pop() {
        if places.contains_key(&array.0.id) {
            continue;
        }
        let call = if array.is_evaluated() { None } else { array.call() };
        match (made, call) {
            // Seen for the first time: what it is made of comes before it.
            (None, Some(call)) => {
                let inputs: Vec<Array> = call.inputs.iter().cloned().collect();
                stack.push((array, Some(call)));
                stack.extend(inputs.into_iter().rev().map(|input| (input, None)));
            }
            (Some(call), _) => {
                let place = places.len();
                let _ = writeln!(text, "  n{place} [label=\"{}\"];", op(call.op.name()));
                if let Some(own) = label(&name, &array) {
                    let _ = writeln!(
                        text,
                        "  a{place} [shape=ellipse, label=\"{own}\"];\n  n{place} -> a{place};"
                    );
                }
                for input in &call.inputs {
                    if let Some(from) = places.get(&input.0.id) {
                        let (shape, dtype) = (input.shape(), input.dtype());
                        let _ = writeln!(text, "  n{from} -> n{place} [label=\"{shape:?} {dtype}\"];");
                    }
                }
                places.insert(array.0.id, place);
            }
            (None, None) => {
                let own =
                    label(&name, &array).unwrap_or_else(|| format!("{:?} {}", array.shape(), array.dtype()));
                let _ = writeln!(text, "  n{} [shape=ellipse, label=\"{own}\"];", places.len());
                let place = places.len();
                places.insert(array.0.id, place);
            }
        }
    }
    text.push_str("}\n");
    text
}

/// The name of an array with what a label must not hold escaped.
fn label(name: &impl Fn(&Array) -> Option<String>, array: &Array) -> Option<String> {
    name(array).map(|name| name.replace('\\', "\\\\").replace('"', "\\\""))
}
