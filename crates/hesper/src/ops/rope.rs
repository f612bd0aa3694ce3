//! Rotary positions: pairs of features turned by angles that grow with the position.
//!
//! Sines and cosines are computed once for each position and shared by all heads; angles are computed in
//! single precision.

use half::{bf16, f16};
use smallvec::{SmallVec, smallvec};

use super::float::{Float, Wide};
use super::lists::Indices;
use super::native::{GRAIN, par_chunks_mut};
use super::walk::{Cursor, Strided};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::transform::rule::{Backward, Batch, Cotangents, Forward, Tangents};

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

/// How features are turned. Further inputs: offsets, where they are no number; then frequencies, where
/// there is no base.
#[derive(Debug, Clone, Copy)]
struct Rope {
    dims: usize,
    traditional: bool,
    base: Option<f32>,
    scale: f32,
    offset: Option<i32>,
    /// Whether features are turned back.
    back: bool,
}

/// By how much the angle of each pair grows from one position to the next: by powers of a base, or by periods.
pub(super) fn steps(half: usize, base: Option<f32>, periods: &[f32]) -> Vec<f32> {
    match base {
        None => periods.iter().map(|wave| 1.0 / wave).collect(),
        Some(base) => {
            let log = -base.ln() / half as f32;
            (0..half).map(|pair| (pair as f32 * log).exp()).collect()
        }
    }
}

impl Rope {
    /// By how much the angle of each pair grows from one position to the next.
    fn steps(&self, freqs: &[f32]) -> Vec<f32> {
        steps(self.dims / 2, self.base, freqs)
    }

    /// Turns a row; `turn` holds cosines, then sines.
    fn apply<W: Wide>(&self, row: &mut [W], turn: &[f32]) {
        let (cos, sin) = turn.split_at(self.dims / 2);
        let angles = cos.iter().zip(sin).map(|(c, s)| (W::of(f64::from(*c)), W::of(f64::from(*s))));
        let turned = |x: W, y: W, c: W, s: W| {
            (x.times(c).minus(y.times(s)), x.times(s).minus(W::of(0.0).minus(y.times(c))))
        };
        if self.traditional {
            for (pair, (c, s)) in row[..self.dims].chunks_exact_mut(2).zip(angles) {
                (pair[0], pair[1]) = turned(pair[0], pair[1], c, s);
            }
        } else {
            let (first, second) = row[..self.dims].split_at_mut(self.dims / 2);
            for ((x, y), (c, s)) in first.iter_mut().zip(second).zip(angles) {
                (*x, *y) = turned(*x, *y, c, s);
            }
        }
    }

    fn run<T: Float>(self, l: &Lowering<'_>) -> Result<Data> {
        let shape = l.shape();
        let (rank, width) = (shape.len(), shape[shape.len() - 1]);
        let (batch, length) = (shape[0], shape[rank - 2]);
        let x = if l.input(0).strides[rank - 1] == 1 || width == 1 {
            Strided::input(l, 0)
        } else {
            Strided::row_major(l, 0)?
        };
        let mut bound = vec![x];
        for at in 1..l.input_count() {
            bound.push(if at == 1 && self.offset.is_none() {
                Strided::input(l, at)
            } else {
                Strided::row_major(l, at)?
            });
        }
        let offsets = self.offset.is_none().then(|| (bound[1].clone(), l.input_dtype(1)));
        // A table of turns for every sequence that has a position of its own.
        let tables = offsets.as_ref().map_or(1, |(offsets, _)| offsets.shape.iter().product::<usize>());
        let table = l.stream().alloc(tables * length * self.dims * 4)?;
        let output = l.output()?;
        let buffers: Vec<_> = bound.iter().map(|one| one.data.buffer.clone()).collect();
        let mut command = l.stream().command(self.name());
        for (buffer, one) in buffers.iter().zip(&bound) {
            command = command.read_range(buffer, one.bytes.clone());
        }
        let freqs_at = self.base.is_none().then_some(bound.len() - 1);
        let x = bound.swap_remove(0);
        command.write(&table).write(&output).run(move |native| {
            let Some((out, rest)) = native.views().split_last_mut() else { return Ok(()) };
            let Some((table, inputs)) = rest.split_last_mut() else { return Ok(()) };
            let freqs = freqs_at.map_or(Ok(&[][..]), |at| inputs[at].as_slice::<f32>())?;
            let steps = self.steps(freqs);
            let starts: Vec<f32> = match &offsets {
                None => vec![self.offset.unwrap_or(0) as f32],
                Some((offsets, dtype)) => {
                    let all = Indices::of(&inputs[1], *dtype)?;
                    let stride = offsets.strides().first().copied().unwrap_or(0);
                    (0..tables).map(|at| all.number(offsets.offset + at as isize * stride) as f32).collect()
                }
            };
            let (dims, half) = (self.dims, self.dims / 2);
            let table = table.as_mut_slice::<f32>()?;
            par_chunks_mut(table, GRAIN / 16 / dims.max(1) * dims, |task, turns| {
                let first = task * (GRAIN / 16 / dims.max(1)).max(1);
                for (at, turn) in turns.chunks_exact_mut(dims).enumerate() {
                    let (start, place) = (starts[(first + at) / length], (first + at) % length);
                    let position = (place as f32 + start) * self.scale;
                    let (cos, sin) = turn.split_at_mut(half);
                    for ((step, cos), sin) in steps.iter().zip(cos).zip(sin) {
                        (*sin, *cos) = (position * step).sin_cos();
                        *sin = if self.back { -*sin } else { *sin };
                    }
                }
            });
            let (table, x_all) = (&*table, inputs[0].as_slice::<T>()?);
            let rows = (GRAIN / width).max(1);
            let heads: usize = x.shape[1..rank - 2].iter().product();
            par_chunks_mut(out.as_mut_slice::<T>()?, rows * width, |task, piece| {
                let mut row = vec![T::Wide::of(0.0); width];
                let outer = &x.shape[..rank - 1];
                let mut cursor = Cursor::new(outer, [&x.strides()[..rank - 1]], task * rows);
                for (at, to) in piece.chunks_exact_mut(width).enumerate() {
                    let number = task * rows + at;
                    let start = (x.offset + cursor.at[0]) as usize;
                    T::load(&x_all[start..start + width], &mut row);
                    let sequence = if tables == batch { number / (heads * length) } else { 0 };
                    let turn = (sequence * length + number % length) * dims;
                    self.apply(&mut row, &table[turn..turn + dims]);
                    T::store(&row, to);
                    cursor.advance();
                }
            });
            Ok(())
        })?;
        Ok(Data::contiguous(output, shape))
    }
}

