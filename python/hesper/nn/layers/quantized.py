"""Layers whose weights are quantized, and the function that makes them."""

import math
from typing import Any, Callable

import hesper.core as mx
from hesper.utils import tree_map_with_path

from ._parameters import describe, uniform
from .base import Module

__all__ = ["QQLinear", "QuantizedEmbedding", "QuantizedLinear", "quantize"]

# The default group size and bits of each mode.
_MODES = {"affine": (64, 4), "mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8)}


def quantize(
    model: Module, group_size: int | None = None, bits: int | None = None, *, mode: str = "affine",
    quantize_input: bool = False, class_predicate: Callable[[str, Module], bool | dict] | None = None,
) -> None:
    """Replace layers of a model by quantized ones, in place.

    Parameters
    ----------
    model : Module
        The model whose leaf modules are quantized.
    group_size : int, optional
        The number of weights that share a scale, see :func:`hesper.core.quantize`. Default: that of the mode.
    bits : int, optional
        The bits of one weight. Default: those of the mode.
    mode : str
        The quantization mode. Default: ``"affine"``.
    quantize_input : bool
        Whether to quantize the inputs of the layers too (linear layers without bias in the modes ``"nvfp4"`` and
        ``"mxfp8"``). Default: ``False``.
    class_predicate : callable, optional
        Given the name of a layer and the layer, returns whether to quantize it; a dictionary means yes and replaces
        the arguments above. Default: all layers that have ``to_quantized``.

    Raises
    ------
    ValueError
        If the predicate selects a layer that cannot be quantized, or returns neither a bool nor a dictionary.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    >>> nn.quantize(model, bits=8)
    >>> model.layers[0].bits
    8
    """
    settings = {"group_size": group_size, "bits": bits, "mode": mode}
    if quantize_input:
        settings["quantize_input"] = True

    def replace(path: str, layer: Module) -> Module:
        quantizable = hasattr(layer, "to_quantized")
        answer = quantizable if class_predicate is None else class_predicate(path, layer)
        if not answer:
            return layer
        if not quantizable:
            raise ValueError(f"cannot quantize {path}: {type(layer).__name__} has no to_quantized; exclude it")
        if not isinstance(answer, (bool, dict)):
            raise ValueError(
                f"cannot quantize {path}: class_predicate returned {answer!r}; return a bool, or a dict of arguments "
                "of to_quantized"
            )
        return layer.to_quantized(**(settings if answer is True else answer))

    model.update_modules(tree_map_with_path(replace, model.leaf_modules(), is_leaf=Module.is_module))


class Quantized(Module):
    """What layers with a quantized weight share: the settings and the product."""

    def _configure(self, group_size: int | None, bits: int | None, mode: str) -> None:
        if mode not in _MODES:
            raise ValueError(f"cannot quantize in mode '{mode}'; choose one of {', '.join(_MODES)}")
        default_group_size, default_bits = _MODES[mode]
        self.group_size = default_group_size if group_size is None else group_size
        self.bits, self.mode = default_bits if bits is None else bits, mode

    def _settings(self) -> dict[str, Any]:
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}

    def _store(self, weight: mx.array) -> None:
        """Quantize a weight and store its parts."""
        self.weight, self.scales, *biases = mx.quantize(weight, **self._settings())
        self.biases = biases[0] if biases else None

    def _matmul(self, x: mx.array) -> mx.array:
        """``x`` times the transposed weight."""
        return mx.quantized_matmul(x, self["weight"], self["scales"], self.get("biases"), **self._settings())

    def _affine(self, x: mx.array) -> mx.array:
        y = self._matmul(x)
        return y + self["bias"] if "bias" in self else y

    def _features(self) -> tuple[int, int]:
        """The numbers of input and output features of the packed weight."""
        outputs, words = self.weight.shape
        return words * 32 // self.bits, outputs


