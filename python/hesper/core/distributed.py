"""Communication between processes, which is missing yet: every group is this process alone.

Reductions and gathers over a group of one return their input. Larger groups, sending and receiving raise.
"""

from collections.abc import Callable, Sequence

from hesper._core import array as _array

__all__ = [
    "Group",
    "all_gather",
    "all_max",
    "all_min",
    "all_sum",
    "init",
    "is_available",
    "recv",
    "recv_like",
    "send",
    "sum_scatter",
]

_BACKENDS = ("any", "mpi", "nccl", "jaccl", "ring")
_MISSING = "Hesper has no backend for communication between processes yet"


class Group:
    """A group of processes: this one alone.

    Examples
    --------
    >>> mx.distributed.init().size()
    1
    """

    def __repr__(self) -> str:
        return "Group(rank=0, size=1)"

    def rank(self) -> int:
        """The number of this process in the group.

        Examples
        --------
        >>> mx.distributed.init().rank()
        0
        """
        return 0

    def size(self) -> int:
        """The number of processes in the group.

        Examples
        --------
        >>> mx.distributed.init().size()
        1
        """
        return 1

    def split(self, color: int, key: int = -1) -> "Group":
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
        raise RuntimeError("cannot split a group of one process")


_world = Group()


def is_available(backend: str = "any") -> bool:
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
    return False


def init(
    strict: bool = False,
    backend: str = "any",
    *,
    all_gather_factory: Callable[[int, int], Callable[[bytes, int], bytes]] | None = None,
) -> Group:
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
    if backend not in _BACKENDS:
        raise ValueError(f"cannot use the backend {backend!r}; choose one of {', '.join(_BACKENDS)}")
    if strict:
        raise RuntimeError(
            f"cannot connect to other processes through backend={backend!r}: {_MISSING}; strict=False gives a group of "
            "this process alone"
        )
    return _world


def _require_one_process(call: str, group: Group | None) -> None:
    if group is not None and not callable(getattr(group, "size", None)):
        raise TypeError(f"cannot {call} over a {type(group).__name__}; group must be a Group or None")
    if group is not None and group.size() != 1:
        raise RuntimeError(
            f"cannot {call} over {group.size()} processes: {_MISSING}; use a group of one process, as "
            "mx.distributed.init() gives it"
        )


def _of_one_process(call: str, x: _array, group: Group | None) -> _array:
    """The result of a collective over a group of one: its input."""
    if isinstance(x, (bool, int, float, complex)):
        x = _array(x)
    if not isinstance(x, _array):
        raise TypeError(f"cannot {call} a {type(x).__name__}; expected an array or a number")
    _require_one_process(call, group)
    return x


def all_sum(x: _array, *, group: Group | None = None, stream=None) -> _array:
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
    return _of_one_process("all_sum", x, group)


def all_max(x: _array, *, group: Group | None = None, stream=None) -> _array:
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
    return _of_one_process("all_max", x, group)


def all_min(x: _array, *, group: Group | None = None, stream=None) -> _array:
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
    return _of_one_process("all_min", x, group)


def all_gather(x: _array, *, group: Group | None = None, stream=None) -> _array:
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
    return _of_one_process("all_gather", x, group)


def sum_scatter(x: _array, *, group: Group | None = None, stream=None) -> _array:
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
    return _of_one_process("sum_scatter", x, group)


def send(x: _array, dst: int, *, group: Group | None = None, stream=None) -> _array:
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
    _of_one_process("send", x, group)
    raise ValueError(f"cannot send to rank {dst}: the group is this process alone; {_MISSING}")


def recv(shape: Sequence[int], dtype, src: int, *, group: Group | None = None, stream=None) -> _array:
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
    _require_one_process("recv", group)
    raise ValueError(f"cannot receive from rank {src}: the group is this process alone; {_MISSING}")


def recv_like(x: _array, src: int, *, group: Group | None = None, stream=None) -> _array:
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
    _of_one_process("recv_like", x, group)
    raise ValueError(f"cannot receive from rank {src}: the group is this process alone; {_MISSING}")
