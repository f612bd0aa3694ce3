//! Reshapes, splits, rolls and paddings, which MLX keeps where they move nothing.

use hesper::{Array, Split, concatenate};

use super::{check_traced, traced_step};
use crate::primitives::{self, Argument, Primitive, int};

/// A reshape with an open axis that keeps the shape.
pub fn reshape(x: &Array, lengths: &[isize]) -> hesper::Result<Option<Array>> {
    let open = lengths.iter().position(|length| *length == -1);
    let alike = |(at, (length, own)): (usize, (&isize, &usize))| open == Some(at) || *length == *own as isize;
    let same = lengths.len() == x.ndim() && lengths.iter().zip(x.shape()).enumerate().all(alike);
    if open.is_none() || !same || x.size() == 0 {
        return Ok(None);
    }
    let lengths = lengths.iter().map(|length| *length as i64).collect();
    traced_step("Reshape", vec![Argument::Shape(lengths)], &[x], x.shape(), x.dtype()).map(Some)
}

/// All parts of an array, whichever are used.
pub fn split(x: &Array, cuts: Split<'_>, along: isize) -> hesper::Result<Option<Vec<Array>>> {
    check_traced(&[x])?;
    let parts = x.split(cuts, along)?;
    if parts.len() < 2 {
        return Ok(Some(vec![x.clone(); parts.len()]));
    }
    let axis = if along < 0 { along + x.ndim() as isize } else { along } as usize;
    let ends = parts.iter().scan(0, |end, part| {
        *end += part.shape()[axis] as i64;
        Some(*end)
    });
    let indices: Vec<i64> = ends.take(parts.len() - 1).collect();
    let arguments = vec![Argument::Shape(indices), int(axis as i64)];
    let primitive =
        Primitive { name: "Split".into(), arguments, inputs: Vec::new(), outputs: Vec::new(), fixed: true };
    let like: Vec<_> = parts.iter().map(|part| (part.shape(), part.dtype())).collect();
    primitive.describe(&[x.clone()], &like).map(Some)
}

/// The parts of an array along an axis, which they lose.
pub fn unstack(x: &Array, along: isize) -> hesper::Result<Option<Vec<Array>>> {
    let axis = if along < 0 { along + x.ndim() as isize } else { along };
    let Some(length) = x.shape().get(axis as usize).copied().filter(|length| *length > 0) else {
        return Ok(None);
    };
    let Some(parts) = split(x, Split::Sections(length), axis)? else { return Ok(None) };
    parts.iter().map(|part| part.squeeze(axis)).collect::<hesper::Result<Vec<Array>>>().map(Some)
}

/// A roll: the end of each axis stands before its beginning, also where no element moves.
pub fn roll(x: &Array, shifts: &[isize], axes: Option<&[isize]>) -> hesper::Result<Option<Array>> {
    let Some(axes) = axes else {
        let [shift] = shifts else { return Ok(None) };
        let Some(rolled) = roll(&x.flatten(0, -1)?, &[*shift], Some(&[0]))? else { return Ok(None) };
        return rolled.reshape(x.shape()).map(Some);
    };
    if shifts.len() != axes.len() || x.size() == 0 {
        return Ok(None);
    }
    let mut rolled = x.clone();
    for (shift, axis) in shifts.iter().zip(axes) {
        let axis = if *axis < 0 { axis + x.ndim() as isize } else { *axis };
        let Some(length) = x.shape().get(axis as usize).map(|length| *length as isize) else {
            return Ok(None);
        };
        let shift = shift.rem_euclid(length);
        rolled = if shift == 0 {
            let (mut start, mut none) = (vec![0; x.ndim()], x.shape().to_vec());
            (start[axis as usize], none[axis as usize]) = (length as usize, 0);
            let bounds = [&start[..], x.shape(), &vec![1; x.ndim()]].map(primitives::shape).to_vec();
            let none = traced_step("Slice", bounds, &[&rolled], &none, x.dtype())?;
            traced_step("Concatenate", vec![int(axis as i64)], &[&none, &rolled], x.shape(), x.dtype())?
        } else {
            let Some(parts) = split(&rolled, Split::Indices(&[length - shift]), axis)? else {
                return Ok(None);
            };
            concatenate(&[&parts[1], &parts[0]].map(Array::clone), axis)?
        };
    }
    Ok(Some(rolled))
}

