//! Places in sorted arrays, and different elements.

use smallvec::smallvec;

use super::key::Key;
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::ops::native::{GRAIN, par_chunks_mut, reach, with_element};
use crate::ops::{Op, OpRef};

/// Where values would be inserted in a sorted row.
#[derive(Debug)]
struct Search {
    right: bool,
}

impl Search {
    fn run<T: Key>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (row, values, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
        let (row_bytes, _) = reach(&row, l.input_shape(0), size_of::<T>());
        let (values_bytes, _) = reach(&values, l.input_shape(1), size_of::<T>());
        let right = self.right;
        let command = l.stream().command(self.name()).read_range(&row.buffer, row_bytes);
        command.read_range(&values.buffer, values_bytes).write(&output).run(move |native| {
            let [row, values, out] = native.take()?;
            let (row, values) = (row.as_slice::<T>()?, values.as_slice::<T>()?);
            par_chunks_mut(out.as_mut_slice::<u32>()?, GRAIN / 16, |task, out| {
                for (out, value) in out.iter_mut().zip(&values[task * (GRAIN / 16)..]) {
                    let key = value.bits();
                    let found = if right {
                        row.partition_point(|x| x.bits() <= key)
                    } else {
                        row.partition_point(|x| x.bits() < key)
                    };
                    *out = found as u32;
                }
            });
            Ok(())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

impl Op for Search {
    fn name(&self) -> &'static str {
        "searchsorted"
    }

    fn export(&self) -> Export {
        Record::new("searchsorted").with("right", self.right).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_element!(l.input_dtype(0), T => self.run::<T>(l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::search::lower(l, self.right)
    }
}

/// What is wanted of different elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Values,
    Places,
    Inverse,
    Counts,
}

/// Something about the different elements of a row (the first input), in the order of the second one, with
/// the third filling up values.
#[derive(Debug)]
struct Unique {
    wanted: Wanted,
    size: usize,
    filled: bool,
}

impl Unique {
    fn run<T: Key>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (row, order, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
        let (row_bytes, _) = reach(&row, l.input_shape(0), size_of::<T>());
        let (order_bytes, _) = reach(&order, l.input_shape(1), 4);
        let filled = self.filled;
        let fill = if filled { Some(l.row_major(2)?) } else { None };
        let mut command = l.stream().command(self.name()).read_range(&row.buffer, row_bytes);
        command = command.read_range(&order.buffer, order_bytes);
        if let Some(fill) = &fill {
            let (bytes, _) = reach(fill, l.input_shape(2), size_of::<T>());
            command = command.read_range(&fill.buffer, bytes);
        }
        let (wanted, size) = (self.wanted, self.size);
        command.write(&output).run(move |native| {
            let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
            let (row, order) = (inputs[0].as_slice::<T>()?, inputs[1].as_slice::<u32>()?);
            let fill = if filled { inputs[2].as_slice::<T>()?.first().copied() } else { None };
            let fill = fill.or_else(|| order.first().map(|at| row[*at as usize]));
            match wanted {
                Wanted::Values => {
                    let out = out.as_mut_slice::<T>()?;
                    out.fill(fill.unwrap_or(T::zeroed()));
                    let firsts = firsts(row, order).map(|at| row[at as usize]);
                    out.iter_mut().zip(firsts).for_each(|(out, x)| *out = x);
                }
                Wanted::Places => {
                    let out = out.as_mut_slice::<u32>()?;
                    out.fill(order.first().copied().unwrap_or(0));
                    out.iter_mut().zip(firsts(row, order)).for_each(|(out, at)| *out = at);
                }
                Wanted::Inverse => {
                    let out = out.as_mut_slice::<u32>()?;
                    for (number, at) in numbers(row, order) {
                        out[at as usize] = number.min(size.saturating_sub(1)) as u32;
                    }
                }
                Wanted::Counts => {
                    let out = out.as_mut_slice::<i32>()?;
                    out.fill(0);
                    for (number, _) in numbers(row, order).take_while(|(number, _)| *number < size) {
                        out[number] += 1;
                    }
                }
            }
            Ok(())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// Whether the element at `order[at]` differs from the one before; NaN differs from NaN.
fn differs<T: Key>(row: &[T], order: &[u32], at: usize) -> bool {
    at == 0 || {
        let (before, this) = (row[order[at - 1] as usize], row[order[at] as usize]);
        this.nan() || before.bits() != this.bits()
    }
}

/// The places of first occurrences, in order.
fn firsts<T: Key>(row: &[T], order: &[u32]) -> impl Iterator<Item = u32> {
    (0..order.len()).filter(move |at| differs(row, order, *at)).map(|at| order[at])
}

/// For each element its number among the different ones, and its place.
fn numbers<T: Key>(row: &[T], order: &[u32]) -> impl Iterator<Item = (usize, u32)> {
    let mut different = 0;
    (0..order.len()).map(move |at| {
        different += usize::from(differs(row, order, at));
        (different - 1, order[at])
    })
}

impl Op for Unique {
    fn name(&self) -> &'static str {
        "unique"
    }

    fn export(&self) -> Export {
        let wanted = match self.wanted {
            Wanted::Values => "values",
            Wanted::Places => "places",
            Wanted::Inverse => "inverse",
            Wanted::Counts => "counts",
        };
        Record::new("unique").with("wanted", wanted).with("size", self.size).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_element!(l.input_dtype(0), T => self.run::<T>(l))
    }
}

/// What [`Array::unique`] finds.
#[derive(Debug, Clone)]
pub struct Different {
    /// The different elements in order, then what fills up.
    pub values: Array,
    /// The places of their first occurrences in the flattened array.
    pub index: Array,
    /// For each element of the array its number among the different ones.
    pub inverse: Array,
    /// How often each occurs; none for what fills up.
    pub counts: Array,
}

impl Array {
    /// The places where values would be inserted in this sorted vector: before equal elements, or (`right`)
    /// behind them.
    pub fn searchsorted(&self, values: &Array, right: bool) -> Result<Array> {
        if self.ndim() != 1 {
            let what = format!("a sorted vector is searched, not an array of shape {:?}", self.shape());
            return Err(Error::shape("searchsorted", what));
        }
        let dtype = self.dtype().promote(values.dtype());
        let inputs = smallvec![self.astype(dtype)?, values.astype(dtype)?];
        Array::lazy(values.0.shape.clone(), Dtype::Uint32, OpRef::new(Search { right }), inputs)
    }

    /// The different elements of the flattened array, in order. The result's size is given: it does not
    /// depend on values. If there are fewer, `fill` (or the first of them) follows; if there are more, the
    /// smallest are kept. Each NaN counts for itself.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::from_slice(&[2, 1, 2, 3, 1]);
    /// let found = x.unique(4, Some(&Array::from_slice(&[0])))?;
    /// assert_eq!(found.values.to_vec::<i32>()?, [1, 2, 3, 0]);
    /// assert_eq!(found.inverse.to_vec::<u32>()?, [1, 0, 1, 2, 0]);
    /// assert_eq!(found.counts.to_vec::<i32>()?, [2, 2, 1, 0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn unique(&self, size: usize, fill: Option<&Array>) -> Result<Different> {
        if fill.is_none() && self.size() == 0 && size > 0 {
            let what = format!("{size} elements of an empty array, and nothing to fill up with");
            return Err(Error::value("unique", what));
        }
        if let Some(fill) = fill.filter(|fill| fill.size() != 1) {
            let what = format!("a fill value of shape {:?} is not one element", fill.shape());
            return Err(Error::shape("unique", what));
        }
        let flat = self.reshape(&[-1])?;
        let order = flat.argsort(Some(0))?;
        let make = |wanted, shape: &[usize], dtype| {
            let mut inputs = smallvec![flat.clone(), order.clone()];
            let fill = fill.filter(|_| wanted == Wanted::Values);
            if let Some(fill) = fill {
                inputs.push(fill.astype(self.dtype())?);
            }
            let op = Unique { wanted, size, filled: fill.is_some() };
            Array::lazy(shape.into(), dtype, OpRef::new(op), inputs)
        };
        Ok(Different {
            values: make(Wanted::Values, &[size], self.dtype())?,
            index: make(Wanted::Places, &[size], Dtype::Uint32)?,
            inverse: make(Wanted::Inverse, self.shape(), Dtype::Uint32)?,
            counts: make(Wanted::Counts, &[size], Dtype::Int32)?,
        })
    }
}

pub(in crate::ops) fn read_search(replay: &Replay<'_>) -> Result<Array> {
    let [row, values] = replay.inputs()?;
    row.searchsorted(values, replay.flag("right")?)
}

pub(in crate::ops) fn read_unique(replay: &Replay<'_>) -> Result<Array> {
    let [flat, order, others @ ..] = replay.inputs else { return Err(replay.wrong("too few inputs")) };
    if flat.ndim() != 1 || others.len() > 1 {
        return Err(replay.wrong("inputs that are no row"));
    }
    let size = replay.length("size")?;
    let found = flat.unique(size, others.first())?;
    let (chosen, wanted) = match replay.text("wanted")? {
        "values" => (found.values, Wanted::Values),
        "places" => (found.index, Wanted::Places),
        "inverse" => (found.inverse, Wanted::Inverse),
        "counts" => (found.counts, Wanted::Counts),
        other => return Err(replay.wrong(format!("nothing to say about {other:?}"))),
    };
    // The order that is there already, if it is this row's.
    let sorts = |call: crate::array::Call| call.op.name() == "argsort" && call.inputs[0].same(flat);
    match (chosen.call(), order.call().is_some_and(sorts)) {
        (Some(mut call), true) => {
            call.inputs[1] = order.clone();
            let op = Unique { wanted, size, filled: call.inputs.len() > 2 };
            let shape = replay.shape().iter().product::<usize>();
            let lengths = if wanted == Wanted::Inverse { shape } else { size };
            let made = Array::lazy(smallvec![lengths], chosen.dtype(), OpRef::new(op), call.inputs)?;
            if wanted == Wanted::Inverse { inverse_of(replay, flat, made) } else { Ok(made) }
        }
        _ if wanted == Wanted::Inverse => inverse_of(replay, flat, chosen),
        _ => Ok(chosen),
    }
}

/// The numbers of all elements in the shape that the array had before it was a row.
fn inverse_of(replay: &Replay<'_>, flat: &Array, made: Array) -> Result<Array> {
    replay.unmoved()?;
    if crate::shape::size_of(replay.shape())? != flat.size() {
        return Err(replay.wrong("a shape that its input does not fill"));
    }
    made.reshape(&crate::shape::signed(replay.shape()))
}
