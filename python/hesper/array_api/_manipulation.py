"""Shapes and the order of elements."""

from operator import index

import hesper.core as mx

from ._axes import place_of


def broadcast_arrays(*arrays):
    """Arrays of one shape, repeated along axes of length one."""
    return list(mx.broadcast_arrays(*arrays))


def broadcast_to(x, /, shape):
    """The array in a larger shape, repeated along axes of length one."""
    return mx.broadcast_to(x, shape)


def concat(arrays, /, *, axis=0):
    """Arrays joined along an axis, or flattened and joined."""
    if axis is None:
        return mx.concatenate([mx.reshape(x, (-1,)) for x in arrays])
    return mx.concatenate(list(arrays), axis)


def expand_dims(x, /, axis=0):
    """The array with more axes of length one: one, or as many as a tuple names."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    last = x.ndim + len(axes) - 1
    for one in axes:
        if not -last - 1 <= index(one) <= last:
            raise IndexError(f"cannot insert axis {one} into an array of {x.ndim} axes; use {-last - 1} to {last}")
    return mx.expand_dims(x, axes)


def flip(x, /, *, axis=None):
    """The elements in reverse order along axes, or along all."""
    return mx.flip(x, axis)


def moveaxis(x, source, destination, /):
    """Axes moved to other places, the others in their order."""
    source, destination = ((axes,) if isinstance(axes, int) else tuple(axes) for axes in (source, destination))
    if len(source) != len(destination):
        raise ValueError(f"cannot move axes {source} to {destination}; give as many places as axes")
    source, destination = ([place_of("moveaxis", axis, x.ndim) for axis in axes] for axes in (source, destination))
    order = [axis for axis in range(x.ndim) if axis not in source]
    for place, axis in sorted(zip(destination, source)):
        order.insert(place, axis)
    return mx.transpose(x, order)


def permute_dims(x, /, axes):
    """The axes in another order."""
    if len(axes) != x.ndim:
        raise ValueError(f"permute_dims: axes {tuple(axes)} for an array of {x.ndim} dimensions; name each of them once")
    return mx.transpose(x, axes) if x.ndim else mx.array(x)


def repeat(x, repeats, /, *, axis=None):
    """Each element several times, along an axis or of the flattened array."""
    if axis is None:
        x, axis = mx.reshape(x, (-1,)), 0
    axis = place_of("repeat", axis, x.ndim)
    if isinstance(repeats, mx.array) and not mx.isdtype(repeats.dtype, "integral"):
        raise TypeError(f"repeat: counts must be integers, and are an array of type {repeats.dtype}")
    if isinstance(repeats, mx.array) and repeats.size == 1:
        repeats = repeats.item()
    if not isinstance(repeats, mx.array):
        return mx.repeat(x, repeats, axis)
    counts = repeats.tolist()
    if repeats.ndim != 1 or len(counts) != x.shape[axis] or min(counts, default=0) < 0:
        raise ValueError(
            f"cannot repeat axis {axis} of an array of shape {x.shape} {counts} times; give one non-negative count, or "
            "one for each element"
        )
    places = [at for at, count in enumerate(counts) for _ in range(count)]
    return mx.take(x, mx.array(places, mx.int32), axis)


def reshape(x, /, shape, *, copy=None):
    """The elements in another shape. ``copy=False`` refuses those that do not lie row by row."""
    if copy is False and not memoryview(x).c_contiguous:
        raise ValueError(
            f"cannot reshape an array of shape {x.shape} without a copy: its elements do not lie row by row; use "
            "copy=None or copy=True"
        )
    return mx.reshape(x, shape)


def roll(x, /, shift, *, axis=None):
    """The elements moved along axes, or in the flattened array; what leaves at one end enters at the other."""
    return mx.roll(x, shift, axis)


def squeeze(x, /, axis):
    """The array without axes of length one."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for axis in axes:
        if not -x.ndim <= axis < x.ndim or x.shape[axis] != 1:
            raise ValueError(f"cannot squeeze axis {axis} of an array of shape {x.shape}; its length must be 1")
    return mx.squeeze(x, axes) if axes else mx.array(x)


def stack(arrays, /, *, axis=0):
    """Arrays of one shape, joined along a new axis."""
    dtype = mx.result_type(*arrays)
    return mx.stack([x.astype(dtype) for x in arrays], axis)


def tile(x, repetitions, /):
    """The whole array several times along each axis."""
    return mx.tile(x, list(repetitions)) if repetitions else mx.array(x)


def unstack(x, /, *, axis=0):
    """The parts of an array along an axis."""
    return tuple(mx.unstack(x, axis=axis))
