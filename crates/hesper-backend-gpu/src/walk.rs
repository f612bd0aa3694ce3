//! Strided axes as kernels traverse them.

use hesper_compute::joined_axes;
use hesper_core::backend::{Lowering, reach};

use crate::Gpu;

/// Lengths and strides of axes, outermost first.
pub type Axes = Vec<(usize, isize)>;

/// Axes, joined where their elements are evenly spaced; at least one.
pub fn joined(shape: &[usize], strides: &[isize]) -> Axes {
    let axes: Axes = joined_axes(shape, [strides]).map(|(length, [stride])| (length, stride)).collect();
    if axes.is_empty() { vec![(1, 0)] } else { axes }
}

/// Axes, joined; `None` if they are more than kernels take.
pub(crate) fn axes_of<G: Gpu>(shape: &[usize], strides: &[isize]) -> Option<Axes> {
    Some(joined(shape, strides)).filter(|axes| axes.len() <= G::MAX_AXES)
}

/// Axes with two sets of strides, joined where both allow it; `None` if they are more than kernels take.
pub(crate) fn pairs<G: Gpu>(shape: &[usize], one: &[isize], other: &[isize]) -> Option<(Axes, Axes)> {
    let (mut ones, mut others): (Axes, Axes) =
        joined_axes(shape, [one, other]).map(|(length, [a, b])| ((length, a), (length, b))).unzip();
    if ones.is_empty() {
        (ones, others) = (vec![(1, 0)], vec![(1, 0)]);
    }
    (ones.len() <= G::MAX_AXES).then_some((ones, others))
}

/// Most bytes that a thread loads as one word.
const MAX_WORD: usize = 16;

/// How many elements of `size` bytes a word has: the most that `fits`.
pub(crate) fn elements_of_word(size: usize, fits: impl FnMut(&usize) -> bool) -> usize {
    [16, 8, 4, 2].into_iter().filter(|count| count * size <= MAX_WORD).find(fits).unwrap_or(1)
}

/// Whether kernels index all elements of the inputs and of the output.
pub fn fits<G: Gpu>(l: &Lowering<'_>) -> bool {
    let reached = |at: usize| {
        let (elements, _) = reach(l.input(at), l.input_shape(at), 1);
        elements.len() < G::MAX_ELEMENTS
    };
    G::MAX_ELEMENTS == usize::MAX
        || l.shape().iter().product::<usize>() < G::MAX_ELEMENTS && (0..l.input_count()).all(reached)
}
