"""Attention and transformer blocks."""

import math
from typing import Any, Callable, ClassVar

import hesper.core as mx

from ..utils import checkpoint as checkpointed
from .base import Module
from .dropout import Dropout
from .functional import relu
from .linear import Linear
from .normalization import LayerNorm

__all__ = [
    "MultiHeadAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = Callable[[Any], Any]


class MultiHeadAttention(Module):
    """Scaled dot product attention with several heads.

    Parameters
    ----------
    dims : int
        The size of the projected queries and keys, and the default of all others.
    num_heads : int
        The number of heads.
    query_input_dims : int, optional
        The features of the queries. Default: ``dims``.
    key_input_dims : int, optional
        The features of the keys. Default: ``dims``.
    value_input_dims : int, optional
        The features of the values. Default: ``key_input_dims``.
    value_dims : int, optional
        The size of the projected values. Default: ``dims``.
    value_output_dims : int, optional
        The features of the output. Default: ``dims``.
    bias : bool
        Whether the projections have biases. Default: ``False``.

    Raises
    ------
    ValueError
        If ``num_heads`` does not divide ``dims``.

    Examples
    --------
    >>> x = mx.zeros((1, 5, 16))
    >>> mask = nn.MultiHeadAttention.create_additive_causal_mask(5)
    >>> nn.MultiHeadAttention(16, num_heads=4)(x, x, x, mask).shape
    (1, 5, 16)
    """

    def __init__(
        self, dims: int, num_heads: int, query_input_dims: int | None = None, key_input_dims: int | None = None,
        value_input_dims: int | None = None, value_dims: int | None = None, value_output_dims: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if dims % num_heads:
            raise ValueError(f"cannot divide {dims} features among {num_heads} heads; use a divisor of {dims}")
        self.num_heads = num_heads
        self.query_proj = Linear(query_input_dims or dims, dims, bias)
        self.key_proj = Linear(key_input_dims or dims, dims, bias)
        self.value_proj = Linear(value_input_dims or key_input_dims or dims, value_dims or dims, bias)
        self.out_proj = Linear(value_dims or dims, value_output_dims or dims, bias)

    def __call__(
        self, queries: mx.array, keys: mx.array, values: mx.array, mask: mx.array | None = None
    ) -> mx.array:
        """Attend.

        Parameters
        ----------
        queries, keys, values : array
            Of shape ``(batch, length, features)``.
        mask : array, optional
            Added to the scores, or, if boolean, true where to attend. Its shape broadcasts with
            ``(batch, heads, queries, keys)``.

        Returns
        -------
        array
            Of shape ``(batch, queries, value_output_dims)``.
        """
        projected = (self.query_proj(queries), self.key_proj(keys), self.value_proj(values))
        q, k, v = (mx.unflatten(x, -1, (self.num_heads, -1)).transpose(0, 2, 1, 3) for x in projected)
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=math.sqrt(1 / q.shape[-1]), mask=mask)
        return self.out_proj(y.transpose(0, 2, 1, 3).flatten(-2, -1))

    @staticmethod
    def create_additive_causal_mask(N: int, dtype: mx.Dtype = mx.float32) -> mx.array:
        """A mask that keeps queries from attending to later keys.

        Parameters
        ----------
        N : int
            The length of the sequence.
        dtype : Dtype
            The type of the mask. Default: ``float32``.

        Returns
        -------
        array
            Of shape ``(N, N)``: zero on and below the diagonal, the lowest finite number above it.

        Examples
        --------
        >>> (nn.MultiHeadAttention.create_additive_causal_mask(2) == 0).tolist()
        [[True, False], [True, True]]
        """
        positions = mx.arange(N)
        later = positions[:, None] < positions[None]
        # Minus infinity would make a fully masked row NaN.
        return later.astype(dtype) * mx.finfo(dtype).min


class _TransformerLayer(Module):
    """Blocks with residual connections, of which the last is a network of two linear layers."""

    def _set_up(
        self, blocks: int, dims: int, mlp_dims: int | None, dropout: float, activation: Activation, norm_first: bool
    ) -> None:
        hidden = mlp_dims or 4 * dims
        numbers = range(1, blocks + 1)
        for i in numbers:
            self[f"ln{i}"] = LayerNorm(dims)
        self.linear1, self.linear2 = Linear(dims, hidden), Linear(hidden, dims)
        for i in numbers:
            self[f"dropout{i}"] = Dropout(dropout)
        self.activation, self.norm_first = activation, norm_first

    def _residual(self, x: mx.array, norm: LayerNorm, block: Callable[[mx.array], mx.array]) -> mx.array:
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _mlp(self, dropout: Dropout) -> Callable[[mx.array], mx.array]:
        return lambda x: self.linear2(dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a network of two linear layers, each with a residual connection.

    Parameters
    ----------
    dims : int
        The number of features.
    num_heads : int
        The number of heads.
    mlp_dims : int, optional
        The hidden size of the network. Default: ``4 * dims``.
    dropout : float
        The dropout probability. Default: ``0.0``.
    activation : callable
        The activation of the network. Default: :func:`relu`.
    norm_first : bool
        Whether to normalize before each block instead of after it. Default: ``True``.

    Examples
    --------
    >>> nn.TransformerEncoderLayer(16, 4)(mx.zeros((1, 5, 16)), None).shape
    (1, 5, 16)
    """

    def __init__(
        self, dims: int, num_heads: int, mlp_dims: int | None = None, dropout: float = 0.0,
        activation: Activation = relu, norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(dims, num_heads)
        self._set_up(2, dims, mlp_dims, dropout, activation, norm_first)

    def __call__(self, x: mx.array, mask: mx.array | None) -> mx.array:
        """Apply the layer.

        Parameters
        ----------
        x : array
            Of shape ``(batch, length, dims)``.
        mask : array or None
            The mask of the attention.
        """
        x = self._residual(x, self.ln1, lambda y: self.dropout1(self.attention(y, y, y, mask)))
        return self._residual(x, self.ln2, self._mlp(self.dropout2))


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to a memory and a network of two linear layers.

    Parameters
    ----------
    dims, num_heads, mlp_dims, dropout, activation, norm_first
        As for :class:`TransformerEncoderLayer`.

    Examples
    --------
    >>> x, memory = mx.zeros((1, 5, 16)), mx.zeros((1, 7, 16))
    >>> nn.TransformerDecoderLayer(16, 4)(x, memory, None, None).shape
    (1, 5, 16)
    """

    def __init__(
        self, dims: int, num_heads: int, mlp_dims: int | None = None, dropout: float = 0.0,
        activation: Activation = relu, norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = (MultiHeadAttention(dims, num_heads) for _ in range(2))
        self._set_up(3, dims, mlp_dims, dropout, activation, norm_first)

    def __call__(
        self, x: mx.array, memory: mx.array, x_mask: mx.array | None, memory_mask: mx.array | None
    ) -> mx.array:
        """Apply the layer.

        Parameters
        ----------
        x : array
            Of shape ``(batch, length, dims)``.
        memory : array
            The encoded source, of shape ``(batch, memory length, dims)``.
        x_mask : array or None
            The mask of the self-attention.
        memory_mask : array or None
            The mask of the attention to the memory.
        """
        x = self._residual(x, self.ln1, lambda y: self.dropout1(self.self_attention(y, y, y, x_mask)))
        attend = lambda y: self.dropout2(self.cross_attention(y, memory, memory, memory_mask))  # noqa: E731
        x = self._residual(x, self.ln2, attend)
        return self._residual(x, self.ln3, self._mlp(self.dropout3))


class _TransformerStack(Module):
    """Layers of one kind and a last normalization."""

    _layer: ClassVar[type[Module]]

    def __init__(
        self, num_layers: int, dims: int, num_heads: int, mlp_dims: int | None = None, dropout: float = 0.0,
        activation: Activation = relu, norm_first: bool = True, checkpoint: bool = False,
    ) -> None:
        super().__init__()
        settings = (dims, num_heads, mlp_dims, dropout, activation, norm_first)
        self.layers = [self._layer(*settings) for _ in range(num_layers)]
        self.ln, self.checkpoint = LayerNorm(dims), checkpoint

    def _run(self, x: mx.array, *inputs: mx.array | None) -> mx.array:
        for layer in map(checkpointed, self.layers) if self.checkpoint else self.layers:
            x = layer(x, *inputs)
        return self.ln(x)


class TransformerEncoder(_TransformerStack):
    """A stack of :class:`TransformerEncoderLayer`, with a last normalization.

    Parameters
    ----------
    num_layers : int
        The number of layers.
    dims, num_heads, mlp_dims, dropout, activation, norm_first
        As for :class:`TransformerEncoderLayer`.
    checkpoint : bool
        Whether the gradient computes intermediate results of the layers again instead of keeping them. Default:
        ``False``.

    Examples
    --------
    >>> nn.TransformerEncoder(2, 16, 4)(mx.zeros((1, 5, 16)), None).shape
    (1, 5, 16)
    """

    _layer = TransformerEncoderLayer

    def __call__(self, x: mx.array, mask: mx.array | None) -> mx.array:
        """Apply all layers, see :meth:`TransformerEncoderLayer.__call__`."""
        return self._run(x, mask)


class TransformerDecoder(_TransformerStack):
    """A stack of :class:`TransformerDecoderLayer`, with a last normalization.

    Parameters
    ----------
    num_layers, dims, num_heads, mlp_dims, dropout, activation, norm_first, checkpoint
        As for :class:`TransformerEncoder`.

    Examples
    --------
    >>> x, memory = mx.zeros((1, 5, 16)), mx.zeros((1, 7, 16))
    >>> nn.TransformerDecoder(2, 16, 4)(x, memory, None, None).shape
    (1, 5, 16)
    """

    _layer = TransformerDecoderLayer

    def __call__(
        self, x: mx.array, memory: mx.array, x_mask: mx.array | None, memory_mask: mx.array | None
    ) -> mx.array:
        """Apply all layers, see :meth:`TransformerDecoderLayer.__call__`."""
        return self._run(x, memory, x_mask, memory_mask)


class Transformer(Module):
    """An encoder and a decoder (Vaswani et al., 2017, arXiv:1706.03762).

    Parameters
    ----------
    dims : int
        The number of features. Default: ``512``.
    num_heads : int
        The number of heads. Default: ``8``.
    num_encoder_layers : int
        The number of layers of the encoder. Default: ``6``.
    num_decoder_layers : int
        The number of layers of the decoder. Default: ``6``.
    mlp_dims, dropout, activation, norm_first, checkpoint
        As for :class:`TransformerEncoder`.
    custom_encoder : Module, optional
        Replaces the :class:`TransformerEncoder`.
    custom_decoder : Module, optional
        Replaces the :class:`TransformerDecoder`.

    Examples
    --------
    >>> model = nn.Transformer(16, 4, num_encoder_layers=1, num_decoder_layers=1)
    >>> model(mx.zeros((1, 7, 16)), mx.zeros((1, 5, 16)), None, None, None).shape
    (1, 5, 16)
    """

    def __init__(
        self, dims: int = 512, num_heads: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        mlp_dims: int | None = None, dropout: float = 0.0, activation: Activation = relu,
        custom_encoder: Any | None = None, custom_decoder: Any | None = None, norm_first: bool = True,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        settings = (dims, num_heads, mlp_dims, dropout, activation, norm_first, checkpoint)
        # A module without items is false, hence the comparisons with None.
        self.encoder = TransformerEncoder(num_encoder_layers, *settings) if custom_encoder is None else custom_encoder
        self.decoder = TransformerDecoder(num_decoder_layers, *settings) if custom_decoder is None else custom_decoder

    def __call__(
        self, src: mx.array, tgt: mx.array, src_mask: mx.array | None, tgt_mask: mx.array | None,
        memory_mask: mx.array | None,
    ) -> mx.array:
        """Encode a source and decode a target.

        Parameters
        ----------
        src : array
            The source, of shape ``(batch, source length, dims)``.
        tgt : array
            The target, of shape ``(batch, target length, dims)``.
        src_mask : array or None
            The mask of the encoder's attention.
        tgt_mask : array or None
            The mask of the decoder's self-attention.
        memory_mask : array or None
            The mask of the decoder's attention to the encoded source.

        Returns
        -------
        array
            Of the shape of ``tgt``.
        """
        return self.decoder(tgt, self.encoder(src, src_mask), tgt_mask, memory_mask)
