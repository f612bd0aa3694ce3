//! The memory traversal of a reduction.
//!
//! Axes are kept or reduced, and merged where strides allow it. Kept axes are sorted by stride and reversed
//! where the stride is negative. The result has the same axis order, so no input is transposed or copied.

use std::cmp::Reverse;

use super::input::{ReduceInput, SumOrder};
use crate::strided::{Dim, joined_dims};
use crate::{Mismatch, Plain};

/// What the order of reduced elements affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOrder {
    /// Nothing: reduced axes are sorted by stride, too.
    Any,
    /// Indices of elements.
    Index,
    /// Rounding of sums: the sum of a view is bit-identical to that of its contiguous copy.
    Sum,
}

/// The traversal of one reduction. Offsets count from the lowest address that the view reaches.
#[derive(Debug)]
pub struct ReduceLayout {
    /// Kept axes, outermost first.
    pub kept: Vec<Dim>,
    /// Reduced axes, outermost first; at least one.
    pub reduced: Vec<Dim>,
    /// Whether the only reduced axis was reversed.
    pub reversed: bool,
    /// The index of the first element of the first result.
    start: usize,
    order: Option<SumOrder>,
    /// Strides of the result.
    strides: Vec<isize>,
    /// Offset of the result's first element.
    pub offset: isize,
}

/// An axis longer than one.
struct Axis {
    at: usize,
    dim: Dim,
    reversed: bool,
}

type Axes = Vec<Axis>;

impl ReduceLayout {
    /// The traversal of an array that is reduced over some axes.
    pub fn new(
        shape: &[usize],
        strides: &[isize],
        reduced_axes: &[usize],
        order: ReduceOrder,
    ) -> ReduceLayout {
        let (mut kept, mut reduced) = (Axes::new(), Axes::new());
        let axes = shape.iter().zip(strides).enumerate().filter(|(_, (len, _))| **len != 1);
        for (at, (&len, &stride)) in axes {
            let list = if reduced_axes.contains(&at) { &mut reduced } else { &mut kept };
            list.push(Axis { at, dim: Dim { len, stride }, reversed: false });
        }
        let last = |list: &[Axis]| list.last().map(|axis| axis.at);
        let columns = last(&kept) > last(&reduced);
        by_memory(&mut kept);
        if order == ReduceOrder::Any {
            by_memory(&mut reduced);
        }
        let back = |axis: &Axis| (axis.dim.len - 1) * axis.dim.stride.min(0).unsigned_abs();
        let start = reduced.iter().filter(|axis| axis.dim.len > 0).map(back).sum();

        let mut strides = vec![0; shape.len()];
        let (mut step, mut offset) = (1isize, 0isize);
        // Along a broadcast axis the result is computed once: its stride is zero there.
        kept.retain(|axis| axis.dim.stride != 0 || axis.dim.len == 0);
        for axis in kept.iter().rev() {
            let len = axis.dim.len as isize;
            strides[axis.at] = if axis.reversed { -step } else { step };
            offset += if axis.reversed { (len - 1) * step } else { 0 };
            step *= len;
        }
        let reversed = matches!(&reduced[..], [only] if only.reversed);
        let (kept, mut reduced) = (joined(&kept), joined(&reduced));
        if reduced.is_empty() {
            reduced.push(Dim { len: 1, stride: 1 });
        }
        let sums = if columns { SumOrder::Columns } else { SumOrder::Rows };
        let order = (order == ReduceOrder::Sum).then_some(sums);
        ReduceLayout { kept, reduced, reversed, start, order, strides, offset }
    }

    /// Strides of the result, in elements. Reduced axes are kept with length one, or left out.
    pub fn result_strides(&self, reduced_axes: &[usize], keep: bool) -> Vec<isize> {
        let axes = 0..self.strides.len();
        axes.filter(|at| keep || !reduced_axes.contains(at)).map(|at| self.strides[at]).collect()
    }

    /// Elements of the result that are computed.
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|dim| dim.len).product()
    }

    /// Elements reduced to each result.
    pub fn length(&self) -> usize {
        self.reduced.iter().map(|dim| dim.len).product()
    }

    /// The input of a kernel; `x` begins at the lowest address that the view reaches.
    pub fn input<'a, T: Plain>(&'a self, x: &'a [T]) -> Result<ReduceInput<'a, T>, Mismatch> {
        ReduceInput::new(x, self.start, &self.kept, &self.reduced, self.order)
    }
}

/// Sorts axes by stride and makes all strides positive.
fn by_memory(axes: &mut [Axis]) {
    for axis in axes.iter_mut() {
        axis.reversed = axis.dim.stride < 0;
        axis.dim.stride = axis.dim.stride.abs();
    }
    axes.sort_by_key(|axis| Reverse(axis.dim.stride));
}

fn joined(axes: &[Axis]) -> Vec<Dim> {
    joined_dims(axes.iter().map(|axis| axis.dim)).collect()
}
