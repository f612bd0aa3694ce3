"""Dropout: random zeros while training."""

from typing import Tuple

import hesper.core as mx

from .base import Module

__all__ = ["Dropout", "Dropout2d", "Dropout3d"]


class _Dropout(Module):
    """What the dropout layers share: the probability and the masking."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if p < 0 or p >= 1:
            raise ValueError(f"The dropout probability {p} is not in [0, 1)")
        self._p_1 = 1 - p

    def _extra_repr(self) -> str:
        return f"p={1 - self._p_1}"

    def _drop(self, x: mx.array, mask_shape: Tuple[int, ...]) -> mx.array:
        if self._p_1 == 1 or not self.training:
            return x
        mask = mx.random.bernoulli(self._p_1, mask_shape)
        return mask * x * (1 / self._p_1)


class Dropout(_Dropout):
    """Sets random entries to zero while training.

    The others are scaled by ``1 / (1 - p)``, so that the expected value stays.
    Outside of training mode the input is returned as it is.

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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Dropout(0.5).eval()(mx.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return self._drop(x, x.shape)


class Dropout2d(_Dropout):
    """Sets random channels of images to zero while training.

    Neighbouring pixels are alike, so that zeroing single entries would hide
    little; whole channels are dropped instead. The others are scaled by
    ``1 / (1 - p)``.

    Parameters
    ----------
    p : float
        The probability that a channel becomes zero. Default: ``0.5``.

    Raises
    ------
    ValueError
        If ``p`` is not in ``[0, 1)``, or the input is neither ``NHWC`` nor
        ``HWC``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Dropout2d(0.5)(mx.ones((2, 4, 4, 3))).shape
    (2, 4, 4, 3)
    """

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim not in (3, 4):
            raise ValueError(
                f"Received input with {x.ndim} dimensions. Expected 3 or 4 dimensions."
            )
        shape = list(x.shape)
        shape[-2] = shape[-3] = 1
        return self._drop(x, shape)


class Dropout3d(_Dropout):
    """Sets random channels of volumes to zero while training.

    Like :class:`Dropout2d` with one more spatial axis.

    Parameters
    ----------
    p : float
        The probability that a channel becomes zero. Default: ``0.5``.

    Raises
    ------
    ValueError
        If ``p`` is not in ``[0, 1)``, or the input is neither ``NDHWC`` nor
        ``DHWC``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Dropout3d(0.5)(mx.ones((2, 4, 4, 4, 3))).shape
    (2, 4, 4, 4, 3)
    """

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim not in (4, 5):
            raise ValueError(
                f"Received input with {x.ndim} dimensions. Expected 4 or 5 dimensions."
            )
        shape = list(x.shape)
        shape[-2] = shape[-3] = shape[-4] = 1
        return self._drop(x, shape)
