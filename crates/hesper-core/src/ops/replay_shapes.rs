//! Shapes of a replayed trace, where they differ from the traced ones.
//!
//! Most ops infer the shape of their result. For ops that take it as a parameter, the traced shapes say how
//! the axes of the result follow from those of the input. Where they do not, the replay fails: it never
//! guesses.

use crate::error::Result;
use crate::graph::Replay;
use crate::shape::{Shape, size_of};

/// The shape that a reshape gives.
///
/// Runs of axes with equal products belong together, and a run that became one axis is their product. An axis
/// that was left open takes what others leave, where these keep their lengths. Both must say the same.
pub(crate) fn reshaped(replay: &Replay<'_>, open: Option<usize>) -> Result<Shape> {
    let (Some(input), Some(before)) = (replay.inputs.first(), replay.traced.first()) else {
        return Err(replay.wrong("no input"));
    };
    let (now, after) = (input.shape(), replay.shape());
    if !replay.moved() {
        return Ok(after.into());
    }
    if now.len() != before.len() {
        return Err(replay.not_free());
    }
    let left = open.and_then(|open| rest(after, open, input.size()));
    match (runs(before, after, now, open), left) {
        (Some(shape), None) | (None, Some(shape)) => Ok(shape),
        (Some(shape), Some(left)) if shape == left => Ok(shape),
        _ => Err(replay.not_free()),
    }
}

/// The shape that a reshape to given lengths gives, with the rest of the elements along an axis that was left
/// open.
pub(crate) fn literal(replay: &Replay<'_>, open: Option<usize>) -> Result<Shape> {
    let Some(input) = replay.inputs.first() else { return Err(replay.wrong("no input")) };
    let shape = match open {
        Some(open) if replay.moved() => rest(replay.shape(), open, input.size()),
        _ => Some(replay.shape().into()),
    };
    let shape = shape.ok_or_else(|| replay.not_free())?;
    if size_of(&shape)? == input.size() { Ok(shape) } else { Err(replay.not_free()) }
}

/// The lengths with that of an open axis such that there are `size` elements.
fn rest(lengths: &[usize], open: usize, size: usize) -> Option<Shape> {
    let mut shape: Shape = lengths.into();
    *shape.get_mut(open)? = 1;
    let others = size_of(&shape).ok()?;
    if others == 0 || !size.is_multiple_of(others) {
        return None;
    }
    shape[open] = size / others;
    Some(shape)
}

fn runs(before: &[usize], after: &[usize], now: &[usize], open: Option<usize>) -> Option<Shape> {
    let mut shape = Shape::new();
    let (mut from, mut to) = (0, 0);
    while from < before.len() || to < after.len() {
        match (before.get(from), after.get(to)) {
            (Some(a), Some(b)) if a == b => {
                shape.push(now[from]);
                (from, to) = (from + 1, to + 1);
            }
            (Some(1), _) => {
                if now[from] != 1 {
                    return None;
                }
                from += 1;
            }
            (_, Some(1)) => {
                shape.push(1);
                to += 1;
            }
            _ => {
                let (first, start) = (from, to);
                let (mut have, mut want) = (*before.get(from)?, *after.get(to)?);
                (from, to) = (from + 1, to + 1);
                while have != want {
                    if have < want {
                        have = have.checked_mul(*before.get(from)?)?;
                        from += 1;
                    } else {
                        want = want.checked_mul(*after.get(to)?)?;
                        to += 1;
                    }
                }
                if now[first..from] == before[first..from] {
                    shape.extend_from_slice(&after[start..to]);
                } else {
                    let size = now[first..from].iter().try_fold(1usize, |all, one| all.checked_mul(*one))?;
                    let open =
                        if to == start + 1 { Some(0) } else { open.and_then(|open| open.checked_sub(start)) };
                    shape.extend(rest(&after[start..to], open?, size)?);
                }
            }
        }
    }
    Some(shape)
}

/// The shape that an input is stretched to: axes that were stretched keep their lengths.
pub(crate) fn stretched(replay: &Replay<'_>) -> Result<Shape> {
    let (Some(input), Some(before)) = (replay.inputs.first(), replay.traced.first()) else {
        return Err(replay.wrong("no input"));
    };
    let after = replay.shape();
    if !replay.moved() {
        return Ok(after.into());
    }
    if input.ndim() != before.len() || before.len() > after.len() {
        return Err(replay.not_free());
    }
    let missing = after.len() - before.len();
    Ok((0..after.len())
        .map(|at| match at.checked_sub(missing) {
            Some(own) if before[own] == after[at] => input.shape()[own],
            _ => after[at],
        })
        .collect())
}

