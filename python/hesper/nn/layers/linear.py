"""Linear and bilinear maps."""

import math
from typing import Any

import hesper.core as mx

from ._parameters import describe, uniform
from .base import Module
from .quantized import QQLinear, QuantizedLinear

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input. The constructor ignores its arguments.

    Examples
    --------
    >>> nn.Identity(512, anything=True)(3)
    3
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __call__(self, x: mx.array) -> mx.array:
        return x


class Linear(Module):
    """Computes ``x @ weight.T + bias``.

    The parameters start uniformly distributed between ``-1 / sqrt(input_dims)`` and ``1 / sqrt(input_dims)``.

    Parameters
    ----------
    input_dims : int
        The number of input features.
    output_dims : int
        The number of output features.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> nn.Linear(4, 2)(mx.zeros((3, 4))).shape
    (3, 2)
    """

    def __init__(self, input_dims: int, output_dims: int, bias: bool = True) -> None:
        super().__init__()
        bound = math.sqrt(1.0 / input_dims)
        self.weight = uniform(bound, output_dims, input_dims)
        if bias:
            self.bias = uniform(bound, output_dims)

    def _extra_repr(self) -> str:
        output_dims, input_dims = self.weight.shape
        return describe(input_dims=input_dims, output_dims=output_dims, bias="bias" in self)

    __call__ = Module._linear

    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine",
        quantize_input: bool = False,
    ) -> Module:
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
            Whether to quantize the input too (``"nvfp4"`` and ``"mxfp8"`` only). Default: ``False``.

        Returns
        -------
        QuantizedLinear or QQLinear
            The latter if ``quantize_input``.

        Raises
        ------
        ValueError
            If the mode cannot quantize the input.

        Examples
        --------
        >>> nn.Linear(64, 8).to_quantized(bits=8)
        QuantizedLinear(input_dims=64, output_dims=8, bias=True, group_size=64, bits=8, mode=affine)
        """
        if quantize_input and mode not in ("nvfp4", "mxfp8"):
            raise ValueError(f"cannot quantize the input in mode '{mode}'; use 'nvfp4' or 'mxfp8'")
        kind = QQLinear if quantize_input else QuantizedLinear
        return kind.from_linear(self, group_size, bits, mode)


def affine(layer: Module, x: mx.array) -> mx.array:
    """``x`` times the transposed weight of a layer, plus its bias if it has one."""
    weight = layer["weight"].T
    return mx.addmm(layer["bias"], x, weight) if "bias" in layer else x @ weight


class Bilinear(Module):
    """Computes ``x2 @ weight[i] @ x1 + bias[i]`` for every output ``i``.

    The parameters start uniformly distributed between ``-1 / sqrt(input1_dims)`` and ``1 / sqrt(input1_dims)``.

    Parameters
    ----------
    input1_dims : int
        The number of features of the first input.
    input2_dims : int
        The number of features of the second input.
    output_dims : int
        The number of output features.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> nn.Bilinear(4, 5, 2)(mx.zeros((3, 4)), mx.zeros((3, 5))).shape
    (3, 2)
    """

    def __init__(self, input1_dims: int, input2_dims: int, output_dims: int, bias: bool = True) -> None:
        super().__init__()
        bound = math.sqrt(1.0 / input1_dims)
        self.weight = uniform(bound, output_dims, input2_dims, input1_dims)
        if bias:
            self.bias = uniform(bound, output_dims)

    def _extra_repr(self) -> str:
        outputs, second, first = self.weight.shape
        return describe(input1_dims=first, input2_dims=second, output_dims=outputs, bias="bias" in self)

    def __call__(self, x1: mx.array, x2: mx.array) -> mx.array:
        outputs, second, first = self.weight.shape
        # One product with all the matrices, then one small product per row.
        y = x1.reshape(-1, first) @ self.weight.reshape(outputs * second, first).T
        y = x2.reshape(-1, 1, second) @ y.reshape(-1, outputs, second).swapaxes(-2, -1)
        y = y.squeeze(1).reshape(*x1.shape[:-1], outputs)
        return y + self.bias if "bias" in self else y
