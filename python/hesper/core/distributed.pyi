# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar


__all__ = ['Group', 'all_gather', 'all_max', 'all_min', 'all_sum', 'init', 'is_available', 'recv', 'recv_like', 'send', 'sum_scatter']
_world: Group

class Group:
    """A group of processes: this one alone.

    Examples
    --------
    >>> mx.distributed.init().size()
    1
    """
    def rank(self) -> int:
        """The number of this process in the group.

        Examples
        --------
        >>> mx.distributed.init().rank()
        0
        """
        ...
    def size(self) -> int:
        """The number of processes in the group.

        Examples
        --------
        >>> mx.distributed.init().size()
        1
        """
        ...
    def split(self, color: int, key: int = -1) -> 'Group':
        """Split the group into one for each color. A group of one cannot be split.

        Parameters
        ----------
        color : int
            The processes with the same color form a group.
        key : int
            Their order in it; by default that of their ranks.

        Raises
        ------
        RuntimeError
            Always, for a group of one.
        """
        ...

def _of_one_process(call: str, x: array, group: Group | None) -> array:
    """The result of a collective over a group of one: its input."""
    ...

def _require_one_process(call: str, group: Group | None) -> None: ...

def all_gather(x: array, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """The arrays of all processes, concatenated along the first axis.

    Parameters
    ----------
    x : array
    group : Group, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.distributed.all_gather(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    ...

def all_max(x: array, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """The element-wise maximum of the arrays of all processes.

    Parameters
    ----------
    x : array
    group : Group, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.distributed.all_max(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    ...

def all_min(x: array, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """The element-wise minimum of the arrays of all processes.

    Parameters
    ----------
    x : array
    group : Group, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.distributed.all_min(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    ...

def all_sum(x: array, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """The sum of the arrays of all processes.

    Parameters
    ----------
    x : array
    group : Group, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.distributed.all_sum(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    ...

def init(strict: bool = False, backend: str = 'any', *, all_gather_factory: Callable[[int, int], Callable[[bytes, int], bytes]] | None = None) -> Group:
    """The group of all processes: this one alone.

    Parameters
    ----------
    strict : bool
        Whether to raise if no backend connects this process to others.
    backend : str
        The backend to use.
    all_gather_factory : callable, optional
        How processes exchange their addresses; unused by a group of one.

    Raises
    ------
    ValueError
        If the backend is unknown.
    RuntimeError
        If ``strict``.

    Examples
    --------
    >>> mx.distributed.init().rank()
    0
    """
    ...

def is_available(backend: str = 'any') -> bool:
    """Whether processes can communicate through a backend: through none yet.

    Parameters
    ----------
    backend : str
        One of ``"any"``, ``"mpi"``, ``"nccl"``, ``"jaccl"``, ``"ring"``.

    Examples
    --------
    >>> mx.distributed.is_available()
    False
    """
    ...

def recv(shape: Sequence[int], dtype: Dtype | None, src: int, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """Receive an array from another process.

    Parameters
    ----------
    shape : sequence of int
    dtype : Dtype
    src : int
        The rank of the sender.
    group : Group, optional
    stream : Stream or Device, optional

    Raises
    ------
    ValueError
        In a group of one, which has no other process.
    """
    ...

def recv_like(x: array, src: int, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """Receive an array with the shape and type of another.

    Parameters
    ----------
    x : array
    src : int
        The rank of the sender.
    group : Group, optional
    stream : Stream or Device, optional

    Raises
    ------
    ValueError
        In a group of one, which has no other process.
    """
    ...

def send(x: array, dst: int, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """Send an array to another process.

    Parameters
    ----------
    x : array
    dst : int
        The rank of the receiver.
    group : Group, optional
    stream : Stream or Device, optional

    Raises
    ------
    ValueError
        In a group of one, which has no other process.
    """
    ...

def sum_scatter(x: array, *, group: Group | None = None, stream: StreamOrDevice = None) -> array:
    """The part of this process, along the first axis, of the sum of the arrays of all processes.

    Parameters
    ----------
    x : array
    group : Group, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.distributed.sum_scatter(mx.array([1, 2]))
    array([1, 2], dtype=int32)
    """
    ...
