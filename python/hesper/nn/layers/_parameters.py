"""Checks, updates and initial values of parameters.

The parts of :class:`~hesper.nn.Module` and its subclasses that need no module.
"""

from typing import Any, Callable

import hesper.core as mx
from hesper.utils import tree_flatten


def uniform(bound: float, *shape: int) -> mx.array:
    """Random numbers between ``-bound`` and ``bound``, as most weights start."""
    return mx.random.uniform(-bound, bound, shape)


def describe(*values: Any, **named: Any) -> str:
    """The text between the parentheses of a ``repr``.

    >>> describe(3, bias=True)
    '3, bias=True'
    """
    return ", ".join([*map(str, values), *(f"{name}={value}" for name, value in named.items())])


def check_weights(parameters: dict, weights: dict) -> None:
    """Raise unless ``weights`` (flat) has exactly the names and shapes of ``parameters`` (a tree)."""
    expected = tree_flatten(parameters, destination={})
    # Programs look for "not in model" and "Missing", which MLX says.
    for problem, names in {
        "parameters not in model": weights.keys() - expected.keys(),
        "Missing weights for the parameters": expected.keys() - weights.keys(),
    }.items():
        if names:
            listed = ", ".join(sorted(names))
            raise ValueError(f"cannot load weights. {problem}: {listed}; strict=False loads those that match")
    for name, parameter in expected.items():
        weight = weights[name]
        if not isinstance(weight, mx.array):
            raise ValueError(f"cannot load the weight {name}: it is a {type(weight).__name__}, not an array")
        if weight.shape != parameter.shape:
            raise ValueError(f"cannot load the weight {name} of shape {weight.shape}; the model has {parameter.shape}")


def update_tree(
    target: Any,
    source: Any,
    strict: bool,
    replaces: Callable[[Any, Any], bool],
    accepts: Callable[[Any], bool],
    kind: str,
) -> None:
    """Store the leaves of ``source`` at the same places of ``target``."""
    if isinstance(source, dict):
        unknown = [key for key in source if key not in target]
        places: Any = [key for key in source if key in target]
    elif isinstance(source, list):
        unknown = list(range(len(target), len(source)))
        places = range(min(len(source), len(target)))
    elif strict:
        raise ValueError(f"cannot update {kind}s from a {type(source).__name__}; give a tree of dictionaries and lists")
    else:
        return
    if strict and unknown:
        raise ValueError(f"cannot update {kind} {unknown[0]!r}: the module has none of that name")
    for place in places:
        current, new = target[place], source[place]
        if not replaces(current, new):
            update_tree(current, new, strict, replaces, accepts, kind)
        elif strict and not accepts(new):
            raise ValueError(f"cannot update {kind} {place!r} with a {type(new).__name__}")
        else:
            target[place] = new


def require_members(keys: list[str], modules: list[dict]) -> None:
    """Raise for a key that none of the modules has."""
    for key in keys:
        if not any(key in module for module in modules):
            raise KeyError(f"cannot freeze or unfreeze {key!r}: the module has no such member")
