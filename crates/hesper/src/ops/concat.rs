//! Joining arrays.

use smallvec::SmallVec;

use super::copy::copy_to;
use super::walk::{Carrier, Strided, with_carrier};
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, axis, row_major};
use crate::transform::rule::{Backward, Batch, Cotangents};

#[derive(Debug)]
struct Concatenate(usize);

impl Op for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn export(&self) -> Export {
        Record::new("concatenate").with("axis", self.0).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_carrier!(l.dtype(), run::<_>(self.0, l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::moves::concatenate(l, self.0)
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

fn run<T: Carrier>(along: usize, l: &Lowering<'_>) -> Result<Data> {
    let parts: Vec<Strided> = (0..l.input_count()).map(|at| Strided::input(l, at)).collect();
    let output = l.output()?;
    let mut encoder = l.stream().command("concatenate");
    for part in &parts {
        encoder = encoder.read_range(&part.data.buffer, part.bytes.clone());
    }
    let strides = row_major(l.shape());
    let spreads: Vec<_> = parts.iter().map(Strided::spread).collect();
    encoder.write(&output).run(move |native| {
        let Some((to, views)) = native.views().split_last_mut() else { return Ok(()) };
        let to = to.as_mut_slice::<T>()?;
        let mut first = 0;
        for (view, part) in views.iter().zip(&spreads) {
            copy_to(to, first, &strides, view.as_slice::<T>()?, part)?;
            first += part.shape[along] * strides[along] as usize;
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Arrays one behind the other along an axis, promoted to one type. Along other axes they must agree.
///
/// ```
/// use hesper::{Array, concatenate};
/// let (a, b) = (Array::from_slice(&[1, 2]), Array::from_slice(&[3.5f32]));
/// assert_eq!(concatenate(&[a, b], 0)?.to_vec::<f32>()?, [1.0, 2.0, 3.5]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn concatenate(arrays: &[Array], along: isize) -> Result<Array> {
    let [first, others @ ..] = arrays else {
        return Err(Error::value("concatenate", "no arrays were given"));
    };
    if others.is_empty() {
        return Ok(first.clone());
    }
    let along = axis("concatenate", along, first.ndim())?;
    let mut shape: Shape = first.0.shape.clone();
    let mut dtype = first.dtype();
    for other in others {
        let fits = other.ndim() == first.ndim()
            && (0..shape.len()).all(|at| at == along || other.shape()[at] == shape[at]);
        if !fits {
            let what = format!("shapes {:?} and {:?} along axis {along}", first.shape(), other.shape());
            return Err(Error::shape("concatenate", what));
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
pub fn stack(arrays: &[Array], along: isize) -> Result<Array> {
    let [first, others @ ..] = arrays else {
        return Err(Error::value("stack", "no arrays were given"));
    };
    if let Some(other) = others.iter().find(|other| other.shape() != first.shape()) {
        let what = format!("shapes {:?} and {:?} differ", first.shape(), other.shape());
        return Err(Error::shape("stack", what));
    }
    let along = axis("stack", along, first.ndim() + 1)? as isize;
    let rows: Vec<Array> = arrays.iter().map(|array| array.expand_dims(&[along])).collect::<Result<_>>()?;
    concatenate(&rows, along)
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
    concatenate(replay.inputs, replay.axis("axis")?)
}