/// The first element moved to the middle of axes, or of all; or back.
pub fn shift(x: &Array, axes: Option<&[isize]>, back: bool) -> hesper::Result<Option<Array>> {
    let all: Vec<isize> = (0..x.ndim() as isize).collect();
    let axes = axes.unwrap_or(&all);
    let length = |axis: isize| {
        let axis = if axis < 0 { axis + x.ndim() as isize } else { axis };
        x.shape().get(axis as usize).map(|length| *length as isize)
    };
    let halves: Option<Vec<isize>> = axes.iter().map(|axis| length(*axis).map(|length| length / 2)).collect();
    let Some(mut halves) = halves else { return Ok(None) };
    if back {
        halves.iter_mut().for_each(|half| *half = -*half);
    }
    roll(x, &halves, Some(axes))
}

/// One element along an axis.
pub fn take(x: &Array, at: i64, axis: Option<isize>) -> hesper::Result<Option<Array>> {
    let Some(axis) = axis else { return Ok(None) };
    let axis = if axis < 0 { axis + x.ndim() as isize } else { axis } as usize;
    let Some(length) = x.shape().get(axis) else { return Ok(None) };
    let at = if at < 0 { at + *length as i64 } else { at } as isize;
    x.slice_axis(axis, at, at + 1, 1)?.squeeze(axis as isize).map(Some)
}

/// Numbers around an array, also none.
pub fn pad(x: &Array, widths: &[(usize, usize)], value: &Array) -> hesper::Result<Option<Array>> {
    if widths.len() != x.ndim() || value.ndim() > 0 {
        return Ok(None);
    }
    let list = |of: fn(&(usize, usize)) -> usize| widths.iter().map(of).collect::<Vec<_>>();
    let (low, high) = (list(|width| width.0), list(|width| width.1));
    let shape: Vec<usize> = x.shape().iter().zip(widths).map(|(own, (low, high))| own + low + high).collect();
    let axes: Vec<i64> = (0..x.ndim() as i64).collect();
    let arguments = vec![primitives::ints(&axes), primitives::shape(&low), primitives::shape(&high)];
    traced_step("Pad", arguments, &[x, &value.astype(x.dtype())?], &shape, x.dtype()).map(Some)
}

/// Arrays that are computed after others.
pub fn depends(arrays: &[Array], others: &[Array]) -> hesper::Result<Option<Vec<Array>>> {
    let inputs = [arrays, others].concat();
    check_traced(&inputs.iter().collect::<Vec<_>>())?;
    let primitive = Primitive {
        name: "Depends".into(),
        arguments: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        fixed: true,
    };
    let like: Vec<_> = arrays.iter().map(|one| (one.shape(), one.dtype())).collect();
    primitive.describe(&inputs, &like).map(Some)
}

/// An array of which nothing is squeezed.
pub fn squeeze(x: &Array, axes: Option<&[isize]>) -> hesper::Result<Option<Array>> {
    if axes.is_some() || x.shape().contains(&1) {
        return Ok(None);
    }
    traced_step("Squeeze", vec![primitives::ints(&[])], &[x], x.shape(), x.dtype()).map(Some)
}

/// An axis that stays where it is.
pub fn moveaxis(x: &Array, source: isize, destination: isize) -> hesper::Result<Option<Array>> {
    let place = |axis: isize| if axis < 0 { axis + x.ndim() as isize } else { axis };
    let valid = (0..x.ndim() as isize).contains(&place(source));
    Ok((valid && place(source) == place(destination)).then(|| x.clone()))
}

/// Elements that are there once.
pub fn repeat(x: &Array, times: usize) -> hesper::Result<Option<Array>> {
    Ok((times == 1).then(|| x.clone()))
}
