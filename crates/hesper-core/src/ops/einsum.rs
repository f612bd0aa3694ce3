//! Einstein summation.
//!
//! A text such as `ij,jk->ik` names the axes of operands and result. A name that occurs twice in an operand
//! takes its diagonal. An axis that only one operand has, and the result does not, is summed first. Then
//! pairs of operands are contracted by matrix products, in an order that [`path`] chooses.

mod path;

use std::borrow::Borrow;

use smallvec::{SmallVec, smallvec};

use super::reinterpret::strided_sum;
use super::{Op, OpKind, OpRef};
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Data, Export, Lowering, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, row_major};
use path::{Contraction, Label};

/// The names of one operand's axes.
type Labels = SmallVec<[Label; 6]>;

/// Axes joined to diagonals: each result axis runs along all of its input axes at once.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Diagonal(pub Vec<Vec<usize>>);

impl Op for Diagonal {
    fn name(&self) -> &'static str {
        "diagonal"
    }

    fn export(&self) -> Export {
        let lengths: Vec<usize> = self.0.iter().map(Vec::len).collect();
        Record::new("joined_axes").with("lengths", &lengths[..]).with("axes", &self.0.concat()[..]).into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let data = l.input(0);
        let strides = self.0.iter().map(|axes| axes.iter().map(|at| data.strides[*at]).sum()).collect();
        Ok(Data { buffer: data.buffer.clone(), offset: data.offset, strides })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let shape = rule.inputs[0].shape();
        let all = row_major(shape);
        let strides: Vec<isize> = self.0.iter().map(|axes| axes.iter().map(|at| all[*at]).sum()).collect();
        rule.only(strided_sum(&rule.cotangent()?, shape, &strides, 0))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let later = self.0.iter().map(|axes| axes.iter().map(|at| at + 1).collect());
        let op = Diagonal(std::iter::once(vec![0]).chain(later).collect());
        rule.apply(OpRef::new(op), smallvec![rule.front(0)?])
    }
}

/// An expression, read: the names of all axes.
pub struct Expression {
    inputs: Vec<Labels>,
    output: Labels,
    /// The length of each named axis.
    sizes: std::collections::BTreeMap<Label, usize>,
}

/// Axes that `...` stands for are named by their place from the back, above all letters.
const ELLIPSIS: Label = 1 << 16;

impl Expression {
    fn read(text: &str, operands: &[&Array]) -> Result<Self> {
        let fail = |what: String| Error::value("einsum", format!("{what} in {text:?}"));
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, output) = match plain.split_once("->") {
            Some((inputs, output)) => (inputs, Some(output)),
            None => (plain.as_str(), None),
        };
        let inputs: Vec<&str> = inputs.split(',').collect();
        if inputs.len() != operands.len() {
            return Err(fail(format!("{} operands for {} lists of axes", operands.len(), inputs.len())));
        }
        let mut lists = Vec::new();
        let mut most = 0;
        for (at, (names, operand)) in inputs.iter().zip(operands).enumerate() {
            let (before, after) = match names.split_once("...") {
                Some((before, after)) => (before, Some(after)),
                None => (*names, None),
            };
            let named = before.chars().count() + after.map_or(0, |after| after.chars().count());
            let rank = operand.ndim();
            if named > rank || after.is_none() && named != rank {
                let what = format!("{named} names for operand {at} of shape {:?}", operand.shape());
                return Err(fail(what));
            }
            let hidden = rank - named;
            most = most.max(hidden);
            let mut labels = letters(before, &fail)?;
            labels.extend((0..hidden).rev().map(|back| ELLIPSIS + back as Label));
            labels.extend(letters(after.unwrap_or(""), &fail)?);
            lists.push(labels);
        }
        let output = match output {
            Some(names) => {
                let (before, after) = names.split_once("...").map_or((names, None), |(b, a)| (b, Some(a)));
                let mut labels = letters(before, &fail)?;
                if let Some(after) = after {
                    labels.extend((0..most).rev().map(|back| ELLIPSIS + back as Label));
                    labels.extend(letters(after, &fail)?);
                }
                labels
            }
            None => {
                let count = |label: Label| lists.iter().flatten().filter(|other| **other == label).count();
                let mut once: Labels =
                    lists.iter().flatten().copied().filter(|l| *l < ELLIPSIS && count(*l) == 1).collect();
                once.sort_unstable();
                (0..most).rev().map(|back| ELLIPSIS + back as Label).chain(once).collect()
            }
        };
        for (at, label) in output.iter().enumerate() {
            if output[..at].contains(label) {
                return Err(fail("an axis is named twice in the result".into()));
            }
            if *label < ELLIPSIS && !lists.iter().flatten().any(|other| other == label) {
                return Err(fail("the result names an axis that no operand has".into()));
            }
        }
        let mut sizes = std::collections::BTreeMap::new();
        for (labels, operand) in lists.iter().zip(operands) {
            for (label, length) in labels.iter().zip(operand.shape()) {
                let size = sizes.entry(*label).or_insert(*length);
                if *size == 1 {
                    *size = *length;
                } else if *length != 1 && length != size {
                    return Err(fail(format!("one name stands for axes of length {size} and {length}")));
                }
            }
        }
        Ok(Expression { inputs: lists, output, sizes })
    }

    fn contraction(&self) -> Contraction {
        let once = |labels: &Labels| labels.iter().copied().collect();
        Contraction {
            inputs: self.inputs.iter().map(once).collect(),
            output: once(&self.output),
            sizes: self.sizes.clone(),
        }
    }
}

