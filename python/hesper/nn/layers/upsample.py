"""Resizing of signals, images and volumes, channels last.

Linear and cubic interpolation are separable: each spatial axis is resized on its own, as a weighted sum of rows
gathered from the input.
"""

import math
from typing import Callable, Literal, Sequence

import hesper.core as mx

from ._parameters import describe
from .base import Module

__all__ = ["Upsample", "upsample_cubic", "upsample_linear", "upsample_nearest"]

# The rows to gather for one tap of the filter, and their weights.
Tap = tuple[mx.array, mx.array]
# From the size of an axis and its scale to the taps.
Taps = Callable[[int, float], list[Tap]]


def _positions(size: int, scale: float, align_corners: bool) -> mx.array:
    """The rows of the output as fractional rows of the input."""
    out = int(scale * size)
    rows = mx.arange(out, dtype=mx.float32)
    if align_corners:
        return rows * ((size - 1) / (out - 1)) if out > 1 else rows * 0.0
    step = 1 / scale
    start = ((out - 1) * step - size + 1) / 2
    return rows * step - start


def _nearest_rows(size: int, scale: float) -> mx.array:
    out = int(scale * size)
    rows = mx.arange(out, dtype=mx.float32)
    if out > size:
        rows = mx.round((rows + 0.5) * (size / out) - 0.5)
    else:
        rows = rows * (size / out)
    return rows.astype(mx.uint32)


def _clipped(rows: mx.array, size: int) -> mx.array:
    return mx.clip(rows, 0, size - 1)


def _linear_taps(size: int, scale: float, align_corners: bool) -> list[Tap]:
    position = _clipped(_positions(size, scale, align_corners), size)
    left = mx.floor(position)
    weight = position - left
    return [(left, 1 - weight), (mx.ceil(position), weight)]


def _triangle(distance: mx.array) -> mx.array:
    return mx.maximum(1 - distance, 0)


