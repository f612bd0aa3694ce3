"""Linear layers that are sharded over processes.

*All to sharded*: every process has the whole input and computes a part of the output features. *Sharded to all*: every
process has a part of the input features, and the partial results are summed. In a group of one process both are plain
linear layers; in a larger one the collectives of ``hesper.core.distributed`` raise, because there is no communication
between processes yet. Fully sharded modules, which gather their parameters when they are called, are in
:mod:`.fully_sharded`.
"""

import math
from functools import lru_cache
from typing import Any, Callable, ClassVar

import hesper.core as mx
from hesper.utils import tree_map_with_path

from ._parameters import describe, uniform
from .base import Module
from .fully_sharded import FullyShardedModule, fully_shard
from .linear import Linear, affine
from .quantized import Quantized

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

Group = mx.distributed.Group
# The number of equal parts to shard separately, or the indices or fractions at which to split.
Segments = int | list


@lru_cache
def sum_gradients(group: Group) -> Callable[[mx.array], mx.array]:
    """The identity, with a gradient that is summed over a group.

    Parameters
    ----------
    group : Group
        The processes.

    Examples
    --------
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


def _split(weight: mx.array, segments: Segments, axis: int) -> list[mx.array]:
    if not isinstance(segments, int):
        size = weight.shape[axis]
        segments = [int(place * size) if isinstance(place, float) else place for place in segments]
    return mx.split(weight, segments, axis)


def _local_shards(parameters: dict, predicate: Callable, group: Group | None) -> dict:
    """The shards of this process of a tree of parameters.

    The predicate takes a path and an array and returns ``None`` to keep the array whole, or the axis to shard,
    optionally with the segments to shard separately.
    """
    group = group or mx.distributed.init()

    def shard(path: str, weight: Any) -> Any:
        answer = predicate(path, weight) if isinstance(weight, mx.array) else None
        if answer is None:
            return weight
        axis, segments = (answer, 1) if isinstance(answer, int) else answer
        parts = (_split(segment, group.size(), axis)[group.rank()] for segment in _split(weight, segments, axis))
        return mx.contiguous(mx.concatenate(list(parts), axis))

    return tree_map_with_path(shard, parameters)


def _output_features(segments: Segments) -> Callable:
    """Shard the last axis but one of a weight and all of a bias."""
    return lambda path, weight: (max(weight.ndim - 2, 0), segments)


def _input_features(segments: Segments) -> Callable:
    """Shard the last axis of a weight; a bias stays whole."""
    return lambda path, weight: None if path.endswith("bias") else (-1, segments)


_SHARDINGS = {"all-to-sharded": _output_features, "sharded-to-all": _input_features}


def _require_known(sharding: Any) -> None:
    if sharding not in _SHARDINGS:
        raise ValueError(f"cannot shard with {sharding=}; choose one of {', '.join(map(repr, _SHARDINGS))}")


def shard_inplace(
    module: Module, sharding: str | Callable, *, segments: Segments = 1, group: Group | None = None
) -> None:
    """Replace the parameters of a module by the shards of this process.

    The module itself does not change: it has to communicate where that is needed.

    Parameters
    ----------
    module : Module
        The module.
    sharding : {'all-to-sharded', 'sharded-to-all'} or callable
        The features to shard; or a function of a parameter's name and value that returns ``None``, the axis, or the
        axis and the segments.
    segments : int or list
        The number of parts, or the indices or fractions at which to split, before sharding each; for instance 3 for
        weights of queries, keys and values in one array. Default: ``1``.
    group : Group, optional
        The processes. Default: all.

    Raises
    ------
    ValueError
        If ``sharding`` is an unknown name.

    Examples
    --------
    >>> from hesper.nn.layers.distributed import shard_inplace
    >>> layer = nn.Linear(4, 4)
    >>> shard_inplace(layer, "all-to-sharded")
    >>> layer.weight.shape
    (4, 4)
    """
    if isinstance(sharding, str):
        _require_known(sharding)
        sharding = _SHARDINGS[sharding](segments)
    module.update(_local_shards(module.parameters(), sharding, group))


def shard_linear(module: Module, sharding: str, *, segments: Segments = 1, group: Group | None = None) -> Module:
    """A distributed version of a linear layer.

    Parameters
    ----------
    module : Linear or QuantizedLinear
        The layer; it is not changed.
    sharding : {'all-to-sharded', 'sharded-to-all'}
        The features to shard.
    segments, group
        As for :func:`shard_inplace`.

    Returns
    -------
    Module
        The distributed layer, with the shards of this process.

    Raises
    ------
    ValueError
        If ``sharding`` is an unknown name.

    Examples
    --------
    >>> from hesper.nn.layers.distributed import shard_linear
    >>> shard_linear(nn.Linear(4, 2), "sharded-to-all")
    ShardedToAllLinear(input_dims=4, output_dims=2, bias=True)
    """
    _require_known(sharding)
    outputs = sharding == "all-to-sharded"
    if isinstance(module, Linear):
        return (AllToShardedLinear if outputs else ShardedToAllLinear).from_linear(
            module, segments=segments, group=group
        )
    return (QuantizedAllToShardedLinear if outputs else QuantizedShardedToAllLinear).from_quantized_linear(
        module, segments=segments, group=group
    )


class _Sharded(Module):
    """A linear layer with a shard of the weight along ``_axis``: 0 for output features, 1 for input features."""

    _axis: ClassVar[int]

    def _shard_shape(self, input_dims: int, output_dims: int, group: Group | None) -> tuple[int, int]:
        """Set the group and return the shape of a shard of the weight."""
        self.group = group or mx.distributed.init()
        shape, count = [output_dims, input_dims], self.group.size()
        if shape[self._axis] % count:
            raise ValueError(
                f"cannot shard {shape[self._axis]} {('output', 'input')[self._axis]} features over {count} processes; "
                f"use a multiple of {count}"
            )
        shape[self._axis] //= count
        return tuple(shape)

    def _whole(self, input_dims: int, output_dims: int) -> dict[str, int]:
        """The features of all processes together, given those of the shard."""
        dims = [output_dims, input_dims]
        dims[self._axis] *= self.group.size()
        return {"input_dims": dims[1], "output_dims": dims[0]}

    @classmethod
    def _sharded_from(cls, layer: Module, features: tuple, segments: Segments, group: Group | None, **settings: Any):
        sharded = cls(*features, "bias" in layer, group=group, **settings)
        predicate = (_output_features, _input_features)[cls._axis](segments)
        sharded.update(_local_shards(layer.parameters(), predicate, group))
        return sharded


class _AllToSharded(_Sharded):
    _axis = 0

    def __call__(self, x: mx.array) -> mx.array:
        return self._affine(sum_gradients(self.group)(x))


class _ShardedToAll(_Sharded):
    _axis = 1

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.distributed.all_sum(self._matmul(x), group=self.group)
        return y + self["bias"] if "bias" in self else y


class _ShardedLinear(_Sharded):
    def __init__(
        self, input_dims: int, output_dims: int, bias: bool = True, group: Group | None = None
    ) -> None:
        super().__init__()
        shape = self._shard_shape(input_dims, output_dims, group)
        bound = math.sqrt(1.0 / input_dims)
        self.weight = uniform(bound, *shape)
        if bias:
            self.bias = uniform(bound, shape[0])

    def _extra_repr(self) -> str:
        return describe(**self._whole(*self.weight.shape[::-1]), bias="bias" in self)

    def _matmul(self, x: mx.array) -> mx.array:
        return x @ self["weight"].T

    def _affine(self, x: mx.array) -> mx.array:
        return affine(self, x)

    @classmethod
    def from_linear(cls, linear_layer: Module, *, segments: Segments = 1, group: Group | None = None) -> Module:
        """Distribute a :class:`Linear` layer.

        Parameters
        ----------
        linear_layer : Linear
            The layer; it is not changed.
        segments, group
            As for :func:`shard_inplace`.

        Returns
        -------
        Module
            A layer with the shards of this process.

        Examples
        --------
        >>> nn.AllToShardedLinear.from_linear(nn.Linear(4, 2))
        AllToShardedLinear(input_dims=4, output_dims=2, bias=True)
        """
        return cls._sharded_from(linear_layer, linear_layer.weight.shape[::-1], segments, group)


class AllToShardedLinear(_AllToSharded, _ShardedLinear):
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
    >>> nn.AllToShardedLinear(4, 2)(mx.zeros((3, 4))).shape
    (3, 2)
    """


