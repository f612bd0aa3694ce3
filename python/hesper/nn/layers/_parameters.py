"""Checks and updates of a module's parameters.

The parts of :class:`~hesper.nn.Module` that need no module: they work on the
trees that it stores or is given.
"""

from typing import Any, Callable, List

import hesper.core as mx
from hesper.utils import tree_flatten


def check_weights(parameters: dict, weights: dict) -> None:
    """Raise unless ``weights`` has exactly the names and shapes of ``parameters``.

    ``parameters`` is a tree, ``weights`` is flat.
    """
    expected = tree_flatten(parameters, destination={})
    unknown = sorted(weights.keys() - expected.keys())
    if unknown:
        names = ",\n".join(unknown)
        raise ValueError(f"Received {len(unknown)} parameters not in model: \n{names}.")
    missing = sorted(expected.keys() - weights.keys())
    if missing:
        names = ",\n".join(missing)
        raise ValueError(f"Missing {len(missing)} parameters: \n{names}.")
    for name, parameter in expected.items():
        weight = weights[name]
        if not isinstance(weight, mx.array):
            raise ValueError(
                f"Expected mx.array but received {type(weight)} for parameter {name}"
            )
        if weight.shape != parameter.shape:
            raise ValueError(
                f"Expected shape {parameter.shape} but received shape "
                f"{weight.shape} for parameter {name}"
            )


def update_tree(
    target: Any,
    source: Any,
    strict: bool,
    replaces: Callable[[Any, Any], bool],
    accepts: Callable[[Any], bool],
    kind: str,
) -> None:
    """Put the leaves of ``source`` in the places that ``target`` has for them."""
    if isinstance(source, dict):
        places = []
        for key in source:
            if key in target:
                places.append(key)
            elif strict:
                raise ValueError(f'Module does not have {kind} named "{key}".')
    elif isinstance(source, list):
        if strict and len(source) > len(target):
            raise ValueError(
                f"List index {len(target)} is out of bounds for destination of "
                f"length {len(target)}."
            )
        places = range(min(len(source), len(target)))
    elif strict:
        raise ValueError(f"Received invalid type: {type(source).__name__}.")
    else:
        return
    for place in places:
        current, new = target[place], source[place]
        if replaces(current, new):
            if strict and not accepts(new):
                raise ValueError(f"Received invalid type: {type(new).__name__}.")
            target[place] = new
        else:
            update_tree(current, new, strict, replaces, accepts, kind)


def require_members(keys: List[str], modules: List[dict]) -> None:
    """Raise for a key that none of the modules has."""
    for key in keys:
        if not any(key in module for module in modules):
            raise KeyError(f"Module doesn't contain member {key}.")
