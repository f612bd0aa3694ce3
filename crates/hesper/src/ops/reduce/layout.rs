//! How a reduction walks through memory.
//!
//! Axes are split into those that are kept and those that are reduced. Within each set they are put in the
//! order of memory, turned to go forwards, and joined where one continues the other. The result is laid
//! out in the order in which its input lies, so no input is ever transposed or copied.

use hesper_compute::Axis;
use smallvec::SmallVec;

use crate::array::Data;
use crate::shape::Strides;

/// Length and step of one axis, in elements.
pub(super) type Dim = (usize, usize);

/// The walk of one reduction; it starts at the lowest element that the view reaches.
#[derive(Debug)]
pub(super) struct Layout {
    /// Kept axes, outermost first.
    pub(super) kept: SmallVec<[Dim; 6]>,
    /// Reduced axes, outermost first; at least one.
    pub(super) reduced: SmallVec<[Dim; 6]>,
    /// Whether the only reduced axis is walked through backwards.
    pub(super) turned: bool,
    /// Where the result's elements are.
    pub(super) strides: Strides,
    pub(super) offset: isize,
}

impl Layout {
    pub(super) fn new(data: &Data, shape: &[usize], over: &[usize]) -> Layout {
        struct Walked {
            at: usize,
            length: usize,
            stride: usize,
            turned: bool,
        }
        let (mut kept, mut reduced): (Vec<Walked>, Vec<Walked>) = (Vec::new(), Vec::new());
        for (at, (&length, &stride)) in shape.iter().zip(&data.strides).enumerate() {
            if length == 1 {
                continue;
            }
            let turned = stride < 0;
            let axis = Walked { at, length, stride: stride.unsigned_abs(), turned };
            let list = if over.contains(&at) { &mut reduced } else { &mut kept };
            list.push(axis);
        }
        kept.sort_by_key(|axis| std::cmp::Reverse(axis.stride));
        reduced.sort_by_key(|axis| std::cmp::Reverse(axis.stride));

        let mut strides: Strides = SmallVec::from_elem(0, shape.len());
        let (mut step, mut offset) = (1isize, 0isize);
        // What is the same along an axis is computed once: the result's step is zero there.
        kept.retain(|axis| axis.stride != 0 || axis.length == 0);
        for axis in kept.iter().rev() {
            strides[axis.at] = if axis.turned { -step } else { step };
            if axis.turned {
                offset += (axis.length as isize - 1) * step;
            }
            step *= axis.length as isize;
        }
        let join = |list: &[Walked]| {
            let mut dims: SmallVec<[Dim; 6]> = SmallVec::new();
            for axis in list {
                match dims.last_mut() {
                    Some((length, stride)) if *stride == axis.stride * axis.length => {
                        (*length, *stride) = (*length * axis.length, axis.stride);
                    }
                    _ => dims.push((axis.length, axis.stride)),
                }
            }
            dims
        };
        let turned = matches!(&reduced[..], [only] if only.turned);
        let (kept, mut reduced) = (join(&kept), join(&reduced));
        if reduced.is_empty() {
            reduced.push((1, 1));
        }
        Layout { kept, reduced, turned, strides, offset }
    }

    /// Elements of the result that are computed.
    pub(super) fn outputs(&self) -> usize {
        self.kept.iter().map(|dim| dim.0).product()
    }

    /// Elements that each result is made of.
    pub(super) fn length(&self) -> usize {
        self.reduced.iter().map(|dim| dim.0).product()
    }

    /// The reduced axis, where the walk goes through memory without a gap.
    pub(super) fn axis(&self) -> Option<Axis> {
        let [(len, step)] = self.reduced[..] else { return None };
        let axis = match self.kept[..] {
            [] if step == 1 => Axis { outer: 1, len, inner: 1 },
            [(outer, far)] if step == 1 && far == len => Axis { outer, len, inner: 1 },
            [(inner, 1)] if step == inner => Axis { outer: 1, len, inner },
            [(outer, far), (inner, 1)] if step == inner && far == len * inner => Axis { outer, len, inner },
            _ => return None,
        };
        Some(axis)
    }

    /// How many neighbouring results are computed side by side: the innermost kept axis where it is
    /// closer in memory than the innermost reduced one, else none.
    pub(super) fn width(&self) -> Option<Dim> {
        let reduced = self.reduced.last().map_or(1, |dim| dim.1);
        self.kept.last().copied().filter(|dim| dim.1 < reduced && dim.0 > 1 || reduced == 0 && dim.1 == 1)
    }
}

/// Where the element of a number lies, counting through axes with the last one fastest.
#[inline]
pub(super) fn locate(dims: &[Dim], mut number: usize) -> usize {
    let mut offset = 0;
    for (at, (length, stride)) in dims.iter().enumerate().rev() {
        if at == 0 {
            return offset + number * stride;
        }
        offset += (number % length) * stride;
        number /= length;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_located_with_the_last_axis_fastest() {
        let dims = [(2, 100), (3, 10), (4, 1)];
        assert_eq!(locate(&dims, 0), 0);
        assert_eq!(locate(&dims, 23), 123);
        assert_eq!(locate(&dims, 13), 101);
        assert_eq!(locate(&[], 0), 0);
    }
}
