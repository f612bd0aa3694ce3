"""Sums, extremes and statistics over axes."""

from builtins import max as _largest

import hesper.core as mx

from ._axes import place_of
from ._dtypes import INDEX, SIGNED, UNSIGNED, bool as bool_, int32, int64, uint32, uint64


def all(x, /, *, axis=None, keepdims=False):
    """Whether all elements over axes are true or not zero."""
    return mx.all(x, axis, keepdims)


def any(x, /, *, axis=None, keepdims=False):
    """Whether any element over axes is true or not zero."""
    return mx.any(x, axis, keepdims)


def max(x, /, *, axis=None, keepdims=False):
    """The largest elements over axes; NaN if there is one."""
    return mx.max(x, axis, keepdims)


def min(x, /, *, axis=None, keepdims=False):
    """The smallest elements over axes; NaN if there is one."""
    return mx.min(x, axis, keepdims)


def argmax(x, /, *, axis=None, keepdims=False):
    """The indices of the largest elements along an axis, or in the flattened array."""
    return _index_of(mx.argmax, x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    """The indices of the smallest elements along an axis, or in the flattened array."""
    return _index_of(mx.argmin, x, axis, keepdims)


def _index_of(function, x, axis, keepdims):
    if axis is not None:
        if x.size == 0 and x.shape[axis] > 0:
            # There are no indices, only their shape.
            return mx.any(x, axis, keepdims).astype(INDEX)
        return function(x, axis, keepdims).astype(INDEX)
    index = function(mx.reshape(x, (-1,)), 0).astype(INDEX)
    return mx.reshape(index, (1,) * x.ndim) if keepdims else index


def count_nonzero(x, /, *, axis=None, keepdims=False):
    """How many elements over axes are not zero."""
    return mx.count_nonzero(x, axis, keepdims).astype(INDEX)


def accumulated(dtype):
    """The type of a sum: integers have at least the default type's bits, and sums of booleans count."""
    if dtype == bool_:
        return INDEX
    if dtype in SIGNED:
        return dtype if dtype == int64 else int32
    if dtype in UNSIGNED:
        return dtype if dtype == uint64 else uint32
    return dtype


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    """The sums over axes."""
    dtype = dtype or accumulated(x.dtype)
    return mx.sum(x.astype(dtype), axis, keepdims).astype(dtype)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    """The products over axes."""
    dtype = dtype or accumulated(x.dtype)
    return mx.prod(x.astype(dtype), axis, keepdims).astype(dtype)


def mean(x, /, *, axis=None, keepdims=False):
    """The arithmetic means over axes."""
    return mx.mean(x, axis, keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The standard deviations over axes."""
    return mx.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The variances over axes: sums of squared distances to the mean, over the count less ``correction``."""
    variance = mx.var(x, axis, keepdims)
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    count = 1
    for at in axes:
        count *= x.shape[at]
    left = _largest(count - correction, 0)
    # A quotient of zeros is NaN.
    return variance * count / mx.array(left, variance.dtype) if correction else variance


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """The sums of elements so far along an axis."""
    return _cumulative("cumulative_sum", mx.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """The products of elements so far along an axis."""
    return _cumulative("cumulative_prod", mx.cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(name, function, initial, x, axis, dtype, include_initial):
    if axis is None and x.ndim != 1:
        raise ValueError(f"cannot accumulate an array of {x.ndim} axes without an axis; give one")
    axis = place_of(name, 0 if axis is None else axis, x.ndim)
    dtype = dtype or accumulated(x.dtype)
    result = function(x.astype(dtype), axis).astype(dtype)
    if not include_initial:
        return result
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return mx.concatenate([mx.full(shape, mx.array(initial, dtype)), result], axis)
