"""Encodings of the position in a sequence."""

import math

import hesper.core as mx

from ._parameters import describe
from .base import Module

__all__ = ["ALiBi", "RoPE", "SinusoidalPositionalEncoding"]


class RoPE(Module):
    """Rotary positional encoding (Su et al., 2021, arXiv:2104.09864).

    Rotates pairs of features by angles in proportion to the position.

    Parameters
    ----------
    dims : int
        The number of features to rotate; the rest is returned as it is.
    traditional : bool
        Whether adjacent features form a pair. Otherwise the first half of the features is paired with the second.
        Default: ``False``.
    base : float
        The base of the frequencies. Default: ``10000``.
    scale : float
        A factor for the positions. Default: ``1.0``.

    Examples
    --------
    >>> nn.RoPE(8)(mx.ones((1, 2, 5, 8)), offset=3).shape
    (1, 2, 5, 8)
    """

    def __init__(self, dims: int, traditional: bool = False, base: float = 10000, scale: float = 1.0) -> None:
        super().__init__()
        self.dims, self.traditional, self.base, self.scale = dims, traditional, base, scale

    def _extra_repr(self) -> str:
        return describe(self.dims, traditional=self.traditional)

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate an input of shape ``(..., length, features)``.

        Parameters
        ----------
        x : array
            The input, with at least three axes.
        offset : int or array
            The position of its first step. Default: ``0``.
        """
        return mx.fast.rope(x, self.dims, traditional=self.traditional, base=self.base, scale=self.scale, offset=offset)


class SinusoidalPositionalEncoding(Module):
    """Sines and cosines of the position (Vaswani et al., 2017, arXiv:1706.03762).

    Parameters
    ----------
    dims : int
        The number of features: half of them sines, half of them cosines.
    min_freq : float
        The smallest frequency. Default: ``0.0001``.
    max_freq : float
        The largest frequency. Default: ``1``.
    scale : float, optional
        A factor for the features. Default: ``sqrt(2 / dims)``.
    cos_first : bool
        Whether the cosines come first. Default: ``False``.
    full_turns : bool
        Whether frequencies are in turns, that is, are multiplied by two pi. Default: ``False``.

    Raises
    ------
    ValueError
        If ``dims`` is not positive and even.

    Examples
    --------
    >>> nn.SinusoidalPositionalEncoding(8)(mx.arange(5)).shape
    (5, 8)
    """

    def __init__(
        self, dims: int, min_freq: float = 0.0001, max_freq: float = 1, scale: float | None = None,
        cos_first: bool = False, full_turns: bool = False,
    ) -> None:
        super().__init__()
        if dims < 1 or dims % 2:
            raise ValueError(f"cannot encode positions in {dims} features; dims must be positive and even")
        # Frequencies are spaced evenly in log space, the largest first.
        count = dims // 2
        one_to_zero = 1 - mx.arange(count) / (count - 1) if count > 1 else mx.ones(1)
        low, high = math.log(min_freq), math.log(max_freq)
        frequencies = mx.exp(one_to_zero * (high - low) + low)
        self._sigmas = frequencies * (2 * math.pi) if full_turns else frequencies
        self.scale, self.cos_first = (2 / dims) ** 0.5 if scale is None else scale, cos_first

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
        functions = (mx.cos, mx.sin) if self.cos_first else (mx.sin, mx.cos)
        encoding = mx.concatenate([f(angles) for f in functions], axis=-1)
        return encoding if self.scale == 1 else encoding * self.scale


class ALiBi(Module):
    """Attention with linear biases (Press et al., 2021, arXiv:2108.12409).

    Adds to attention scores a bias in proportion to the distance between query and key, with another slope for each
    head.

    Examples
    --------
    >>> nn.ALiBi()(mx.zeros((1, 8, 3, 3)))[0, 0, 0].tolist()
    [0.0, -0.5, -1.0]
    """

    @staticmethod
    def create_alibi_matrix(
        q_sequence_length: int, k_sequence_length: int, num_heads: int, offset: int = 0,
        dtype: mx.Dtype = mx.float32,
    ) -> mx.array:
        """The biases.

        Parameters
        ----------
        q_sequence_length : int
            The position after the last query.
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
        >>> nn.ALiBi.create_alibi_matrix(2, 3, num_heads=4).shape
        (1, 4, 2, 3)
        """
        queries, keys = mx.arange(offset, q_sequence_length), mx.arange(k_sequence_length)
        distances = mx.abs((queries[:, None] - keys[None])[None, None])
        return (-distances).astype(dtype) * ALiBi.create_alibi_slope(num_heads, dtype)

    @staticmethod
    def create_alibi_slope(num_heads: int, dtype: mx.Dtype = mx.float32) -> mx.array:
        """The slope of each head.

        For a power of two they are geometric, from ``2**(-8 / num_heads)`` down to ``2**-8``; for other numbers of
        heads, those of the power of two below come first, then every second one of the power of two above.

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
        >>> nn.ALiBi.create_alibi_slope(2).squeeze().tolist()
        [0.0625, 0.00390625]
        """

        def geometric(count: int) -> list[float]:
            return [2.0 ** (-8.0 * (i + 1) / count) for i in range(count)]

        power = 2 ** int(math.log2(num_heads))
        slopes = (geometric(power) + geometric(2 * power)[::2])[:num_heads]
        return mx.array(slopes, dtype=dtype)[:, None, None]

    def __call__(self, attention_scores: mx.array, offset: int = 0, mask: mx.array | None = None) -> mx.array:
        """Add the biases to attention scores.

        Parameters
        ----------
        attention_scores : array
            Of shape ``(batch, heads, queries, keys)``.
        offset : int
            The position of the first query. Default: ``0``.
        mask : array, optional
            Also added.
        """
        heads, queries, keys = attention_scores.shape[1], *attention_scores.shape[-2:]
        bias = self.create_alibi_matrix(queries + offset, keys, heads, offset, attention_scores.dtype)
        return attention_scores + (bias if mask is None else bias + mask)
