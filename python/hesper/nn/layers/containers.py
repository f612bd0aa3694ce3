"""Layers that are made of other layers."""

from typing import Any, Callable

from .base import Module

__all__ = ["Sequential"]


class Sequential(Module):
    """Calls layers or functions one after the other.

    Parameters
    ----------
    *modules : callable
        The layers, in order. A layer with parameters should be a :class:`Module`.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.relu, nn.Linear(8, 2))
    >>> model(mx.zeros((3, 4))).shape
    (3, 2)
    """

    def __init__(self, *modules: Callable) -> None:
        super().__init__()
        self.layers = list(modules)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x