class QuantizedEmbedding(Quantized):
    """An :class:`Embedding` with a quantized table. Its parameters are frozen.

    Parameters
    ----------
    num_embeddings : int
        The number of vectors.
    dims : int
        The length of a vector.
    group_size, bits, mode
        As for :class:`QuantizedLinear`.

    Examples
    --------
    >>> nn.QuantizedEmbedding(10, 64)(mx.array([3, 4])).shape
    (2, 64)
    """

    def __init__(
        self, num_embeddings: int, dims: int, group_size: int = None, bits: int = None, mode: str = "affine"
    ) -> None:
        super().__init__()
        self._configure(group_size, bits, mode)
        self._store(mx.random.normal((num_embeddings, dims), scale=math.sqrt(1 / dims)))
        self.num_embeddings, self.dims = num_embeddings, dims
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:
        parts = (self["weight"], self["scales"], self.get("biases"))
        return mx.dequantize(*(None if part is None else part[x] for part in parts), **self._settings())

    def as_linear(self, x: mx.array) -> mx.array:
        """Multiply by the transposed table, see :meth:`Embedding.as_linear`.

        Examples
        --------
        >>> nn.QuantizedEmbedding(10, 64).as_linear(mx.zeros((2, 64))).shape
        (2, 10)
        """
        return self._matmul(x)

    def _extra_repr(self) -> str:
        return describe(self.num_embeddings, self.dims, **self._settings())

    @classmethod
    def from_embedding(
        cls, embedding_layer: Module, group_size: int = None, bits: int = None, mode: str = "affine"
    ) -> "QuantizedEmbedding":
        """Quantize an :class:`Embedding`.

        Parameters
        ----------
        embedding_layer : Embedding
            The layer to quantize; it is not changed.
        group_size, bits, mode
            As for :class:`QuantizedLinear`.

        Examples
        --------
        >>> nn.QuantizedEmbedding.from_embedding(nn.Embedding(10, 64), bits=8)
        QuantizedEmbedding(10, 64, group_size=64, bits=8, mode=affine)
        """
        layer = cls(*embedding_layer.weight.shape, group_size, bits, mode)
        layer._store(embedding_layer.weight)
        return layer


class QuantizedLinear(Quantized):
    """A :class:`Linear` layer with a quantized weight. Its parameters are frozen.

    Parameters
    ----------
    input_dims : int
        The number of input features.
    output_dims : int
        The number of output features.
    bias : bool
        Whether to have a bias. Default: ``True``.
    group_size : int, optional
        The number of weights that share a scale. Default: that of the mode.
    bits : int, optional
        The bits of one weight. Default: those of the mode.
    mode : str
        The quantization mode. Default: ``"affine"``.

    Examples
    --------
    >>> nn.QuantizedLinear(64, 8, mode="mxfp4")(mx.zeros((3, 64))).shape
    (3, 8)
    """

    def __init__(
        self, input_dims: int, output_dims: int, bias: bool = True, group_size: int = None, bits: int = None,
        mode: str = "affine",
    ) -> None:
        super().__init__()
        self._configure(group_size, bits, mode)
        self._store(uniform(math.sqrt(1 / input_dims), output_dims, input_dims))
        if bias:
            self.bias = mx.zeros((output_dims,))
        self.freeze()

    def _extra_repr(self) -> str:
        input_dims, output_dims = self._features()
        return describe(
            input_dims=input_dims, output_dims=output_dims, bias="bias" in self, **self._settings()
        )

    __call__ = Module._quantized_linear

    @classmethod
    def from_linear(
        cls, linear_layer: Module, group_size: int = None, bits: int = None, mode: str = "affine"
    ) -> "QuantizedLinear":
        """Quantize a :class:`Linear` layer.

        Parameters
        ----------
        linear_layer : Linear
            The layer to quantize; it is not changed. Its bias is kept and stays trainable.
        group_size, bits, mode
            As for :class:`QuantizedLinear`.

        Examples
        --------
        >>> layer = nn.QuantizedLinear.from_linear(nn.Linear(64, 8), bits=8)
        >>> list(layer.trainable_parameters())
        ['bias']
        """
        weight = linear_layer.weight
        layer = cls(weight.shape[1], weight.shape[0], False, group_size, bits, mode)
        layer._store(weight)
        if "bias" in linear_layer:
            layer.bias = linear_layer.bias
        return layer


