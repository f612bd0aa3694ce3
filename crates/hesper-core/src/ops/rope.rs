//! Rotary position embedding: pairs of features rotated by angles that grow with the position.

use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef, PatternOp};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, Forward, Tangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;

/// The position of the first row: one for all sequences, or one for each.
#[derive(Debug, Clone)]
pub enum Offset {
    /// The same for all.
    Number(i32),
    /// A number, or a vector with one for each sequence.
    Array(Array),
}

impl From<i32> for Offset {
    fn from(offset: i32) -> Self {
        Offset::Number(offset)
    }
}

impl From<&Array> for Offset {
    fn from(offset: &Array) -> Self {
        Offset::Array(offset.clone())
    }
}

impl From<Array> for Offset {
    fn from(offset: Array) -> Self {
        Offset::Array(offset)
    }
}

/// Rotates pairs of features. The inputs after the first are offsets, if `offset` is `None`, then periods, if
/// `base` is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rope {
    /// How many features of a row are rotated; even.
    pub dims: usize,
    /// Whether a pair is two neighbours, or a feature and the one half of `dims` further on.
    pub traditional: bool,
    /// Frequencies are powers of it.
    pub base: Option<BitEq<f32>>,
    /// Positions are multiplied by it.
    pub scale: BitEq<f32>,
    /// The position of the first row.
    pub offset: Option<i32>,
    /// Whether angles are negated: the inverse rotation.
    pub back: bool,
}

/// By how much the angle of each pair grows from one position to the next: by powers of a base, or by
/// periods.
pub fn steps(half: usize, base: Option<f32>, periods: &[f32]) -> Vec<f32> {
    match base {
        None => periods.iter().map(|period| 1.0 / period).collect(),
        Some(base) => {
            let log = -base.ln() / half as f32;
            (0..half).map(|pair| (pair as f32 * log).exp()).collect()
        }
    }
}

impl Op for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn pattern(&self) -> PatternOp {
        if self.offset.is_some() { PatternOp::Rope } else { PatternOp::None }
    }

    fn export(&self) -> Export {
        let record = Record::new("rope").with("dims", self.dims).with("traditional", self.traditional);
        let record = record
            .maybe("base", self.base.map(|base| base.0))
            .with("scale", self.scale.0)
            .maybe("offset", self.offset);
        record.with("back", self.back).into()
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let periods = rule.inputs.len() - 1;
        rule.each(|at| match at {
            0 => {
                let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
                inputs[0] = rule.cotangent()?;
                let op = OpRef::new(Rope { back: !self.back, ..*self });
                Array::lazy(rule.output.0.shape.clone(), rule.output.dtype(), op, inputs).map(Some)
            }
            at if at == periods && self.base.is_none() => self.of_periods(rule).map(Some),
            _ => Ok(None),
        })
    }

    fn jvp(&self, rule: &Forward<'_>) -> Result<Tangents> {
        if self.base.is_none() && rule.tangents.last().is_some_and(Option::is_some) {
            return rule.transposed_twice();
        }
        let Some(tangent) = &rule.tangents[0] else { return Ok(smallvec![None]) };
        let mut inputs = rule.call.inputs.clone();
        inputs[0] = tangent.clone();
        let (shape, dtype) = (rule.output.0.shape.clone(), rule.output.dtype());
        Ok(smallvec![Some(Array::lazy(shape, dtype, rule.call.op.clone(), inputs)?)])
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        // A new axis in front is a batch like any other, unless sequences have positions of their own.
        if rule.axes[1..].iter().any(Option::is_some) || rule.inputs[1..].iter().any(|one| one.ndim() > 1) {
            return rule.one_by_one();
        }
        if self.offset.is_none() && rule.inputs[1].size() > 1 {
            return rule.one_by_one();
        }
        let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
        inputs[0] = rule.front(0)?;
        rule.apply(rule.op.clone(), inputs)
    }
}

impl Rope {
    /// The rotation of rows by known positions.
    pub(super) fn apply(&self, x: &Array, periods: Option<&Array>) -> Result<Array> {
        let inputs = std::iter::once(x).chain(periods).cloned().collect();
        Array::lazy(x.0.shape.clone(), x.dtype(), OpRef::new(*self), inputs)
    }

    /// The cotangent of the periods. An angle turns a pair of results (a, b) by (-b, a).
    fn of_periods(&self, rule: &Backward<'_>) -> Result<Array> {
        let (rank, half) = (rule.output.ndim(), self.dims as isize / 2);
        let pair = |of: &Array| -> Result<(Array, Array)> {
            let of = of.astype(Dtype::Float32)?;
            let part = |start, stop, step| of.slice_axis(rank - 1, start, stop, step);
            match self.traditional {
                true => Ok((part(0, 2 * half, 2)?, part(1, 2 * half, 2)?)),
                false => Ok((part(0, half, 1)?, part(half, 2 * half, 1)?)),
            }
        };
        let ((a, b), (cotangent_a, cotangent_b)) = (pair(rule.output)?, pair(&rule.cotangent()?)?);
        let turn = cotangent_b.multiply(&a)?.subtract(cotangent_a.multiply(&b)?)?;
        let length = rule.output.shape()[rank - 2];
        let rows = Array::from_slice(&(0..length as i64).collect::<Vec<i64>>()).expand_dims(-1)?;
        let positions = match self.offset {
            Some(offset) => rows.add(offset)?,
            None => {
                // One offset for each sequence, along the first axis.
                let mut shape: SmallVec<[isize; 6]> = smallvec![1; rank];
                shape[0] = rule.inputs[1].size() as isize;
                rows.add(rule.inputs[1].reshape(&shape)?)?
            }
        };
        let periods = &rule.inputs[rule.inputs.len() - 1];
        let scale = if self.back { self.scale.0 } else { -self.scale.0 };
        let angles = positions.astype(Dtype::Float32)?.multiply(f64::from(scale))?;
        let over: SmallVec<[isize; 6]> = (0..rank as isize - 1).collect();
        turn.multiply(angles)?.sum(&over)?.divide(periods.square()?)
    }
}