fn letters(names: &str, fail: &impl Fn(String) -> Error) -> Result<Labels> {
    names
        .chars()
        .map(
            |c| {
                if c.is_ascii_alphabetic() {
                    Ok(c as Label)
                } else {
                    Err(fail(format!("{c:?} is no letter")))
                }
            },
        )
        .collect()
}

/// An operand on the way: an array and its axes' names.
#[derive(Clone)]
pub struct Term {
    array: Array,
    labels: Labels,
}

impl Term {
    /// Takes the diagonals of axes that share a name, so that each name occurs once.
    fn diagonal(array: &Array, labels: &Labels) -> Result<Self> {
        let mut different: Labels = SmallVec::new();
        labels.iter().for_each(|label| {
            if !different.contains(label) {
                different.push(*label);
            }
        });
        if different.len() == labels.len() {
            return Ok(Term { array: array.clone(), labels: different });
        }
        let axes: Vec<Vec<usize>> = different
            .iter()
            .map(|label| (0..labels.len()).filter(|at| labels[*at] == *label).collect())
            .collect();
        let mut shape = Shape::new();
        for axes in &axes {
            let length = array.shape()[axes[0]];
            if axes.iter().any(|at| array.shape()[*at] != length) {
                let what = format!("no diagonal along axes {axes:?} of shape {:?}", array.shape());
                return Err(Error::shape("einsum", what).with_shapes([array]));
            }
            shape.push(length);
        }
        let op = OpRef::new(Diagonal(axes));
        let array = Array::lazy(shape, array.dtype(), op, smallvec![array.clone()])?;
        Ok(Term { array, labels: different })
    }

    /// Sums over axes that are not wanted.
    fn keep(self, wanted: impl Fn(Label) -> bool) -> Result<Self> {
        let over: SmallVec<[isize; 6]> =
            (0..self.labels.len()).filter(|at| !wanted(self.labels[*at])).map(|at| at as isize).collect();
        if over.is_empty() {
            return Ok(self);
        }
        let array = self.array.sum(&over)?;
        Ok(Term { array, labels: self.labels.into_iter().filter(|label| wanted(*label)).collect() })
    }

    /// The axes in an order, of the lengths that names have (or one); those it lacks have length one.
    fn arranged(&self, order: &[Label], sizes: &dyn Fn(Label) -> usize) -> Result<Array> {
        let mine: SmallVec<[isize; 6]> = order
            .iter()
            .filter_map(|label| self.labels.iter().position(|other| other == label))
            .map(|at| at as isize)
            .collect();
        let moved = self.array.transpose(&mine)?;
        let length = |label: &Label| {
            self.labels.iter().position(|other| other == label).map_or(1, |at| self.array.shape()[at])
        };
        let shape: SmallVec<[isize; 6]> = order.iter().map(|label| length(label) as isize).collect();
        let full: Shape =
            order.iter().map(|label| if self.labels.contains(label) { sizes(*label) } else { 1 }).collect();
        moved.reshape(&shape)?.broadcast_to(&full)
    }
}

/// Contracts two terms; `wanted` are the names that are needed later.
fn contract(a: &Term, b: &Term, wanted: impl Fn(Label) -> bool) -> Result<Term> {
    let both = |label: &&Label| b.labels.contains(label);
    let batch: Labels = a.labels.iter().filter(both).filter(|l| wanted(**l)).copied().collect();
    let summed: Labels = a.labels.iter().filter(both).filter(|l| !wanted(**l)).copied().collect();
    let left: Labels = a.labels.iter().filter(|l| !b.labels.contains(l)).copied().collect();
    let right: Labels = b.labels.iter().filter(|l| !a.labels.contains(l)).copied().collect();
    let of = |term: &Term, label: Label| {
        term.labels.iter().position(|other| *other == label).map_or(1, |at| term.array.shape()[at])
    };
    let sizes = |label: Label| match (of(a, label), of(b, label)) {
        (1, size) | (size, _) => size,
    };
    let list =
        |parts: [&[Label]; 3]| -> Labels { parts.iter().flat_map(|part| part.iter()).copied().collect() };
    let labels = list([&batch, &left, &right]);
    if summed.is_empty() {
        let product = a.arranged(&labels, &sizes)?.multiply(b.arranged(&labels, &sizes)?)?;
        return Ok(Term { array: product, labels });
    }
    let count = |labels: &[Label]| labels.iter().map(|l| sizes(*l)).product::<usize>() as isize;
    let lengths =
        |labels: &[Label]| -> SmallVec<[isize; 6]> { labels.iter().map(|l| sizes(*l) as isize).collect() };
    let matrix = |term: &Term, first: &[Label], second: &[Label]| -> Result<Array> {
        let mut shape = lengths(&batch);
        shape.extend([count(first), count(second)]);
        term.arranged(&list([&batch, first, second]), &sizes)?.reshape(&shape)
    };
    let product = matrix(a, &left, &summed)?.matmul(&matrix(b, &summed, &right)?)?;
    Ok(Term { array: product.reshape(&lengths(&labels))?, labels })
}

