"""Pooling: the maximum or the mean of sliding windows, channels last."""

import operator
from itertools import accumulate
from typing import Any, Callable, List, Optional, Tuple, Union

import hesper.core as mx

from .base import Module

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


def _value_or_list(value: Any, length: int, message: str) -> List[int]:
    """``value`` for each of ``length`` axes; an error with ``message`` if it is no size."""
    if isinstance(value, (list, tuple)):
        if len(value) != length:
            raise ValueError(message)
        return list(value)
    if not isinstance(value, int):
        raise ValueError(message)
    return [value] * length


def _sliding_windows(x: mx.array, window: List[int], strides: List[int]) -> mx.array:
    """All windows of ``x``, as axes between its spatial axes and its channels."""
    if x.ndim < 3:
        raise ValueError(
            "To extract sliding windows at least 1 spatial dimension (3 total) is "
            f"needed but the input only has {x.ndim} dimensions."
        )
    spatial = x.shape[1:-1]
    if not len(spatial) == len(window) == len(strides):
        raise ValueError(
            "To extract sliding windows the window shapes and strides must have the "
            "same number of spatial dimensions as the signal but the signal has "
            f"{len(spatial)} dims and the window shape has {len(window)} and strides "
            f"have {len(strides)}."
        )
    batch, channels = x.shape[0], x.shape[-1]
    n = len(spatial)
    if all(w == s and size % w == 0 for size, w, s in zip(spatial, window, strides)):
        # The windows tile the input: a reshape separates them.
        shape = [batch]
        for size, w in zip(spatial, window):
            shape += [size // w, w]
        places = range(1, 2 * n, 2)
        offsets = range(2, 2 * n + 1, 2)
        return x.reshape(*shape, channels).transpose(0, *places, *offsets, 2 * n + 1)

    element_strides = list(
        accumulate(reversed((*x.shape[1:], 1)), operator.mul)
    )[::-1]
    counts = [(size - w) // s + 1 for size, w, s in zip(spatial, window, strides)]
    spatial_strides = element_strides[1:-1]
    return mx.as_strided(
        x,
        (batch, *(max(count, 0) for count in counts), *window, channels),
        (
            element_strides[0],
            *(e * s for e, s in zip(spatial_strides, strides)),
            *spatial_strides,
            1,
        ),
    )


class _Pool(Module):
    """Pads, takes sliding windows and reduces each of them."""

    _pooling_function: Callable
    _padding_value: float

    def __init__(self, axes: int, kernel_size: Any, stride: Any, padding: Any) -> None:
        super().__init__()
        name = type(self).__name__
        what = f"must be an integer or a tuple containing {axes} integer" + "s" * (axes > 1)
        kernel_size = _value_or_list(kernel_size, axes, f"[{name}] 'kernel_size' {what}")
        if stride is None:
            stride = kernel_size
        stride = _value_or_list(stride, axes, f"[{name}] 'stride' {what}")
        padding = _value_or_list(padding, axes, f"[{name}] 'padding' {what}")
        self._kernel_size = kernel_size
        self._stride = stride
        self._padding = [(p, p) for p in padding]
        self._axes = tuple(range(-axes - 1, -1))

    def _extra_repr(self) -> str:
        padding = tuple(p for p, _ in self._padding)
        return (
            f"kernel_size={tuple(self._kernel_size)}, stride={tuple(self._stride)}, "
            f"padding={padding}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        if any(p > 0 for p, _ in self._padding):
            x = mx.pad(
                x, [(0, 0), *self._padding, (0, 0)], constant_values=self._padding_value
            )
        windows = _sliding_windows(x, self._kernel_size, self._stride)
        return self._pooling_function(windows, self._axes)


class _MaxPool(_Pool):
    _pooling_function = staticmethod(mx.max)
    _padding_value = -float("inf")


class _AvgPool(_Pool):
    _pooling_function = staticmethod(mx.mean)
    _padding_value = 0


class MaxPool1d(_MaxPool):
    """The maximum of sliding windows over ``NLC`` input.

    Parameters
    ----------
    kernel_size : int or tuple of one int
        The size of the window.
    stride : int or tuple of one int, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple of one int
        By how much the input is extended at each end, with negative infinity.
        Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.MaxPool1d(kernel_size=2)(mx.zeros((1, 8, 3))).shape
    (1, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Union[int, Tuple[int]],
        stride: Optional[Union[int, Tuple[int]]] = None,
        padding: Union[int, Tuple[int]] = 0,
    ) -> None:
        super().__init__(1, kernel_size, stride, padding)


class MaxPool2d(_MaxPool):
    """The maximum of sliding windows over ``NHWC`` input.

    Parameters
    ----------
    kernel_size : int or tuple of two ints
        The size of the window.
    stride : int or tuple of two ints, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple of two ints
        By how much the input is extended at each end, with negative infinity.
        Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.MaxPool2d(kernel_size=2)(mx.zeros((1, 8, 8, 3))).shape
    (1, 4, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Union[int, Tuple[int, int]],
        stride: Optional[Union[int, Tuple[int, int]]] = None,
        padding: Optional[Union[int, Tuple[int, int]]] = 0,
    ) -> None:
        super().__init__(2, kernel_size, stride, padding)


class MaxPool3d(_MaxPool):
    """The maximum of sliding windows over ``NDHWC`` input.

    Parameters
    ----------
    kernel_size : int or tuple of three ints
        The size of the window.
    stride : int or tuple of three ints, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple of three ints
        By how much the input is extended at each end, with negative infinity.
        Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.MaxPool3d(kernel_size=2)(mx.zeros((1, 8, 8, 8, 3))).shape
    (1, 4, 4, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Union[int, Tuple[int, int, int]],
        stride: Optional[Union[int, Tuple[int, int, int]]] = None,
        padding: Optional[Union[int, Tuple[int, int, int]]] = 0,
    ) -> None:
        super().__init__(3, kernel_size, stride, padding)


class AvgPool1d(_AvgPool):
    """The mean of sliding windows over ``NLC`` input.

    Parameters
    ----------
    kernel_size : int or tuple of one int
        The size of the window.
    stride : int or tuple of one int, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple of one int
        By how much the input is extended at each end, with zeros.
        Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.AvgPool1d(kernel_size=2)(mx.zeros((1, 8, 3))).shape
    (1, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Union[int, Tuple[int]],
        stride: Optional[Union[int, Tuple[int]]] = None,
        padding: Union[int, Tuple[int]] = 0,
    ) -> None:
        super().__init__(1, kernel_size, stride, padding)


class AvgPool2d(_AvgPool):
    """The mean of sliding windows over ``NHWC`` input.

    Parameters
    ----------
    kernel_size : int or tuple of two ints
        The size of the window.
    stride : int or tuple of two ints, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple of two ints
        By how much the input is extended at each end, with zeros.
        Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.AvgPool2d(kernel_size=2)(mx.zeros((1, 8, 8, 3))).shape
    (1, 4, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Union[int, Tuple[int, int]],
        stride: Optional[Union[int, Tuple[int, int]]] = None,
        padding: Optional[Union[int, Tuple[int, int]]] = 0,
    ) -> None:
        super().__init__(2, kernel_size, stride, padding)


class AvgPool3d(_AvgPool):
    """The mean of sliding windows over ``NDHWC`` input.

    Parameters
    ----------
    kernel_size : int or tuple of three ints
        The size of the window.
    stride : int or tuple of three ints, optional
        The distance between two windows. Default: ``kernel_size``.
    padding : int or tuple of three ints
        By how much the input is extended at each end, with zeros.
        Default: ``0``.

    Raises
    ------
    ValueError
        If one of these is neither an int nor a tuple of the right length.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.AvgPool3d(kernel_size=2)(mx.zeros((1, 8, 8, 8, 3))).shape
    (1, 4, 4, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Union[int, Tuple[int, int, int]],
        stride: Optional[Union[int, Tuple[int, int, int]]] = None,
        padding: Optional[Union[int, Tuple[int, int, int]]] = 0,
    ) -> None:
        super().__init__(3, kernel_size, stride, padding)
