"""Attention and transformer blocks."""

import math
from typing import Any, Callable, Optional

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


class MultiHeadAttention(Module):
    """Scaled dot product attention with several heads.

    Parameters
    ----------
    dims : int
        The size of the projected queries and keys, and the default of all
        others.
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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> x = mx.zeros((1, 5, 16))
    >>> mask = nn.MultiHeadAttention.create_additive_causal_mask(5)
    >>> nn.MultiHeadAttention(16, num_heads=4)(x, x, x, mask).shape
    (1, 5, 16)
    """

    def __init__(
        self,
        dims: int,
        num_heads: int,
        query_input_dims: Optional[int] = None,
        key_input_dims: Optional[int] = None,
        value_input_dims: Optional[int] = None,
        value_dims: Optional[int] = None,
        value_output_dims: Optional[int] = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if dims % num_heads != 0:
            raise ValueError(
                "The input feature dimensions should be divisible by the number of "
                f"heads ({dims} % {num_heads}) != 0"
            )
        query_input_dims = query_input_dims or dims
        key_input_dims = key_input_dims or dims
        value_input_dims = value_input_dims or key_input_dims
        value_dims = value_dims or dims
        value_output_dims = value_output_dims or dims

        self.num_heads = num_heads
        self.query_proj = Linear(query_input_dims, dims, bias=bias)
        self.key_proj = Linear(key_input_dims, dims, bias=bias)
        self.value_proj = Linear(value_input_dims, value_dims, bias=bias)
        self.out_proj = Linear(value_dims, value_output_dims, bias=bias)

    def _split_heads(self, x: mx.array) -> mx.array:
        return mx.unflatten(x, -1, (self.num_heads, -1)).transpose(0, 2, 1, 3)

    def __call__(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        mask: Optional[mx.array] = None,
    ) -> mx.array:
        """Attend.

        Parameters
        ----------
        queries, keys, values : array
            Of shape ``(batch, length, features)``.
        mask : array, optional
            Added to the scores, or, if boolean, true where to attend. Its
            shape broadcasts with ``(batch, heads, queries, keys)``.

        Returns
        -------
        array
            Of shape ``(batch, queries, value_output_dims)``.
        """
        queries = self._split_heads(self.query_proj(queries))
        keys = self._split_heads(self.key_proj(keys))
        values = self._split_heads(self.value_proj(values))
        output = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=math.sqrt(1 / queries.shape[-1]), mask=mask
        )
        return self.out_proj(output.transpose(0, 2, 1, 3).flatten(-2, -1))

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
            Of shape ``(N, N)``: zero on and below the diagonal, the lowest
            finite number above it.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> (nn.MultiHeadAttention.create_additive_causal_mask(2) == 0).tolist()
        [[True, False], [True, True]]
        """
        indices = mx.arange(N)
        mask = indices[:, None] < indices[None]
        # Not minus infinity: a row that is masked everywhere must not become NaN.
        return mask.astype(dtype) * mx.finfo(dtype).min


class TransformerEncoderLayer(Module):
    """Self-attention and a small network, each with a residual connection.

    Parameters
    ----------
    dims : int
        The number of features.
    num_heads : int
        The number of heads.
    mlp_dims : int, optional
        The hidden size of the network. Default: ``4 * dims``.
    dropout : float
        The probability of dropout. Default: ``0.0``.
    activation : callable
        The activation of the network. Default: :func:`relu`.
    norm_first : bool
        Whether to normalise before each part instead of after it. Default:
        ``True``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.TransformerEncoderLayer(16, 4)(mx.zeros((1, 5, 16)), None).shape
    (1, 5, 16)
    """

    def __init__(
        self,
        dims: int,
        num_heads: int,
        mlp_dims: Optional[int] = None,
        dropout: float = 0.0,
        activation: Callable[[Any], Any] = relu,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        mlp_dims = mlp_dims or dims * 4
        self.attention = MultiHeadAttention(dims, num_heads)
        self.ln1 = LayerNorm(dims)
        self.ln2 = LayerNorm(dims)
        self.linear1 = Linear(dims, mlp_dims)
        self.linear2 = Linear(mlp_dims, dims)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = activation
        self.norm_first = norm_first

    def _mlp(self, x: mx.array) -> mx.array:
        return self.linear2(self.dropout2(self.activation(self.linear1(x))))

    def __call__(self, x: mx.array, mask: Optional[mx.array]) -> mx.array:
        """Apply the layer.

        Parameters
        ----------
        x : array
            Of shape ``(batch, length, dims)``.
        mask : array or None
            The mask of the attention.

        Returns
        -------
        array
            Of the shape of ``x``.
        """
        if self.norm_first:
            y = self.ln1(x)
            x = x + self.dropout1(self.attention(y, y, y, mask))
            return x + self._mlp(self.ln2(x))
        x = self.ln1(x + self.dropout1(self.attention(x, x, x, mask)))
        return self.ln2(x + self._mlp(x))


class TransformerEncoder(Module):
    """A stack of :class:`TransformerEncoderLayer`, with a last normalisation.

    Parameters
    ----------
    num_layers : int
        The number of layers.
    dims : int
        The number of features.
    num_heads : int
        The number of heads.
    mlp_dims : int, optional
        The hidden size of the layers' networks. Default: ``4 * dims``.
    dropout : float
        The probability of dropout. Default: ``0.0``.
    activation : callable
        The activation of the layers' networks. Default: :func:`relu`.
    norm_first : bool
        Whether to normalise before each part instead of after it. Default:
        ``True``.
    checkpoint : bool
        Whether to compute the layers again for the gradient instead of keeping
        their intermediate results. Default: ``False``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.TransformerEncoder(2, 16, 4)(mx.zeros((1, 5, 16)), None).shape
    (1, 5, 16)
    """

    def __init__(
        self,
        num_layers: int,
        dims: int,
        num_heads: int,
        mlp_dims: Optional[int] = None,
        dropout: float = 0.0,
        activation: Callable[[Any], Any] = relu,
        norm_first: bool = True,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        self.layers = [
            TransformerEncoderLayer(
                dims, num_heads, mlp_dims, dropout, activation, norm_first
            )
            for _ in range(num_layers)
        ]
        self.ln = LayerNorm(dims)
        self.checkpoint = checkpoint

    def __call__(self, x: mx.array, mask: Optional[mx.array]) -> mx.array:
        """Apply all layers.

        Parameters
        ----------
        x : array
            Of shape ``(batch, length, dims)``.
        mask : array or None
            The mask of the attention.

        Returns
        -------
        array
            Of the shape of ``x``.
        """
        for layer in self.layers:
            if self.checkpoint:
                layer = checkpointed(layer)
            x = layer(x, mask)
        return self.ln(x)


class TransformerDecoderLayer(Module):
    """Self-attention, attention to a memory and a small network.

    Parameters
    ----------
    dims : int
        The number of features.
    num_heads : int
        The number of heads.
    mlp_dims : int, optional
        The hidden size of the network. Default: ``4 * dims``.
    dropout : float
        The probability of dropout. Default: ``0.0``.
    activation : callable
        The activation of the network. Default: :func:`relu`.
    norm_first : bool
        Whether to normalise before each part instead of after it. Default:
        ``True``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> x, memory = mx.zeros((1, 5, 16)), mx.zeros((1, 7, 16))
    >>> nn.TransformerDecoderLayer(16, 4)(x, memory, None, None).shape
    (1, 5, 16)
    """

    def __init__(
        self,
        dims: int,
        num_heads: int,
        mlp_dims: Optional[int] = None,
        dropout: float = 0.0,
        activation: Callable[[Any], Any] = relu,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        mlp_dims = mlp_dims or dims * 4
        self.self_attention = MultiHeadAttention(dims, num_heads)
        self.cross_attention = MultiHeadAttention(dims, num_heads)
        self.ln1 = LayerNorm(dims)
        self.ln2 = LayerNorm(dims)
        self.ln3 = LayerNorm(dims)
        self.linear1 = Linear(dims, mlp_dims)
        self.linear2 = Linear(mlp_dims, dims)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = activation
        self.norm_first = norm_first

    def _mlp(self, x: mx.array) -> mx.array:
        return self.linear2(self.dropout3(self.activation(self.linear1(x))))

    def __call__(
        self,
        x: mx.array,
        memory: mx.array,
        x_mask: Optional[mx.array],
        memory_mask: Optional[mx.array],
    ) -> mx.array:
        """Apply the layer.

        Parameters
        ----------
        x : array
            Of shape ``(batch, length, dims)``.
        memory : array
            What to attend to, of shape ``(batch, memory length, dims)``.
        x_mask : array or None
            The mask of the self-attention.
        memory_mask : array or None
            The mask of the attention to the memory.

        Returns
        -------
        array
            Of the shape of ``x``.
        """
        if self.norm_first:
            y = self.ln1(x)
            x = x + self.dropout1(self.self_attention(y, y, y, x_mask))
            y = self.ln2(x)
            y = self.cross_attention(y, memory, memory, memory_mask)
            x = x + self.dropout2(y)
            return x + self._mlp(self.ln3(x))
        x = self.ln1(x + self.dropout1(self.self_attention(x, x, x, x_mask)))
        y = self.cross_attention(x, memory, memory, memory_mask)
        x = self.ln2(x + self.dropout2(y))
        return self.ln3(x + self._mlp(x))


class TransformerDecoder(Module):
    """A stack of :class:`TransformerDecoderLayer`, with a last normalisation.

    Parameters
    ----------
    num_layers : int
        The number of layers.
    dims : int
        The number of features.
    num_heads : int
        The number of heads.
    mlp_dims : int, optional
        The hidden size of the layers' networks. Default: ``4 * dims``.
    dropout : float
        The probability of dropout. Default: ``0.0``.
    activation : callable
        The activation of the layers' networks. Default: :func:`relu`.
    norm_first : bool
        Whether to normalise before each part instead of after it. Default:
        ``True``.
    checkpoint : bool
        Whether to compute the layers again for the gradient instead of keeping
        their intermediate results. Default: ``False``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> x, memory = mx.zeros((1, 5, 16)), mx.zeros((1, 7, 16))
    >>> nn.TransformerDecoder(2, 16, 4)(x, memory, None, None).shape
    (1, 5, 16)
    """

    def __init__(
        self,
        num_layers: int,
        dims: int,
        num_heads: int,
        mlp_dims: Optional[int] = None,
        dropout: float = 0.0,
        activation: Callable[[Any], Any] = relu,
        norm_first: bool = True,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        self.layers = [
            TransformerDecoderLayer(
                dims, num_heads, mlp_dims, dropout, activation, norm_first
            )
            for _ in range(num_layers)
        ]
        self.ln = LayerNorm(dims)
        self.checkpoint = checkpoint

    def __call__(
        self,
        x: mx.array,
        memory: mx.array,
        x_mask: Optional[mx.array],
        memory_mask: Optional[mx.array],
    ) -> mx.array:
        """Apply all layers.

        Parameters
        ----------
        x : array
            Of shape ``(batch, length, dims)``.
        memory : array
            What to attend to, of shape ``(batch, memory length, dims)``.
        x_mask : array or None
            The mask of the self-attention.
        memory_mask : array or None
            The mask of the attention to the memory.

        Returns
        -------
        array
            Of the shape of ``x``.
        """
        for layer in self.layers:
            if self.checkpoint:
                layer = checkpointed(layer)
            x = layer(x, memory, x_mask, memory_mask)
        return self.ln(x)


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
    mlp_dims : int, optional
        The hidden size of the layers' networks. Default: ``4 * dims``.
    dropout : float
        The probability of dropout. Default: ``0.0``.
    activation : callable
        The activation of the layers' networks. Default: :func:`relu`.
    custom_encoder : Module, optional
        Used instead of a :class:`TransformerEncoder`.
    custom_decoder : Module, optional
        Used instead of a :class:`TransformerDecoder`.
    norm_first : bool
        Whether to normalise before each part instead of after it. Default:
        ``True``.
    checkpoint : bool
        Whether to compute the layers again for the gradient instead of keeping
        their intermediate results. Default: ``False``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> model = nn.Transformer(16, 4, num_encoder_layers=1, num_decoder_layers=1)
    >>> model(mx.zeros((1, 7, 16)), mx.zeros((1, 5, 16)), None, None, None).shape
    (1, 5, 16)
    """

    def __init__(
        self,
        dims: int = 512,
        num_heads: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        mlp_dims: Optional[int] = None,
        dropout: float = 0.0,
        activation: Callable[[Any], Any] = relu,
        custom_encoder: Optional[Any] = None,
        custom_decoder: Optional[Any] = None,
        norm_first: bool = True,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        shared = (dims, num_heads, mlp_dims, dropout, activation, norm_first, checkpoint)
        # A module without items is false, hence the comparisons with None.
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(num_encoder_layers, *shared)
        self.encoder = custom_encoder
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(num_decoder_layers, *shared)
        self.decoder = custom_decoder

    def __call__(
        self,
        src: mx.array,
        tgt: mx.array,
        src_mask: Optional[mx.array],
        tgt_mask: Optional[mx.array],
        memory_mask: Optional[mx.array],
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
        memory = self.encoder(src, src_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask)
