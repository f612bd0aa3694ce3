//! Padding with elements of the array: each side is a slice that is repeated or reversed.

use hesper::Array;

use super::traced_step;
use crate::primitives::Argument;

/// Which elements stand around an array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// Those at the edge.
    Edge,
    /// Those beside the edge, in reverse order.
    Reflected,
    /// Those at the edge and beside it, in reverse order.
    Mirrored,
}

pub fn around(x: &Array, widths: &[(usize, usize)], kind: Around) -> hesper::Result<Option<Array>> {
    // More elements than there are come from paddings of paddings.
    let beside = usize::from(kind == Around::Reflected);
    let fits = |(n, width): (&usize, &(usize, usize))| width.0.max(width.1) + beside <= *n;
    if kind != Around::Edge && !x.shape().iter().zip(widths).all(fits) {
        return Ok(None);
    }
    if x.size() == 0 || widths.iter().all(|width| *width == (0, 0)) || widths.len() != x.ndim() {
        return Ok(None);
    }
    let whole: Vec<usize> =
        x.shape().iter().zip(widths).map(|(length, (low, high))| low + length + high).collect();
    let ones = vec![1isize; x.ndim()];
    let starts: Vec<isize> = widths.iter().map(|(low, _)| *low as isize).collect();
    let stops: Vec<isize> = starts.iter().zip(x.shape()).map(|(start, n)| start + *n as isize).collect();
    let zeros = Array::full(&whole, 0.0, Some(x.dtype()))?;
    let mut padded = zeros.slice_update(x, &starts, &stops, &ones)?;
    for (axis, (low, high)) in widths.iter().enumerate() {
        let (first, end) = (starts[axis], stops[axis]);
        for (width, before) in [(*low, true), (*high, false)] {
            if width == 0 {
                continue;
            }
            let (count, to) = (width as isize, if before { 0 } else { end });
            let beside = beside as isize;
            let edge = if kind == Around::Edge {
                let from = if before { first } else { end - 1 };
                let mut shape = whole.clone();
                shape[axis] = width;
                padded.slice_axis(axis, from, from + 1, 1)?.broadcast_to(&shape)?
            } else {
                let from = if before { first + beside } else { end - beside - count };
                reversed(&padded.slice_axis(axis, from, from + count, 1)?, axis)?
            };
            let (mut start, mut stop) =
                (vec![0; x.ndim()], Vec::from_iter(whole.iter().map(|n| *n as isize)));
            (start[axis], stop[axis]) = (to, to + width as isize);
            padded = padded.slice_update(&edge, &start, &stop, &ones)?;
        }
    }
    Ok(Some(padded))
}

/// The elements along an axis in reverse order.
fn reversed(x: &Array, axis: usize) -> hesper::Result<Array> {
    let (mut start, mut stop) = (vec![0; x.ndim()], Vec::from_iter(x.shape().iter().map(|n| *n as i64)));
    let mut steps = vec![1; x.ndim()];
    // One element is a slice by a step of one.
    if stop[axis] > 1 {
        (start[axis], stop[axis], steps[axis]) = (stop[axis] - 1, -stop[axis] - 1, -1);
    }
    let bounds = [start, stop, steps].map(Argument::Shape).to_vec();
    traced_step("Slice", bounds, &[x], x.shape(), x.dtype())
}
