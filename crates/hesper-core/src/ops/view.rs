//! Views: an array's memory with another shape or other strides. A reshape whose elements no strides describe
//! makes a row-major copy on the device of its stream.

use smallvec::{SmallVec, smallvec};

use super::replay_shapes;
use super::{Op, OpKind, OpRef, PatternOp};
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, unbroadcast, zeros_like};
use crate::graph::scope::{self, is_free};
use crate::graph::{Array, Data, Export, Lowering, Record, Replay, State};
use crate::ops::readers::reader;
use crate::shape::{Shape, Strides, axis, is_row_major, row_major, signed, size_of};

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The axis whose length was left open: other shapes change that one.
    pub open: Option<usize>,
    /// What it does to axes, where a trace has to know.
    pub form: ReshapeForm,
}

/// What a reshape does to axes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum ReshapeForm {
    /// Lengths follow the input's where these say how.
    #[default]
    Any,
    /// Lengths are numbers of the caller's, which do not follow the input's.
    Literal,
    /// Removes these axes.
    Squeeze(SmallVec<[usize; 6]>),
    /// Inserts these axes of the result.
    ExpandDims(SmallVec<[usize; 6]>),
    /// Joins the axes from the first to the last.
    Flatten(usize, usize),
    /// Splits an axis into lengths, one of which may be -1.
    Unflatten(usize, SmallVec<[isize; 6]>),
}

impl Reshape {
    const fn open(open: Option<usize>) -> Self {
        Reshape { open, form: ReshapeForm::Any }
    }
}

/// A reshape without an open axis.
pub(super) static RESHAPE: Reshape = Reshape::open(None);

/// The same, then one for each of the first axes that may be open.
static RESHAPES: [Reshape; 9] = [
    Reshape::open(None),
    Reshape::open(Some(0)),
    Reshape::open(Some(1)),
    Reshape::open(Some(2)),
    Reshape::open(Some(3)),
    Reshape::open(Some(4)),
    Reshape::open(Some(5)),
    Reshape::open(Some(6)),
    Reshape::open(Some(7)),
];

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn export(&self) -> Export {
        let record = Record::new("reshape").maybe("open", self.open);
        match &self.form {
            ReshapeForm::Any => record,
            ReshapeForm::Literal => record.with("literal", true),
            ReshapeForm::Squeeze(axes) => record.with("squeeze", &axes[..]),
            ReshapeForm::ExpandDims(axes) => record.with("expand_dims", &axes[..]),
            ReshapeForm::Flatten(start, end) => record.with("flatten", &[*start, *end][..]),
            ReshapeForm::Unflatten(axis, lengths) => {
                record.with("unflatten", &[&[*axis as isize], &lengths[..]].concat()[..])
            }
        }
        .into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn pattern(&self) -> PatternOp {
        PatternOp::Reshape
    }

    fn view(&self, data: &Data, from: &[usize], to: &[usize]) -> Option<Data> {
        let strides = reshaped(from, &data.strides, to)?;
        Some(Data { buffer: data.buffer.clone(), offset: data.offset, strides })
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let row_by_row = l.copy_of(0)?;
        Ok(Data { strides: row_major(l.shape()), ..row_by_row })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.only(rule.cotangent()?.reshape_like(&rule.inputs[0]))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let input = rule.front(0)?;
        // Axes of a trace stay what they are called; those behind the batch axis are one further.
        let behind =
            |axes: &[usize]| -> SmallVec<[isize; 6]> { axes.iter().map(|axis| *axis as isize + 1).collect() };
        let result = match &self.form {
            ReshapeForm::Squeeze(axes) => input.squeeze(&behind(axes)[..])?,
            ReshapeForm::ExpandDims(axes) => input.expand_dims(&behind(axes)[..])?,
            _ => input.reshape(&rule.shape())?,
        };
        Ok((result, 0))
    }
}

