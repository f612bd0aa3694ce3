//! A norm, products with packed matrices and an epilogue, as one command: a decode step has many small products, and a
//! command costs as much as one of them.

use smallvec::{SmallVec, smallvec};

use super::packed::{PackedArray, PackedFormat};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::fast::rms_norm;
use crate::identity::BitEq;
use crate::shape::Shape;
use crate::transform::rule::{Backward, Cotangents};

const NAME: &str = "packed_layer";

/// The epilogue of [`packed_layer`].
#[derive(Debug, Clone, Copy)]
pub enum PackedEnd<'a> {
    /// The products with the matrices, concatenated along the last axis.
    Plain,
    /// The same plus an array of their shape.
    Plus(&'a Array),
    /// There are two matrices: `g * sigmoid(g) * u` for the products `g` with the first and `u` with the second.
    SiluGate,
}

/// The epilogue of a layer: a [`PackedEnd`] without its array, which is the last input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// See [`PackedEnd::Plain`].
    Plain,
    /// See [`PackedEnd::Plus`].
    Plus,
    /// See [`PackedEnd::SiluGate`].
    SiluGate,
}

/// Inputs: rows of activations, the weight of the norm if there is one, the blocks of each matrix, the addend if there
/// is one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PackedLayer {
    /// The epsilon of the norm, if there is one.
    pub eps: Option<BitEq<f32>>,
    /// Format and rows of each matrix.
    pub matrices: SmallVec<[(PackedFormat, usize); 3]>,
    /// The epilogue.
    pub end: End,
}

impl Op for PackedLayer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through(|inputs| self.composed(inputs))
    }
}

impl PackedLayer {
    /// The norm by itself, then the layer without it.
    pub fn after_norm(&self, inputs: &[Array]) -> Result<Array> {
        let x = rms_norm(&inputs[0], Some(&inputs[1]), self.eps.map_or(0.0, |eps| eps.0))?;
        let shape = [x.shape()[0], self.columns()];
        let op = PackedLayer { eps: None, matrices: self.matrices.clone(), end: self.end };
        let inputs = [x].into_iter().chain(inputs[2..].iter().cloned()).collect();
        Array::lazy(shape.into_iter().collect(), Dtype::Float32, OpRef::new(op), inputs)
    }

    /// Columns of the result.
    fn columns(&self) -> usize {
        match self.end {
            End::SiluGate => self.matrices[0].1,
            _ => self.matrices.iter().map(|one| one.1).sum(),
        }
    }

    /// The layer as a graph of other ops.
    pub fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (mut x, mut first) = (inputs[0].clone(), 1);
        if let Some(eps) = self.eps {
            x = rms_norm(&x, Some(&inputs[1]), eps.0)?;
            first = 2;
        }
        let cols = x.shape()[1];
        let mut products = Vec::with_capacity(self.matrices.len());
        for (at, (format, rows)) in self.matrices.iter().enumerate() {
            products.push(PackedArray::new(&inputs[first + at], *format, &[*rows, cols])?.matmul(&x)?);
        }
        match self.end {
            End::Plain => crate::concatenate(&products, -1),
            End::Plus => crate::concatenate(&products, -1)?.add(&inputs[first + self.matrices.len()]),
            End::SiluGate => products[0].multiply(&products[0].sigmoid()?)?.multiply(&products[1]),
        }
    }
}

/// Products of rows with the transposes of packed matrices, after a root mean square norm (weight and epsilon) if one is
/// given: `end(norm(x) w^T)`. Everything is float32.
///
/// ```
/// use hesper::{Array, Dtype, PackedArray, PackedEnd, PackedFormat, packed_layer};
/// let w = PackedArray::quantize(&Array::ones(&[2, 32], Dtype::Float32)?, PackedFormat::Q8_0)?;
/// let x = Array::ones(&[1, 32], Dtype::Float32)?;
/// let plus = Array::from_slice(&[1.0f32, 2.0]).reshape(&[1, 2])?;
/// let y = packed_layer(&x, None, &[&w], PackedEnd::Plus(&plus))?.to_vec::<f32>()?;
/// assert!((y[0] - 33.0).abs() < 0.1 && (y[1] - 34.0).abs() < 0.1);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn packed_layer(
    x: &Array,
    norm: Option<(&Array, f32)>,
    matrices: &[&PackedArray],
    end: PackedEnd<'_>,
) -> Result<Array> {
    let fail = |what: String| Err(Error::shape(NAME, what));
    let Some((&cols, lead)) = x.shape().split_last() else { return fail("a scalar has no rows".into()) };
    let mut all: SmallVec<[(PackedFormat, usize); 3]> = SmallVec::new();
    for matrix in matrices {
        match *matrix.shape() {
            [rows, own] if own == cols => all.push((matrix.format(), rows)),
            _ => {
                let what = format!(
                    "an array of shape {:?} times the transpose of one of shape {:?}",
                    x.shape(),
                    matrix.shape()
                );
                return fail(what);
            }
        }
    }
    let gated = matches!(end, PackedEnd::SiluGate);
    if matrices.is_empty() || gated && (matrices.len() != 2 || all[0].1 != all[1].1) {
        return fail(format!("the epilogue does not take these {} matrices", matrices.len()));
    }
    let n = if gated { all[0].1 } else { all.iter().map(|one| one.1).sum() };
    let rows: usize = lead.iter().product();
    let shape: Shape = lead.iter().copied().chain([n]).collect();
    let mut inputs: SmallVec<[Array; 3]> = smallvec![x.reshape(&[rows as isize, cols as isize])?];
    if let Some((weight, _)) = norm {
        if weight.shape() != [cols] {
            return fail(format!("a norm of shape {:?} for rows of {cols}", weight.shape()));
        }
        inputs.push(weight.clone());
    }
    inputs.extend(matrices.iter().map(|matrix| matrix.bytes().clone()));
    if let PackedEnd::Plus(other) = end {
        if other.shape() != &shape[..] {
            return fail(format!("an array of shape {:?} added to one of shape {shape:?}", other.shape()));
        }
        inputs.push(other.reshape(&[rows as isize, n as isize])?);
    }
    let bytes = 1 + usize::from(norm.is_some())..1 + usize::from(norm.is_some()) + matrices.len();
    for (at, input) in inputs.iter().enumerate() {
        if !bytes.contains(&at) && input.dtype() != Dtype::Float32 {
            let what = "is for float32, not for an array".into();
            return Err(Error::Type { op: NAME.into(), what, dtype: input.dtype() });
        }
    }
    if shape.contains(&0) || cols == 0 {
        return Array::zeros(&shape, Dtype::Float32);
    }
    let end = match end {
        PackedEnd::Plain => End::Plain,
        PackedEnd::Plus(_) => End::Plus,
        PackedEnd::SiluGate => End::SiluGate,
    };
    let op = PackedLayer { eps: norm.map(|norm| BitEq(norm.1)), matrices: all, end };
    let flat = Array::lazy(smallvec![rows, n], Dtype::Float32, OpRef::new(op), inputs)?;
    let signed: SmallVec<[isize; 6]> = shape.iter().map(|length| *length as isize).collect();
    flat.reshape(&signed)
}
