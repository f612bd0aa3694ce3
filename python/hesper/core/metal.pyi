# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar


__all__ = ['clear_cache', 'device_info', 'get_active_memory', 'get_cache_memory', 'get_peak_memory', 'is_available', 'reset_peak_memory', 'set_cache_limit', 'set_memory_limit', 'set_wired_limit', 'start_capture', 'stop_capture']

def clear_cache() -> None:
    """Free the memory that is cached for reuse.

    Examples
    --------
    >>> mx.clear_cache()
    """
    ...

def device_info() -> dict[str, str | int]:
    """The properties of the GPU with Metal; empty without one.

    Examples
    --------
    >>> mx.metal.device_info()
    {}
    """
    ...

def get_active_memory() -> int:
    """Bytes held by arrays and by work under way.

    Examples
    --------
    >>> mx.get_active_memory() >= 0
    True
    """
    ...

def get_cache_memory() -> int:
    """Bytes kept for reuse.

    Examples
    --------
    >>> mx.get_cache_memory() >= 0
    True
    """
    ...

def get_peak_memory() -> int:
    """The most bytes that were held at once since the start or the last ``reset_peak_memory``.

    Examples
    --------
    >>> mx.get_peak_memory() >= 0
    True
    """
    ...

def is_available() -> bool:
    """Whether there is a GPU with Metal, or the default device is presented as one.

    See ``hesper.mlx.install``.

    Examples
    --------
    >>> mx.metal.is_available()
    False
    """
    ...

def reset_peak_memory() -> None:
    """Set the count of ``get_peak_memory`` to zero; the next allocation counts again.

    Examples
    --------
    >>> mx.reset_peak_memory()
    """
    ...

def set_cache_limit(limit: Any) -> int:
    """Set how many bytes each open device may cache for reuse; returns the previous limit of the default device.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> limit = mx.set_cache_limit(1 << 30)
    """
    ...

def set_memory_limit(limit: Any) -> int:
    """Set a guideline for the bytes that arrays use on the default device; returns the previous one.

    An allocation above it first frees cached memory and waits for the work in flight, and then goes on.
    ``set_hard_memory_limit`` sets a limit that no allocation exceeds.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> limit = mx.set_memory_limit(1 << 30)
    """
    ...

def set_wired_limit(limit: Any) -> int:
    """Sets how many bytes a GPU with Metal keeps resident, and returns the former limit: 0 at first, and without
    such a GPU or before macOS 15.

    Parameters
    ----------
    limit : int
        At most ``max_recommended_working_set_size`` of ``mx.device_info()``.

    Examples
    --------
    >>> mx.set_wired_limit(0)
    0
    """
    ...

def start_capture(path: str) -> None:
    """Start a capture of Metal commands. Does nothing without a GPU with Metal.

    The program must be started with ``MTL_CAPTURE_ENABLED=1``.

    Parameters
    ----------
    path : str
        The file of the capture.

    Examples
    --------
    >>> mx.metal.start_capture("trace.gputrace")
    """
    ...

def stop_capture() -> None:
    """End a capture. Does nothing without a GPU with Metal.

    Examples
    --------
    >>> mx.metal.stop_capture()
    """
    ...
