"""Queries about Metal. The functions on memory are those of ``hesper.core``."""

from hesper import _core
from hesper._core import (
    clear_cache,
    get_active_memory,
    get_cache_memory,
    get_peak_memory,
    reset_peak_memory,
    set_cache_limit,
    set_memory_limit,
    set_wired_limit,
)

__all__ = [
    "clear_cache",
    "device_info",
    "get_active_memory",
    "get_cache_memory",
    "get_peak_memory",
    "is_available",
    "reset_peak_memory",
    "set_cache_limit",
    "set_memory_limit",
    "set_wired_limit",
    "start_capture",
    "stop_capture",
]


def is_available() -> bool:
    """Whether there is a GPU with Metal, or the default device is presented as one.

    See ``hesper.mlx.install``.

    Examples
    --------
    >>> mx.metal.is_available()
    False
    """
    return _core._presented_as_metal() or _core._has_metal()


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
    _core._start_capture(path)


def stop_capture() -> None:
    """End a capture. Does nothing without a GPU with Metal.

    Examples
    --------
    >>> mx.metal.stop_capture()
    """
    _core._stop_capture()


def device_info() -> dict[str, str | int]:
    """The properties of the GPU with Metal; empty without one.

    Examples
    --------
    >>> mx.metal.device_info()
    {}
    """
    return _core.device_info(_core.gpu) if is_available() else {}
