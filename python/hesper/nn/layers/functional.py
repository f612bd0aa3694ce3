"""Activation functions.

Each is a plain function of an array. Those that chain several operations are
compiled, so that the chain is traced once and runs as one kernel for all
shapes.
"""

import math
from functools import wraps
from typing import Any, Callable

import hesper.core as mx

__all__ = [
    "celu",
    "elu",
    "gelu",
    "gelu_approx",
    "gelu_fast_approx",
    "glu",
    "hard_shrink",
    "hard_tanh",
    "hardswish",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "prelu",
    "relu",
    "relu2",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "step",
    "tanh",
]


def _compiled(fn: Callable) -> Callable:
    """Compile a function once for all shapes.

    The result is an ordinary function, which models that hold it can be copied
    and pickled with.
    """
    run = mx.compile(fn, shapeless=True)

    @wraps(fn)
    def activation(*args: Any, **kwargs: Any) -> mx.array:
        return run(*args, **kwargs)

    return activation


def sigmoid(x: mx.array) -> mx.array:
    """Logistic sigmoid, ``1 / (1 + exp(-x))``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.sigmoid(mx.array([0.0])).tolist()
    [0.5]
    """
    return mx.sigmoid(x)


def relu(x: mx.array) -> mx.array:
    """Rectified linear unit, ``max(x, 0)``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.relu(mx.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return mx.maximum(x, 0)


@_compiled
def relu2(x: mx.array) -> mx.array:
    """Squared rectified linear unit, ``max(x, 0)**2``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.relu2(mx.array([-1.0, 2.0])).tolist()
    [0.0, 4.0]
    """
    return mx.square(mx.maximum(x, 0))


@_compiled
def relu6(x: mx.array) -> mx.array:
    """Rectified linear unit with a ceiling, ``min(max(x, 0), 6)``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.relu6(mx.array([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    return mx.minimum(mx.maximum(x, 0), 6.0)


@_compiled
def leaky_relu(x: mx.array, negative_slope: float = 0.01) -> mx.array:
    """Leaky rectified linear unit, ``max(negative_slope * x, x)``, element-wise.

    Parameters
    ----------
    x : array
        The input.
    negative_slope : float
        The slope for negative inputs. Default: ``0.01``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.leaky_relu(mx.array([-1.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    return mx.maximum(negative_slope * x, x)


@_compiled
def elu(x: mx.array, alpha: float = 1.0) -> mx.array:
    """Exponential linear unit: ``x`` where positive, else ``alpha * (exp(x) - 1)``.

    Parameters
    ----------
    x : array
        The input.
    alpha : float
        The limit for very negative inputs, negated. Default: ``1.0``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.elu(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return mx.where(x > 0, x, alpha * (mx.exp(x) - 1))


@_compiled
def celu(x: mx.array, alpha: float = 1.0) -> mx.array:
    """Continuously differentiable exponential linear unit, element-wise.

    Computes ``max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1)``.

    Parameters
    ----------
    x : array
        The input.
    alpha : float
        The limit for very negative inputs, negated. Default: ``1.0``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.celu(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return mx.maximum(x, 0.0) + alpha * (mx.exp(mx.minimum(x, 0.0) / alpha) - 1)


@_compiled
def selu(x: mx.array) -> mx.array:
    """Scaled exponential linear unit: ``1.0507 * elu(x, 1.67326)``.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.selu(mx.array([0.0])).tolist()
    [0.0]
    """
    return elu(x, 1.67326) * 1.0507


@_compiled
def prelu(x: mx.array, alpha: mx.array) -> mx.array:
    """Parametric rectified linear unit, ``max(x, 0) + alpha * min(x, 0)``.

    Parameters
    ----------
    x : array
        The input.
    alpha : array
        The slopes for negative inputs, of a shape that broadcasts with ``x``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.prelu(mx.array([-2.0, 2.0]), mx.array([0.5])).tolist()
    [-1.0, 2.0]
    """
    return mx.maximum(0, x) + alpha * mx.minimum(0, x)


@_compiled
def gelu(x: mx.array) -> mx.array:
    """Gaussian error linear unit: ``x`` times the normal distribution function.

    See :func:`gelu_approx` and :func:`gelu_fast_approx` for cheaper versions.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.gelu(mx.array([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2


@_compiled
def gelu_approx(x: mx.array) -> mx.array:
    """Approximate :func:`gelu` with a hyperbolic tangent.

    Computes ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``; the
    error is below 0.0005 for inputs between -6 and 6.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.gelu_approx(mx.array([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@_compiled
def gelu_fast_approx(x: mx.array) -> mx.array:
    """Approximate :func:`gelu` with a sigmoid, ``x * sigmoid(1.702 * x)``.

    The error is below 0.015 for inputs between -6 and 6.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.gelu_fast_approx(mx.array([0.0])).tolist()
    [0.0]
    """
    return x * mx.sigmoid(1.702 * x)


@_compiled
def silu(x: mx.array) -> mx.array:
    """Sigmoid linear unit (swish), ``x * sigmoid(x)``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.silu(mx.array([0.0])).tolist()
    [0.0]
    """
    return x * mx.sigmoid(x)


@_compiled
def hardswish(x: mx.array) -> mx.array:
    """Piecewise approximation of swish, ``x * min(max(x + 3, 0), 6) / 6``.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.hardswish(mx.array([-4.0, 4.0])).tolist()
    [-0.0, 4.0]
    """
    return x * mx.minimum(mx.maximum(x + 3, 0), 6) / 6


def softplus(x: mx.array) -> mx.array:
    """Smooth rectifier, ``log(1 + exp(x))``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.softplus(mx.array([100.0])).tolist()
    [100.0]
    """
    return mx.logaddexp(x, 0)


@_compiled
def mish(x: mx.array) -> mx.array:
    """``x * tanh(softplus(x))``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.mish(mx.array([0.0])).tolist()
    [0.0]
    """
    return x * mx.tanh(softplus(x))


@_compiled
def softsign(x: mx.array) -> mx.array:
    """``x / (1 + abs(x))``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.softsign(mx.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    return x / (1 + mx.abs(x))


@_compiled
def softshrink(x: mx.array, lambd: float = 0.5) -> mx.array:
    """Pull every entry towards zero by ``lambd``, and those closer than that to zero.

    Parameters
    ----------
    x : array
        The input.
    lambd : float
        By how much. Default: ``0.5``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.softshrink(mx.array([-2.0, 0.25])).tolist()
    [-1.5, 0.0]
    """
    return mx.where(mx.abs(x) > lambd, x - mx.sign(x) * lambd, 0)


@_compiled
def hard_shrink(x: mx.array, lambd: float = 0.5) -> mx.array:
    """Set entries to zero that are no further than ``lambd`` from it.

    Parameters
    ----------
    x : array
        The input.
    lambd : float
        The distance. Default: ``0.5``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.hard_shrink(mx.array([-2.0, 0.25])).tolist()
    [-2.0, 0.0]
    """
    return mx.where(mx.abs(x) > lambd, x, 0)


@_compiled
def hard_tanh(x: mx.array, min_val: float = -1.0, max_val: float = 1.0) -> mx.array:
    """Clip the input to an interval, element-wise.

    Parameters
    ----------
    x : array
        The input.
    min_val : float
        The lower end. Default: ``-1.0``.
    max_val : float
        The upper end. Default: ``1.0``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.hard_tanh(mx.array([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    return mx.minimum(mx.maximum(x, min_val), max_val)


def tanh(x: mx.array) -> mx.array:
    """Hyperbolic tangent, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.tanh(mx.array([0.0])).tolist()
    [0.0]
    """
    return mx.tanh(x)


@_compiled
def step(x: mx.array, threshold: float = 0.0) -> mx.array:
    """One where the input reaches a threshold, else zero.

    Parameters
    ----------
    x : array
        The input.
    threshold : float
        The threshold. Default: ``0.0``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.step(mx.array([-1.0, 0.0, 2.0])).tolist()
    [0, 1, 1]
    """
    return mx.where(x >= threshold, 1, 0)


def glu(x: mx.array, axis: int = -1) -> mx.array:
    """Gated linear unit: one half of the input times the sigmoid of the other.

    Parameters
    ----------
    x : array
        The input, of even length along ``axis``.
    axis : int
        The axis to halve. Default: ``-1``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.glu(mx.array([3.0, 0.0])).tolist()
    [1.5]
    """
    a, b = mx.split(x, indices_or_sections=2, axis=axis)
    return a * mx.sigmoid(b)


def softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Exponentials that are scaled to sum to one.

    Parameters
    ----------
    x : array
        The input.
    axis : int
        The axis along which to normalise. Default: ``-1``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.softmax(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """
    return mx.softmax(x, axis=axis)


@_compiled
def softmin(x: mx.array, axis: int = -1) -> mx.array:
    """:func:`softmax` of the negated input.

    Parameters
    ----------
    x : array
        The input.
    axis : int
        The axis along which to normalise. Default: ``-1``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.softmin(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """
    return mx.softmax(-x, axis=axis)


@_compiled
def log_softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Logarithm of :func:`softmax`, computed without leaving log space.

    Parameters
    ----------
    x : array
        The input.
    axis : int
        The axis along which to normalise. Default: ``-1``.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.log_softmax(mx.array([5.0])).tolist()
    [0.0]
    """
    # The largest entry of a row is subtracted so that exp cannot overflow.
    x = x - mx.stop_gradient(mx.max(x, axis=axis, keepdims=True))
    return x - mx.logsumexp(x, axis=axis, keepdims=True)


@_compiled
def log_sigmoid(x: mx.array) -> mx.array:
    """Logarithm of :func:`sigmoid`, ``-log(1 + exp(-x))``, element-wise.

    Parameters
    ----------
    x : array
        The input.

    Returns
    -------
    array
        The activations.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.log_sigmoid(mx.array([-100.0])).tolist()
    [-100.0]
    """
    return -mx.logaddexp(-x, 0)
