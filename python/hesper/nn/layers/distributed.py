"""Linear layers that are spread over processes.

*All to sharded*: every process has the whole input and computes a part of the
output features. *Sharded to all*: every process has a part of the input
features, and the partial results are summed. In a group of one process both
are plain linear layers. Fully sharded modules, which gather their parameters
when they are called, are in :mod:`.fully_sharded`.
"""

import math
from functools import lru_cache
from typing import Any, Callable, Optional, Union

import hesper.core as mx
from hesper.utils import tree_map_with_path

from .base import Module
from .fully_sharded import FullyShardedModule, fully_shard
from .linear import Linear
from .quantized import _quantize_into

__all__ = [
    "AllToShardedLinear",
    "FullyShardedModule",
    "QuantizedAllToShardedLinear",
    "QuantizedShardedToAllLinear",
    "ShardedToAllLinear",
    "fully_shard",
    "shard_inplace",
    "shard_linear",
    "sum_gradients",
]


@lru_cache
def sum_gradients(group: mx.distributed.Group) -> Callable[[mx.array], mx.array]:
    """The identity, whose gradient is summed over a group.

    Parameters
    ----------
    group : Group
        The processes.

    Returns
    -------
    callable
        Takes an array and returns it.

    Examples
    --------
    >>> import hesper.core as mx
    >>> from hesper.nn.layers.distributed import sum_gradients
    >>> sum_gradients(mx.distributed.init())(mx.ones(2)).tolist()
    [1.0, 1.0]
    """
    if group.size() == 1:
        return lambda x: x

    @mx.custom_function
    def identity(x: mx.array) -> mx.array:
        return x

    @identity.vjp
    def _(x: mx.array, cotangent: mx.array, output: mx.array) -> mx.array:
        return mx.distributed.all_sum(cotangent, group=group)

    return identity


def _split(weight: mx.array, segments: Union[int, list], axis: int) -> list:
    """Split along ``axis`` into equal parts, or at indices or fractions of its size."""
    if isinstance(segments, int):
        return mx.split(weight, segments, axis=axis)
    size = weight.shape[axis]
    places = [int(s * size) if isinstance(s, float) else s for s in segments]
    return mx.split(weight, places, axis=axis)


def _shard(
    parameters: dict,
    sharding_predicate: Callable,
    group: Optional[mx.distributed.Group] = None,
) -> dict:
    """This process' shards of a tree of parameters.

    The predicate takes a path and an array and returns ``None`` to keep the
    array whole, or the axis to shard, optionally with the segments that are to
    be sharded separately.
    """
    group = group or mx.distributed.init()
    count, rank = group.size(), group.rank()

    def shard(path: str, weight: Any) -> Any:
        if not isinstance(weight, mx.array):
            return weight
        answer = sharding_predicate(path, weight)
        if answer is None:
            return weight
        axis, segments = (answer, 1) if isinstance(answer, int) else answer
        parts = [
            _split(segment, count, axis)[rank]
            for segment in _split(weight, segments, axis)
        ]
        return mx.contiguous(mx.concatenate(parts, axis=axis))

    return tree_map_with_path(shard, parameters)


def _all_to_sharded(segments: Union[int, list]) -> Callable:
    """Shard the output features: the last axis but one of a weight, all of a bias."""

    def predicate(path: str, weight: mx.array) -> Any:
        return max(weight.ndim - 2, 0), segments

    return predicate


def _sharded_to_all(segments: Union[int, list]) -> Callable:
    """Shard the input features: the last axis of a weight; a bias stays whole."""

    def predicate(path: str, weight: mx.array) -> Any:
        return None if path.endswith("bias") else (-1, segments)

    return predicate


_SHARDINGS = {"all-to-sharded": _all_to_sharded, "sharded-to-all": _sharded_to_all}


def _check_sharding(sharding: Any) -> None:
    if sharding not in _SHARDINGS:
        raise ValueError(
            f"Sharding type {sharding=} not supported, choose one of "
            "'all-to-sharded' or 'sharded-to-all'"
        )


def shard_inplace(
    module: Module,
    sharding: Union[str, Callable],
    *,
    segments: Union[int, list] = 1,
    group: Optional[mx.distributed.Group] = None,
) -> None:
    """Replace the parameters of a module by this process' shards of them.

    The module stays the same: it has to know by itself when to communicate.

    Parameters
    ----------
    module : Module
        The module.
    sharding : {'all-to-sharded', 'sharded-to-all'} or callable
        Which features to shard; or a function of a parameter's name and value
        that returns ``None``, the axis, or the axis and the segments.
    segments : int or list
        Into how many parts, or at which indices or fractions, to divide
        before sharding; for instance 3 for weights of queries, keys and
        values in one array. Default: ``1``.
    group : Group, optional
        The processes. Default: all.

    Raises
    ------
    ValueError
        If ``sharding`` is an unknown name.

    Examples
    --------
    >>> import hesper.nn as nn
    >>> from hesper.nn.layers.distributed import shard_inplace
    >>> layer = nn.Linear(4, 4)
    >>> shard_inplace(layer, "all-to-sharded")
    >>> layer.weight.shape
    (4, 4)
    """
    if isinstance(sharding, str):
        _check_sharding(sharding)
        sharding = _SHARDINGS[sharding](segments)
    module.update(_shard(module.parameters(), sharding, group))


