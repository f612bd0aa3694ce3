"""Gradients of models, checkpointing, and gradients across processes."""

from functools import wraps
from itertools import accumulate
from typing import Any, Callable

import hesper.core as mx
from hesper.utils import tree_flatten, tree_map, tree_reduce, tree_unflatten

from .layers.base import Module

__all__ = ["average_gradients", "checkpoint", "clip_grad_norm_sharded", "value_and_grad"]


def _of_parameters(module: Module, fn: Callable) -> Callable:
    """``fn`` as a function of the module's parameters and its own arguments."""

    def call(parameters: dict, *args: Any, **kwargs: Any) -> Any:
        module.update(parameters)
        return fn(*args, **kwargs)

    return call


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
        Takes the arguments of ``fn``, returns its value and a tree of gradients like ``model.trainable_parameters()``.

    Examples
    --------
    >>> model = nn.Linear(2, 1)
    >>> loss_and_grad = nn.value_and_grad(model, lambda x: model(x).sum())
    >>> _, gradients = loss_and_grad(mx.ones((3, 2)))
    >>> gradients["bias"].tolist()
    [3.0]
    """
    transformed = mx.value_and_grad(_of_parameters(model, fn))

    @wraps(fn)
    def value_and_gradients(*args: Any, **kwargs: Any) -> Any:
        return transformed(model.trainable_parameters(), *args, **kwargs)

    return value_and_gradients


def checkpoint(module: Module, fn: Callable | None = None) -> Callable:
    """Make a function drop its intermediate results.

    The gradient computes them again from the inputs and the module's trainable parameters: less memory, more work.

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
    >>> from hesper.nn.utils import checkpoint
    >>> layer = nn.Linear(2, 3)
    >>> checkpoint(layer)(mx.ones((1, 2))).shape
    (1, 3)
    """
    transformed = mx.checkpoint(_of_parameters(module, module if fn is None else fn))

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        parameters = module.trainable_parameters()
        result = transformed(parameters, *args, **kwargs)
        # Inside, the module held the arrays of the inner trace.
        module.update(parameters)
        return result

    return checkpointed if fn is None else wraps(fn)(checkpointed)


def split_sizes(x: mx.array, sizes: list[int], axis: int = 0) -> list[mx.array]:
    """Split an array into parts of the given sizes."""
    return mx.split(x, list(accumulate(sizes[:-1])), axis) if len(sizes) > 1 else [x]


def _batches(flat: list[tuple[str, mx.array]], least_bytes: int) -> list[list[tuple[str, mx.array]]]:
    """Consecutive gradients in batches, each but the last of at least ``least_bytes``."""
    batches: list[list] = [[]]
    filled = 0
    for name, gradient in flat:
        if filled >= least_bytes:
            batches.append([])
            filled = 0
        batches[-1].append((name, gradient))
        filled += gradient.nbytes
    return batches


def average_gradients(
    gradients: Any, group: mx.distributed.Group | None = None, all_reduce_size: int = 32 * 1024**2,
    communication_stream: mx.Stream | None = None,
) -> Any:
    """The mean of gradients over the processes of a group.

    Small arrays are sent together, in messages of at least ``all_reduce_size`` bytes. With a single process the
    gradients are returned as they are.

    Parameters
    ----------
    gradients : Any
        A tree of arrays, with the same structure in all processes.
    group : Group, optional
        The processes. Default: all.
    all_reduce_size : int
        The least bytes of a message; zero or less sends each array alone. Default: 32 MiB.
    communication_stream : Stream, optional
        The stream to communicate on. Default: the backend's choice.

    Returns
    -------
    Any
        A tree like ``gradients``.

    Examples
    --------
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
    if all_reduce_size <= 0 or len({gradient.dtype for _, gradient in flat}) != 1:
        return tree_map(average, gradients)

    averaged = []
    for batch in _batches(flat, all_reduce_size):
        message = average(mx.concatenate([gradient.reshape(-1) for _, gradient in batch]))
        parts = split_sizes(message, [gradient.size for _, gradient in batch])
        averaged += [(name, part.reshape(gradient.shape)) for (name, gradient), part in zip(batch, parts)]
    return tree_unflatten(averaged)


def clip_grad_norm_sharded(gradients: Any, max_norm: float, group: mx.distributed.Group | None = None) -> Any:
    """Scale gradients down if their norm over all processes is too large.

    For gradients of which every process has a shard, see :func:`hesper.nn.fully_shard`.

    Parameters
    ----------
    gradients : Any
        A tree with the shards of this process.
    max_norm : float
        The largest norm to allow.
    group : Group, optional
        The processes. Default: all.

    Returns
    -------
    tuple of (Any, array)
        The shards and the norm before scaling.

    Examples
    --------
    >>> from hesper.nn.utils import clip_grad_norm_sharded
    >>> _, norm = clip_grad_norm_sharded({"w": mx.array([3.0, 4.0])}, 1.0)
    >>> norm.item()
    5.0
    """
    add_square = lambda total, g: total + mx.square(g.astype(mx.float32)).sum()  # noqa: E731
    square = tree_reduce(add_square, gradients, mx.array(0.0))
    norm = mx.sqrt(mx.distributed.all_sum(square, group=group or mx.distributed.init()))
    factor = mx.minimum(max_norm / (norm + 1e-6), 1.0)
    return tree_map(lambda g: (g * factor).astype(g.dtype), gradients), norm
