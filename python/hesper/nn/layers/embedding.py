"""Lookup tables."""

import math

import hesper.core as mx

from ._parameters import describe
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
    >>> nn.Embedding(100, 8)(mx.array([1, 2, 3])).shape
    (3, 8)
    """

    def __init__(self, num_embeddings: int, dims: int) -> None:
        super().__init__()
        self.weight = mx.random.normal((num_embeddings, dims), scale=math.sqrt(1 / dims))

    def _extra_repr(self) -> str:
        return describe(*self.weight.shape)

    def __call__(self, x: mx.array) -> mx.array:
        return self["weight"][x]

    def as_linear(self, x: mx.array) -> mx.array:
        """Multiply by the transposed table, for models that share it between their input and output.

        Parameters
        ----------
        x : array
            The input, with ``dims`` features.

        Returns
        -------
        array
            The product, with ``num_embeddings`` features.

        Examples
        --------
        >>> nn.Embedding(100, 8).as_linear(mx.zeros((2, 8))).shape
        (2, 100)
        """
        return x @ self["weight"].T

    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine",
        quantize_input: bool = False,
    ) -> QuantizedEmbedding:
        """A quantized approximation of this layer.

        Parameters
        ----------
        group_size : int, optional
            The number of weights that share a scale, see :func:`hesper.core.quantize`. Default: that of the mode.
        bits : int, optional
            The bits of one weight. Default: those of the mode.
        mode : str
            The quantization mode. Default: ``"affine"``.
        quantize_input : bool
            Not supported: the input is integers.

        Raises
        ------
        ValueError
            If ``quantize_input``.

        Examples
        --------
        >>> nn.Embedding(10, 64).to_quantized()
        QuantizedEmbedding(10, 64, group_size=64, bits=4, mode=affine)
        """
        if quantize_input:
            raise ValueError("cannot quantize the input of an Embedding: it is integers; use quantize_input=False")
        return QuantizedEmbedding.from_embedding(self, group_size, bits, mode)