def shard_linear(
    module: Module,
    sharding: str,
    *,
    segments: Union[int, list] = 1,
    group: Optional[mx.distributed.Group] = None,
) -> Module:
    """A distributed version of a linear layer.

    Parameters
    ----------
    module : Linear or QuantizedLinear
        The layer; it is not changed.
    sharding : {'all-to-sharded', 'sharded-to-all'}
        Which features to shard.
    segments : int or list
        See :func:`shard_inplace`. Default: ``1``.
    group : Group, optional
        The processes. Default: all.

    Returns
    -------
    Module
        The distributed layer, with this process' shard of the parameters.

    Raises
    ------
    ValueError
        If ``sharding`` is an unknown name.

    Examples
    --------
    >>> import hesper.nn as nn
    >>> from hesper.nn.layers.distributed import shard_linear
    >>> shard_linear(nn.Linear(4, 2), "sharded-to-all")
    ShardedToAllLinear(input_dims=4, output_dims=2, bias=True)
    """
    _check_sharding(sharding)
    to_sharded = sharding == "all-to-sharded"
    if isinstance(module, Linear):
        make = (AllToShardedLinear if to_sharded else ShardedToAllLinear).from_linear
    else:
        make = (
            QuantizedAllToShardedLinear if to_sharded else QuantizedShardedToAllLinear
        ).from_quantized_linear
    return make(module, segments=segments, group=group)


def _part(size: int, group: mx.distributed.Group, what: str) -> int:
    """The share of one process in ``size`` features."""
    count = group.size()
    if size % count != 0:
        raise ValueError(f"Cannot shard the {what} of size {size} across {count} devices.")
    return size // count


class AllToShardedLinear(Module):
    """A linear layer of which every process computes some output features.

    The gradient of the input is summed over the group.

    Parameters
    ----------
    input_dims : int
        The number of input features.
    output_dims : int
        The number of output features of all processes together.
    bias : bool
        Whether to have a bias. Default: ``True``.
    group : Group, optional
        The processes. Default: all.

    Raises
    ------
    ValueError
        If the size of the group does not divide ``output_dims``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.AllToShardedLinear(4, 2)(mx.zeros((3, 4))).shape
    (3, 2)
    """

    def __init__(
        self,
        input_dims: int,
        output_dims: int,
        bias: bool = True,
        group: Optional[mx.distributed.Group] = None,
    ) -> None:
        super().__init__()
        self.group = group or mx.distributed.init()
        part = _part(output_dims, self.group, "output")
        scale = math.sqrt(1.0 / input_dims)
        self.weight = mx.random.uniform(low=-scale, high=scale, shape=(part, input_dims))
        if bias:
            self.bias = mx.random.uniform(low=-scale, high=scale, shape=(part,))

    def _extra_repr(self) -> str:
        output_dims, input_dims = self.weight.shape
        output_dims *= self.group.size()
        return f"input_dims={input_dims}, output_dims={output_dims}, bias={'bias' in self}"

    def __call__(self, x: mx.array) -> mx.array:
        x = sum_gradients(self.group)(x)
        if "bias" in self:
            return mx.addmm(self["bias"], x, self["weight"].T)
        return x @ self["weight"].T

    @classmethod
    def from_linear(
        cls,
        linear_layer: Module,
        *,
        segments: Union[int, list] = 1,
        group: Optional[mx.distributed.Group] = None,
    ) -> "AllToShardedLinear":
        """Distribute a :class:`Linear` layer.

        Parameters
        ----------
        linear_layer : Linear
            The layer; it is not changed.
        segments : int or list
            See :func:`shard_inplace`. Default: ``1``.
        group : Group, optional
            The processes. Default: all.

        Returns
        -------
        AllToShardedLinear
            A layer with this process' shard of the parameters.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.AllToShardedLinear.from_linear(nn.Linear(4, 2))
        AllToShardedLinear(input_dims=4, output_dims=2, bias=True)
        """
        group = group or mx.distributed.init()
        output_dims, input_dims = linear_layer.weight.shape
        layer = cls(input_dims, output_dims, "bias" in linear_layer, group)
        layer.update(_shard(linear_layer.parameters(), _all_to_sharded(segments), group))
        return layer


