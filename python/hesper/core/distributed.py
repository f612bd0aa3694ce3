"""Communication between processes, for a group of one.

A program that was started alone is a group of one process: reductions and gathers
give what they were given, and there is nobody to send to or to receive from.
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
        """How many processes are in the group.

        Examples
        --------
        >>> mx.distributed.init().size()
        1
        """
        return 1

    def split(self, color: int, key: int = -1) -> "Group":
        """Splits the group into one for each color. A group of one cannot be split.

        Parameters
        ----------
        color : int
            Processes of one color come into one group.
        key : int
            Their order in it; by default that of their ranks.

        Raises
        ------
        RuntimeError
            Always, for a group of one.
        """
        raise RuntimeError("Cannot split the distributed group further.")


_world = Group()


def is_available(backend: str = "any") -> bool:
    """Whether processes can communicate through a backend.

    Parameters
    ----------
    backend : str
        One of ``"any"``, ``"mpi"``, ``"nccl"``, ``"jaccl"``, ``"ring"``.

    Examples
    --------
    >>> mx.distributed.is_available("unknown")
    False
    """
    return backend in ("any", "ring")


def init(
    strict: bool = False,
    backend: str = "any",
    *,
    all_gather_factory: Callable[[int, int], Callable[[bytes, int], bytes]] | None = None,
) -> Group:
    """The group of all processes: this one.

    Parameters
    ----------
    strict : bool
        Whether it is an error that no backend connects this process to others.
    backend : str
        Which backend to use.
    all_gather_factory : callable, optional
        How processes find each other; not needed by one.

    Examples
    --------
    >>> mx.distributed.init().rank()
    0
    """
    if backend not in _BACKENDS:
        raise ValueError(
            "[distributed] The only valid values for backend are 'any', 'mpi', 'nccl', 'jaccl' and 'ring' "
            f"but '{backend}' was provided."
        )
    if strict:
        raise RuntimeError(
            "[distributed] Couldn't initialize any backend"
            if backend == "any"
            else f"[distributed] Couldn't initialize the backend '{backend}'"
        )
    return _world


def _alone(x, group):
    if not isinstance(x, _array):
        raise TypeError(f"expected an array, not {type(x).__name__}")
    if group is not None and not isinstance(group, Group):
        raise TypeError(f"group: expected a Group or None, not {type(group).__name__}")
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
    return _alone(x, group)


def all_max(x: _array, *, group: Group | None = None, stream=None) -> _array:
    """The largest elements of the arrays of all processes.

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
    return _alone(x, group)


def all_min(x: _array, *, group: Group | None = None, stream=None) -> _array:
    """The smallest elements of the arrays of all processes.

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
    return _alone(x, group)


def all_gather(x: _array, *, group: Group | None = None, stream=None) -> _array:
    """The arrays of all processes, joined along the first axis.

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
    return _alone(x, group)


def sum_scatter(x: _array, *, group: Group | None = None, stream=None) -> _array:
    """This process's part, along the first axis, of the sum of the arrays of all processes.

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
    return _alone(x, group)


def send(x: _array, dst: int, *, group: Group | None = None, stream=None) -> _array:
    """Sends an array to another process.

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
        In a group of one, where there is nobody to send to.
    """
    _alone(x, group)
    raise ValueError("Cannot send to a singleton group")


def recv(shape: Sequence[int], dtype, src: int, *, group: Group | None = None, stream=None) -> _array:
    """Receives an array from another process.

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
        In a group of one, where there is nobody to receive from.
    """
    raise ValueError("Cannot recv from a singleton group")


def recv_like(x: _array, src: int, *, group: Group | None = None, stream=None) -> _array:
    """Receives an array with the shape and type of another.

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
        In a group of one, where there is nobody to receive from.
    """
    _alone(x, group)
    raise ValueError("Cannot recv from a singleton group")