/// Rotates pairs of the first `dims` features by their position times a frequency. The last two axes are
/// positions and features; the first is the batch.
///
/// `traditional` pairs neighbours, otherwise a feature is paired with the one half of `dims` further on.
/// Frequencies are powers of `base`, or one over each of `freqs`; exactly one of the two must be given.
/// Positions start at `offset` and are multiplied by `scale`.
///
/// ```
/// use hesper::{Array, fast};
/// let x = Array::try_from_slice(&[1.0f32, 0.0, 1.0, 0.0], &[1, 2, 2])?;
/// let rotated = fast::rope(&x, 2, false, Some(10000.0), 1.0, 0, None)?.to_vec::<f32>()?;
/// assert_eq!(rotated[..2], [1.0, 0.0]);
/// assert!((rotated[2] - 1f32.cos()).abs() < 1e-6 && (rotated[3] - 1f32.sin()).abs() < 1e-6);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn rope(
    x: &Array,
    dims: usize,
    traditional: bool,
    base: Option<f32>,
    scale: f32,
    offset: impl Into<Offset>,
    freqs: Option<&Array>,
) -> Result<Array> {
    let shape = |what: String| Err(Error::shape("rope", what).with_shapes([x]));
    if x.ndim() < 3 {
        return shape(format!("at least three axes expected, not shape {:?}", x.shape()));
    }
    if !x.dtype().is(Category::Floating) {
        let what = "takes floating-point numbers, and was given an array".into();
        return Err(Error::Type { op: "rope".into(), what, dtype: x.dtype() });
    }
    let width = x.shape()[x.ndim() - 1];
    if dims == 0 || !dims.is_multiple_of(2) || dims > width {
        return shape(format!("{dims} features of rows of {width} cannot be rotated in pairs"));
    }
    let mut inputs = smallvec![x.clone()];
    let number = match offset.into() {
        Offset::Number(number) => Some(number),
        Offset::Array(offset) => {
            if !offset.dtype().is(Category::Integer) {
                let what = "an offset must be an integer, and is an array".into();
                return Err(Error::Type { op: "rope".into(), what, dtype: offset.dtype() });
            }
            if offset.ndim() > 1 || (offset.size() != 1 && offset.shape() != [x.shape()[0]]) {
                let what =
                    format!("offsets of shape {:?} for an array of shape {:?}", offset.shape(), x.shape());
                return shape(what);
            }
            inputs.push(offset);
            None
        }
    };
    match (base, freqs) {
        (Some(_), Some(_)) => return Err(Error::value("rope", "only one of base and freqs can be given")),
        (None, None) => return Err(Error::value("rope", "neither base nor freqs is given")),
        (None, Some(freqs)) if freqs.shape() != [dims / 2] => {
            return shape(format!("freqs of shape {:?} for {dims} features", freqs.shape()));
        }
        (None, Some(freqs)) => inputs.push(freqs.astype(Dtype::Float32)?),
        (Some(_), None) => {}
    }
    if x.size() == 0 {
        return Ok(x.clone());
    }
    let op =
        Rope { dims, traditional, base: base.map(BitEq), scale: BitEq(scale), offset: number, back: false };
    Array::lazy(x.0.shape.clone(), x.dtype(), OpRef::new(op), inputs)
}

reader!("rope", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let (base, number) = (replay.maybe_float("base"), replay.maybe_int("offset"));
    let [x, others @ ..] = replay.inputs else { return Err(replay.wrong("no input")) };
    if others.len() != usize::from(base.is_none()) + usize::from(number.is_none()) || x.size() == 0 {
        return Err(replay.wrong("inputs that do not fit its attributes"));
    }
    let offset = match (number.map(i32::try_from), others.first()) {
        (Some(Ok(number)), _) => Offset::Number(number),
        (None, Some(offset)) => Offset::Array(offset.clone()),
        _ => return Err(replay.wrong("no valid offset")),
    };
    let freqs = others.last().filter(|_| base.is_none());
    let (dims, traditional) = (replay.length("dims")?, replay.flag("traditional")?);
    let (base, scale) = (base.map(|base| base as f32), replay.float("scale")? as f32);
    let made = rope(x, dims, traditional, base, scale, offset, freqs)?;
    match made.call().filter(|_| replay.flag("back").is_ok_and(|back| back)) {
        None => Ok(made),
        Some(call) => {
            let offset = number.and_then(|number| i32::try_from(number).ok());
            let op =
                Rope { dims, traditional, base: base.map(BitEq), scale: BitEq(scale), offset, back: true };
            Array::lazy(made.0.shape.clone(), made.dtype(), OpRef::new(op), call.inputs)
        }
    }
}
