"""Layers whose weights are quantized, and the function that makes them."""

import math
from typing import Callable, Optional, Tuple, Union

import hesper.core as mx
from hesper.utils import tree_map_with_path

from .base import Module

__all__ = ["QQLinear", "QuantizedEmbedding", "QuantizedLinear", "quantize"]

# Group size and bits of each mode, unless given.
_MODE_DEFAULTS = {
    "affine": (64, 4),
    "mxfp4": (32, 4),
    "nvfp4": (16, 4),
    "mxfp8": (32, 8),
}


def _defaults_for_mode(
    mode: str, group_size: Optional[int], bits: Optional[int]
) -> Tuple[int, int]:
    if mode not in _MODE_DEFAULTS:
        raise ValueError(
            f"Invalid quantization mode '{mode}'. Valid modes are: "
            f"{', '.join(_MODE_DEFAULTS)}."
        )
    default_group_size, default_bits = _MODE_DEFAULTS[mode]
    return (
        default_group_size if group_size is None else group_size,
        default_bits if bits is None else bits,
    )


def quantize(
    model: Module,
    group_size: Optional[int] = None,
    bits: Optional[int] = None,
    *,
    mode: str = "affine",
    quantize_input: bool = False,
    class_predicate: Optional[Callable[[str, Module], Union[bool, dict]]] = None,
) -> None:
    """Replace layers of a model by quantized ones, in place.

    Parameters
    ----------
    model : Module
        The model whose leaf modules may be quantized.
    group_size : int, optional
        How many weights share a scale, see :func:`hesper.core.quantize`.
        Default: what the mode prescribes.
    bits : int, optional
        The bits of one weight. Default: what the mode prescribes.
    mode : str
        The quantization mode. Default: ``"affine"``.
    quantize_input : bool
        Whether to quantize the inputs of the layers too (linear layers
        without bias in the modes ``"nvfp4"`` and ``"mxfp8"``). Default:
        ``False``.
    class_predicate : callable, optional
        Given the name of a layer and the layer, says whether to quantize it;
        a dictionary means yes and is passed to the layer's ``to_quantized``
        instead of the arguments above. Default: all that have
        ``to_quantized``.

    Raises
    ------
    ValueError
        If the predicate selects a layer that cannot be quantized, or answers
        with something else than a bool or a dictionary.

    Examples
    --------
    >>> import hesper.nn as nn
    >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    >>> nn.quantize(model, bits=8)
    >>> model.layers[0].bits
    8
    """
    class_predicate = class_predicate or (lambda _, m: hasattr(m, "to_quantized"))

    def maybe_quantize(path: str, layer: Module) -> Module:
        answer = class_predicate(path, layer)
        if not answer:
            return layer
        if not hasattr(layer, "to_quantized"):
            raise ValueError(f"Unable to quantize model of type {type(layer)}")
        if isinstance(answer, bool):
            arguments = {"group_size": group_size, "bits": bits, "mode": mode}
            if quantize_input:
                arguments["quantize_input"] = True
        elif isinstance(answer, dict):
            arguments = answer
        else:
            raise ValueError(
                "``class_predicate`` must return a bool or a dict of parameters to "
                "pass to ``to_quantized``"
            )
        return layer.to_quantized(**arguments)

    leaves = tree_map_with_path(
        maybe_quantize, model.leaf_modules(), is_leaf=Module.is_module
    )
    model.update_modules(leaves)


def _quantize_into(layer: Module, weight: mx.array) -> None:
    """Quantize ``weight`` with the layer's settings and store the parts in it."""
    layer.weight, layer.scales, *biases = mx.quantize(
        weight, layer.group_size, layer.bits, mode=layer.mode
    )
    layer.biases = biases[0] if biases else None


