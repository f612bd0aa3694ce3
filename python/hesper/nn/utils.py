"""Gradients of models, checkpointing and gradients across processes."""

from functools import wraps
from typing import Any, Callable, List, Optional

import hesper.core as mx
from hesper.utils import tree_flatten, tree_map, tree_reduce, tree_unflatten

from .layers.base import Module

__all__ = ["average_gradients", "checkpoint", "clip_grad_norm_sharded", "value_and_grad"]


def value_and_grad(model: Module, fn: Callable) -> Callable:
    """The value and the gradient of a function of a model.

    Parameters
    ----------
    model : Module
        The model to whose trainable parameters the gradient belongs.
    fn : callable
        Uses the model and returns a scalar, or a tuple that begins with one.

    Returns
    -------
    callable
        Takes the arguments of ``fn``, returns its value and a tree of
        gradients like ``model.trainable_parameters()``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> model = nn.Linear(2, 1)
    >>> loss_and_grad = nn.value_and_grad(model, lambda x: model(x).sum())
    >>> _, gradients = loss_and_grad(mx.ones((3, 2)))
    >>> gradients["bias"].tolist()
    [3.0]
    """

    def of_parameters(parameters: dict, *args: Any, **kwargs: Any) -> Any:
        model.update(parameters)
        return fn(*args, **kwargs)

    transformed = mx.value_and_grad(of_parameters)

    @wraps(fn)
    def value_and_gradients(*args: Any, **kwargs: Any) -> Any:
        return transformed(model.trainable_parameters(), *args, **kwargs)

    return value_and_gradients


def checkpoint(module: Module, fn: Optional[Callable] = None) -> Callable:
    """Make a function forget its intermediate results until they are needed.

    The gradient computes them again from the inputs and the module's trainable
    parameters: less memory, more work.

    Parameters
    ----------
    module : Module
        The module whose parameters ``fn`` uses.
    fn : callable, optional
        The function. Default: the module itself.

    Returns
    -------
    callable
        Takes the arguments of ``fn`` and returns its result.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> from hesper.nn.utils import checkpoint
    >>> layer = nn.Linear(2, 3)
    >>> checkpoint(layer)(mx.ones((1, 2))).shape
    (1, 3)
    """
    function = module if fn is None else fn

    def of_parameters(parameters: dict, *args: Any, **kwargs: Any) -> Any:
        module.update(parameters)
        return function(*args, **kwargs)

    transformed = mx.checkpoint(of_parameters)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        parameters = module.trainable_parameters()
        result = transformed(parameters, *args, **kwargs)
        # Inside, the module held the arrays of the inner trace.
        module.update(parameters)
        return result

    return checkpointed if fn is None else wraps(fn)(checkpointed)


def _groups_by_size(sizes: List[int], limit: int) -> List[List[int]]:
    """Indices in order, cut into runs whose sizes first exceed ``limit`` together."""
    groups: List[List[int]] = [[]]
    total = 0
    for index, size in enumerate(sizes):
        if total >= limit:
            groups.append([])
            total = 0
        groups[-1].append(index)
        total += size
    return groups


def average_gradients(
    gradients: Any,
    group: Optional[mx.distributed.Group] = None,
    all_reduce_size: int = 32 * 1024**2,
    communication_stream: Optional[mx.Stream] = None,
) -> Any:
    """The mean of gradients over the processes of a group.

    Small arrays travel together, in messages of at least ``all_reduce_size``
    bytes. With a single process the gradients are returned as they are.

    Parameters
    ----------
    gradients : Any
        A tree of arrays, alike in all processes.
    group : Group, optional
        The processes. Default: all.
    all_reduce_size : int
        Arrays are collected until they have this many bytes; zero or less
        sends each of them alone. Default: 32 MiB.
    communication_stream : Stream, optional
        Where to communicate. Default: the backend's choice.

    Returns
    -------
    Any
        A tree like ``gradients``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.average_gradients({"w": mx.ones(2)})["w"].tolist()
    [1.0, 1.0]
    """
    group = group or mx.distributed.init()
    count = group.size()
    if count == 1:
        return gradients

    def average(x: mx.array) -> mx.array:
        return mx.distributed.all_sum(x, group=group, stream=communication_stream) / count

    flat = tree_flatten(gradients)
    if all_reduce_size <= 0 or len({g.dtype for _, g in flat}) != 1:
        return tree_map(average, gradients)

    averaged = []
    for indices in _groups_by_size([g.nbytes for _, g in flat], all_reduce_size):
        names, arrays = zip(*(flat[i] for i in indices))
        ends, end = [], 0
        for array in arrays[:-1]:
            end += array.size
            ends.append(end)
        message = average(mx.concatenate([array.reshape(-1) for array in arrays]))
        parts = mx.split(message, ends) if ends else [message]
        averaged += [
            (name, part.reshape(array.shape))
            for name, part, array in zip(names, parts, arrays)
        ]
    return tree_unflatten(averaged)


def clip_grad_norm_sharded(
    gradients: Any, max_norm: float, group: Optional[mx.distributed.Group] = None
) -> Any:
    """Scale down gradients whose norm over all processes is too large.

    For gradients of which every process has a shard, see
    :func:`hesper.nn.fully_shard`.

    Parameters
    ----------
    gradients : Any
        A tree with this process' shards.
    max_norm : float
        The largest norm to allow.
    group : Group, optional
        The processes. Default: all.

    Returns
    -------
    tuple of (Any, array)
        The shards, scaled if necessary, and the norm before that.

    Examples
    --------
    >>> import hesper.core as mx
    >>> from hesper.nn.utils import clip_grad_norm_sharded
    >>> _, norm = clip_grad_norm_sharded({"w": mx.array([3.0, 4.0])}, 1.0)
    >>> norm.item()
    5.0
    """
    group = group or mx.distributed.init()
    square = tree_reduce(
        lambda total, g: total + mx.square(g.astype(mx.float32)).sum(),
        gradients,
        mx.array(0.0),
    )
    norm = mx.sqrt(mx.distributed.all_sum(square, group=group))
    factor = mx.minimum(max_norm / (norm + 1e-6), 1.0)
    return tree_map(lambda g: (g * factor).astype(g.dtype), gradients), norm