/// The strides of the same elements in another shape, if there are such.
fn reshaped(from: &[usize], strides: &[isize], to: &[usize]) -> Option<Strides> {
    if from.contains(&0) || is_row_major(from, strides) {
        return Some(row_major(to));
    }
    // Axes of both shapes are matched in runs of equal product; a run must be evenly spaced.
    let mut result: Strides = smallvec![0; to.len()];
    let from: SmallVec<[(usize, isize); 6]> =
        from.iter().copied().zip(strides.iter().copied()).filter(|(length, _)| *length != 1).collect();
    let mut at = 0;
    let mut out = 0;
    while at < from.len() {
        let (mut have, mut want) = (from[at].0, 1);
        let (start, first) = (at, out);
        at += 1;
        while have != want || want == 1 {
            if want < have {
                want *= *to.get(out)?;
                out += 1;
            } else {
                let (length, stride) = *from.get(at)?;
                if from[at - 1].1 != stride * length as isize {
                    return None;
                }
                have *= length;
                at += 1;
            }
        }
        let _ = start;
        let mut step = from[at - 1].1;
        for target in (first..out).rev() {
            result[target] = step;
            step *= to[target] as isize;
        }
    }
    Some(result)
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Transpose(pub SmallVec<[usize; 6]>);

impl Op for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn export(&self) -> Export {
        Record::new("transpose").with("axes", &self.0[..]).into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn view(&self, data: &Data, _: &[usize], _: &[usize]) -> Option<Data> {
        let strides = self.0.iter().map(|axis| data.strides[*axis]).collect();
        Some(Data { buffer: data.buffer.clone(), offset: data.offset, strides })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let mut back: SmallVec<[isize; 6]> = smallvec![0; self.0.len()];
        self.0.iter().enumerate().for_each(|(to, from)| back[*from] = to as isize);
        rule.only(rule.cotangent()?.transpose(&back))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let order: SmallVec<[isize; 6]> =
            std::iter::once(0).chain(self.0.iter().map(|axis| *axis as isize + 1)).collect();
        Ok((rule.front(0)?.transpose(&order)?, 0))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct BroadcastTo;

impl Op for BroadcastTo {
    fn name(&self) -> &'static str {
        "broadcast_to"
    }

    fn export(&self) -> Export {
        Record::new("broadcast_to").into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn view(&self, data: &Data, from: &[usize], to: &[usize]) -> Option<Data> {
        let missing = to.len() - from.len();
        let strides = (0..to.len())
            .map(|axis| match axis.checked_sub(missing) {
                Some(at) if from[at] != 1 => data.strides[at],
                _ => 0,
            })
            .collect();
        Some(Data { buffer: data.buffer.clone(), offset: data.offset, strides })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.only(unbroadcast(&rule.cotangent()?, rule.inputs[0].shape()))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        Ok((rule.aligned(0, rule.output.ndim())?.broadcast_to(&rule.shape())?, 0))
    }
}

/// Where a slice starts and how far its steps go, for each axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    pub starts: SmallVec<[isize; 6]>,
    pub steps: SmallVec<[isize; 6]>,
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn export(&self) -> Export {
        Record::new("slice").with("starts", &self.starts[..]).with("steps", &self.steps[..]).into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn pattern(&self) -> PatternOp {
        match self.starts.split_last() {
            Some((start, lead))
                if lead.iter().all(|start| *start == 0) && self.steps.iter().all(|step| *step == 1) =>
            {
                PatternOp::LastAxis(*start as usize)
            }
            _ => PatternOp::None,
        }
    }

    fn view(&self, data: &Data, _: &[usize], to: &[usize]) -> Option<Data> {
        let buffer = data.buffer.clone();
        if to.contains(&0) {
            return Some(Data { buffer, offset: data.offset, strides: row_major(to) });
        }
        let moved: isize = self.starts.iter().zip(&data.strides).map(|(start, stride)| start * stride).sum();
        let strides = self.steps.iter().zip(&data.strides).map(|(step, stride)| step * stride).collect();
        Some(Data { buffer, offset: data.offset + moved, strides })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let stop: SmallVec<[isize; 6]> = (0..self.starts.len())
            .map(|at| {
                let stop = self.starts[at] + self.steps[at] * rule.output.shape()[at] as isize;
                // Before the first element, which no count from the back can be taken for.
                if stop < 0 { isize::MIN } else { stop }
            })
            .collect();
        let zeros = zeros_like(&rule.inputs[0])?;
        rule.only(zeros.slice_update(&rule.cotangent()?, &self.starts, &stop, &self.steps))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let ahead =
            |first: isize, list: &[isize]| std::iter::once(first).chain(list.iter().copied()).collect();
        let op = Slice { starts: ahead(0, &self.starts), steps: ahead(1, &self.steps) };
        rule.apply(OpRef::new(op), smallvec![rule.front(0)?])
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Contiguous;

impl Op for Contiguous {
    fn name(&self) -> &'static str {
        "contiguous"
    }

    fn export(&self) -> Export {
        Record::new("contiguous").into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn view(&self, data: &Data, from: &[usize], _: &[usize]) -> Option<Data> {
        is_row_major(from, &data.strides).then(|| data.clone())
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        l.copy_of(0)
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.only(rule.cotangent())
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        Ok((rule.front(0)?.contiguous()?, 0))
    }
}

/// Steps as they are taken: where there is no second element any step will do, and a large one would lead far
/// away.
pub fn near_steps(steps: &[isize], shape: &[usize]) -> SmallVec<[isize; 6]> {
    steps.iter().zip(shape).map(|(step, length)| if *length > 1 { *step } else { 1 }).collect()
}

/// The length of an axis as an argument of [`Array::reshape`].
///
/// ```
/// use hesper::Length;
/// assert_eq!((3usize.signed(), (-1i32).signed()), (3, -1));
/// ```
pub trait Length: Copy {
    /// The length as a signed number. One that does not fit is the largest.
    fn signed(self) -> isize;
}

macro_rules! lengths {
    ($($type:ty),*) => {
        $(impl Length for $type {
            #[inline]
            fn signed(self) -> isize {
                isize::try_from(self).unwrap_or(isize::MAX)
            }
        })*
    };
}

lengths!(i32, i64, isize, usize);

/// The slice of a shape that starts and goes on as said, inside of an array.
pub fn slice_of(array: &Array, starts: &[isize], steps: &[isize], shape: &[usize]) -> Result<Array> {
    array.view_by(Slice { starts: starts.into(), steps: steps.into() }, shape.into())
}

impl Array {
    /// The same elements, in row-major order, in another shape. One axis may be -1: its length is inferred.
    /// The lengths are integers of any signed type, or of `usize` as [`Array::shape`] has them.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1, 2, 3, 4, 5, 6];
    /// assert_eq!(x.reshape(&[2, -1])?.shape(), [2, 3]);
    /// let columns = array![[1, 2], [3, 4], [5, 6]];
    /// assert_eq!(x.reshape(columns.shape())?.shape(), [3, 2]);
    /// assert!(x.reshape(&[4, -1]).is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn reshape<L: Length>(&self, shape: &[L]) -> Result<Array> {
        let shape: SmallVec<[isize; 8]> = shape.iter().map(|length| length.signed()).collect();
        self.reshaped(&shape, ReshapeForm::Any)
    }

    /// The same for lengths that stay as they are in a function that is traced once for all shapes. Those of
    /// [`reshape`](Array::reshape) follow the lengths of the input where these say how.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 2, 3, 4].reshape_literal(&[2, 2])?.shape(), [2, 2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn reshape_literal(&self, shape: &[isize]) -> Result<Array> {
        let form = if is_free(self) { ReshapeForm::Literal } else { ReshapeForm::Any };
        self.reshaped(shape, form)
    }

    /// A reshape that changes axes as `form` says; a trace notes it.
    pub(super) fn reshape_axes(&self, shape: &[isize], form: impl FnOnce() -> ReshapeForm) -> Result<Array> {
        self.reshaped(shape, if scope::is_noted() { form() } else { ReshapeForm::Any })
    }

    fn reshaped(&self, shape: &[isize], form: ReshapeForm) -> Result<Array> {
        let fail = || {
            let what = format!("an array of shape {:?} has no shape {shape:?}", self.shape());
            Err(Error::shape("reshape", what).with_shapes([self]))
        };
        let mut target: Shape = smallvec![0; shape.len()];
        let mut open = None;
        for (at, length) in shape.iter().enumerate() {
            match *length {
                -1 if open.is_none() => open = Some(at),
                length if length >= 0 => target[at] = length as usize,
                _ => return fail(),
            }
        }
        if let Some(at) = open {
            target[at] = 1;
            let rest = size_of(&target)?;
            if rest == 0 || !self.size().is_multiple_of(rest) {
                return fail();
            }
            target[at] = self.size() / rest;
        }
        if size_of(&target)? != self.size() {
            return fail();
        }
        // An open axis may have another length next time.
        if target == self.0.shape && !(form == ReshapeForm::Literal && open.is_some()) {
            return Ok(self.clone());
        }
        let op = match RESHAPES.get(open.map_or(0, |at| at + 1)) {
            _ if form != ReshapeForm::Any => OpRef::new(Reshape { open, form }),
            op => OpRef::Static(op.unwrap_or(&RESHAPES[0])),
        };
        Array::lazy(target, self.dtype(), op, smallvec![self.clone()])
    }

    /// All axes in reverse order.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![[1, 2, 3], [4, 5, 6]].t()?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn t(&self) -> Result<Array> {
        let order: SmallVec<[isize; 6]> = (0..self.ndim() as isize).rev().collect();
        self.transpose(&order)
    }

    /// The axes in another order.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let heads = Array::zeros(&[2, 10, 8, 64], Dtype::Float32)?;
    /// assert_eq!(heads.transpose(&[0, 2, 1, 3])?.shape(), [2, 8, 10, 64]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn transpose(&self, order: &[isize]) -> Result<Array> {
        if order.len() != self.ndim() {
            let what = format!("axes {order:?} for an array of shape {:?}", self.shape());
            return Err(Error::shape("transpose", what).with_shapes([self]));
        }
        let mut axes: SmallVec<[usize; 6]> = SmallVec::with_capacity(order.len());
        for one in order {
            let at = axis("transpose", *one, self.ndim())?;
            if axes.contains(&at) {
                return Err(Error::RepeatedAxis { op: "transpose".into(), axes: order.to_vec() });
            }
            axes.push(at);
        }
        let shape = axes.iter().map(|axis| self.shape()[*axis]).collect();
        self.view_by(Transpose(axes), shape)
    }

    /// The array stretched to a shape that it broadcasts to.
    ///
    /// ```
    /// use hesper::array;
    /// let row = array![1, 2, 3];
    /// assert_eq!(row.broadcast_to(&[2, 3])?.to_vec::<i32>()?, [1, 2, 3, 1, 2, 3]);
    /// assert!(row.broadcast_to(&[3, 2]).is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Array> {
        // A trace keeps the broadcast: with other shapes it may be one.
        if self.shape() == shape && !self.is_varied() {
            return Ok(self.clone());
        }
        size_of(shape)?;
        let fits = crate::shape::broadcast("broadcast_to", self.shape(), shape)?;
        if fits[..] != *shape {
            let what = format!("an array of shape {:?} does not broadcast to {shape:?}", self.shape());
            return Err(Error::shape("broadcast_to", what).with_shapes([self]));
        }
        if let Some(view) = self.ready_view(&BroadcastTo, shape)? {
            return Ok(view);
        }
        Array::lazy(shape.into(), self.dtype(), OpRef::Static(&BroadcastTo), smallvec![self.clone()])
    }

    /// Every `step`-th element from `start` up to `stop` along each axis. Bounds beyond the ends are
    /// moved to them, negative ones count from the back, steps may be negative.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1, 2, 3, 4], [5, 6, 7, 8]];
    /// assert_eq!(x.slice(&[0, 0], &[2, 4], &[1, 2])?.to_vec::<i32>()?, [1, 3, 5, 7]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn slice(&self, start: &[isize], stop: &[isize], step: &[isize]) -> Result<Array> {
        let (starts, shape) = self.sliced(start, stop, step)?;
        let steps = near_steps(step, &shape);
        self.view_by(Slice { starts, steps }, shape)
    }

    /// Where a slice starts, and its shape.
    pub(super) fn sliced(&self, start: &[isize], stop: &[isize], step: &[isize]) -> Result<(Strides, Shape)> {
        let rank = self.ndim();
        if start.len() != rank || stop.len() != rank || step.len() != rank || step.contains(&0) {
            let what = format!("{start:?}..{stop:?} by {step:?} of an array of shape {:?}", self.shape());
            return Err(Error::shape("slice", what).with_shapes([self]));
        }
        let (mut starts, mut shape) = (Strides::new(), Shape::new());
        for at in 0..rank {
            let length = self.shape()[at] as isize;
            let wrap = |bound: isize| if bound < 0 { bound.saturating_add(length) } else { bound };
            // Going backwards, the element before the first is a place to stop at.
            let (low, high) = if step[at] > 0 { (0, length) } else { (-1, length - 1) };
            let (from, to) = (wrap(start[at]).clamp(low, high), wrap(stop[at]).clamp(low, high));
            let span = if step[at] > 0 { to - from } else { from - to };
            shape.push(if span > 0 { (span as usize).div_ceil(step[at].unsigned_abs()) } else { 0 });
            starts.push(from);
        }
        Ok((starts, shape))
    }

    /// The result of a view.
    fn view_by(&self, op: impl Op + 'static, shape: Shape) -> Result<Array> {
        match self.ready_view(&op, &shape)? {
            Some(view) => Ok(view),
            None => Array::lazy(shape, self.dtype(), OpRef::new(op), smallvec![self.clone()]),
        }
    }

    /// The result of a view of an array that has memory: such a view is ready as it is built. A
    /// transformation that runs needs the call, and so do patterns: then the view is lazy.
    fn ready_view(&self, op: &dyn Op, shape: &[usize]) -> Result<Option<Array>> {
        if scope::any_open() || op.pattern() != PatternOp::None {
            return Ok(None);
        }
        size_of(shape)?;
        let state = self.state();
        let State::Ready(data) = &*state else { return Ok(None) };
        let Some(data) = op.view(data, self.shape(), shape) else { return Ok(None) };
        drop(state);
        Array::ready(shape.into(), self.dtype(), data).map(Some)
    }

    /// The array in memory that lies row by row: itself, or a copy.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1, 2], [3, 4]].t()?.contiguous()?;
    /// assert_eq!(x.host()?.strides(), [2, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn contiguous(&self) -> Result<Array> {
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::Static(&Contiguous), smallvec![self.clone()])
    }
}