class QuantizedEmbedding(Module):
    """An :class:`Embedding` with a quantized table.

    Its parameters are frozen.

    Parameters
    ----------
    num_embeddings : int
        The number of vectors.
    dims : int
        The length of a vector.
    group_size : int, optional
        How many weights share a scale. Default: what the mode prescribes.
    bits : int, optional
        The bits of one weight. Default: what the mode prescribes.
    mode : str
        The quantization mode. Default: ``"affine"``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.QuantizedEmbedding(10, 64)(mx.array([3, 4])).shape
    (2, 64)
    """

    def __init__(
        self,
        num_embeddings: int,
        dims: int,
        group_size: int = None,
        bits: int = None,
        mode: str = "affine",
    ) -> None:
        super().__init__()
        self.group_size, self.bits = _defaults_for_mode(mode, group_size, bits)
        self.mode = mode
        scale = math.sqrt(1 / dims)
        _quantize_into(
            self, mx.random.normal(shape=(num_embeddings, dims), scale=scale)
        )
        self.num_embeddings = num_embeddings
        self.dims = dims
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:
        biases = self.get("biases")
        return mx.dequantize(
            self["weight"][x],
            scales=self["scales"][x],
            biases=biases[x] if biases is not None else None,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )

    def as_linear(self, x: mx.array) -> mx.array:
        """Use the table as the weight of a linear layer.

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
        >>> nn.QuantizedEmbedding(10, 64).as_linear(mx.zeros((2, 64))).shape
        (2, 10)
        """
        return mx.quantized_matmul(
            x,
            self["weight"],
            scales=self["scales"],
            biases=self.get("biases"),
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )

    def _extra_repr(self) -> str:
        return (
            f"{self.num_embeddings}, {self.dims}, group_size={self.group_size}, "
            f"bits={self.bits}, mode={self.mode}"
        )

    @classmethod
    def from_embedding(
        cls,
        embedding_layer: Module,
        group_size: int = None,
        bits: int = None,
        mode: str = "affine",
    ) -> "QuantizedEmbedding":
        """Quantize an :class:`Embedding`.

        Parameters
        ----------
        embedding_layer : Embedding
            The layer to quantize; it is not changed.
        group_size : int, optional
            How many weights share a scale. Default: what the mode prescribes.
        bits : int, optional
            The bits of one weight. Default: what the mode prescribes.
        mode : str
            The quantization mode. Default: ``"affine"``.

        Returns
        -------
        QuantizedEmbedding
            The quantized layer.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.QuantizedEmbedding.from_embedding(nn.Embedding(10, 64), bits=8)
        QuantizedEmbedding(10, 64, group_size=64, bits=8, mode=affine)
        """
        num_embeddings, dims = embedding_layer.weight.shape
        layer = cls(num_embeddings, dims, group_size, bits, mode)
        _quantize_into(layer, embedding_layer.weight)
        return layer


class QuantizedLinear(Module):
    """A :class:`Linear` layer with a quantized weight.

    Its parameters are frozen.

    Parameters
    ----------
    input_dims : int
        The number of input features.
    output_dims : int
        The number of output features.
    bias : bool
        Whether to have a bias. Default: ``True``.
    group_size : int, optional
        How many weights share a scale. Default: what the mode prescribes.
    bits : int, optional
        The bits of one weight. Default: what the mode prescribes.
    mode : str
        The quantization mode. Default: ``"affine"``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.QuantizedLinear(64, 8, mode="mxfp4")(mx.zeros((3, 64))).shape
    (3, 8)
    """

    def __init__(
        self,
        input_dims: int,
        output_dims: int,
        bias: bool = True,
        group_size: int = None,
        bits: int = None,
        mode: str = "affine",
    ) -> None:
        super().__init__()
        self.group_size, self.bits = _defaults_for_mode(mode, group_size, bits)
        self.mode = mode
        scale = math.sqrt(1 / input_dims)
        _quantize_into(
            self,
            mx.random.uniform(low=-scale, high=scale, shape=(output_dims, input_dims)),
        )
        if bias:
            self.bias = mx.zeros((output_dims,))
        self.freeze()

    def _extra_repr(self) -> str:
        output_dims, packed_dims = self.weight.shape
        return (
            f"input_dims={packed_dims * 32 // self.bits}, output_dims={output_dims}, "
            f"bias={'bias' in self}, group_size={self.group_size}, bits={self.bits}, "
            f"mode={self.mode}"
        )

    def __call__(self, x: mx.array) -> mx.array:
        x = mx.quantized_matmul(
            x,
            self["weight"],
            scales=self["scales"],
            biases=self.get("biases"),
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )
        return x + self["bias"] if "bias" in self else x

    @classmethod
    def from_linear(
        cls,
        linear_layer: Module,
        group_size: int = None,
        bits: int = None,
        mode: str = "affine",
    ) -> "QuantizedLinear":
        """Quantize a :class:`Linear` layer.

        Parameters
        ----------
        linear_layer : Linear
            The layer to quantize; it is not changed. Its bias stays as it is
            and stays trainable.
        group_size : int, optional
            How many weights share a scale. Default: what the mode prescribes.
        bits : int, optional
            The bits of one weight. Default: what the mode prescribes.
        mode : str
            The quantization mode. Default: ``"affine"``.

        Returns
        -------
        QuantizedLinear
            The quantized layer.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.QuantizedLinear.from_linear(nn.Linear(64, 8), bits=8)
        >>> list(layer.trainable_parameters())
        ['bias']
        """
        output_dims, input_dims = linear_layer.weight.shape
        layer = cls(input_dims, output_dims, False, group_size, bits, mode=mode)
        _quantize_into(layer, linear_layer.weight)
        if "bias" in linear_layer:
            layer.bias = linear_layer.bias
        return layer


