"""Resizing of signals, images and volumes, channels last.

All modes but the plain repetition are separable: each spatial axis is resized
on its own, as a weighted sum of rows picked from the input.
"""

import math
from typing import Callable, List, Literal, Sequence, Tuple, Union

import hesper.core as mx

from .base import Module

__all__ = ["Upsample", "upsample_cubic", "upsample_linear", "upsample_nearest"]

# The rows to pick for one tap of the filter, and their weights.
Tap = Tuple[mx.array, mx.array]


def _positions(size: int, scale: float, align_corners: bool) -> mx.array:
    """Where the rows of the output lie in the input, as fractional indices."""
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


def _linear_taps(size: int, scale: float, align_corners: bool) -> List[Tap]:
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


def _cubic_taps(size: int, scale: float, align_corners: bool) -> List[Tap]:
    position = _positions(size, scale, align_corners)
    first = mx.floor(position)
    rows = [first + offset for offset in (-1, 0, 1, 2)]
    return [(_clipped(r, size), _cubic(mx.abs(position - r), -0.75)) for r in rows]


def _antialiased_taps(
    size: int, scale: float, kernel: Callable[[mx.array], mx.array], support: float
) -> List[Tap]:
    """Taps of a kernel that is stretched when the output is the smaller one.

    Rows outside of the input have no weight, and those of the others sum to
    one.
    """
    position = _positions(size, scale, align_corners=False)
    stretch = max(1.0, 1 / scale)
    reach = math.ceil(support * stretch)
    first = mx.floor(position)
    rows = [first + offset for offset in range(-reach, reach + 1)]
    weights = [
        mx.where((r >= 0) & (r < size), kernel(mx.abs(position - r) / stretch), 0)
        for r in rows
    ]
    total = sum(weights)
    total = mx.where(total > 0, total, 1)
    return [(_clipped(r, size), w / total) for r, w in zip(rows, weights)]


def _resize(
    x: mx.array, scales: Sequence[float], taps: Callable[[int, float], List[Tap]]
) -> mx.array:
    """Resize axis after axis with the taps for its size and scale."""
    for axis, scale in enumerate(scales, start=1):
        shape = [1] * x.ndim
        shape[axis] = -1
        x = sum(
            mx.take(x, rows.astype(mx.int32), axis=axis) * weight.reshape(shape)
            for rows, weight in taps(x.shape[axis], scale)
        )
    return x


def _check_antialias(align_corners: bool, antialias: bool) -> None:
    if align_corners and antialias:
        raise ValueError(
            "[Upsample] antialias=True with align_corners=True is not supported. Use "
            "align_corners=False for antialiased interpolation."
        )


def upsample_nearest(x: mx.array, scale_factor: Sequence[float]) -> mx.array:
    """Resize by picking the nearest entries.

    Parameters
    ----------
    x : array
        The input, with the spatial axes between the first and the last.
    scale_factor : sequence of float
        The factor for each spatial axis.

    Returns
    -------
    array
        The resized input.

    Examples
    --------
    >>> import hesper.core as mx
    >>> from hesper.nn.layers.upsample import upsample_nearest
    >>> upsample_nearest(mx.array([[[1], [2]]]), (2,)).flatten().tolist()
    [1, 1, 2, 2]
    """
    spatial = x.ndim - 2
    if spatial != len(scale_factor):
        raise ValueError("A scale needs to be provided for each spatial dimension")

    if all(int(s) == s and s >= 1 for s in scale_factor):
        # Whole factors repeat entries, which a broadcast does without indices.
        before, after, result = [x.shape[0]], [x.shape[0]], [x.shape[0]]
        for size, s in zip(x.shape[1:-1], map(int, scale_factor)):
            before += [size, 1]
            after += [size, s]
            result.append(size * s)
        channels = x.shape[-1]
        x = mx.broadcast_to(x.reshape(*before, channels), (*after, channels))
        return x.reshape(*result, channels)

    for axis, s in enumerate(scale_factor, start=1):
        x = mx.take(x, _nearest_rows(x.shape[axis], s), axis=axis)
    return x


def upsample_linear(
    x: mx.array,
    scale_factor: Sequence[float],
    align_corners: bool = False,
    antialias: bool = False,
) -> mx.array:
    """Resize with (bi-, tri-) linear interpolation.

    Parameters
    ----------
    x : array
        The input, with the spatial axes between the first and the last.
    scale_factor : sequence of float
        The factor for each spatial axis.
    align_corners : bool
        Whether the first and last entries of input and output coincide.
        Default: ``False``.
    antialias : bool
        Whether to widen the filter when shrinking. Default: ``False``.

    Returns
    -------
    array
        The resized input.

    Examples
    --------
    >>> import hesper.core as mx
    >>> from hesper.nn.layers.upsample import upsample_linear
    >>> upsample_linear(mx.array([[[1.0], [2.0]]]), (2,)).flatten().tolist()
    [1.0, 1.25, 1.75, 2.0]
    """
    _check_antialias(align_corners, antialias)
    if antialias:
        return _resize(
            x, scale_factor, lambda n, s: _antialiased_taps(n, s, _triangle, 1)
        )
    return _resize(x, scale_factor, lambda n, s: _linear_taps(n, s, align_corners))


