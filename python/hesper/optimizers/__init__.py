"""Optimizers and learning rate schedules.

Examples
--------
>>> model = nn.Linear(4, 1)
>>> optimizer = optim.Adam(learning_rate=1e-2)
>>> loss_and_grad = nn.value_and_grad(model, lambda x: mx.square(model(x)).mean())
>>> loss, gradients = loss_and_grad(mx.ones((8, 4)))
>>> optimizer.update(model, gradients)
>>> mx.eval(model.parameters(), optimizer.state)
"""

from typing import Callable, List, Optional, Tuple, Union

from hesper.nn import Module
from hesper.utils import (
    tree_flatten,
    tree_map,
    tree_merge,
    tree_reduce,
    tree_unflatten,
)

from .optimizers import *  # noqa: F403
from .optimizers import __all__ as _optimizer_names
from .schedulers import *  # noqa: F403
from .schedulers import __all__ as _schedule_names

__all__ = [
    *_optimizer_names,
    *_schedule_names,
    "Callable",
    "List",
    "Module",
    "Optional",
    "Tuple",
    "Union",
    "tree_flatten",
    "tree_map",
    "tree_merge",
    "tree_reduce",
    "tree_unflatten",
]
