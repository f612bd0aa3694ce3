"""Transformations that change how a function is run and not what it gives."""

import functools

__all__ = ["compile", "disable_compile", "enable_compile"]


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


def disable_compile() -> None:
    """Lets compiled functions run as they are written."""


def enable_compile() -> None:
    """Ends ``disable_compile``."""
