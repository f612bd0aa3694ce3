"""Initializers.

Each function here returns an *initializer*: a function that takes an array and returns a new one of the same shape. Use
them with :meth:`Module.apply <hesper.nn.Module.apply>`. Initializers raise ``ValueError`` for arrays with the wrong
number of axes.
"""

import math
from typing import Callable, Literal

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

Initializer = Callable[..., mx.array]
Fan = Literal["fan_in", "fan_out"]


def constant(value: float, dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer that fills arrays with one value.

    Parameters
    ----------
    value : float
        The value.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Examples
    --------
    >>> nn.init.constant(0.5)(mx.zeros(2)).tolist()
    [0.5, 0.5]
    """
    return lambda a: mx.full(a.shape, value, dtype)


def normal(mean: float = 0.0, std: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer that draws from a normal distribution.

    Parameters
    ----------
    mean : float
        The mean. Default: ``0.0``.
    std : float
        The standard deviation. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Examples
    --------
    >>> nn.init.normal(std=0.02)(mx.zeros((2, 3))).shape
    (2, 3)
    """
    return lambda a: mx.random.normal(a.shape, dtype, mean, std)


def uniform(low: float = 0.0, high: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer that draws uniformly from an interval.

    Parameters
    ----------
    low : float
        The lower end. Default: ``0.0``.
    high : float
        The upper end. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Examples
    --------
    >>> nn.init.uniform(-0.1, 0.1)(mx.zeros((2, 3))).shape
    (2, 3)
    """
    return lambda a: mx.random.uniform(low, high, a.shape, dtype)


def identity(dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer that makes identity matrices.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Examples
    --------
    >>> nn.init.identity()(mx.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def initializer(a: mx.array) -> mx.array:
        if a.ndim != 2 or len({*a.shape}) > 1:
            raise ValueError(f"cannot make an identity matrix of shape {a.shape}; it must be square")
        return mx.eye(len(a), dtype=dtype)

    return initializer


def _fans(a: mx.array) -> dict[str, int]:
    """The number of inputs of an output and of outputs of an input, channels last."""
    if a.ndim < 2:
        raise ValueError(f"cannot scale by the fans of shape {a.shape}; Glorot and He initializers need 2 axes or more")
    outputs, *taps, inputs = a.shape
    return {"fan_in": inputs * math.prod(taps), "fan_out": outputs * math.prod(taps)}


def _fan(a: mx.array, mode: str) -> int:
    fans = _fans(a)
    if mode not in fans:
        raise ValueError(f"cannot scale by mode {mode!r}; choose 'fan_in' or 'fan_out'")
    return fans[mode]


def glorot_normal(dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer after Glorot and Bengio (2010), normally distributed.

    The standard deviation is ``gain * sqrt(2 / (fan_in + fan_out))``.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array with at least two axes and optionally the gain.

    Examples
    --------
    >>> nn.init.glorot_normal()(mx.zeros((2, 3)), gain=4.0).shape
    (2, 3)
    """

    def initializer(a: mx.array, gain: float = 1.0) -> mx.array:
        std = gain * math.sqrt(2.0 / sum(_fans(a).values()))
        return normal(std=std, dtype=dtype)(a)

    return initializer


def glorot_uniform(dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer after Glorot and Bengio (2010), uniformly distributed.

    The values lie within ``gain * sqrt(6 / (fan_in + fan_out))`` of zero.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array with at least two axes and optionally the gain.

    Examples
    --------
    >>> nn.init.glorot_uniform()(mx.zeros((2, 3))).shape
    (2, 3)
    """

    def initializer(a: mx.array, gain: float = 1.0) -> mx.array:
        bound = gain * math.sqrt(6.0 / sum(_fans(a).values()))
        return uniform(-bound, bound, dtype)(a)

    return initializer


def he_normal(dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer after He et al. (2015), normally distributed.

    The standard deviation is ``gain / sqrt(fan)``.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array with at least two axes and optionally the mode (``"fan_in"`` or ``"fan_out"``) and the gain.

    Examples
    --------
    >>> nn.init.he_normal()(mx.zeros((2, 3)), mode="fan_out", gain=5).shape
    (2, 3)
    """

    def initializer(a: mx.array, mode: Fan = "fan_in", gain: float = 1.0) -> mx.array:
        return normal(std=gain / math.sqrt(_fan(a, mode)), dtype=dtype)(a)

    return initializer


def he_uniform(dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer after He et al. (2015), uniformly distributed.

    The values lie within ``gain * sqrt(3 / fan)`` of zero.

    Parameters
    ----------
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Returns
    -------
    callable
        Takes an array with at least two axes and optionally the mode (``"fan_in"`` or ``"fan_out"``) and the gain.

    Examples
    --------
    >>> nn.init.he_uniform()(mx.zeros((2, 3))).shape
    (2, 3)
    """

    def initializer(a: mx.array, mode: Fan = "fan_in", gain: float = 1.0) -> mx.array:
        bound = gain * math.sqrt(3.0 / _fan(a, mode))
        return uniform(-bound, bound, dtype)(a)

    return initializer


def _require_matrix(a: mx.array, what: str) -> None:
    if a.ndim != 2:
        raise ValueError(f"cannot make a {what} matrix of shape {a.shape}; it must have 2 axes")


def sparse(sparsity: float, mean: float = 0.0, std: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer that makes a fraction of every row of a matrix zero (Martens, 2010).

    The other entries are drawn from a normal distribution.

    Parameters
    ----------
    sparsity : float
        The fraction.
    mean : float
        The mean of the other entries. Default: ``0.0``.
    std : float
        The standard deviation of the other entries. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Examples
    --------
    >>> (nn.init.sparse(0.5)(mx.zeros((2, 4))) == 0).sum(axis=1).tolist()
    [2, 2]
    """

    def initializer(a: mx.array) -> mx.array:
        _require_matrix(a, "sparse")
        zeros = math.ceil(sparsity * a.shape[1])
        # The first columns in a random order of each row become zero.
        chosen = mx.argsort(mx.random.uniform(shape=a.shape))[:, :zeros]
        return mx.put_along_axis(normal(mean, std, dtype)(a), chosen, mx.array(0.0, dtype=dtype), axis=1)

    return initializer


def orthogonal(gain: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """An initializer that makes matrices with orthonormal rows or columns.

    Parameters
    ----------
    gain : float
        A factor for the matrix. Default: ``1.0``.
    dtype : Dtype
        The type of the result. Default: ``float32``.

    Examples
    --------
    >>> q = nn.init.orthogonal()(mx.zeros((3, 3)))
    >>> mx.allclose(q @ q.T, mx.eye(3), atol=1e-5).item()
    True
    """

    def initializer(a: mx.array) -> mx.array:
        _require_matrix(a, "orthogonal")
        rows, columns = a.shape
        size = max(rows, columns)
        q, r = mx.linalg.qr(mx.random.normal((size, size)), stream=mx.cpu)
        # The signs of r's diagonal make the distribution of q uniform.
        q = q * mx.sign(mx.diag(r))
        return (gain * q[:rows, :columns]).astype(dtype)

    return initializer
