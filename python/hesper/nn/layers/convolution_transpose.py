"""Transposed convolutions over sequences, images and volumes, channels last."""

import math
from typing import Union

import hesper.core as mx

from .base import Module
from .convolution import per_axis

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class ConvTranspose1d(Module):
    """Transposed convolution, which maps sequences to larger ones.

    The input has the layout ``NLC`` (channels last). The weight starts
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
        The stride of the convolution that this one transposes. Default: ``1``.
    padding : int
        The padding of that convolution. Default: ``0``.
    dilation : int
        The distance between two taps of the filter. Default: ``1``.
    output_padding : int
        By how much the output is extended at its end. Default: ``0``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ConvTranspose1d(4, 5, kernel_size=3, stride=2)(mx.zeros((1, 4, 4))).shape
    (1, 9, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        output_padding: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        scale = math.sqrt(1 / (in_channels * kernel_size))
        self.weight = mx.random.uniform(
            low=-scale, high=scale, shape=(out_channels, kernel_size, in_channels)
        )
        if bias:
            self.bias = mx.zeros((out_channels,))
        self.padding = padding
        self.stride = stride
        self.dilation = dilation
        self.output_padding = output_padding

    def _extra_repr(self) -> str:
        return (
            f"{self.weight.shape[-1]}, {self.weight.shape[0]}, "
            f"kernel_size={self.weight.shape[1]}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, "
            f"output_padding={self.output_padding}, bias={'bias' in self}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.conv_transpose1d(
            x,
            self.weight,
            self.stride,
            self.padding,
            self.dilation,
            self.output_padding,
        )
        return y + self.bias if "bias" in self else y


class ConvTranspose2d(Module):
    """Transposed convolution, which maps images to larger ones.

    The input has the layout ``NHWC`` (channels last). The weight starts
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
        The stride of the convolution that this one transposes. Default: ``1``.
    padding : int or tuple
        The padding of that convolution. Default: ``0``.
    dilation : int or tuple
        The distance between two taps of the filter. Default: ``1``.
    output_padding : int or tuple
        By how much the output is extended at its end. Default: ``0``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ConvTranspose2d(4, 5, kernel_size=3, stride=2)(mx.zeros((1, 4, 4, 4))).shape
    (1, 9, 9, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Union[int, tuple],
        stride: Union[int, tuple] = 1,
        padding: Union[int, tuple] = 0,
        dilation: Union[int, tuple] = 1,
        output_padding: Union[int, tuple] = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kernel_size, stride, padding, output_padding = (
            per_axis(x, 2) for x in (kernel_size, stride, padding, output_padding)
        )
        scale = math.sqrt(1 / (in_channels * math.prod(kernel_size)))
        self.weight = mx.random.uniform(
            low=-scale, high=scale, shape=(out_channels, *kernel_size, in_channels)
        )
        if bias:
            self.bias = mx.zeros((out_channels,))
        self.padding = padding
        self.stride = stride
        self.dilation = dilation
        self.output_padding = output_padding

    def _extra_repr(self) -> str:
        return (
            f"{self.weight.shape[-1]}, {self.weight.shape[0]}, "
            f"kernel_size={self.weight.shape[1:-1]}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, "
            f"output_padding={self.output_padding}, bias={'bias' in self}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.conv_transpose2d(
            x,
            self.weight,
            self.stride,
            self.padding,
            self.dilation,
            self.output_padding,
        )
        return y + self.bias if "bias" in self else y


class ConvTranspose3d(Module):
    """Transposed convolution, which maps volumes to larger ones.

    The input has the layout ``NDHWC`` (channels last). The weight starts
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
        The stride of the convolution that this one transposes. Default: ``1``.
    padding : int or tuple
        The padding of that convolution. Default: ``0``.
    dilation : int or tuple
        The distance between two taps of the filter. Default: ``1``.
    output_padding : int or tuple
        By how much the output is extended at its end. Default: ``0``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ConvTranspose3d(4, 5, kernel_size=3, stride=2)(mx.zeros((1, 4, 4, 4, 4))).shape
    (1, 9, 9, 9, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Union[int, tuple],
        stride: Union[int, tuple] = 1,
        padding: Union[int, tuple] = 0,
        dilation: Union[int, tuple] = 1,
        output_padding: Union[int, tuple] = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kernel_size, stride, padding, output_padding = (
            per_axis(x, 3) for x in (kernel_size, stride, padding, output_padding)
        )
        scale = math.sqrt(1 / (in_channels * math.prod(kernel_size)))
        self.weight = mx.random.uniform(
            low=-scale, high=scale, shape=(out_channels, *kernel_size, in_channels)
        )
        if bias:
            self.bias = mx.zeros((out_channels,))
        self.padding = padding
        self.stride = stride
        self.dilation = dilation
        self.output_padding = output_padding

    def _extra_repr(self) -> str:
        return (
            f"{self.weight.shape[-1]}, {self.weight.shape[0]}, "
            f"kernel_size={self.weight.shape[1:-1]}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, "
            f"output_padding={self.output_padding}, bias={'bias' in self}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.conv_transpose3d(
            x,
            self.weight,
            self.stride,
            self.padding,
            self.dilation,
            self.output_padding,
        )
        return y + self.bias if "bias" in self else y
