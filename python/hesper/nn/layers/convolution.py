"""Convolutions over sequences, images and volumes, channels last."""

import math
from typing import Any, Callable, ClassVar

import hesper.core as mx

from ._parameters import describe, uniform
from .base import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d"]

# A setting for all spatial axes, or one for each.
Size = int | tuple[int, ...]


class ConvolutionBase(Module):
    """The filters and the call that all convolutions share."""

    # The number of spatial axes.
    _rank: ClassVar[int]
    _function: ClassVar[Callable]
    # Attributes that follow the weight in a call of ``_function``.
    _settings: ClassVar[tuple[str, ...]]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, bias: bool, groups: int = 1, **settings: Size
    ) -> None:
        super().__init__()
        if in_channels % groups:
            raise ValueError(f"cannot divide {in_channels} input channels into {groups} groups; use a divisor")
        kernel = self._per_axis(kernel_size) if self._rank > 1 else (kernel_size,)
        bound = math.sqrt(groups / (in_channels * math.prod(kernel)))
        self.weight = uniform(bound, out_channels, *kernel, in_channels // groups)
        if bias:
            self.bias = mx.zeros((out_channels,))
        for name, value in settings.items():
            setattr(self, name, value if name == "dilation" else self._per_axis(value))
        if "groups" in self._settings:
            self.groups = groups

    def _per_axis(self, value: Any) -> Any:
        """A setting for each of several spatial axes: an int is repeated, all else is kept."""
        return (value,) * self._rank if self._rank > 1 and isinstance(value, int) else value

    def _extra_repr(self) -> str:
        outputs, *kernel, inputs = self.weight.shape
        settings = {name: getattr(self, name) for name in self._settings}
        size = tuple(kernel) if self._rank > 1 else kernel[0]
        return describe(
            inputs * settings.get("groups", 1), outputs, kernel_size=size, **settings, bias="bias" in self
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = self._function(x, self.weight, *(getattr(self, name) for name in self._settings))
        return y + self.bias if "bias" in self else y


class _Conv(ConvolutionBase):
    _settings = ("stride", "padding", "dilation", "groups")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0,
        dilation: Size = 1, groups: int = 1, bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, bias, groups, padding=padding, stride=stride, dilation=dilation
        )


class Conv1d(_Conv):
    """Convolves a sequence with learned filters.

    The input has the layout ``NLC`` (channels last), the weight ``(out_channels, kernel_size, in_channels / groups)``.
    The weight starts uniformly distributed within one over the root of the number of inputs of a filter, the bias at
    zero.

    Parameters
    ----------
    in_channels : int
        The number of input channels.
    out_channels : int
        The number of output channels.
    kernel_size : int
        The size of the filters.
    stride : int
        The distance between two applications of a filter. Default: ``1``.
    padding : int
        The number of zeros added at each end. Default: ``0``.
    dilation : int
        The distance between two taps of a filter. Default: ``1``.
    groups : int
        The number of groups of channels that are convolved separately. Default: ``1``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Raises
    ------
    ValueError
        If ``groups`` does not divide ``in_channels``.

    Examples
    --------
    >>> nn.Conv1d(4, 5, kernel_size=3)(mx.zeros((1, 8, 4))).shape
    (1, 6, 5)
    """

    _rank, _function = 1, staticmethod(mx.conv1d)


class Conv2d(_Conv):
    """Convolves an image with learned filters.

    The input has the layout ``NHWC`` (channels last), the weight
    ``(out_channels, *kernel_size, in_channels / groups)``.

    Parameters
    ----------
    in_channels, out_channels, groups, bias
        As for :class:`Conv1d`.
    kernel_size, stride, padding, dilation : int or tuple
        As for :class:`Conv1d`, for both axes or one for each.

    Raises
    ------
    ValueError
        If ``groups`` does not divide ``in_channels``.

    Examples
    --------
    >>> nn.Conv2d(4, 5, kernel_size=3)(mx.zeros((1, 8, 8, 4))).shape
    (1, 6, 6, 5)
    """

    _rank, _function = 2, staticmethod(mx.conv2d)


class Conv3d(ConvolutionBase):
    """Convolves a volume with learned filters.

    The input has the layout ``NDHWC`` (channels last), the weight ``(out_channels, *kernel_size, in_channels)``.

    Parameters
    ----------
    in_channels, out_channels, bias
        As for :class:`Conv1d`.
    kernel_size, stride, padding, dilation : int or tuple
        As for :class:`Conv1d`, for all axes or one for each.

    Examples
    --------
    >>> nn.Conv3d(4, 5, kernel_size=3)(mx.zeros((1, 8, 8, 8, 4))).shape
    (1, 6, 6, 6, 5)
    """

    _rank, _function = 3, staticmethod(mx.conv3d)
    _settings = ("stride", "padding", "dilation")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0,
        dilation: Size = 1, bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, bias, padding=padding, stride=stride, dilation=dilation
        )
