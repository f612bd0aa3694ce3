//! Binary search in sorted arrays, and unique elements.

use smallvec::smallvec;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::ops::{Op, OpRef};

/// Where values would be inserted in a sorted row.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Search {
    /// Whether equal elements come before.
    pub right: bool,
}

impl Op for Search {
    fn name(&self) -> &'static str {
        "searchsorted"
    }

    fn export(&self) -> Export {
        Record::new("searchsorted").with("right", self.right).into()
    }
}

/// What is wanted of different elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The elements.
    Values,
    /// Indices of first occurrences.
    Places,
    /// For each element its number among the different ones.
    Inverse,
    /// How often each occurs.
    Counts,
}

/// Something about the different elements of a row (the first input), in the order of the second one, with
/// the third filling up values.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Unique {
    /// Which result.
    pub wanted: Wanted,
    /// Elements of the result.
    pub size: usize,
    /// Whether the third input fills up.
    pub filled: bool,
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
    ///
    /// ```
    /// use hesper::array;
    /// let edges = array![0.0, 1.0, 2.0];
    /// assert_eq!(edges.searchsorted(&array![1.0, 5.0], false)?.to_string(), "array([1, 3], dtype=uint32)");
    /// assert_eq!(edges.searchsorted(&array![1.0, 5.0], true)?.to_string(), "array([2, 3], dtype=uint32)");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn searchsorted(&self, values: &Array, right: bool) -> Result<Array> {
        if self.ndim() != 1 {
            let what = format!("a sorted vector is searched, not an array of shape {:?}", self.shape());
            return Err(Error::shape("searchsorted", what).with_shapes([self, values]));
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
            return Err(Error::shape("unique", what).with_shapes([self, fill]));
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

reader!("searchsorted", One(read_search));
fn read_search(replay: &Replay<'_>) -> Result<Array> {
    let [row, values] = replay.inputs()?;
    row.searchsorted(values, replay.flag("right")?)
}

reader!("unique", One(read_unique));
fn read_unique(replay: &Replay<'_>) -> Result<Array> {
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
    let sorts = |call: crate::graph::Call| call.op.name() == "argsort" && call.inputs[0].ptr_eq(flat);
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
    made.reshape(replay.shape())
}
