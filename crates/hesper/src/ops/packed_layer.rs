//! A norm, products with packed matrices and what follows them, as one command: the steps of a decoder are many and
//! small, and each command costs as much as a small product.

use hesper_compute::{GgufMat, LayerEnd, gguf_layer};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::packed::{PackedArray, PackedFormat};
use super::walk::Strided;
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::fast::rms_norm;
use crate::ops::command::Commands;
use crate::shape::Shape;
use crate::transform::rule::{Backward, Cotangents};

const NAME: &str = "packed_layer";

/// What becomes of the products of [`packed_layer`].
#[derive(Debug, Clone, Copy)]
pub enum PackedEnd<'a> {
    /// Those with each matrix lie side by side along the last axis.
    Plain,
    /// The same, and an array of their shape is added.
    Plus(&'a Array),
    /// There are two matrices: `g * sigmoid(g) * u` for the products `g` with the first and `u` with the second.
    SiluGate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Plain,
    Plus,
    SiluGate,
}

/// Inputs: rows of activations, the weight of the norm if there is one, blocks of each matrix, what is added if
/// anything is.
#[derive(Debug)]
struct PackedLayer {
    eps: Option<f32>,
    /// Format and rows of each matrix.
    matrices: SmallVec<[(PackedFormat, usize); 3]>,
    end: End,
}

impl Op for PackedLayer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let output = l.output()?;
        let bound = (0..l.input_count()).map(|at| Strided::row_major(l, at));
        let bound = bound.collect::<Result<SmallVec<[Strided; 5]>>>()?;
        let cols = l.input_shape(0)[1];
        let (eps, matrices, end) = (self.eps, self.matrices.clone(), self.end);
        let mut command = l.stream().command(NAME);
        for one in &bound {
            command = command.read_range(&one.data.buffer, one.bytes.clone());
        }
        command.write(&output).run(move |native| {
            let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
            let x = inputs[0].as_slice::<f32>()?;
            let norm = match eps {
                Some(eps) => Some((inputs[1].as_slice::<f32>()?, eps)),
                None => None,
            };
            let first = 1 + usize::from(eps.is_some());
            let mut all: SmallVec<[GgufMat<'_>; 3]> = SmallVec::new();
            for (at, (format, rows)) in matrices.iter().enumerate() {
                let matrix = GgufMat::new(*format, *rows, cols, inputs[first + at].as_slice()?);
                all.push(matrix.map_err(|error| error.to_string())?);
            }
            let end = match end {
                End::Plain => LayerEnd::Plain,
                End::Plus => LayerEnd::Plus(inputs[first + matrices.len()].as_slice::<f32>()?),
                End::SiluGate => LayerEnd::SiluGate,
            };
            gguf_layer(&Cores, x, norm, &all, end, out.as_mut_slice::<f32>()?)
                .map_err(|error| error.to_string().into())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        use crate::gpu::{blocks, compose};
        let end = match self.end {
            End::Plain => blocks::End::Plain,
            End::Plus => blocks::End::Plus,
            End::SiluGate => blocks::End::Gate,
        };
        let products = blocks::Products { eps: self.eps, matrices: &self.matrices, end };
        if let Some(data) = products.lower(l)? {
            return Ok(Some(data));
        }
        if self.eps.is_some() && blocks::has_tiles(l) {
            return compose::compose(l, |inputs| self.behind_norm(inputs));
        }
        compose::compose(l, |inputs| self.composed(inputs))
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through(|inputs| self.composed(inputs))
    }
}

impl PackedLayer {
    /// The norm by itself, then the same without it.
    fn behind_norm(&self, inputs: &[Array]) -> Result<Array> {
        let x = rms_norm(&inputs[0], Some(&inputs[1]), self.eps.unwrap_or(0.0))?;
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

    /// The same from other ops.
    fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (mut x, mut first) = (inputs[0].clone(), 1);
        if let Some(eps) = self.eps {
            x = rms_norm(&x, Some(&inputs[1]), eps)?;
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

/// Products of rows with the transposes of packed matrices, behind a root mean square norm (its weight, and what keeps
/// its root from zero) if one is given: `end(norm(x) w^T)`. Everything is float32.
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
    let Some((&cols, lead)) = x.shape().split_last() else { return fail("a number has no rows".into()) };
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
        return fail(format!("{} matrices that do not go together", matrices.len()));
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
    let op = PackedLayer { eps: norm.map(|norm| norm.1), matrices: all, end };
    let flat = Array::lazy(smallvec![rows, n], Dtype::Float32, OpRef::new(op), inputs)?;
    let signed: SmallVec<[isize; 6]> = shape.iter().map(|length| *length as isize).collect();
    flat.reshape(&signed)
}