/// Sums of products over axes that a text names: `ij,jk->ik` is a matrix product, `ii` a trace, `i,j->ij` an
/// outer product. `...` stands for axes that broadcast. Without `->`, the result has the axes that are named
/// once, in alphabetical order. Sums of products need floating-point numbers.
///
/// ```
/// use hesper::{Array, einsum};
/// let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// assert_eq!(einsum("ij,jk->ik", &[&x, &x])?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
/// assert_eq!(einsum("ii", &[&x])?.item::<f32>()?, 5.0);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn einsum<A: Borrow<Array>>(text: &str, operands: &[A]) -> Result<Array> {
    einsum_list(text, &operands.iter().map(Borrow::borrow).collect::<Vec<&Array>>())
}

fn einsum_list(text: &str, operands: &[&Array]) -> Result<Array> {
    let expression = Expression::read(text, operands)?;
    let order = expression.contraction().order();
    let mut terms = expression
        .inputs
        .iter()
        .zip(operands)
        .map(|(labels, array)| Term::diagonal(array, labels))
        .collect::<Result<Vec<Term>>>()?;
    let needed = |label: Label, terms: &[Term]| {
        expression.output.contains(&label) || terms.iter().any(|term| term.labels.contains(&label))
    };
    for at in 0..terms.len() {
        let term = terms.remove(at);
        let term = term.keep(|label| needed(label, &terms))?;
        terms.insert(at, term);
    }
    for step in order {
        let mut result = terms.remove(step[0]);
        // The places of the others move as operands before them go.
        for (gone, place) in step[1..].iter().enumerate() {
            let next = terms.remove(place - gone - 1);
            result = contract(&result, &next, |label| needed(label, &terms))?;
        }
        terms.push(result);
    }
    let Some(result) = terms.pop() else { return Err(Error::value("einsum", "no operands")) };
    let result = result.keep(|label| expression.output.contains(&label))?;
    result.arranged(&expression.output, &|label| expression.sizes.get(&label).copied().unwrap_or(1))
}

/// In which order [`einsum`] contracts its operands (places among those that are left, two for each step, or
/// all that are left in the last one; the result of a step comes last), and a text about what that costs.
///
/// ```
/// use hesper::{Array, Dtype, einsum_path};
/// let (a, b) = (Array::ones(&[2, 100], Dtype::Float32)?, Array::ones(&[100, 100], Dtype::Float32)?);
/// let (order, report) = einsum_path("ij,jk,kl->il", &[&a, &b, &b])?;
/// assert_eq!(order, [vec![0, 1], vec![0, 1]]); // the small one first
/// println!("{report}");
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn einsum_path<A: Borrow<Array>>(text: &str, operands: &[A]) -> Result<(Vec<Vec<usize>>, String)> {
    let operands = &operands.iter().map(Borrow::borrow).collect::<Vec<&Array>>()[..];
    let expression = Expression::read(text, operands)?;
    let contraction = expression.contraction();
    let order = contraction.order();
    let report = contraction.report(text, &order);
    Ok((if operands.len() == 1 { vec![vec![0]] } else { order }, report))
}

reader!("joined_axes", One(read));
/// Axes joined to diagonals: as many as `lengths` says for each axis of the result.
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let (lengths, axes) = (replay.lengths("lengths")?, replay.axes("axes")?);
    let named = crate::shape::axes("joined_axes", &axes, x.ndim())?;
    let count = lengths.iter().try_fold(0usize, |all, one| all.checked_add(*one));
    if named.len() != x.ndim() || count != Some(axes.len()) || lengths.contains(&0) {
        return Err(replay.wrong("axes that are not those of its input"));
    }
    let mut rest = axes.iter().map(|at| if *at < 0 { *at + x.ndim() as isize } else { *at } as usize);
    let groups: Vec<Vec<usize>> = lengths.iter().map(|count| rest.by_ref().take(*count).collect()).collect();
    let mut shape = Shape::new();
    for group in &groups {
        let length = x.shape()[group[0]];
        if group.iter().any(|at| x.shape()[*at] != length) {
            return Err(replay.wrong("axes of different lengths that are joined"));
        }
        shape.push(length);
    }
    Array::lazy(shape, x.dtype(), OpRef::new(Diagonal(groups)), smallvec![x.clone()])
}
