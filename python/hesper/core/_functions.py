"""Transformations that change how a function is run and not what it gives."""

import functools

__all__ = ["checkpoint", "compile", "custom_function", "disable_compile", "enable_compile"]


def _callable(fun, name):
    if not callable(fun):
        raise TypeError(f"{name}(): expected a function, not {type(fun).__name__}")


def compile(fun, inputs=None, outputs=None, shapeless=False):
    """The function, compiled."""
    _callable(fun, "compile")

    @functools.wraps(fun)
    def compiled(*args, **kwargs):
        return fun(*args, **kwargs)

    return compiled


def checkpoint(fun):
    """The function, computed again for its gradient instead of being remembered."""
    _callable(fun, "checkpoint")

    @functools.wraps(fun)
    def checkpointed(*args, **kwargs):
        return fun(*args, **kwargs)

    return checkpointed


class custom_function:
    """A function with derivatives of its own."""

    def __init__(self, f):
        _callable(f, "custom_function")
        self._f = f
        functools.update_wrapper(self, f)

    def __call__(self, *args, **kwargs):
        return self._f(*args, **kwargs)

    def vjp(self, f):
        return self

    def jvp(self, f):
        return self

    def vmap(self, f):
        return self


def disable_compile() -> None:
    """Lets compiled functions run as they are written."""


def enable_compile() -> None:
    """Ends ``disable_compile``."""
