"""Initialisers.

Each function here returns an *initialiser*: a function that takes an array
and returns a new one of the same shape. Use them with
:meth:`Module.apply <hesper.nn.Module.apply>`.
"""

import math
from typing import Callable, Literal, Tuple

import hesper.core as mx

__all__ = [
    "constant",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "normal",
    "orthogonal",
    "sparse",
    "uniform",
]


def constant(
    value: float, dtype: mx.Dtype = mx.float32
) -> Callable[[mx.array], mx.array]:
    """An initialiser that fills arrays with one value.

    Parameters
    ----------
    value : float
        The value.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array, returns one of the same shape.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.constant(0.5)(mx.zeros(2)).tolist()
    [0.5, 0.5]
    """

    def initializer(a: mx.array) -> mx.array:
        return mx.full(a.shape, value, dtype=dtype)

    return initializer


def normal(
    mean: float = 0.0, std: float = 1.0, dtype: mx.Dtype = mx.float32
) -> Callable[[mx.array], mx.array]:
    """An initialiser that draws from a normal distribution.

    Parameters
    ----------
    mean : float
        The mean. Default: ``0.0``.
    std : float
        The standard deviation. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array, returns one of the same shape.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.normal(std=0.02)(mx.zeros((2, 3))).shape
    (2, 3)
    """

    def initializer(a: mx.array) -> mx.array:
        return mx.random.normal(shape=a.shape, scale=std, loc=mean, dtype=dtype)

    return initializer


def uniform(
    low: float = 0.0, high: float = 1.0, dtype: mx.Dtype = mx.float32
) -> Callable[[mx.array], mx.array]:
    """An initialiser that draws uniformly from an interval.

    Parameters
    ----------
    low : float
        The lower end. Default: ``0.0``.
    high : float
        The upper end. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array, returns one of the same shape.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.uniform(-0.1, 0.1)(mx.zeros((2, 3))).shape
    (2, 3)
    """

    def initializer(a: mx.array) -> mx.array:
        return mx.random.uniform(low, high, a.shape, dtype=dtype)

    return initializer