impl Op for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn export(&self) -> Export {
        let record = Record::new("rope").with("dims", self.dims).with("traditional", self.traditional);
        let record = record.maybe("base", self.base).with("scale", self.scale).maybe("offset", self.offset);
        record.with("back", self.back).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            Dtype::Float64 => self.run::<f64>(l),
            _ => self.run::<f32>(l),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let Rope { dims, traditional, base, scale, offset, back } = *self;
        crate::gpu::moves::Turn { dims, traditional, base, scale, offset, back }.lower(l)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
        inputs[0] = rule.cotangent()?;
        let op = OpRef::new(Rope { back: !self.back, ..*self });
        rule.only(Array::lazy(rule.output.0.shape.clone(), rule.output.dtype(), op, inputs))
    }

    fn jvp(&self, rule: &Forward<'_>) -> Result<Tangents> {
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

/// Turns pairs of the first `dims` features by their position times a frequency. The last two axes are
/// positions and features; the first is the batch.
///
/// `traditional` pairs neighbours, otherwise a feature is paired with the one half of `dims` further on.
/// Frequencies are powers of `base`, or one over each of `freqs`; exactly one of the two must be given.
/// Positions start at `offset` and are multiplied by `scale`.
///
/// ```
/// use hesper::{Array, fast};
/// let x = Array::try_from_slice(&[1.0f32, 0.0, 1.0, 0.0], &[1, 2, 2])?;
/// let turned = fast::rope(&x, 2, false, Some(10000.0), 1.0, 0, None)?.to_vec::<f32>()?;
/// assert_eq!(turned[..2], [1.0, 0.0]);
/// assert!((turned[2] - 1f32.cos()).abs() < 1e-6 && (turned[3] - 1f32.sin()).abs() < 1e-6);
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
    let shape = |what: String| Err(Error::shape("rope", what));
    if x.ndim() < 3 {
        return shape(format!("at least three axes expected, not shape {:?}", x.shape()));
    }
    if !x.dtype().is(Category::Floating) {
        let what = "takes floating-point numbers, and was given an array".into();
        return Err(Error::Type { op: "rope".into(), what, dtype: x.dtype() });
    }
    let width = x.shape()[x.ndim() - 1];
    if dims == 0 || !dims.is_multiple_of(2) || dims > width {
        return shape(format!("{dims} features of rows of {width} cannot be turned in pairs"));
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
    let op = Rope { dims, traditional, base, scale, offset: number, back: false };
    Array::lazy(x.0.shape.clone(), x.dtype(), OpRef::new(op), inputs)
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
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
            let op = Rope { dims, traditional, base, scale, offset, back: true };
            Array::lazy(made.0.shape.clone(), made.dtype(), OpRef::new(op), call.inputs)
        }
    }
}
