"""Encodings of the position in a sequence."""

import math
from typing import Optional, Union

import hesper.core as mx

from .base import Module

__all__ = ["ALiBi", "RoPE", "SinusoidalPositionalEncoding"]


class RoPE(Module):
    """Rotary positional encoding (Su et al., 2021, arXiv:2104.09864).

    Rotates pairs of features by an angle in proportion to the position.

    Parameters
    ----------
    dims : int
        How many features to rotate; what lies beyond stays as it is.
    traditional : bool
        Whether neighbouring features form a pair. Otherwise the first half of
        the features is paired with the second. Default: ``False``.
    base : float
        The base of the frequencies. Default: ``10000``.
    scale : float
        A factor for the positions. Default: ``1.0``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.RoPE(8)(mx.ones((1, 2, 5, 8)), offset=3).shape
    (1, 2, 5, 8)
    """

    def __init__(
        self,
        dims: int,
        traditional: bool = False,
        base: float = 10000,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.dims = dims
        self.traditional = traditional
        self.base = base
        self.scale = scale

    def _extra_repr(self) -> str:
        return f"{self.dims}, traditional={self.traditional}"

    def __call__(self, x: mx.array, offset: Union[int, mx.array] = 0) -> mx.array:
        """Rotate an input of shape ``(..., length, features)``.

        Parameters
        ----------
        x : array
            The input, with three axes at least.
        offset : int or array
            The position of its first step. Default: ``0``.

        Returns
        -------
        array
            The rotated input.
        """
        return mx.fast.rope(
            x,
            self.dims,
            traditional=self.traditional,
            base=self.base,
            scale=self.scale,
            offset=offset,
        )


class SinusoidalPositionalEncoding(Module):
    """Sines and cosines of the position (Vaswani et al., 2017, arXiv:1706.03762).

    Parameters
    ----------
    dims : int
        The number of features, half of them sines and half of them cosines.
    min_freq : float
        The smallest frequency. Default: ``0.0001``.
    max_freq : float
        The largest frequency. Default: ``1``.
    scale : float, optional
        A factor for the features. Default: ``sqrt(2 / dims)``.
    cos_first : bool
        Whether the cosines come first. Default: ``False``.
    full_turns : bool
        Whether a frequency counts full turns, that is, is multiplied by two
        pi. Default: ``False``.

    Raises
    ------
    ValueError
        If ``dims`` is not positive and even.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.SinusoidalPositionalEncoding(8)(mx.arange(5)).shape
    (5, 8)
    """

    def __init__(
        self,
        dims: int,
        min_freq: float = 0.0001,
        max_freq: float = 1,
        scale: Optional[float] = None,
        cos_first: bool = False,
        full_turns: bool = False,
    ) -> None:
        super().__init__()
        if dims <= 0 or dims % 2 != 0:
            raise ValueError(
                "[SinusoidalPositionalEncoding] dims must be positive and even but "
                f"got {dims}."
            )
        # Frequencies are spaced evenly in log space, the largest first.
        count = dims // 2
        one_to_zero = 1 - mx.arange(count) / (count - 1) if count > 1 else mx.ones(1)
        low, high = math.log(min_freq), math.log(max_freq)
        self._sigmas = mx.exp(one_to_zero * (high - low) + low)
        if full_turns:
            self._sigmas = self._sigmas * (2 * math.pi)
        self.scale = (2 / dims) ** 0.5 if scale is None else scale
        self.cos_first = cos_first

    def __call__(self, x: mx.array) -> mx.array:
        """Encode positions.

        Parameters
        ----------
        x : array
            The positions.

        Returns
        -------
        array
            Their encodings, along a new last axis.
        """
        angles = x[..., None] * self._sigmas
        parts = [mx.sin(angles), mx.cos(angles)]
        if self.cos_first:
            parts.reverse()
        y = mx.concatenate(parts, axis=-1)
        return y if self.scale == 1 else y * self.scale


class ALiBi(Module):
    """Attention with linear biases (Press et al., 2021, arXiv:2108.12409).

    Adds to attention scores a bias in proportion to the distance between
    query and key, with another slope for each head.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ALiBi()(mx.zeros((1, 8, 3, 3)))[0, 0, 0].tolist()
    [0.0, -0.5, -1.0]
    """

    @staticmethod
    def create_alibi_matrix(
        q_sequence_length: int,
        k_sequence_length: int,
        num_heads: int,
        offset: int = 0,
        dtype: mx.Dtype = mx.float32,
    ) -> mx.array:
        """The biases.

        Parameters
        ----------
        q_sequence_length : int
            The end of the positions of the queries.
        k_sequence_length : int
            The number of keys.
        num_heads : int
            The number of heads.
        offset : int
            The position of the first query. Default: ``0``.
        dtype : Dtype
            The type of the result. Default: ``float32``.

        Returns
        -------
        array
            Of shape ``(1, num_heads, queries, keys)``.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.ALiBi.create_alibi_matrix(2, 3, num_heads=4).shape
        (1, 4, 2, 3)
        """
        queries = mx.arange(offset, q_sequence_length)
        keys = mx.arange(0, k_sequence_length)
        distances = mx.expand_dims(queries[:, None] - keys[None, :], axis=(0, 1))
        slopes = ALiBi.create_alibi_slope(num_heads, dtype)
        return (-mx.abs(distances)).astype(dtype) * slopes

    @staticmethod
    def create_alibi_slope(num_heads: int, dtype: mx.Dtype = mx.float32) -> mx.array:
        """The slope of each head.

        For a power of two they are geometric, from ``2**(-8 / num_heads)`` down
        to ``2**-8``; other numbers of heads take every second slope of the
        next power of two in addition.

        Parameters
        ----------
        num_heads : int
            The number of heads.
        dtype : Dtype
            The type of the result. Default: ``float32``.

        Returns
        -------
        array
            Of shape ``(num_heads, 1, 1)``.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.ALiBi.create_alibi_slope(2).squeeze().tolist()
        [0.0625, 0.00390625]
        """

        def geometric(count: int) -> list:
            return [2.0 ** (-8.0 * (i + 1) / count) for i in range(count)]

        power = 2 ** int(math.log2(num_heads))
        slopes = geometric(power)
        if power < num_heads:
            slopes += geometric(2 * power)[0::2][: num_heads - power]
        return mx.expand_dims(mx.array(slopes, dtype=dtype), axis=(-1, -2))

    def __call__(
        self,
        attention_scores: mx.array,
        offset: int = 0,
        mask: Optional[mx.array] = None,
    ) -> mx.array:
        """Add the biases to attention scores.

        Parameters
        ----------
        attention_scores : array
            Of shape ``(batch, heads, queries, keys)``.
        offset : int
            The position of the first query. Default: ``0``.
        mask : array, optional
            Added too.

        Returns
        -------
        array
            The biased scores.
        """
        bias = ALiBi.create_alibi_matrix(
            q_sequence_length=attention_scores.shape[-2] + offset,
            k_sequence_length=attention_scores.shape[-1],
            num_heads=attention_scores.shape[1],
            offset=offset,
            dtype=attention_scores.dtype,
        )
        if mask is not None:
            bias = bias + mask
        return attention_scores + bias
