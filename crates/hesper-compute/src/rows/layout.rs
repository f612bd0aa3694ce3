//! How a reduction walks through memory.
//!
//! Axes are split into those that are kept and those that are reduced, and joined where one continues the other. Kept
//! axes are put in the order of memory and turned to go forwards; the result is laid out in the same order, so no input
//! is transposed or copied.

use std::cmp::Reverse;

use super::input::{ReduceInput, SumOrder};
use crate::strided::{Dim, joined_dims};
use crate::{Mismatch, Plain};

/// What the order of a result's elements is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOrder {
    /// Nothing: reduced axes are put in the order of memory, too.
    Any,
    /// Their indices count.
    Index,
    /// Their sums are rounded: the sum of a view has the bits of its contiguous copy's.
    Sum,
}

/// The walk of one reduction, which starts at the lowest element that the view reaches.
#[derive(Debug)]
pub struct ReduceLayout {
    /// Kept axes, outermost first.
    pub kept: Vec<Dim>,
    /// Reduced axes, outermost first; at least one.
    pub reduced: Vec<Dim>,
    /// Whether the only reduced axis was turned.
    pub turned: bool,
    /// The first element of the first result.
    start: usize,
    order: Option<SumOrder>,
    /// Where the result's elements are.
    strides: Vec<isize>,
    /// The first element of the result, in elements.
    pub offset: isize,
}

/// An axis that is longer than one.
struct Axis {
    at: usize,
    dim: Dim,
    turned: bool,
}

type Axes = Vec<Axis>;

impl ReduceLayout {
    /// The walk through an array, reduced over some axes.
    pub fn new(shape: &[usize], strides: &[isize], over: &[usize], order: ReduceOrder) -> ReduceLayout {
        let (mut kept, mut reduced) = (Axes::new(), Axes::new());
        let axes = shape.iter().zip(strides).enumerate().filter(|(_, (len, _))| **len != 1);
        for (at, (&len, &stride)) in axes {
            let list = if over.contains(&at) { &mut reduced } else { &mut kept };
            list.push(Axis { at, dim: Dim { len, stride }, turned: false });
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
        // What is the same along an axis is computed once: the result's stride is zero there.
        kept.retain(|axis| axis.dim.stride != 0 || axis.dim.len == 0);
        for axis in kept.iter().rev() {
            let len = axis.dim.len as isize;
            strides[axis.at] = if axis.turned { -step } else { step };
            offset += if axis.turned { (len - 1) * step } else { 0 };
            step *= len;
        }
        let turned = matches!(&reduced[..], [only] if only.turned);
        let (kept, mut reduced) = (joined(&kept), joined(&reduced));
        if reduced.is_empty() {
            reduced.push(Dim { len: 1, stride: 1 });
        }
        let sums = if columns { SumOrder::Columns } else { SumOrder::Rows };
        let order = (order == ReduceOrder::Sum).then_some(sums);
        ReduceLayout { kept, reduced, turned, start, order, strides, offset }
    }

    /// Strides of the result, in elements. Reduced axes are kept with length one, or left out.
    pub fn result_strides(&self, over: &[usize], keep: bool) -> Vec<isize> {
        let axes = 0..self.strides.len();
        axes.filter(|at| keep || !over.contains(at)).map(|at| self.strides[at]).collect()
    }

    /// Elements of the result that are computed.
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|dim| dim.len).product()
    }

    /// Elements that each result is made of.
    pub fn length(&self) -> usize {
        self.reduced.iter().map(|dim| dim.len).product()
    }

    /// The input of a kernel, from the lowest element on.
    pub fn input<'a, T: Plain>(&'a self, x: &'a [T]) -> Result<ReduceInput<'a, T>, Mismatch> {
        ReduceInput::new(x, self.start, &self.kept, &self.reduced, self.order)
    }
}

/// Puts axes in the order of memory, all forwards.
fn by_memory(axes: &mut [Axis]) {
    for axis in axes.iter_mut() {
        axis.turned = axis.dim.stride < 0;
        axis.dim.stride = axis.dim.stride.abs();
    }
    axes.sort_by_key(|axis| Reverse(axis.dim.stride));
}

fn joined(axes: &[Axis]) -> Vec<Dim> {
    joined_dims(axes.iter().map(|axis| axis.dim)).collect()
}
