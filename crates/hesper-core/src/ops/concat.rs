//! Joining arrays.

use std::borrow::Borrow;

use smallvec::SmallVec;

use super::{Op, OpRef, PatternOp};
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, axis};

/// All inputs one behind the other along an axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Concatenate(pub usize);

impl Op for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn pattern(&self) -> PatternOp {
        PatternOp::Concat(self.0)
    }

    fn export(&self) -> Export {
        Record::new("concatenate").with("axis", self.0).into()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let cotangent = rule.cotangent()?;
        let mut end = 0;
        let starts: Vec<isize> = rule
            .inputs
            .iter()
            .map(|input| {
                end += input.shape()[self.0] as isize;
                end - input.shape()[self.0] as isize
            })
            .collect();
        rule.each(|at| {
            let stop = starts[at] + rule.inputs[at].shape()[self.0] as isize;
            Ok(Some(cotangent.slice_axis(self.0, starts[at], stop, 1)?))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let inputs = (0..rule.inputs.len()).map(|at| rule.full(at)).collect::<Result<_>>()?;
        rule.apply(OpRef::new(Concatenate(self.0 + 1)), inputs)
    }
}

/// Arrays one behind the other along an axis, promoted to one type. Along other axes they must agree.
///
/// ```
/// use hesper::{Array, concatenate};
/// let (a, b) = (Array::from_slice(&[1, 2]), Array::from_slice(&[3.5f32]));
/// assert_eq!(concatenate(&[&a, &b], 0)?.to_vec::<f32>()?, [1.0, 2.0, 3.5]);
/// assert_eq!(concatenate(&[a, b], 0)?.shape(), [3]); // owned arrays or references
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn concatenate<A: Borrow<Array>>(arrays: &[A], along: isize) -> Result<Array> {
    concatenate_list(&arrays.iter().map(Borrow::borrow).collect::<SmallVec<[&Array; 8]>>(), along)
}

fn concatenate_list(arrays: &[&Array], along: isize) -> Result<Array> {
    let [first, others @ ..] = arrays else {
        return Err(Error::value("concatenate", "no arrays were given"));
    };
    if others.is_empty() {
        return Ok((*first).clone());
    }
    let along = axis("concatenate", along, first.ndim())?;
    let mut shape: Shape = first.0.shape.clone();
    let mut dtype = first.dtype();
    for other in others {
        let fits = other.ndim() == first.ndim()
            && (0..shape.len()).all(|at| at == along || other.shape()[at] == shape[at]);
        if !fits {
            let (one, two) = (first.shape(), other.shape());
            let what = format!("shapes {one:?} and {two:?} must agree in all axes but axis {along}");
            return Err(Error::shape("concatenate", what).with_shapes([*first, *other]));
        }
        shape[along] += other.shape()[along];
        dtype = dtype.promote(other.dtype());
    }
    // Empty arrays add nothing but their type.
    let inputs: SmallVec<[Array; 3]> = arrays
        .iter()
        .filter(|array| array.shape()[along] > 0)
        .map(|array| array.astype(dtype))
        .collect::<Result<_>>()?;
    if inputs.is_empty() {
        return first.astype(dtype);
    }
    Array::lazy(shape, dtype, OpRef::new(Concatenate(along)), inputs)
}

/// Arrays of one shape along a new axis.
///
/// ```
/// use hesper::{array, stack};
/// let rows = stack(&[array![1, 2], array![3, 4]], 0)?;
/// assert_eq!((rows.shape(), rows.to_vec::<i32>()?), (&[2, 2][..], vec![1, 2, 3, 4]));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn stack<A: Borrow<Array>>(arrays: &[A], along: isize) -> Result<Array> {
    stack_list(&arrays.iter().map(Borrow::borrow).collect::<SmallVec<[&Array; 8]>>(), along)
}

fn stack_list(arrays: &[&Array], along: isize) -> Result<Array> {
    let [first, others @ ..] = arrays else {
        return Err(Error::value("stack", "no arrays were given"));
    };
    if let Some(other) = others.iter().find(|other| other.shape() != first.shape()) {
        let what = format!("shapes {:?} and {:?} differ", first.shape(), other.shape());
        return Err(Error::shape("stack", what).with_shapes([*first, *other]));
    }
    let along = axis("stack", along, first.ndim() + 1)? as isize;
    let rows: Vec<Array> = arrays.iter().map(|array| array.expand_dims(along)).collect::<Result<_>>()?;
    concatenate(&rows, along)
}

reader!("concatenate", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    concatenate(replay.inputs, replay.axis("axis")?)
}
