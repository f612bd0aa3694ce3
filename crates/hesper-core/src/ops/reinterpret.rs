//! An array's memory as another type, or by any strides.

use smallvec::{SmallVec, smallvec};

use super::{Op, OpKind, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Data, Export, Lowering, Record, Replay};
use crate::ops::readers::reader;
use crate::registry;
use crate::shape::{Shape, Strides, row_major, size_of};

/// The bits as another type. The input is made row-major where the sizes of the types differ.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct View;

impl Op for View {
    fn name(&self) -> &'static str {
        "view"
    }

    fn export(&self) -> Export {
        Record::new("view").into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let (from, to) = (l.input_dtype(0).size(), l.dtype().size());
        if from == to {
            return Ok(l.input(0).clone());
        }
        let mut data = l.row_major(0)?;
        let start = data.offset as usize * from;
        if !start.is_multiple_of(to) {
            // Copy: an element of the other type would not be aligned to its size.
            let buffer = registry::copy(l.stream(), &data, l.input_shape(0), l.input_dtype(0))?;
            data = Data::contiguous(buffer, l.input_shape(0));
        }
        let offset = (data.offset as usize * from / to) as isize;
        Ok(Data { buffer: data.buffer, offset, strides: row_major(l.shape()) })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

impl Array {
    /// The bits of the elements as another type. If that has another size, the last axis changes its
    /// length.
    ///
    /// ```
    /// use hesper::{Dtype, array};
    /// assert_eq!(array![1.0].view(Dtype::Uint32)?.item::<u32>()?, 0x3f80_0000);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn view(&self, dtype: Dtype) -> Result<Array> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        let (from, to) = (self.dtype().size(), dtype.size());
        let mut shape: Shape = self.0.shape.clone();
        if from != to {
            let bytes = shape.last().map(|last| last * from);
            match (shape.last_mut(), bytes) {
                (Some(last), Some(bytes)) if bytes.is_multiple_of(to) => *last = bytes / to,
                _ => {
                    let what =
                        format!("the last axis of {} and shape {:?} as {dtype}", self.dtype(), self.shape());
                    return Err(Error::shape("view", what).with_shapes([self]));
                }
            }
        }
        if dtype == Dtype::Bool {
            // A bool holds no other bits than zero and one.
            return self.view(Dtype::Uint8)?.not_equal(0);
        }
        Array::lazy(shape, dtype, OpRef::Static(&View), smallvec![self.clone()])
    }

    /// The array, as if it lay row by row, seen by any shape, strides and offset, in elements. All that
    /// the view reaches must be inside of the array.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1, 2, 3, 4];
    /// let windows = x.as_strided(&[3, 2], &[1, 1], 0)?; // each row starts one element later
    /// assert_eq!(windows.to_vec::<i32>()?, [1, 2, 2, 3, 3, 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn as_strided(&self, shape: &[usize], strides: &[isize], offset: usize) -> Result<Array> {
        let fail = |why: &str| {
            let what = format!(
                "shape {shape:?} by strides {strides:?} from {offset} {why} an array of shape {:?}",
                self.shape()
            );
            Err(Error::shape("as_strided", what).with_shapes([self]))
        };
        if shape.len() != strides.len() {
            return fail("does not describe a view of");
        }
        if size_of(shape)? > 0 {
            let (mut low, mut high) = (offset as i128, offset as i128);
            for (length, stride) in shape.iter().zip(strides) {
                let span = (*length as i128 - 1) * *stride as i128;
                low += span.min(0);
                high += span.max(0);
            }
            if low < 0 || high >= self.size() as i128 {
                return fail("reaches beyond");
            }
        }
        let op = AsStrided { strides: strides.into(), offset: offset as isize };
        Array::lazy(shape.into(), self.dtype(), OpRef::new(op), smallvec![self.contiguous()?])
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AsStrided {
    pub strides: Strides,
    pub offset: isize,
}

impl Op for AsStrided {
    fn name(&self) -> &'static str {
        "as_strided"
    }

    fn export(&self) -> Export {
        Record::new("as_strided").with("strides", &self.strides[..]).with("offset", self.offset).into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let data = l.row_major(0)?;
        let empty = l.shape().contains(&0);
        let offset = if empty { data.offset } else { data.offset + self.offset };
        Ok(Data { buffer: data.buffer, offset, strides: self.strides.clone() })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.only(strided_sum(&rule.cotangent()?, rule.inputs[0].shape(), &self.strides, self.offset))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let whole = rule.front(0)?.contiguous()?;
        let each: usize = whole.shape()[1..].iter().product();
        let strides = std::iter::once(each as isize).chain(self.strides.iter().copied()).collect();
        rule.apply(OpRef::new(AsStrided { strides, offset: self.offset }), smallvec![whole])
    }
}

/// Zeros of a shape, and added to them an array whose elements have places there by strides and an offset:
/// what a strided view's cotangent is to the array that was viewed.
pub fn strided_sum(parts: &Array, shape: &[usize], strides: &[isize], offset: isize) -> Result<Array> {
    let mut places = Array::integer(offset as i64, Dtype::Int64)?;
    for (at, stride) in strides.iter().enumerate() {
        let steps: Vec<i64> = (0..parts.shape()[at] as i64).map(|step| step * *stride as i64).collect();
        let mut along: SmallVec<[isize; 6]> = smallvec![1; parts.ndim() - at];
        along[0] = steps.len() as isize;
        places = places.add(Array::from_slice(&steps).reshape(&along)?)?;
    }
    let flat = Array::zeros(&[shape.iter().product()], parts.dtype())?;
    let places = places.broadcast_to(parts.shape())?.reshape(&[-1])?;
    flat.scatter_add(&[places], &parts.reshape(&[-1, 1])?, &[0])?.reshape(shape)
}

reader!("view", One(read_view));
fn read_view(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.view(replay.dtype())
}

reader!("as_strided", One(read_as_strided));
fn read_as_strided(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.as_strided(replay.shape(), &replay.axes("strides")?, replay.length("offset")?)
}