class ShardedToAllLinear(Module):
    """A linear layer of which every process has some input features.

    The results are summed, so that all processes have the same.

    Parameters
    ----------
    input_dims : int
        The number of input features of all processes together.
    output_dims : int
        The number of output features.
    bias : bool
        Whether to have a bias. Default: ``True``.
    group : Group, optional
        The processes. Default: all.

    Raises
    ------
    ValueError
        If the size of the group does not divide ``input_dims``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ShardedToAllLinear(4, 2)(mx.zeros((3, 4))).shape
    (3, 2)
    """

    def __init__(
        self,
        input_dims: int,
        output_dims: int,
        bias: bool = True,
        group: Optional[mx.distributed.Group] = None,
    ) -> None:
        super().__init__()
        self.group = group or mx.distributed.init()
        part = _part(input_dims, self.group, "input")
        scale = math.sqrt(1.0 / input_dims)
        self.weight = mx.random.uniform(low=-scale, high=scale, shape=(output_dims, part))
        if bias:
            self.bias = mx.random.uniform(low=-scale, high=scale, shape=(output_dims,))

    def _extra_repr(self) -> str:
        output_dims, input_dims = self.weight.shape
        input_dims *= self.group.size()
        return f"input_dims={input_dims}, output_dims={output_dims}, bias={'bias' in self}"

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.distributed.all_sum(x @ self["weight"].T, group=self.group)
        return y + self["bias"] if "bias" in self else y

    @classmethod
    def from_linear(
        cls,
        linear_layer: Module,
        *,
        segments: Union[int, list] = 1,
        group: Optional[mx.distributed.Group] = None,
    ) -> "ShardedToAllLinear":
        """Distribute a :class:`Linear` layer.

        Parameters
        ----------
        linear_layer : Linear
            The layer; it is not changed.
        segments : int or list
            See :func:`shard_inplace`. Default: ``1``.
        group : Group, optional
            The processes. Default: all.

        Returns
        -------
        ShardedToAllLinear
            A layer with this process' shard of the parameters.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.ShardedToAllLinear.from_linear(nn.Linear(4, 2))
        ShardedToAllLinear(input_dims=4, output_dims=2, bias=True)
        """
        group = group or mx.distributed.init()
        output_dims, input_dims = linear_layer.weight.shape
        layer = cls(input_dims, output_dims, "bias" in linear_layer, group)
        layer.update(_shard(linear_layer.parameters(), _sharded_to_all(segments), group))
        return layer