reader!("reshape", One(read_reshape));
fn read_reshape(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    if replay.moved() {
        if replay.has("squeeze") {
            return x.squeeze(&replay.axes("squeeze")?[..]).map_err(|_| replay.not_free());
        } else if replay.has("expand_dims") {
            return x.expand_dims(&replay.axes("expand_dims")?[..]);
        } else if replay.has("flatten") {
            let [start, end] = replay.words("flatten")?;
            return x.flatten(start as isize, end as isize);
        } else if replay.has("unflatten") {
            let list = replay.axes("unflatten")?;
            let (axis, lengths) = list.split_first().ok_or_else(|| replay.wrong("no axis to split"))?;
            return x.unflatten(*axis, lengths).map_err(|_| replay.not_free());
        }
    }
    let open = replay.maybe_int("open").and_then(|open| usize::try_from(open).ok());
    let literal = replay.maybe_flag("literal").unwrap_or(false);
    let mut shape = signed(&if literal {
        replay_shapes::literal(replay, open)?
    } else {
        replay_shapes::reshaped(replay, open)?
    });
    let left = size_of(replay.shape())? > 0 || replay.free;
    if let Some(length) = open.filter(|_| left).and_then(|open| shape.get_mut(open)) {
        *length = -1;
    }
    x.reshaped(&shape, if literal { ReshapeForm::Literal } else { ReshapeForm::Any })
}

