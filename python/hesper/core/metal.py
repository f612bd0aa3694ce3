"""What programs ask about Metal. The functions on memory are those of ``hesper.core``."""

from hesper import _core
from hesper._core import (
    clear_cache,
    device_info,
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
    """Whether there is a GPU with Metal, or the host is presented as one.

    See ``hesper.mlx.install``.
    """
    return _core.is_available(_core.gpu)


def start_capture(path: str) -> None:
    """Starts Metal's capture of commands, which only a GPU with Metal has.

    Parameters
    ----------
    path : str
        Where the capture would be written.
    """
    raise RuntimeError(f"[metal::start_capture] there is no Metal device to capture to {path!r}")


def stop_capture() -> None:
    """Ends a capture. There is none."""
    raise RuntimeError("[metal::stop_capture] there is no Metal device to capture")
