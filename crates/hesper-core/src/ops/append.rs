//! Rows written into a block with room for more: the op that KV caches are made of.
//!
//! An op that owns the block writes the new rows into its memory and copies nothing. Otherwise, or where the
//! block must grow, the old rows are copied first. The result is the same either way.

use smallvec::smallvec;

use super::concat::concatenate;
use super::pad::Pad;
use super::{Op, OpRef};
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::Shape;

/// Writes the second input into the first: sequence `n` at `starts[n]` along the axis before the last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    /// The first row of each sequence.
    pub starts: Vec<usize>,
}

impl Op for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn export(&self) -> Export {
        Record::new("append").with("starts", &self.starts[..]).into()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (block, rows) = (&rule.inputs[0], &rule.inputs[1]);
        let mut rest = rule.cotangent()?;
        let [_, heads, room, width] = [0, 1, 2, 3].map(|at| rest.shape()[at] as isize);
        let length = rows.shape()[2] as isize;
        let mut taken = Vec::with_capacity(self.starts.len());
        let nothing = Array::zeros(&[1, heads as usize, length as usize, width as usize], rest.dtype())?;
        for (number, start) in self.starts.iter().enumerate() {
            let (number, start) = (number as isize, *start as isize);
            let (from, to) = ([number, 0, start, 0], [number + 1, heads, start + length, width]);
            taken.push(rest.slice(&from, &to, &[1; 4])?);
            rest = rest.slice_update(&nothing, &from, &to, &[1; 4])?;
        }
        let known = (block.shape()[2] as isize).min(room);
        rest = rest.slice_axis(2, 0, known, 1)?;
        let missing = block.shape()[2] - known as usize;
        let rest = rest.pad(&[(0, 0), (0, 0), (0, missing), (0, 0)], &Pad::Constant(0.into()))?;
        let taken = if taken.is_empty() { zeros_like(rows)? } else { concatenate(&taken, 0)? };
        Ok(smallvec![Some(rest), Some(taken)])
    }
}

/// A block of shape (sequences, heads, rows, width) with room for `room` rows and `rows` written into it:
/// those of sequence `n` behind `starts[n]` rows. Sequences beyond those of `rows` stay as they are, and rows
/// that nothing was written to are zero.
///
/// If the caller's handle to the block is the only one, the rows are written in place: replace the handle by
/// the result, and appending costs what the new rows cost.
///
/// ```
/// use hesper::{Array, Dtype, fast};
/// let mut block = Array::zeros(&[1, 1, 0, 2], Dtype::Float32)?;
/// for step in 0..3 {
///     let row = Array::try_from_slice(&[step as f32, 1.0], &[1, 1, 1, 2])?;
///     block = fast::append(&block, &row, &[step], 4)?;
/// }
/// assert_eq!(block.to_vec::<f32>()?, [0.0, 1.0, 1.0, 1.0, 2.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn append(block: &Array, rows: &Array, starts: &[usize], room: usize) -> Result<Array> {
    let (from, to) = (rows.shape(), block.shape());
    let fits = from.len() == 4
        && to.len() == 4
        && from[0] == starts.len()
        && from[0] <= to[0]
        && from[1] == to[1]
        && from[3] == to[3]
        && starts.iter().all(|start| start.checked_add(from[2]).is_some_and(|end| end <= room));
    if !fits {
        let what =
            format!("rows of shape {from:?} at {starts:?} for a block of shape {to:?} and room for {room}");
        return Err(Error::shape("append", what).with_shapes([block, rows]));
    }
    let rows = rows.astype(block.dtype())?;
    let shape: Shape = smallvec![to[0], to[1], room, to[3]];
    let op = Append { starts: starts.to_vec() };
    Array::lazy(shape, block.dtype(), OpRef::new(op), smallvec![block.clone(), rows])
}

reader!("append", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [block, rows] = replay.inputs()?;
    let room = replay.shape().get(2).copied().unwrap_or(0);
    append(block, rows, &replay.lengths("starts")?, room)
}
