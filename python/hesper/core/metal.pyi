# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Sequence
from typing import Any

from . import Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar




def clear_cache() -> None:
    """Gives back the memory that is kept for reuse.

    Examples
    --------
    >>> mx.clear_cache()
    """
    ...

def device_info() -> dict[str, str | int]:
    """What is known of the GPU with Metal; nothing without one.

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
    """Whether there is a GPU with Metal, or the host is presented as one.

    See ``hesper.mlx.install``.

    Examples
    --------
    >>> mx.metal.is_available()
    False
    """
    ...

def reset_peak_memory() -> None:
    """Lets the count of ``get_peak_memory`` begin again.

    Examples
    --------
    >>> mx.reset_peak_memory()
    """
    ...

def set_cache_limit(limit: Any) -> int:
    """Sets how many bytes the default device may keep for reuse; gives the former limit.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> limit = mx.set_cache_limit(1 << 30)
    """
    ...

def set_memory_limit(limit: Any) -> int:
    """Sets how many bytes arrays may hold on the default device; gives the former limit.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> limit = mx.set_memory_limit(1 << 30)
    """
    ...

def set_wired_limit(limit: Any) -> int:
    """Sets how many bytes a GPU keeps resident; there is none, and the former limit is 0.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> mx.set_wired_limit(0)
    0
    """
    ...

def start_capture(path: str) -> None:
    """Starts Metal's capture of commands. Without a GPU with Metal there is nothing to capture.

    Parameters
    ----------
    path : str
        Where the capture would be written.

    Examples
    --------
    >>> mx.metal.start_capture("trace.gputrace")
    """
    ...

def stop_capture() -> None:
    """Ends a capture. Without a GPU with Metal there is none.

    Examples
    --------
    >>> mx.metal.stop_capture()
    """
    ...
