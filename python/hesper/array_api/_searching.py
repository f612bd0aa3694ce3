"""Sorting, searching, sets and indices."""

from collections import namedtuple

import hesper.core as mx

from ._axes import place_of
from ._dtypes import INDEX, beside, bool

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """The places of elements that put them in order along an axis. Equal elements keep their order."""
    if not descending:
        return mx.argsort(x, axis).astype(INDEX)
    # Sorted from the back, so that equal elements keep their order.
    places = mx.flip(mx.argsort(mx.flip(x, axis), axis), axis).astype(INDEX)
    return x.shape[axis] - 1 - places


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """The elements in order along an axis."""
    ordered = mx.sort(x, axis)
    return mx.flip(ordered, axis) if descending else ordered


def nonzero(x, /):
    """The indices of elements that are not zero, an array for each axis."""
    if x.ndim == 0:
        raise ValueError("cannot find the indices of an array without axes; reshape it to (1,)")
    flat = mx.reshape(x, (-1,)) != 0
    places = mx.arange(x.size, dtype=mx.int64)[flat]
    found = []
    for length in reversed(x.shape):
        length = max(length, 1)
        found.append((places % length).astype(INDEX))
        places = places // length
    return tuple(reversed(found))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """The places where values would be inserted in a sorted vector."""
    x1 = x1 if sorter is None else mx.take(x1, sorter)
    return mx.searchsorted(x1, beside(x2, x1.dtype), side=side).astype(INDEX)


def where(condition, x1, x2, /):
    """Elements of the first array where a condition holds, of the second one elsewhere."""
    like = x1 if isinstance(x1, mx.array) else x2
    if not isinstance(like, mx.array):
        return mx.where(condition, x1, x2)
    return mx.where(condition, beside(x1, like.dtype), beside(x2, like.dtype))


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """The differences of neighbours along an axis, ``n`` times."""
    if n < 0:
        raise ValueError(f"diff: n must not be negative, and is {n}")
    axis = place_of("diff", axis, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    x = mx.concatenate(parts, axis) if len(parts) > 1 else mx.array(x)
    for _ in range(n):
        after = (slice(None),) * axis + (slice(1, None),)
        before = (slice(None),) * axis + (slice(None, -1),)
        x = x[after] != x[before] if x.dtype == bool else x[after] - x[before]
    return x


def take(x, indices, /, *, axis=None):
    """Elements along an axis by their indices."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"cannot take from an array of {x.ndim} axes without an axis; give one")
    return mx.take(x, indices, 0 if axis is None else axis)


def take_along_axis(x, indices, /, *, axis=-1):
    """Elements along an axis, by indices for each of the other places."""
    return mx.take_along_axis(x, indices, axis)


def unique_all(x, /):
    """The different elements, where each occurs first, which of them each element is, and how often each occurs."""
    flat = mx.reshape(x, (-1,))
    if flat.size == 0:
        none = mx.zeros((0,), INDEX)
        return UniqueAll(flat, none, mx.zeros(x.shape, INDEX), none)
    order = mx.argsort(flat).astype(INDEX)
    ordered = mx.take(flat, order)
    first = mx.concatenate([mx.array([True]), ordered[1:] != ordered[:-1]])
    starts = mx.arange(flat.size, dtype=INDEX)[first]
    counts = mx.concatenate([starts[1:], mx.array([flat.size], INDEX)]) - starts
    inverse = mx.zeros(flat.shape, INDEX)
    inverse[order] = mx.cumsum(first.astype(INDEX)) - 1
    return UniqueAll(ordered[first], order[first], mx.reshape(inverse, x.shape), counts)


def unique_counts(x, /):
    """The different elements and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x, /):
    """The different elements and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x, /):
    """The different elements."""
    return unique_all(x).values
