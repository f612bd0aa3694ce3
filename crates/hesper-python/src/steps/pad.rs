//! Padding with the elements at the edge: each side is a slice that is repeated.

use hesper::Array;

pub fn edge(x: &Array, widths: &[(usize, usize)]) -> hesper::Result<Option<Array>> {
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
        let sides = [(*low, first, 0), (*high, end - 1, end)];
        for (width, from, to) in sides.into_iter().filter(|(width, ..)| *width > 0) {
            let edge = padded.slice_axis(axis, from, from + 1, 1)?;
            let mut shape = whole.clone();
            shape[axis] = width;
            let edge = edge.broadcast_to(&shape)?;
            let (mut start, mut stop) =
                (vec![0; x.ndim()], Vec::from_iter(whole.iter().map(|n| *n as isize)));
            (start[axis], stop[axis]) = (to, to + width as isize);
            padded = padded.slice_update(&edge, &start, &stop, &ones)?;
        }
    }
    Ok(Some(padded))
}
