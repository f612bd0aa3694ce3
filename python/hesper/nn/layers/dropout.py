"""Dropout: random zeros in training mode."""

from typing import ClassVar

import hesper.core as mx

from ._parameters import describe
from .base import Module

__all__ = ["Dropout", "Dropout2d", "Dropout3d"]


class _Dropout(Module):
    # Axes before the channels that are dropped as one.
    _spatial_axes: ClassVar[int] = 0

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"cannot drop entries with probability {p}; it must be in [0, 1)")
        self._keep = 1 - p

    def _extra_repr(self) -> str:
        return describe(p=1 - self._keep)

    def __call__(self, x: mx.array) -> mx.array:
        spatial, shape = self._spatial_axes, list(x.shape)
        if spatial and x.ndim - spatial not in (1, 2):
            raise ValueError(
                f"cannot drop channels of shape {x.shape}; {type(self).__name__} takes {spatial} spatial axes and "
                "channels, optionally after a batch axis"
            )
        if self._keep == 1 or not self.training:
            return x
        shape[-1 - spatial : -1] = [1] * spatial
        return mx.random.bernoulli(self._keep, shape) * x * (1 / self._keep)


class Dropout(_Dropout):
    """Sets random entries to zero in training mode.

    The others are multiplied by ``1 / (1 - p)``, which keeps the expected value. Outside of training mode the input is
    returned as it is.

    Parameters
    ----------
    p : float
        The probability that an entry becomes zero. Default: ``0.5``.

    Raises
    ------
    ValueError
        If ``p`` is not in ``[0, 1)``.

    Examples
    --------
    >>> nn.Dropout(0.5).eval()(mx.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """


class Dropout2d(_Dropout):
    """Sets random channels of images (``NHWC`` or ``HWC``) to zero in training mode.

    Neighboring pixels are correlated, so that dropping single entries would hide little. The other channels are
    multiplied by ``1 / (1 - p)``.

    Parameters
    ----------
    p : float
        The probability that a channel becomes zero. Default: ``0.5``.

    Raises
    ------
    ValueError
        If ``p`` is not in ``[0, 1)``, or the input has neither 3 nor 4 axes.

    Examples
    --------
    >>> nn.Dropout2d(0.5)(mx.ones((2, 4, 4, 3))).shape
    (2, 4, 4, 3)
    """

    _spatial_axes = 2


class Dropout3d(_Dropout):
    """Sets random channels of volumes (``NDHWC`` or ``DHWC``) to zero in training mode, as :class:`Dropout2d` does.

    Parameters
    ----------
    p : float
        The probability that a channel becomes zero. Default: ``0.5``.

    Raises
    ------
    ValueError
        If ``p`` is not in ``[0, 1)``, or the input has neither 4 nor 5 axes.

    Examples
    --------
    >>> nn.Dropout3d(0.5)(mx.ones((2, 4, 4, 4, 3))).shape
    (2, 4, 4, 4, 3)
    """

    _spatial_axes = 3
