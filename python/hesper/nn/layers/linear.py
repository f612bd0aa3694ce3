"""Linear and bilinear maps."""

import math
from typing import Any, Optional

import hesper.core as mx

from .base import Module
from .quantized import QQLinear, QuantizedLinear

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input. Arguments of the constructor are ignored.

    Examples
    --------
    >>> import hesper.nn as nn
    >>> nn.Identity(512, anything=True)(3)
    3
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __call__(self, x: mx.array) -> mx.array:
        return x


class Linear(Module):
    """Computes ``x @ weight.T + bias``.

    The parameters start uniformly distributed between
    ``-1 / sqrt(input_dims)`` and ``1 / sqrt(input_dims)``.

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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Linear(4, 2)(mx.zeros((3, 4))).shape
    (3, 2)
    """

    def __init__(self, input_dims: int, output_dims: int, bias: bool = True) -> None:
        super().__init__()
        scale = math.sqrt(1.0 / input_dims)
        self.weight = mx.random.uniform(
            low=-scale, high=scale, shape=(output_dims, input_dims)
        )
        if bias:
            self.bias = mx.random.uniform(low=-scale, high=scale, shape=(output_dims,))

    def _extra_repr(self) -> str:
        shape = self.weight.shape
        return f"input_dims={shape[1]}, output_dims={shape[0]}, bias={'bias' in self}"

    def __call__(self, x: mx.array) -> mx.array:
        if "bias" in self:
            return mx.addmm(self["bias"], x, self["weight"].T)
        return x @ self["weight"].T

    def to_quantized(
        self,
        group_size: Optional[int] = None,
        bits: Optional[int] = None,
        mode: str = "affine",
        quantize_input: bool = False,
    ) -> Module:
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
            Whether to quantize the input too (``"nvfp4"`` and ``"mxfp8"``
            only). Default: ``False``.

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
        >>> import hesper.nn as nn
        >>> nn.Linear(64, 8).to_quantized(bits=8)
        QuantizedLinear(input_dims=64, output_dims=8, bias=True, group_size=64, bits=8, mode=affine)
        """
        if not quantize_input:
            return QuantizedLinear.from_linear(self, group_size, bits, mode)
        if mode not in ("nvfp4", "mxfp8"):
            raise ValueError(
                "Quantized activations are only supported for 'nvfp4' and 'mxfp8' "
                f"modes, got {mode}."
            )
        return QQLinear.from_linear(self, group_size, bits, mode)


class Bilinear(Module):
    """Computes ``x2 @ weight[i] @ x1 + bias[i]`` for every output ``i``.

    The parameters start uniformly distributed between
    ``-1 / sqrt(input1_dims)`` and ``1 / sqrt(input1_dims)``.

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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Bilinear(4, 5, 2)(mx.zeros((3, 4)), mx.zeros((3, 5))).shape
    (3, 2)
    """

    def __init__(
        self, input1_dims: int, input2_dims: int, output_dims: int, bias: bool = True
    ) -> None:
        super().__init__()
        scale = math.sqrt(1.0 / input1_dims)
        self.weight = mx.random.uniform(
            low=-scale, high=scale, shape=(output_dims, input2_dims, input1_dims)
        )
        if bias:
            self.bias = mx.random.uniform(low=-scale, high=scale, shape=(output_dims,))

    def _extra_repr(self) -> str:
        out, in2, in1 = self.weight.shape
        return (
            f"input1_dims={in1}, input2_dims={in2}, output_dims={out}, "
            f"bias={'bias' in self}"
        )

    def __call__(self, x1: mx.array, x2: mx.array) -> mx.array:
        out, in2, in1 = self.weight.shape
        batch = x1.shape[:-1]
        # One product with all the matrices, then one small product per row.
        weight = self.weight.reshape(out * in2, in1)
        y = (x1.reshape(-1, in1) @ weight.T).reshape(-1, out, in2)
        y = (x2.reshape(-1, 1, in2) @ y.swapaxes(-2, -1)).squeeze(1)
        y = y.reshape(*batch, out)
        return y + self.bias if "bias" in self else y
