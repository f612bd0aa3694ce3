"""Lookup tables."""

import math
from typing import Optional

import hesper.core as mx

from .base import Module
from .quantized import QuantizedEmbedding

__all__ = ["Embedding"]


class Embedding(Module):
    """A table of learned vectors, looked up by integers.

    Parameters
    ----------
    num_embeddings : int
        The number of vectors, for instance the size of a vocabulary.
    dims : int
        The length of a vector.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Embedding(100, 8)(mx.array([1, 2, 3])).shape
    (3, 8)
    """

    def __init__(self, num_embeddings: int, dims: int) -> None:
        super().__init__()
        self.weight = mx.random.normal(
            shape=(num_embeddings, dims), scale=math.sqrt(1 / dims)
        )

    def _extra_repr(self) -> str:
        num_embeddings, dims = self.weight.shape
        return f"{num_embeddings}, {dims}"

    def __call__(self, x: mx.array) -> mx.array:
        return self["weight"][x]

    def as_linear(self, x: mx.array) -> mx.array:
        """Use the table as the weight of a linear layer.

        For models whose output projection shares its weights with the
        embedding.

        Parameters
        ----------
        x : array
            The input, with ``dims`` features.

        Returns
        -------
        array
            The input times the transposed table.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> nn.Embedding(100, 8).as_linear(mx.zeros((2, 8))).shape
        (2, 100)
        """
        return x @ self["weight"].T

    def to_quantized(
        self,
        group_size: Optional[int] = None,
        bits: Optional[int] = None,
        mode: str = "affine",
        quantize_input: bool = False,
    ) -> QuantizedEmbedding:
        """A quantized approximation of this layer.

        Parameters
        ----------
        group_size : int, optional
            How many weights share a scale, see :func:`hesper.core.quantize`.
            Default: what the mode prescribes.
        bits : int, optional
            The bits of one weight. Default: what the mode prescribes.
        mode : str
            The quantization mode. Default: ``"affine"``.
        quantize_input : bool
            Not supported: the input is integers.

        Returns
        -------
        QuantizedEmbedding
            The quantized layer.

        Raises
        ------
        ValueError
            If ``quantize_input``.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Embedding(10, 64).to_quantized()
        QuantizedEmbedding(10, 64, group_size=64, bits=4, mode=affine)
        """
        if quantize_input:
            raise ValueError("Quantized input is not supported.")
        return QuantizedEmbedding.from_embedding(self, group_size, bits, mode)
