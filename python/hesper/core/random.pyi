# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar


__all__ = ['_RandomState', 'state', 'key', 'seed', 'split', 'uniform', 'normal', 'randint', 'bernoulli', 'truncated_normal', 'gumbel', 'laplace', 'categorical', 'permutation', 'multivariate_normal']
state: _RandomState

@final
class _RandomState:
    """The global key as a list of one array, ``mx.random.state``. A compiled function that draws random numbers
    has it among its inputs and outputs.
    """
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> array: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...
    def __delitem__(self, index: Any, /) -> None: ...
    def __iter__(self) -> ArrayIterator: ...

def bernoulli(p: float = 0.5, shape: int | Sequence[int] | None = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Truth values that hold with probability `p`.

    Parameters
    ----------
    p : number
    shape : sequence of int
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.bernoulli(0.5, (2, 3)).dtype.size
    1
    """
    ...

def categorical(logits: Any, axis: int | Sequence[int] | None = -1, shape: int | Sequence[int] | None = None, num_samples: Any = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Indices along an axis of `logits`, each as likely as the exponential of its logit says.

    Parameters
    ----------
    logits : array
    axis : int, optional
    shape : sequence of int
    num_samples : int, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.categorical(mx.array([0.0, -mx.inf]))
    array(0, dtype=uint32)
    """
    ...

def gumbel(shape: int | Sequence[int] = [], dtype: Dtype | None = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Numbers of the standard Gumbel distribution.

    Parameters
    ----------
    shape : sequence of int
    dtype : Dtype, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.gumbel((2, 3)).shape
    (2, 3)
    """
    ...

def key(seed: Any) -> array:
    """A key: what random numbers are computed from.

    Parameters
    ----------
    seed : int

    Examples
    --------
    >>> mx.random.key(0)
    array([0, 0], dtype=uint32)
    """
    ...

def laplace(shape: int | Sequence[int] = [], dtype: Dtype | None = None, loc: float = 0.0, scale: float = 1.0, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Numbers of the Laplace distribution.

    Parameters
    ----------
    shape : sequence of int
    dtype : Dtype, optional
    loc : number, optional
    scale : float, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.laplace((2, 3)).shape
    (2, 3)
    """
    ...

def multivariate_normal(mean: Any, cov: Any, shape: int | Sequence[int] = [], dtype: Dtype | None = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Vectors of normally distributed numbers with a mean and a covariance.

    Parameters
    ----------
    mean : array
    cov : array
    shape : sequence of int
    dtype : Dtype, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.multivariate_normal(mx.zeros((2,)), mx.eye(2)).shape
    (2,)
    """
    ...

def normal(shape: int | Sequence[int] = [], dtype: Dtype | None = None, loc: Any = None, scale: Any = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Normally distributed numbers with a mean and a standard deviation.

    Parameters
    ----------
    shape : sequence of int
    dtype : Dtype, optional
    loc : number, optional
    scale : float, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.normal((2, 3)).shape
    (2, 3)
    """
    ...

def permutation(x: array, axis: int | Sequence[int] | None = 0, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """The integers below a number, or the entries of an array along an axis, in random order.

    Parameters
    ----------
    x : array
    axis : int, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.permutation(4).shape
    (4,)
    """
    ...

def randint(low: Any, high: Any, shape: int | Sequence[int] = [], dtype: Dtype | None = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Integers from `low` up to and without `high`.

    Parameters
    ----------
    low : number
    high : number
    shape : sequence of int
    dtype : Dtype, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.randint(0, 10, (2, 3)).shape
    (2, 3)
    """
    ...

def seed(seed: Any) -> None:
    """Set the global key, which calls without a key split.

    Parameters
    ----------
    key : array, optional
    num : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.seed(0)
    """
    ...

def split(key: array | None, num: int = 2, stream: StreamOrDevice = None) -> list[array]:
    """New keys from one.

    Parameters
    ----------
    key : array, optional
    num : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.split(mx.random.key(0)).shape
    (2, 2)
    """
    ...

def truncated_normal(lower: Any, upper: Any, shape: int | Sequence[int] | None = None, dtype: Dtype | None = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Normally distributed numbers between bounds.

    Parameters
    ----------
    lower : number
    upper : number
    shape : sequence of int
    dtype : Dtype, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.truncated_normal(-1.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    ...

def uniform(low: int = 0, high: int = 1, shape: int | Sequence[int] = [], dtype: Dtype | None = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Evenly distributed numbers from `low` up to and without `high`.

    Parameters
    ----------
    low : number
    high : number
    shape : sequence of int
    dtype : Dtype, optional
    key : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.random.uniform(shape=(2, 3)).shape
    (2, 3)
    """
    ...