reader!("transpose", One(read_transpose));
fn read_transpose(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.transpose(&replay.axes("axes")?)
}

reader!("broadcast_to", One(read_broadcast_to));
fn read_broadcast_to(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.broadcast_to(&replay_shapes::stretched(replay)?)
}

reader!("slice", One(read_slice));
fn read_slice(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let (starts, steps) = (replay.axes("starts")?, replay.axes("steps")?);
    let (start, stop) = replay_shapes::slice(replay, &starts, &steps, replay.shape())?;
    x.slice(&start, &stop, &steps)
}

reader!("contiguous", One(read_contiguous));
fn read_contiguous(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.contiguous()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_without_a_copy_are_found() {
        // A transposed [2, 3, 4]: axes (2, 0, 1) of strides (1, 12, 4).
        assert_eq!(reshaped(&[4, 2, 3], &[1, 12, 4], &[4, 6]).as_deref(), Some(&[1, 4][..]));
        assert_eq!(reshaped(&[4, 2, 3], &[1, 12, 4], &[8, 3]), None);
        assert_eq!(reshaped(&[4, 6], &[1, 4], &[2, 2, 6, 1]).as_deref(), Some(&[2, 1, 4, 0][..]));
        assert_eq!(reshaped(&[2, 2], &[0, 0], &[4]).as_deref(), Some(&[0][..]));
    }
}
