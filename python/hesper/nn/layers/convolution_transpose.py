"""Transposed convolutions over sequences, images and volumes, channels last."""

import hesper.core as mx

from .convolution import ConvolutionBase, Size

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvTranspose(ConvolutionBase):
    _settings = ("stride", "padding", "dilation", "output_padding")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0,
        dilation: Size = 1, output_padding: Size = 0, bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, bias, padding=padding, stride=stride, dilation=dilation,
            output_padding=output_padding,
        )


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of a sequence, which maps it to a larger one.

    The input has the layout ``NLC`` (channels last), the weight ``(out_channels, kernel_size, in_channels)``. The
    weight starts uniformly distributed within one over the root of the number of inputs of a filter, the bias at zero.

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
        The distance between two taps of a filter. Default: ``1``.
    output_padding : int
        The number of rows to append to the output. Default: ``0``.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> nn.ConvTranspose1d(4, 5, kernel_size=3, stride=2)(mx.zeros((1, 4, 4))).shape
    (1, 9, 5)
    """

    _rank, _function = 1, staticmethod(mx.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of an image (``NHWC``), which maps it to a larger one.

    Parameters
    ----------
    in_channels, out_channels, bias
        As for :class:`ConvTranspose1d`.
    kernel_size, stride, padding, dilation, output_padding : int or tuple
        As for :class:`ConvTranspose1d`, for both axes or one for each.

    Examples
    --------
    >>> nn.ConvTranspose2d(4, 5, kernel_size=3, stride=2)(mx.zeros((1, 4, 4, 4))).shape
    (1, 9, 9, 5)
    """

    _rank, _function = 2, staticmethod(mx.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of a volume (``NDHWC``), which maps it to a larger one.

    Parameters
    ----------
    in_channels, out_channels, bias
        As for :class:`ConvTranspose1d`.
    kernel_size, stride, padding, dilation, output_padding : int or tuple
        As for :class:`ConvTranspose1d`, for all axes or one for each.

    Examples
    --------
    >>> nn.ConvTranspose3d(4, 5, kernel_size=3, stride=2)(mx.zeros((1, 4, 4, 4, 4))).shape
    (1, 9, 9, 9, 5)
    """

    _rank, _function = 3, staticmethod(mx.conv_transpose3d)
