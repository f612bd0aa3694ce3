"""Pooling: the maximum or the mean of sliding windows, channels last."""

from typing import Any, Callable, ClassVar

import hesper.core as mx

from ._parameters import describe
from .base import Module
from .convolution import Size

__all__ = ["AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d"]


def _sliding_windows(x: mx.array, window: list[int], strides: list[int]) -> mx.array:
    """All windows of ``x``, as axes between its spatial axes and its channels."""
    batch, *spatial, channels = x.shape
    if all(w == s and size % w == 0 for size, w, s in zip(spatial, window, strides)):
        # The windows tile the input: a reshape separates them.
        tiles = [length for size, w in zip(spatial, window) for length in (size // w, w)]
        axes = range(1, len(tiles) + 1)
        return x.reshape(batch, *tiles, channels).transpose(0, *axes[::2], *axes[1::2], len(tiles) + 1)

    # Elements between neighbors along each axis.
    steps = [1]
    for size in reversed(x.shape[1:]):
        steps.insert(0, steps[0] * size)
    counts = [max((size - w) // s + 1, 0) for size, w, s in zip(spatial, window, strides)]
    window_steps = [step * stride for step, stride in zip(steps[1:], strides)]
    return mx.as_strided(x, (batch, *counts, *window, channels), (steps[0], *window_steps, *steps[1:]))


class _Pool(Module):
    """Pads, takes sliding windows and reduces each of them."""

    # The number of spatial axes.
    _rank: ClassVar[int]
    _reduce: ClassVar[Callable]
    _pad_value: ClassVar[float]

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self._kernel_size = self._per_axis("kernel_size", kernel_size, least=1)
        self._stride = self._per_axis("stride", self._kernel_size if stride is None else stride, least=1)
        self._padding = self._per_axis("padding", padding, least=0)
        self._axes = tuple(range(-self._rank - 1, -1))

    def _per_axis(self, name: str, value: Any, least: int) -> list[int]:
        """A size for each spatial axis."""
        sizes = [*value] if isinstance(value, (list, tuple)) else [value] * self._rank
        if len(sizes) != self._rank or not all(isinstance(size, int) for size in sizes):
            raise ValueError(
                f"cannot pool over {self._rank} axes with {name}={value!r}; give an int, or one for each axis"
            )
        if min(sizes) < least:
            raise ValueError(f"cannot pool with {name}={value!r}; each size must be at least {least}")
        return sizes

    def _extra_repr(self) -> str:
        return describe(
            kernel_size=tuple(self._kernel_size), stride=tuple(self._stride), padding=tuple(self._padding)
        )

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim != self._rank + 2:
            raise ValueError(
                f"cannot pool an input of shape {x.shape}; {type(self).__name__} takes a batch axis, {self._rank} "
                "spatial axes and channels"
            )
        if any(size > 0 for size in self._padding):
            widths = [(0, 0), *((size, size) for size in self._padding), (0, 0)]
            x = mx.pad(x, widths, constant_values=self._pad_value)
        windows = _sliding_windows(x, self._kernel_size, self._stride)
        return self._reduce(windows, self._axes)


class _MaxPool(_Pool):
    _reduce, _pad_value = staticmethod(mx.max), -float("inf")


class _AvgPool(_Pool):
    _reduce, _pad_value = staticmethod(mx.mean), 0


class MaxPool1d(_MaxPool):
    """The maximum of sliding windows over ``NLC`` input.

    Parameters
    ----------
    kernel_size : int or tuple
        The size of the window.
    stride : int or tuple, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple
        The number of negative infinities added at each end. Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> nn.MaxPool1d(kernel_size=2)(mx.zeros((1, 8, 3))).shape
    (1, 4, 3)
    """

    _rank = 1


class MaxPool2d(_MaxPool):
    """The maximum of sliding windows over ``NHWC`` input.

    Parameters
    ----------
    kernel_size, stride, padding
        As for :class:`MaxPool1d`, for both axes or one for each.

    Examples
    --------
    >>> nn.MaxPool2d(kernel_size=2)(mx.zeros((1, 8, 8, 3))).shape
    (1, 4, 4, 3)
    """

    _rank = 2


class MaxPool3d(_MaxPool):
    """The maximum of sliding windows over ``NDHWC`` input.

    Parameters
    ----------
    kernel_size, stride, padding
        As for :class:`MaxPool1d`, for all axes or one for each.

    Examples
    --------
    >>> nn.MaxPool3d(kernel_size=2)(mx.zeros((1, 8, 8, 8, 3))).shape
    (1, 4, 4, 4, 3)
    """

    _rank = 3


class AvgPool1d(_AvgPool):
    """The mean of sliding windows over ``NLC`` input.

    Parameters
    ----------
    kernel_size : int or tuple
        The size of the window.
    stride : int or tuple, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple
        The number of zeros added at each end. Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> nn.AvgPool1d(kernel_size=2)(mx.zeros((1, 8, 3))).shape
    (1, 4, 3)
    """

    _rank = 1


class AvgPool2d(_AvgPool):
    """The mean of sliding windows over ``NHWC`` input.

    Parameters
    ----------
    kernel_size, stride, padding
        As for :class:`AvgPool1d`, for both axes or one for each.

    Examples
    --------
    >>> nn.AvgPool2d(kernel_size=2)(mx.zeros((1, 8, 8, 3))).shape
    (1, 4, 4, 3)
    """

    _rank = 2


class AvgPool3d(_AvgPool):
    """The mean of sliding windows over ``NDHWC`` input.

    Parameters
    ----------
    kernel_size, stride, padding
        As for :class:`AvgPool1d`, for all axes or one for each.

    Examples
    --------
    >>> nn.AvgPool3d(kernel_size=2)(mx.zeros((1, 8, 8, 8, 3))).shape
    (1, 4, 4, 4, 3)
    """

    _rank = 3
