# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar


__all__ = ['is_available']

def is_available() -> bool:
    """Whether arrays can be computed on an NVIDIA GPU.

    Examples
    --------
    >>> mx.cuda.is_available() in (True, False)
    True
    """
    ...