class ShardedToAllLinear(_ShardedToAll, _ShardedLinear):
    """A linear layer of which every process has some input features.

    The results are summed over the group.

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
    >>> nn.ShardedToAllLinear(4, 2)(mx.zeros((3, 4))).shape
    (3, 2)
    """


class _QuantizedShardedLinear(_Sharded, Quantized):
    def __init__(
        self, input_dims: int, output_dims: int, bias: bool = True, group_size: int = 64, bits: int = 4,
        mode: str = "affine", group: Group | None = None,
    ) -> None:
        super().__init__()
        shape = self._shard_shape(input_dims, output_dims, group)
        self._configure(group_size, bits, mode)
        self._store(uniform(math.sqrt(1.0 / input_dims), *shape))
        if bias:
            self.bias = mx.zeros(shape[:1])
        self.freeze()

    def unfreeze(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the parameters stay frozen.

        Examples
        --------
        >>> layer = nn.QuantizedAllToShardedLinear(64, 8)
        >>> layer.unfreeze()
        >>> layer.trainable_parameters()
        {}
        """
        super().unfreeze(*args, **kwargs)
        self.freeze(recurse=False)

    def _extra_repr(self) -> str:
        return describe(**self._whole(*self._features()), bias="bias" in self, **self._settings())

    @classmethod
    def from_quantized_linear(
        cls, quantized_linear_layer: Module, *, segments: Segments = 1, group: Group | None = None
    ) -> Module:
        """Distribute a :class:`QuantizedLinear` layer.

        Parameters
        ----------
        quantized_linear_layer : QuantizedLinear
            The layer; it is not changed.
        segments, group
            As for :func:`shard_inplace`.

        Returns
        -------
        Module
            A layer with the shards of this process.

        Examples
        --------
        >>> layer = nn.QuantizedLinear(64, 8)
        >>> nn.QuantizedAllToShardedLinear.from_quantized_linear(layer).weight.shape
        (8, 8)
        """
        layer = quantized_linear_layer
        return cls._sharded_from(
            layer, Quantized._features(layer), segments, group, **Quantized._settings(layer)
        )


class QuantizedAllToShardedLinear(_AllToSharded, _QuantizedShardedLinear):
    """The quantized version of :class:`AllToShardedLinear`. Its parameters are frozen.

    Parameters
    ----------
    input_dims, output_dims, bias, group
        As for :class:`AllToShardedLinear`.
    group_size : int
        The number of weights that share a scale. Default: ``64``.
    bits : int
        The bits of one weight. Default: ``4``.
    mode : str
        The quantization mode. Default: ``"affine"``.

    Raises
    ------
    ValueError
        If the size of the group does not divide ``output_dims``.

    Examples
    --------
    >>> nn.QuantizedAllToShardedLinear(64, 8)(mx.zeros((3, 64))).shape
    (3, 8)
    """


class QuantizedShardedToAllLinear(_ShardedToAll, _QuantizedShardedLinear):
    """The quantized version of :class:`ShardedToAllLinear`. Its parameters are frozen.

    Parameters
    ----------
    input_dims, output_dims, bias, group
        As for :class:`ShardedToAllLinear`.
    group_size, bits, mode
        As for :class:`QuantizedAllToShardedLinear`.

    Raises
    ------
    ValueError
        If the size of the group does not divide ``input_dims``.

    Examples
    --------
    >>> nn.QuantizedShardedToAllLinear(64, 8)(mx.zeros((3, 64))).shape
    (3, 8)
    """