class _QuantizedShardedLinear(Module):
    """What the two quantized layers share."""

    def unfreeze(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing to the layer's own parameters: they stay frozen.

        Parameters
        ----------
        *args, **kwargs
            As for :meth:`Module.unfreeze`.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.QuantizedAllToShardedLinear(64, 8)
        >>> layer.unfreeze()
        >>> layer.trainable_parameters()
        {}
        """
        super().unfreeze(*args, **kwargs)
        self.freeze(recurse=False)

    def _set_up(
        self,
        shape: tuple,
        input_dims: int,
        output_bias: Optional[int],
        group_size: int,
        bits: int,
        mode: str,
    ) -> None:
        self.group_size = group_size
        self.bits = bits
        self.mode = mode
        scale = math.sqrt(1.0 / input_dims)
        _quantize_into(self, mx.random.uniform(low=-scale, high=scale, shape=shape))
        if output_bias is not None:
            self.bias = mx.zeros((output_bias,))
        self.freeze()

    def _describe(self, input_dims: int, output_dims: int) -> str:
        return (
            f"input_dims={input_dims}, output_dims={output_dims}, "
            f"bias={'bias' in self}, group_size={self.group_size}, bits={self.bits}, "
            f"mode={self.mode}"
        )

    def _multiply(self, x: mx.array) -> mx.array:
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

    @classmethod
    def _distribute(
        cls,
        layer: Module,
        predicate: Callable,
        group: Optional[mx.distributed.Group],
    ) -> Module:
        group = group or mx.distributed.init()
        output_dims, packed_dims = layer.weight.shape
        sharded = cls(
            packed_dims * 32 // layer.bits,
            output_dims,
            "bias" in layer,
            group_size=layer.group_size,
            bits=layer.bits,
            mode=layer.mode,
            group=group,
        )
        sharded.update(_shard(layer.parameters(), predicate, group))
        return sharded


class QuantizedAllToShardedLinear(_QuantizedShardedLinear):
    """The quantized version of :class:`AllToShardedLinear`.

    Its parameters are frozen.

    Parameters
    ----------
    input_dims : int
        The number of input features.
    output_dims : int
        The number of output features of all processes together.
    bias : bool
        Whether to have a bias. Default: ``True``.
    group_size : int
        How many weights share a scale. Default: ``64``.
    bits : int
        The bits of one weight. Default: ``4``.
    mode : str
        The quantization mode. Default: ``"affine"``.
    group : Group, optional
        The processes. Default: all.

    Raises
    ------
    ValueError
        If the size of the group does not divide ``output_dims``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.QuantizedAllToShardedLinear(64, 8)(mx.zeros((3, 64))).shape
    (3, 8)
    """

    def __init__(
        self,
        input_dims: int,
        output_dims: int,
        bias: bool = True,
        group_size: int = 64,
        bits: int = 4,
        mode: str = "affine",
        group: Optional[mx.distributed.Group] = None,
    ) -> None:
        super().__init__()
        self.group = group or mx.distributed.init()
        part = _part(output_dims, self.group, "output")
        self._set_up(
            (part, input_dims), input_dims, part if bias else None, group_size, bits, mode
        )

    def _extra_repr(self) -> str:
        output_dims, packed_dims = self.weight.shape
        return self._describe(
            packed_dims * 32 // self.bits, output_dims * self.group.size()
        )

    def __call__(self, x: mx.array) -> mx.array:
        y = self._multiply(sum_gradients(self.group)(x))
        return y + self["bias"] if "bias" in self else y

    @classmethod
    def from_quantized_linear(
        cls,
        quantized_linear_layer: Module,
        *,
        segments: Union[int, list] = 1,
        group: Optional[mx.distributed.Group] = None,
    ) -> "QuantizedAllToShardedLinear":
        """Distribute a :class:`QuantizedLinear` layer.

        Parameters
        ----------
        quantized_linear_layer : QuantizedLinear
            The layer; it is not changed.
        segments : int or list
            See :func:`shard_inplace`. Default: ``1``.
        group : Group, optional
            The processes. Default: all.

        Returns
        -------
        QuantizedAllToShardedLinear
            A layer with this process' shard of the parameters.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.QuantizedLinear(64, 8)
        >>> nn.QuantizedAllToShardedLinear.from_quantized_linear(layer).weight.shape
        (8, 8)
        """
        return cls._distribute(quantized_linear_layer, _all_to_sharded(segments), group)


class QuantizedShardedToAllLinear(_QuantizedShardedLinear):
    """The quantized version of :class:`ShardedToAllLinear`.

    Its parameters are frozen.

    Parameters
    ----------
    input_dims : int
        The number of input features of all processes together.
    output_dims : int
        The number of output features.
    bias : bool
        Whether to have a bias. Default: ``True``.
    group_size : int
        How many weights share a scale. Default: ``64``.
    bits : int
        The bits of one weight. Default: ``4``.
    mode : str
        The quantization mode. Default: ``"affine"``.
    group : Group, optional
        The processes. Default: all.

    Raises
    ------
    ValueError
        If the size of the group does not divide ``input_dims``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.QuantizedShardedToAllLinear(64, 8)(mx.zeros((3, 64))).shape
    (3, 8)
    """

    def __init__(
        self,
        input_dims: int,
        output_dims: int,
        bias: bool = True,
        group_size: int = 64,
        bits: int = 4,
        mode: str = "affine",
        group: Optional[mx.distributed.Group] = None,
    ) -> None:
        super().__init__()
        self.group = group or mx.distributed.init()
        part = _part(input_dims, self.group, "input")
        self._set_up(
            (output_dims, part),
            input_dims,
            output_dims if bias else None,
            group_size,
            bits,
            mode,
        )

    def _extra_repr(self) -> str:
        output_dims, packed_dims = self.weight.shape
        input_dims = packed_dims * 32 // self.bits * self.group.size()
        return self._describe(input_dims, output_dims)

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.distributed.all_sum(self._multiply(x), group=self.group)
        return y + self["bias"] if "bias" in self else y

    @classmethod
    def from_quantized_linear(
        cls,
        quantized_linear_layer: Module,
        *,
        segments: Union[int, list] = 1,
        group: Optional[mx.distributed.Group] = None,
    ) -> "QuantizedShardedToAllLinear":
        """Distribute a :class:`QuantizedLinear` layer.

        Parameters
        ----------
        quantized_linear_layer : QuantizedLinear
            The layer; it is not changed.
        segments : int or list
            See :func:`shard_inplace`. Default: ``1``.
        group : Group, optional
            The processes. Default: all.

        Returns
        -------
        QuantizedShardedToAllLinear
            A layer with this process' shard of the parameters.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.QuantizedLinear(64, 8)
        >>> nn.QuantizedShardedToAllLinear.from_quantized_linear(layer).weight.shape
        (8, 8)
        """
        return cls._distribute(quantized_linear_layer, _sharded_to_all(segments), group)