def identity(dtype: mx.Dtype = mx.float32) -> Callable[[mx.array], mx.array]:
    """An initialiser that makes identity matrices.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes a square matrix, returns one of the same shape. Raises
        ``ValueError`` for other arrays.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.identity()(mx.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def initializer(arr: mx.array) -> mx.array:
        if arr.ndim != 2 or arr.shape[0] != arr.shape[1]:
            raise ValueError(
                f"The input array must be a square matrix but got shape {arr.shape}."
            )
        return mx.eye(n=arr.shape[0], dtype=dtype)

    return initializer


def _fans(x: mx.array) -> Tuple[int, int]:
    """How many inputs an output has, and how many outputs an input, channels last."""
    if x.ndim < 2:
        raise ValueError(
            "Glorot / He initialization requires at least 2 dimensional input but "
            f"input with {x.ndim} dimensions."
        )
    taps = math.prod(x.shape[1:-1])
    return x.shape[-1] * taps, x.shape[0] * taps


def _chosen_fan(x: mx.array, mode: str) -> int:
    fan_in, fan_out = _fans(x)
    if mode == "fan_in":
        return fan_in
    if mode == "fan_out":
        return fan_out
    raise ValueError(f"Invalid mode: {mode}. Valid modes are: fan_in, fan_out")


def glorot_normal(
    dtype: mx.Dtype = mx.float32,
) -> Callable[[mx.array, float], mx.array]:
    """An initialiser after Glorot and Bengio (2010), normally distributed.

    The standard deviation is ``gain * sqrt(2 / (fan_in + fan_out))``.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array of two axes or more and optionally the gain, returns an
        array of the same shape.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.glorot_normal()(mx.zeros((2, 3)), gain=4.0).shape
    (2, 3)
    """

    def initializer(a: mx.array, gain: float = 1.0) -> mx.array:
        std = gain * math.sqrt(2.0 / sum(_fans(a)))
        return mx.random.normal(shape=a.shape, scale=std, dtype=dtype)

    return initializer


def glorot_uniform(
    dtype: mx.Dtype = mx.float32,
) -> Callable[[mx.array, float], mx.array]:
    """An initialiser after Glorot and Bengio (2010), uniformly distributed.

    The values lie within ``gain * sqrt(6 / (fan_in + fan_out))`` of zero.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array of two axes or more and optionally the gain, returns an
        array of the same shape.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.glorot_uniform()(mx.zeros((2, 3))).shape
    (2, 3)
    """

    def initializer(a: mx.array, gain: float = 1.0) -> mx.array:
        limit = gain * math.sqrt(6.0 / sum(_fans(a)))
        return mx.random.uniform(-limit, limit, a.shape, dtype=dtype)

    return initializer


def he_normal(
    dtype: mx.Dtype = mx.float32,
) -> Callable[[mx.array, Literal["fan_in", "fan_out"], float], mx.array]:
    """An initialiser after He et al. (2015), normally distributed.

    The standard deviation is ``gain / sqrt(fan)``.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array of two axes or more and optionally the mode
        (``"fan_in"`` or ``"fan_out"``) and the gain, returns an array of the
        same shape.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.he_normal()(mx.zeros((2, 3)), mode="fan_out", gain=5).shape
    (2, 3)
    """

    def initializer(
        a: mx.array,
        mode: Literal["fan_in", "fan_out"] = "fan_in",
        gain: float = 1.0,
    ) -> mx.array:
        std = gain / math.sqrt(_chosen_fan(a, mode))
        return mx.random.normal(shape=a.shape, scale=std, dtype=dtype)

    return initializer


def he_uniform(
    dtype: mx.Dtype = mx.float32,
) -> Callable[[mx.array, Literal["fan_in", "fan_out"], float], mx.array]:
    """An initialiser after He et al. (2015), uniformly distributed.

    The values lie within ``gain * sqrt(3 / fan)`` of zero.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array of two axes or more and optionally the mode
        (``"fan_in"`` or ``"fan_out"``) and the gain, returns an array of the
        same shape.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.init.he_uniform()(mx.zeros((2, 3))).shape
    (2, 3)
    """

    def initializer(
        a: mx.array,
        mode: Literal["fan_in", "fan_out"] = "fan_in",
        gain: float = 1.0,
    ) -> mx.array:
        limit = gain * math.sqrt(3.0 / _chosen_fan(a, mode))
        return mx.random.uniform(-limit, limit, a.shape, dtype=dtype)

    return initializer


def sparse(
    sparsity: float, mean: float = 0.0, std: float = 1.0, dtype: mx.Dtype = mx.float32
) -> Callable[[mx.array], mx.array]:
    """An initialiser that makes a fraction of every row zero.

    The others are drawn from a normal distribution (Martens, 2010).

    Parameters
    ----------
    sparsity : float
        The fraction.
    mean : float
        The mean of the others. Default: ``0.0``.
    std : float
        The standard deviation of the others. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes a matrix, returns one of the same shape. Raises ``ValueError``
        for other arrays.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> (nn.init.sparse(0.5)(mx.zeros((2, 4))) == 0).sum(axis=1).tolist()
    [2, 2]
    """

    def initializer(a: mx.array) -> mx.array:
        if a.ndim != 2:
            raise ValueError("Only tensors with 2 dimensions are supported")
        zeros = math.ceil(sparsity * a.shape[1])
        # A random order of the columns for each row; the first ones become zero.
        order = mx.argsort(mx.random.uniform(shape=a.shape), axis=1)
        values = mx.random.normal(shape=a.shape, scale=std, loc=mean, dtype=dtype)
        return mx.put_along_axis(
            values, order[:, :zeros], mx.array(0.0, dtype=dtype), axis=1
        )

    return initializer


def orthogonal(
    gain: float = 1.0, dtype: mx.Dtype = mx.float32
) -> Callable[[mx.array], mx.array]:
    """An initialiser that makes matrices with orthonormal rows or columns.

    Parameters
    ----------
    gain : float
        A factor for the matrix. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes a matrix, returns one of the same shape. Raises ``ValueError``
        for other arrays.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> q = nn.init.orthogonal()(mx.zeros((3, 3)))
    >>> mx.allclose(q @ q.T, mx.eye(3), atol=1e-5).item()
    True
    """

    def initializer(a: mx.array) -> mx.array:
        if a.ndim != 2:
            raise ValueError(
                f"Orthogonal initialization requires a 2D array but got a {a.ndim}D array."
            )
        rows, cols = a.shape
        size = max(rows, cols)
        q, r = mx.linalg.qr(mx.random.normal(shape=(size, size)), stream=mx.cpu)
        # With the signs of r's diagonal q is distributed uniformly.
        q = q * mx.sign(mx.diag(r))
        return (gain * q[:rows, :cols]).astype(dtype)

    return initializer
