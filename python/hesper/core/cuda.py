"""Queries about CUDA."""

from hesper import _core

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether arrays can be computed on an NVIDIA GPU.

    Examples
    --------
    >>> mx.cuda.is_available() in (True, False)
    True
    """
    metal = _core._presented_as_metal() or _core._has_metal()
    return not metal and _core.is_available(_core.gpu)