class QQLinear(Quantized):
    """A linear layer that multiplies quantized inputs by quantized weights, without bias.

    In training mode the weight is kept in full precision and quantized on the fly, so that it can be trained;
    :meth:`eval` stores it quantized and :meth:`train` dequantizes it.

    Parameters
    ----------
    input_dims : int
        The number of input features.
    output_dims : int
        The number of output features.
    group_size : int, optional
        The number of weights that share a scale. Default: that of the mode.
    bits : int, optional
        The bits of one weight. Default: those of the mode.
    mode : str
        The quantization mode, ``"nvfp4"`` or ``"mxfp8"``. Default: ``"nvfp4"``.

    Examples
    --------
    >>> layer = nn.QQLinear(64, 8)
    >>> layer.weight.shape, layer.eval().weight.shape
    ((8, 64), (8, 8))
    """

    def __init__(
        self, input_dims: int, output_dims: int, group_size: int = None, bits: int = None, mode: str = "nvfp4"
    ) -> None:
        super().__init__()
        self._configure(group_size, bits, mode)
        self.weight = uniform(math.sqrt(1 / input_dims), output_dims, input_dims)
        self._quantized = False

    def _extra_repr(self) -> str:
        input_dims, output_dims = self._features() if self._quantized else self.weight.shape[::-1]
        return describe(input_dims=input_dims, output_dims=output_dims, **self._settings())

    def quantize(self) -> None:
        """Store the weight quantized. Does nothing if it is already.

        Examples
        --------
        >>> layer = nn.QQLinear(64, 8)
        >>> layer.quantize()
        >>> sorted(layer)
        ['scales', 'weight']
        """
        if not self._quantized:
            self.weight, self.scales, *_ = mx.quantize(self.weight, **self._settings())
            self._quantized = True

    def dequantize(self) -> None:
        """Undo :meth:`quantize`, up to its rounding.

        Examples
        --------
        >>> layer = nn.QQLinear(64, 8)
        >>> layer.quantize()
        >>> layer.dequantize()
        >>> list(layer)
        ['weight']
        """
        if self._quantized:
            self.weight = mx.dequantize(self.weight, self.scales, **self._settings())
            del self.scales
            self._quantized = False

    def _set_training_mode(self, mode: bool) -> None:
        super()._set_training_mode(mode)
        (self.dequantize if mode else self.quantize)()

    def __call__(self, x: mx.array) -> mx.array:
        return mx.qqmm(x, self["weight"], self.get("scales"), **self._settings())

    @classmethod
    def from_linear(
        cls, linear_layer: Module, group_size: int = None, bits: int = None, mode: str = "nvfp4"
    ) -> "QQLinear":
        """Make a layer with the weight of a :class:`Linear` layer.

        Parameters
        ----------
        linear_layer : Linear
            A layer without bias; it is not changed.
        group_size, bits, mode
            As for :class:`QQLinear`.

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
        >>> nn.QQLinear.from_linear(nn.Linear(64, 8, bias=False))
        QQLinear(input_dims=64, output_dims=8, group_size=16, bits=4, mode=nvfp4)
        """
        if "bias" in linear_layer:
            raise NotImplementedError("cannot make a QQLinear of a layer with a bias; use bias=False")
        weight = linear_layer.weight
        layer = cls(weight.shape[1], weight.shape[0], group_size, bits, mode)
        layer.weight = weight
        layer.train(linear_layer.training)
        return layer
