"""Convolutions over sequences, images and volumes, channels last."""

import math
from typing import Any, Union

import hesper.core as mx

from .base import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d"]


def per_axis(value: Any, axes: int) -> Any:
    """A setting for each spatial axis: an int is repeated, all else is kept."""
    return (value,) * axes if isinstance(value, int) else value


class Conv1d(Module):
    """Convolves a sequence with learned filters.

    The input has the layout ``NLC`` (channels last), the weight
    ``(out_channels, kernel_size, in_channels / groups)``. The weight starts
    uniformly distributed in proportion to the inverse square root of the
    filter's size, the bias at zero.

    Parameters
    ----------
    in_channels : int
        The number of input channels.
    out_channels : int
        The number of output channels.
    kernel_size : int
        The size of the filters.
    stride : int
        The distance between two places of the filter. Default: ``1``.
    padding : int
        By how many zeros the input is extended at each end. Default: ``0``.
    dilation : int
        The distance between two taps of the filter. Default: ``1``.
    groups : int
        Into how many groups, convolved separately, the channels are divided.
        Default: ``1``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Raises
    ------
    ValueError
        If ``groups`` does not divide ``in_channels``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Conv1d(4, 5, kernel_size=3)(mx.zeros((1, 8, 4))).shape
    (1, 6, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups != 0:
            raise ValueError(
                f"The number of input channels ({in_channels}) must be divisible by "
                f"the number of groups ({groups})"
            )
        scale = math.sqrt(groups / (in_channels * kernel_size))
        self.weight = mx.random.uniform(
            low=-scale,
            high=scale,
            shape=(out_channels, kernel_size, in_channels // groups),
        )
        if bias:
            self.bias = mx.zeros((out_channels,))
        self.padding = padding
        self.dilation = dilation
        self.stride = stride
        self.groups = groups

    def _extra_repr(self) -> str:
        return (
            f"{self.weight.shape[-1] * self.groups}, {self.weight.shape[0]}, "
            f"kernel_size={self.weight.shape[1]}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, "
            f"groups={self.groups}, bias={'bias' in self}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.conv1d(
            x, self.weight, self.stride, self.padding, self.dilation, self.groups
        )
        return y + self.bias if "bias" in self else y


class Conv2d(Module):
    """Convolves an image with learned filters.

    The input has the layout ``NHWC`` (channels last), the weight
    ``(out_channels, *kernel_size, in_channels / groups)``. The weight starts
    uniformly distributed in proportion to the inverse square root of the
    filter's size, the bias at zero.

    Parameters
    ----------
    in_channels : int
        The number of input channels.
    out_channels : int
        The number of output channels.
    kernel_size : int or tuple
        The size of the filters.
    stride : int or tuple
        The distance between two places of the filter. Default: ``1``.
    padding : int or tuple
        By how many zeros the input is extended at each end. Default: ``0``.
    dilation : int or tuple
        The distance between two taps of the filter. Default: ``1``.
    groups : int
        Into how many groups, convolved separately, the channels are divided.
        Default: ``1``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Raises
    ------
    ValueError
        If ``groups`` does not divide ``in_channels``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Conv2d(4, 5, kernel_size=3)(mx.zeros((1, 8, 8, 4))).shape
    (1, 6, 6, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Union[int, tuple],
        stride: Union[int, tuple] = 1,
        padding: Union[int, tuple] = 0,
        dilation: Union[int, tuple] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups != 0:
            raise ValueError(
                f"The number of input channels ({in_channels}) must be divisible by "
                f"the number of groups ({groups})"
            )
        kernel_size, stride, padding = (
            per_axis(x, 2) for x in (kernel_size, stride, padding)
        )
        scale = math.sqrt(groups / (in_channels * math.prod(kernel_size)))
        self.weight = mx.random.uniform(
            low=-scale,
            high=scale,
            shape=(out_channels, *kernel_size, in_channels // groups),
        )
        if bias:
            self.bias = mx.zeros((out_channels,))
        self.padding = padding
        self.stride = stride
        self.dilation = dilation
        self.groups = groups

    def _extra_repr(self) -> str:
        return (
            f"{self.weight.shape[-1] * self.groups}, {self.weight.shape[0]}, "
            f"kernel_size={self.weight.shape[1:-1]}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, "
            f"groups={self.groups}, bias={'bias' in self}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.conv2d(
            x, self.weight, self.stride, self.padding, self.dilation, self.groups
        )
        return y + self.bias if "bias" in self else y


class Conv3d(Module):
    """Convolves a volume with learned filters.

    The input has the layout ``NDHWC`` (channels last), the weight
    ``(out_channels, *kernel_size, in_channels)``. The weight starts
    uniformly distributed in proportion to the inverse square root of the
    filter's size, the bias at zero.

    Parameters
    ----------
    in_channels : int
        The number of input channels.
    out_channels : int
        The number of output channels.
    kernel_size : int or tuple
        The size of the filters.
    stride : int or tuple
        The distance between two places of the filter. Default: ``1``.
    padding : int or tuple
        By how many zeros the input is extended at each end. Default: ``0``.
    dilation : int or tuple
        The distance between two taps of the filter. Default: ``1``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Conv3d(4, 5, kernel_size=3)(mx.zeros((1, 8, 8, 8, 4))).shape
    (1, 6, 6, 6, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Union[int, tuple],
        stride: Union[int, tuple] = 1,
        padding: Union[int, tuple] = 0,
        dilation: Union[int, tuple] = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kernel_size, stride, padding = (
            per_axis(x, 3) for x in (kernel_size, stride, padding)
        )
        scale = math.sqrt(1 / (in_channels * math.prod(kernel_size)))
        self.weight = mx.random.uniform(
            low=-scale,
            high=scale,
            shape=(out_channels, *kernel_size, in_channels),
        )
        if bias:
            self.bias = mx.zeros((out_channels,))
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def _extra_repr(self) -> str:
        return (
            f"{self.weight.shape[-1]}, {self.weight.shape[0]}, "
            f"kernel_size={self.weight.shape[1:-1]}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, "
            f"bias={'bias' in self}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.conv3d(
            x, self.weight, self.stride, self.padding, self.dilation
        )
        return y + self.bias if "bias" in self else y