def upsample_cubic(
    x: mx.array,
    scale_factor: Sequence[float],
    align_corners: bool = False,
    antialias: bool = False,
) -> mx.array:
    """Resize with (bi-) cubic interpolation.

    Parameters
    ----------
    x : array
        The input, with the spatial axes between the first and the last.
    scale_factor : sequence of float
        The factor for each spatial axis.
    align_corners : bool
        Whether the first and last entries of input and output coincide.
        Default: ``False``.
    antialias : bool
        Whether to widen the filter when shrinking, and to use the
        coefficient -0.5 instead of -0.75. Default: ``False``.

    Returns
    -------
    array
        The resized input.

    Examples
    --------
    >>> import hesper.core as mx
    >>> from hesper.nn.layers.upsample import upsample_cubic
    >>> upsample_cubic(mx.zeros((1, 4, 4, 3)), (2, 2)).shape
    (1, 8, 8, 3)
    """
    _check_antialias(align_corners, antialias)
    if antialias:
        return _resize(
            x,
            scale_factor,
            lambda n, s: _antialiased_taps(n, s, lambda d: _cubic(d, -0.5), 2),
        )
    return _resize(x, scale_factor, lambda n, s: _cubic_taps(n, s, align_corners))


class Upsample(Module):
    """Resizes the spatial axes of its input: all but the first and the last.

    Parameters
    ----------
    scale_factor : float or tuple of float
        The factor for all spatial axes, or one for each of them.
    mode : {'nearest', 'linear', 'cubic'}
        How to compute new entries. Default: ``'nearest'``.
    align_corners : bool
        Whether the first and last entries of input and output coincide, for
        linear and cubic interpolation. Default: ``False``.
    antialias : bool
        Whether to widen the filter when shrinking, for linear and cubic
        interpolation without ``align_corners``. Default: ``False``.

    Raises
    ------
    ValueError
        If the mode is unknown, ``antialias`` does not go with the other
        arguments, or the input does not fit ``scale_factor``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> x = mx.array([[[1.0], [2.0]]])
    >>> nn.Upsample(2)(x).flatten().tolist()
    [1.0, 1.0, 2.0, 2.0]
    >>> nn.Upsample(2, mode="linear")(x).flatten().tolist()
    [1.0, 1.25, 1.75, 2.0]
    """

    def __init__(
        self,
        scale_factor: Union[float, Tuple],
        mode: Literal["nearest", "linear", "cubic"] = "nearest",
        align_corners: bool = False,
        antialias: bool = False,
    ) -> None:
        super().__init__()
        if mode not in ("nearest", "linear", "cubic"):
            raise ValueError(f"[Upsample] Got unsupported upsampling algorithm: {mode}")
        if antialias and mode == "nearest":
            raise ValueError(
                "[Upsample] Antialiasing is not supported for nearest neighbor upsampling"
            )
        _check_antialias(align_corners, antialias)
        if isinstance(scale_factor, (list, tuple)):
            self.scale_factor = tuple(map(float, scale_factor))
        else:
            self.scale_factor = float(scale_factor)
        self.mode = mode
        self.align_corners = align_corners
        self.antialias = antialias

    def _extra_repr(self) -> str:
        return (
            f"scale_factor={self.scale_factor}, mode={self.mode!r}, "
            f"align_corners={self.align_corners}"
            + (f", antialias={self.antialias}" if self.antialias else "")
        )

    def __call__(self, x: mx.array) -> mx.array:
        spatial = x.ndim - 2
        if spatial <= 0:
            raise ValueError(
                "[Upsample] The input should have at least 1 spatial dimension which "
                f"means it should be at least 3D but {x.ndim}D was provided"
            )
        scales = self.scale_factor
        if not isinstance(scales, tuple):
            scales = (scales,) * spatial
        elif len(scales) != spatial:
            raise ValueError(
                "[Upsample] One scale per spatial dimension is required but "
                f"scale_factor={scales} and the number of spatial dimensions were "
                f"{spatial}"
            )
        if self.mode == "nearest":
            return upsample_nearest(x, scales)
        resize = upsample_linear if self.mode == "linear" else upsample_cubic
        return resize(x, scales, self.align_corners, self.antialias)