/// Lengths of slices along each axis of the first input: those that took an axis whole take it whole.
pub(crate) fn sizes(replay: &Replay<'_>, sizes: &[usize]) -> Result<Shape> {
    let (Some(input), Some(before)) = (replay.inputs.first(), replay.traced.first()) else {
        return Err(replay.wrong("no input"));
    };
    if !replay.free || input.ndim() != before.len() || sizes.len() != before.len() {
        return Ok(sizes.into());
    }
    Ok((0..sizes.len())
        .map(|at| if sizes[at] == before[at] { input.shape()[at] } else { sizes[at] })
        .collect())
}

/// Start and stop along an axis of a slice of `count` elements, as [`Array::slice`](crate::Array::slice)
/// takes them. `None` if they do not follow.
fn bound(start: isize, step: isize, count: usize, before: usize, now: usize) -> Option<(isize, isize)> {
    if count == 0 {
        return Some((0, 0));
    }
    let count_signed = isize::try_from(count).ok()?;
    let (start, count) = if before == now {
        (start, count_signed)
    } else if start == 0 && step == 1 && count == before {
        (0, isize::try_from(now).ok()?)
    } else if step == -1 && count == before && start == count_signed - 1 {
        (isize::try_from(now).ok()? - 1, isize::try_from(now).ok()?)
    } else if start == 0 && count == 1 && before > 2 {
        // The first element: no count from the back was meant.
        (0, 1)
    } else {
        return None;
    };
    if count == 0 {
        return Some((0, 0));
    }
    let stop = step.checked_mul(count)?.checked_add(start)?;
    // Before the first element, which no count from the back can be taken for.
    Some((start, if stop < 0 { isize::MIN } else { stop }))
}

/// Starts and stops of a slice of a shape.
pub(crate) fn slice(
    replay: &Replay<'_>,
    starts: &[isize],
    steps: &[isize],
    shape: &[usize],
) -> Result<(Vec<isize>, Vec<isize>)> {
    let (Some(input), Some(before)) = (replay.inputs.first(), replay.traced.first()) else {
        return Err(replay.wrong("no input"));
    };
    let rank = input.ndim();
    if starts.len() != rank || steps.len() != rank || shape.len() != rank || before.len() != rank {
        return Err(replay.wrong("starts, steps and a shape that do not fit its input"));
    }
    (0..rank)
        .map(|at| bound(starts[at], steps[at], shape[at], before[at], input.shape()[at]))
        .collect::<Option<(Vec<isize>, Vec<isize>)>>()
        .ok_or_else(|| replay.not_free())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_belong_together_follow_each_other() {
        let same = |before: &[usize], after: &[usize], now: &[usize]| {
            runs(before, after, now, None).map(Shape::into_vec)
        };
        assert_eq!(same(&[4, 6], &[4, 2, 3], &[5, 6]), Some(vec![5, 2, 3]));
        assert_eq!(same(&[4, 6], &[24], &[5, 7]), Some(vec![35]));
        assert_eq!(same(&[4, 1, 6], &[4, 6, 1], &[5, 1, 7]), Some(vec![5, 7, 1]));
        assert_eq!(same(&[4, 6], &[8, 3], &[5, 6]), None);
        assert_eq!(same(&[4, 1], &[4], &[4, 2]), None);
        assert_eq!(runs(&[4, 6], &[8, 3], &[5, 6], Some(0)).as_deref(), Some(&[10, 3][..]));
    }

    #[test]
    fn slices_that_could_mean_two_things_have_no_bounds() {
        assert_eq!(bound(0, 1, 4, 4, 9), Some((0, 9)));
        assert_eq!(bound(3, -1, 4, 4, 9), Some((8, isize::MIN)));
        assert_eq!(bound(0, 1, 1, 4, 9), Some((0, 1)));
        assert_eq!(bound(0, 1, 3, 4, 9), None);
        assert_eq!(bound(3, 1, 1, 4, 9), None);
        assert_eq!(bound(1, 2, 2, 4, 4), Some((1, 5)));
    }
}
