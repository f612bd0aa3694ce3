"""Modules whose parameters are spread over processes and gathered on demand."""

from typing import Any, Callable, Dict, List, Optional

import hesper.core as mx
from hesper.utils import tree_flatten, tree_unflatten

from .base import Module

__all__ = ["FullyShardedModule", "fully_shard"]


def _gather_function(
    group: mx.distributed.Group,
    full_shapes: List[tuple],
    compute_dtype: Optional[mx.Dtype],
) -> Callable[..., List[mx.array]]:
    """A function from shards to whole parameters, all in one message.

    Its gradient is the mean over the group of which every process gets its
    shard.
    """
    count = group.size()
    shard_shapes = [(shape[0] // count, *shape[1:]) for shape in full_shapes]
    ends, end = [], 0
    for shape in shard_shapes:
        size = 1
        for n in shape:
            size *= n
        end += size
        ends.append(end)
    ends = ends[:-1]

    def pieces(message: mx.array) -> List[mx.array]:
        return mx.split(message, ends, axis=1) if ends else [message]

    @mx.custom_function
    def gather(*shards: mx.array) -> List[mx.array]:
        rows = [shard.reshape(1, -1) for shard in shards]
        if compute_dtype is not None:
            rows = [row.astype(compute_dtype) for row in rows]
        message = mx.distributed.all_gather(mx.concatenate(rows, axis=1), group=group)
        return [
            piece.reshape(shape) for piece, shape in zip(pieces(message), full_shapes)
        ]

    @gather.vjp
    def _(shards: Any, cotangents: Any, outputs: Any) -> Any:
        single = isinstance(shards, mx.array)
        shards = [shards] if single else shards
        cotangents = [cotangents] if isinstance(cotangents, mx.array) else cotangents
        rows = [cotangent.reshape(count, -1) for cotangent in cotangents]
        message = mx.distributed.sum_scatter(mx.concatenate(rows, axis=1), group=group)
        gradients = [
            piece.reshape(shard.shape).astype(shard.dtype)
            for piece, shard in zip(pieces(message / count), shards)
        ]
        return gradients[0] if single else tuple(gradients)

    return gather


class FullyShardedModule(Module):
    """A module of whose parameters every process keeps a shard.

    A call gathers the whole parameters for as long as it lasts; the gradient
    is averaged over the group and scattered, so that every process trains its
    own shard. Use :func:`fully_shard` to make one.

    Parameters
    ----------
    module : Module
        The module to wrap. Its parameters are replaced by this process'
        shards, taken along the first axis.
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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> module = nn.FullyShardedModule(nn.Linear(4, 2))
    >>> module(mx.zeros((3, 4))).shape
    (3, 2)
    >>> module
    FullyShardedModule(num_sharded_params=2
      (module): Linear(input_dims=4, output_dims=2, bias=True)
    )
    """

    def __init__(
        self,
        module: Module,
        group: Optional[mx.distributed.Group] = None,
        compute_dtype: Optional[mx.Dtype] = None,
    ) -> None:
        super().__init__()
        group = group or mx.distributed.init()
        count, rank = group.size(), group.rank()
        self.module = module

        parameters = _unsharded_parameters(module)
        # A list of strings set as an attribute would become a part of the tree.
        object.__setattr__(self, "_paths", list(parameters))
        shards = {}
        for path, parameter in parameters.items():
            if parameter.ndim == 0 or parameter.shape[0] % count != 0:
                raise ValueError(
                    f"Cannot shard parameter {path} of shape {parameter.shape} along "
                    f"its first axis across {count} devices."
                )
            shards[path] = mx.contiguous(mx.split(parameter, count, axis=0)[rank])
        self._gather_fn = _gather_function(
            group, [p.shape for p in parameters.values()], compute_dtype
        )
        self._replace(shards)

    def _extra_repr(self) -> str:
        return f"num_sharded_params={len(self._paths)}"

    def _replace(self, values: Dict[str, mx.array]) -> None:
        if values:
            self.module.update(tree_unflatten(values))

    def _gathered_call(self, fn: Callable, *args: Any, **kwargs: Any) -> Any:
        """Call ``fn`` while the wrapped module has its whole parameters."""
        if not self._paths:
            return fn(*args, **kwargs)
        flat = tree_flatten(self.module.parameters(), destination={})
        shards = {path: flat[path] for path in self._paths}
        self._replace(dict(zip(self._paths, self._gather_fn(*shards.values()))))
        try:
            return fn(*args, **kwargs)
        finally:
            self._replace(shards)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._gathered_call(self.module, *args, **kwargs)

    def as_linear(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``as_linear`` of the wrapped module with its whole parameters.

        Parameters
        ----------
        *args, **kwargs
            As for the wrapped module.

        Returns
        -------
        Any
            What the wrapped module returns.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> module = nn.FullyShardedModule(nn.Embedding(10, 4))
        >>> module.as_linear(mx.zeros((2, 4))).shape
        (2, 10)
        """
        return self._gathered_call(self.module.as_linear, *args, **kwargs)


def _unsharded_parameters(module: Module) -> Dict[str, mx.array]:
    """The parameters of a module by path, without those that are sharded already."""
    tree = module.filter_and_map(
        lambda m, key, value: not isinstance(value, FullyShardedModule)
        and Module.valid_parameter_filter(m, key, value)
    )
    return tree_flatten(tree, destination={})


def fully_shard(
    module: Module,
    *,
    group: Optional[mx.distributed.Group] = None,
    compute_dtype: Optional[mx.Dtype] = None,
) -> Module:
    """Spread the parameters of a module over a group of processes.

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
        A :class:`FullyShardedModule`; or ``module`` itself if there is only one
        process or it is sharded already.

    Examples
    --------
    >>> import hesper.nn as nn
    >>> nn.fully_shard(nn.Linear(4, 2))
    Linear(input_dims=4, output_dims=2, bias=True)
    """
    group = group or mx.distributed.init()
    if group.size() == 1 or isinstance(module, FullyShardedModule):
        return module
    return FullyShardedModule(module, group, compute_dtype)