def _cubic(distance: mx.array, a: float) -> mx.array:
    """Keys' cubic convolution kernel."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return mx.where(d <= 1, near, mx.where(d < 2, far, 0))


def _cubic_taps(size: int, scale: float, align_corners: bool) -> list[Tap]:
    position = _positions(size, scale, align_corners)
    first = mx.floor(position)
    rows = [first + offset for offset in (-1, 0, 1, 2)]
    return [(_clipped(r, size), _cubic(mx.abs(position - r), -0.75)) for r in rows]


def _antialiased_taps(kernel: Callable[[mx.array], mx.array], support: float) -> Taps:
    """Taps of a kernel that is stretched when the output is the smaller one.

    Rows outside of the input have no weight, and the weights of the others sum to one.
    """

    def taps(size: int, scale: float) -> list[Tap]:
        position = _positions(size, scale, align_corners=False)
        stretch = max(1.0, 1 / scale)
        reach = math.ceil(support * stretch)
        first = mx.floor(position)
        rows = [first + offset for offset in range(-reach, reach + 1)]
        weights = [mx.where((r >= 0) & (r < size), kernel(mx.abs(position - r) / stretch), 0) for r in rows]
        total = sum(weights)
        total = mx.where(total > 0, total, 1)
        return [(_clipped(r, size), w / total) for r, w in zip(rows, weights)]

    return taps


def _resize(x: mx.array, scales: Sequence[float], taps: Taps) -> mx.array:
    """Resize one axis after the other."""
    for axis, scale in enumerate(scales, start=1):
        shape = [1] * x.ndim
        shape[axis] = -1
        x = sum(
            mx.take(x, rows.astype(mx.int32), axis) * weight.reshape(shape)
            for rows, weight in taps(x.shape[axis], scale)
        )
    return x


def _check_antialias(align_corners: bool, antialias: bool) -> None:
    if align_corners and antialias:
        raise ValueError("cannot resize with antialias=True and align_corners=True; use align_corners=False")


def upsample_nearest(x: mx.array, scale_factor: Sequence[float]) -> mx.array:
    """Resize by picking the nearest entries.

    Parameters
    ----------
    x : array
        The input, with the spatial axes between the first and the last.
    scale_factor : sequence of float
        The factor for each spatial axis.

    Examples
    --------
    >>> from hesper.nn.layers.upsample import upsample_nearest
    >>> upsample_nearest(mx.array([[[1], [2]]]), (2,)).flatten().tolist()
    [1, 1, 2, 2]
    """
    batch, *spatial, channels = x.shape
    if len(spatial) != len(scale_factor):
        raise ValueError(
            f"cannot resize an input of shape {x.shape} by {scale_factor}; give a factor for each of its "
            f"{len(spatial)} spatial axes"
        )
    if all(s >= 1 and int(s) == s for s in scale_factor):
        # Integer factors repeat entries: a broadcast needs no indices.
        repeats = [int(s) for s in scale_factor]
        before = [length for size in spatial for length in (size, 1)]
        after = [length for pair in zip(spatial, repeats) for length in pair]
        x = mx.broadcast_to(x.reshape(batch, *before, channels), (batch, *after, channels))
        return x.reshape(batch, *(size * s for size, s in zip(spatial, repeats)), channels)
    for axis, s in enumerate(scale_factor, start=1):
        x = mx.take(x, _nearest_rows(x.shape[axis], s), axis)
    return x


def upsample_linear(
    x: mx.array, scale_factor: Sequence[float], align_corners: bool = False, antialias: bool = False
) -> mx.array:
    """Resize with (bi-, tri-) linear interpolation.

    Parameters
    ----------
    x : array
        The input, with the spatial axes between the first and the last.
    scale_factor : sequence of float
        The factor for each spatial axis.
    align_corners : bool
        Whether the first and last entries of input and output coincide. Default: ``False``.
    antialias : bool
        Whether to widen the filter when shrinking. Default: ``False``.

    Examples
    --------
    >>> from hesper.nn.layers.upsample import upsample_linear
    >>> upsample_linear(mx.array([[[1.0], [2.0]]]), (2,)).flatten().tolist()
    [1.0, 1.25, 1.75, 2.0]
    """
    _check_antialias(align_corners, antialias)
    taps = _antialiased_taps(_triangle, 1) if antialias else lambda n, s: _linear_taps(n, s, align_corners)
    return _resize(x, scale_factor, taps)


def upsample_cubic(
    x: mx.array, scale_factor: Sequence[float], align_corners: bool = False, antialias: bool = False
) -> mx.array:
    """Resize with (bi-) cubic interpolation.

    Parameters
    ----------
    x, scale_factor, align_corners
        As for :func:`upsample_linear`.
    antialias : bool
        Whether to widen the filter when shrinking, and to use the coefficient -0.5 instead of -0.75. Default:
        ``False``.

    Examples
    --------
    >>> from hesper.nn.layers.upsample import upsample_cubic
    >>> upsample_cubic(mx.zeros((1, 4, 4, 3)), (2, 2)).shape
    (1, 8, 8, 3)
    """
    _check_antialias(align_corners, antialias)
    taps = (
        _antialiased_taps(lambda d: _cubic(d, -0.5), 2) if antialias else lambda n, s: _cubic_taps(n, s, align_corners)
    )
    return _resize(x, scale_factor, taps)


class Upsample(Module):
    """Resizes the spatial axes of its input: all but the first and the last.

    Parameters
    ----------
    scale_factor : float or tuple of float
        The factor for all spatial axes, or one for each of them.
    mode : {'nearest', 'linear', 'cubic'}
        The interpolation. Default: ``'nearest'``.
    align_corners : bool
        Whether the first and last entries of input and output coincide, for linear and cubic interpolation. Default:
        ``False``.
    antialias : bool
        Whether to widen the filter when shrinking, for linear and cubic interpolation without ``align_corners``.
        Default: ``False``.

    Raises
    ------
    ValueError
        If the mode is unknown, ``antialias`` is not supported with the other arguments, or the input does not fit
        ``scale_factor``.

    Examples
    --------
    >>> x = mx.array([[[1.0], [2.0]]])
    >>> nn.Upsample(2)(x).flatten().tolist()
    [1.0, 1.0, 2.0, 2.0]
    >>> nn.Upsample(2, mode="linear")(x).flatten().tolist()
    [1.0, 1.25, 1.75, 2.0]
    """

    def __init__(
        self, scale_factor: float | tuple, mode: Literal["nearest", "linear", "cubic"] = "nearest",
        align_corners: bool = False, antialias: bool = False,
    ) -> None:
        super().__init__()
        if mode not in ("nearest", "linear", "cubic"):
            raise ValueError(f"cannot resize with mode {mode!r}; choose 'nearest', 'linear' or 'cubic'")
        if mode == "nearest" and antialias:
            raise ValueError("cannot antialias in mode 'nearest'; use 'linear' or 'cubic'")
        _check_antialias(align_corners, antialias)
        several = isinstance(scale_factor, (list, tuple))
        self.scale_factor = tuple(map(float, scale_factor)) if several else float(scale_factor)
        self.mode, self.align_corners, self.antialias = mode, align_corners, antialias

    def _extra_repr(self) -> str:
        optional = {"antialias": True} if self.antialias else {}
        return describe(
            scale_factor=self.scale_factor, mode=repr(self.mode), align_corners=self.align_corners, **optional
        )

    def __call__(self, x: mx.array) -> mx.array:
        spatial, scales = x.ndim - 2, self.scale_factor
        if not isinstance(scales, tuple):
            scales = (scales,) * spatial
        if spatial < 1 or len(scales) != spatial:
            raise ValueError(
                f"cannot resize an input of shape {x.shape} by {self.scale_factor}; it needs a batch axis, a spatial "
                "axis for each factor and channels"
            )
        if self.mode == "nearest":
            return upsample_nearest(x, scales)
        resize = upsample_linear if self.mode == "linear" else upsample_cubic
        return resize(x, scales, self.align_corners, self.antialias)