class QQLinear(Module):
    """A linear layer that multiplies quantized inputs with quantized weights.

    In training mode the weight is kept in full precision and quantized on the
    fly, so that it can be trained; :meth:`eval` quantizes it for good and
    :meth:`train` undoes that. There is no bias.

    Parameters
    ----------
    input_dims : int
        The number of input features.
    output_dims : int
        The number of output features.
    group_size : int, optional
        How many weights share a scale. Default: what the mode prescribes.
    bits : int, optional
        The bits of one weight. Default: what the mode prescribes.
    mode : str
        The quantization mode, ``"nvfp4"`` or ``"mxfp8"``. Default:
        ``"nvfp4"``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> layer = nn.QQLinear(64, 8)
    >>> layer.weight.shape, layer.eval().weight.shape
    ((8, 64), (8, 8))
    """

    def __init__(
        self,
        input_dims: int,
        output_dims: int,
        group_size: int = None,
        bits: int = None,
        mode: str = "nvfp4",
    ) -> None:
        super().__init__()
        self.group_size, self.bits = _defaults_for_mode(mode, group_size, bits)
        self.mode = mode
        scale = math.sqrt(1 / input_dims)
        self.weight = mx.random.uniform(
            low=-scale, high=scale, shape=(output_dims, input_dims)
        )
        self._quantized = False

    def _extra_repr(self) -> str:
        output_dims, input_dims = self.weight.shape
        if self._quantized:
            input_dims = input_dims * 32 // self.bits
        return (
            f"input_dims={input_dims}, output_dims={output_dims}, "
            f"group_size={self.group_size}, bits={self.bits}, mode={self.mode}"
        )

    def quantize(self) -> None:
        """Store the weight in quantized form. Does nothing if it is already.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.QQLinear(64, 8)
        >>> layer.quantize()
        >>> sorted(layer)
        ['scales', 'weight']
        """
        if not self._quantized:
            self.weight, self.scales, *_ = mx.quantize(
                self.weight, self.group_size, self.bits, mode=self.mode
            )
            self._quantized = True

    def dequantize(self) -> None:
        """Undo :meth:`quantize`, up to its rounding.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.QQLinear(64, 8)
        >>> layer.quantize()
        >>> layer.dequantize()
        >>> list(layer)
        ['weight']
        """
        if self._quantized:
            self.weight = mx.dequantize(
                self.weight,
                scales=self.scales,
                group_size=self.group_size,
                bits=self.bits,
                mode=self.mode,
            )
            del self.scales
            self._quantized = False

    def _set_training_mode(self, mode: bool) -> None:
        super()._set_training_mode(mode)
        if mode:
            self.dequantize()
        else:
            self.quantize()

    def __call__(self, x: mx.array) -> mx.array:
        return mx.qqmm(
            x,
            self["weight"],
            scales=self.get("scales"),
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )

    @classmethod
    def from_linear(
        cls,
        linear_layer: Module,
        group_size: int = None,
        bits: int = None,
        mode: str = "nvfp4",
    ) -> "QQLinear":
        """Make a layer with the weight of a :class:`Linear` layer.

        Parameters
        ----------
        linear_layer : Linear
            A layer without bias; it is not changed.
        group_size : int, optional
            How many weights share a scale. Default: what the mode prescribes.
        bits : int, optional
            The bits of one weight. Default: what the mode prescribes.
        mode : str
            The quantization mode. Default: ``"nvfp4"``.

        Returns
        -------
        QQLinear
            The new layer, in the training mode of ``linear_layer``.

        Raises
        ------
        NotImplementedError
            If the layer has a bias.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.QQLinear.from_linear(nn.Linear(64, 8, bias=False))
        QQLinear(input_dims=64, output_dims=8, group_size=16, bits=4, mode=nvfp4)
        """
        if "bias" in linear_layer:
            raise NotImplementedError("QQLinear does not support bias yet.")
        output_dims, input_dims = linear_layer.weight.shape
        layer = cls(input_dims, output_dims, group_size, bits, mode=mode)
        layer.weight = linear_layer.weight
        layer.train(linear_layer.training)
        return layer
