"""Modules whose parameters are sharded over processes and gathered on demand."""

import math
from typing import Any, Callable

import hesper.core as mx
from hesper.utils import tree_flatten, tree_unflatten

from ..utils import split_sizes
from ._parameters import describe
from .base import Module

__all__ = ["FullyShardedModule", "fully_shard"]

Group = mx.distributed.Group


def _gather_function(group: Group, shapes: list[tuple], compute_dtype: mx.Dtype | None) -> Callable:
    """A function from shards to parameters of the given shapes, all in one message.

    Its gradient is averaged over the group, and every process gets its shard.
    """
    count = group.size()
    sizes = [math.prod(shape) // count for shape in shapes]

    @mx.custom_function
    def gather(*shards: mx.array) -> list[mx.array]:
        rows = [shard.reshape(1, -1) for shard in shards]
        if compute_dtype is not None:
            rows = [row.astype(compute_dtype) for row in rows]
        message = mx.distributed.all_gather(mx.concatenate(rows, axis=1), group=group)
        return [part.reshape(shape) for part, shape in zip(split_sizes(message, sizes, 1), shapes)]

    @gather.vjp
    def _(shards: Any, cotangents: Any, outputs: Any) -> Any:
        # A single argument comes without its tuple.
        single = isinstance(shards, mx.array)
        if single:
            shards = [shards]
        if isinstance(cotangents, mx.array):
            cotangents = [cotangents]
        rows = [cotangent.reshape(count, -1) for cotangent in cotangents]
        message = mx.distributed.sum_scatter(mx.concatenate(rows, axis=1), group=group) / count
        gradients = tuple(
            part.reshape(shard.shape).astype(shard.dtype)
            for part, shard in zip(split_sizes(message, sizes, 1), shards)
        )
        return gradients[0] if single else gradients

    return gather


class FullyShardedModule(Module):
    """A module of whose parameters every process keeps a shard.

    A call gathers the whole parameters until it returns; the gradient is averaged over the group and scattered, so
    that every process trains its own shard. Use :func:`fully_shard` to make one.

    Parameters
    ----------
    module : Module
        The module to wrap. Its parameters are replaced by the shards of this process, along the first axis.
    group : Group, optional
        The processes. Default: all.
    compute_dtype : Dtype, optional
        The type to convert the gathered parameters to.

    Raises
    ------
    ValueError
        If a parameter cannot be divided evenly along its first axis.

    Examples
    --------
    >>> module = nn.FullyShardedModule(nn.Linear(4, 2))
    >>> module(mx.zeros((3, 4))).shape
    (3, 2)
    >>> module
    FullyShardedModule(num_sharded_params=2
      (module): Linear(input_dims=4, output_dims=2, bias=True)
    )
    """

    def __init__(self, module: Module, group: Group | None = None, compute_dtype: mx.Dtype | None = None) -> None:
        super().__init__()
        group = group or mx.distributed.init()
        count = group.size()
        self.module = module

        parameters = _unsharded_parameters(module)
        for path, parameter in parameters.items():
            if parameter.ndim == 0 or parameter.shape[0] % count:
                raise ValueError(
                    f"cannot shard {path} of shape {parameter.shape} over {count} processes; its first axis must be a "
                    f"multiple of {count}"
                )
        # A list set as an attribute would become an item of the module.
        object.__setattr__(self, "_paths", list(parameters))
        self._gather_fn = _gather_function(group, [p.shape for p in parameters.values()], compute_dtype)
        self._replace({path: mx.contiguous(mx.split(p, count)[group.rank()]) for path, p in parameters.items()})

    def _extra_repr(self) -> str:
        return describe(num_sharded_params=len(self._paths))

    def _replace(self, parameters: dict[str, mx.array]) -> None:
        if parameters:
            self.module.update(tree_unflatten(parameters))

    def _call_gathered(self, fn: Callable, *args: Any, **kwargs: Any) -> Any:
        """Call ``fn`` while the wrapped module has its whole parameters."""
        flat = tree_flatten(self.module.parameters(), destination={})
        shards = [flat[path] for path in self._paths]
        try:
            if shards:
                self._replace(dict(zip(self._paths, self._gather_fn(*shards))))
            return fn(*args, **kwargs)
        finally:
            self._replace(dict(zip(self._paths, shards)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_gathered(self.module, *args, **kwargs)

    def as_linear(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``as_linear`` of the wrapped module with its whole parameters.

        Examples
        --------
        >>> module = nn.FullyShardedModule(nn.Embedding(10, 4))
        >>> module.as_linear(mx.zeros((2, 4))).shape
        (2, 10)
        """
        return self._call_gathered(self.module.as_linear, *args, **kwargs)


def _unsharded_parameters(module: Module) -> dict[str, mx.array]:
    """The parameters of a module by path, without those of fully sharded submodules."""
    tree = module.filter_and_map(
        lambda m, key, value: not isinstance(value, FullyShardedModule)
        and Module.valid_parameter_filter(m, key, value)
    )
    return tree_flatten(tree, destination={})


def fully_shard(module: Module, *, group: Group | None = None, compute_dtype: mx.Dtype | None = None) -> Module:
    """Shard the parameters of a module over a group of processes.

    Parameters
    ----------
    module : Module
        The module.
    group : Group, optional
        The processes. Default: all.
    compute_dtype : Dtype, optional
        The type to convert the gathered parameters to.

    Returns
    -------
    Module
        A :class:`FullyShardedModule`; or ``module`` itself if there is only one process or it is one already.

    Examples
    --------
    >>> nn.fully_shard(nn.Linear(4, 2))
    Linear(input_dims=4, output_dims=2, bias=True)
    """
    group = group or mx.distributed.init()
    if isinstance(module, FullyShardedModule) or group.size() == 1:
        return module
    return FullyShardedModule(module, group, compute_dtype)
