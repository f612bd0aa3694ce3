"""Activation functions.

Each is a plain function of an array. Those that chain several operations are compiled: the chain is traced once and
runs as one kernel for all shapes.
"""

import math
from functools import wraps
from typing import Any, Callable, TypeVar, cast

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


Activation = TypeVar("Activation", bound=Callable[..., mx.array])


def _compiled(fn: Activation) -> Activation:
    """Compile a function once for all shapes.

    The result is an ordinary function, so that models which hold it can be copied and pickled.
    """
    run = mx.compile(fn, shapeless=True)

    @wraps(fn)
    def activation(*args: Any, **kwargs: Any) -> mx.array:
        return run(*args, **kwargs)

    return cast(Activation, activation)


def sigmoid(x: mx.array) -> mx.array:
    """Logistic sigmoid, ``1 / (1 + exp(-x))``, element-wise.

    Examples
    --------
    >>> nn.sigmoid(mx.array([0.0])).tolist()
    [0.5]
    """
    return mx.sigmoid(x)


def relu(x: mx.array) -> mx.array:
    """Rectified linear unit, ``max(x, 0)``, element-wise.

    Examples
    --------
    >>> nn.relu(mx.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return mx.maximum(x, 0)


@_compiled
def relu2(x: mx.array) -> mx.array:
    """Squared rectified linear unit, ``max(x, 0)**2``, element-wise.

    Examples
    --------
    >>> nn.relu2(mx.array([-1.0, 2.0])).tolist()
    [0.0, 4.0]
    """
    return mx.square(relu(x))


@_compiled
def relu6(x: mx.array) -> mx.array:
    """Rectified linear unit with a ceiling, ``min(max(x, 0), 6)``, element-wise.

    Examples
    --------
    >>> nn.relu6(mx.array([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    return mx.minimum(relu(x), 6.0)


@_compiled
def leaky_relu(x: mx.array, negative_slope: float = 0.01) -> mx.array:
    """Leaky rectified linear unit, ``max(negative_slope * x, x)``, element-wise.

    Parameters
    ----------
    x : array
        The input.
    negative_slope : float
        The slope for negative inputs. Default: ``0.01``.

    Examples
    --------
    >>> nn.leaky_relu(mx.array([-1.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    scaled = negative_slope * x
    return mx.maximum(scaled, x)


@_compiled
def elu(x: mx.array, alpha: float = 1.0) -> mx.array:
    """Exponential linear unit: ``x`` where positive, else ``alpha * (exp(x) - 1)``.

    Parameters
    ----------
    x : array
        The input.
    alpha : float
        The limit for very negative inputs, negated. Default: ``1.0``.

    Examples
    --------
    >>> nn.elu(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    saturating = alpha * (mx.exp(x) - 1)
    return mx.where(x > 0, x, saturating)


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

    Examples
    --------
    >>> nn.celu(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    negative = mx.minimum(x, 0.0)
    return mx.maximum(x, 0.0) + alpha * (mx.exp(negative / alpha) - 1)


@_compiled
def selu(x: mx.array) -> mx.array:
    """Scaled exponential linear unit: ``1.0507 * elu(x, 1.67326)``.

    Examples
    --------
    >>> nn.selu(mx.array([0.0])).tolist()
    [0.0]
    """
    return 1.0507 * elu(x, alpha=1.67326)


@_compiled
def prelu(x: mx.array, alpha: mx.array) -> mx.array:
    """Parametric rectified linear unit, ``max(x, 0) + alpha * min(x, 0)``.

    Parameters
    ----------
    x : array
        The input.
    alpha : array
        The slopes for negative inputs, of a shape that broadcasts with ``x``.

    Examples
    --------
    >>> nn.prelu(mx.array([-2.0, 2.0]), mx.array([0.5])).tolist()
    [-1.0, 2.0]
    """
    positive, negative = mx.maximum(0, x), mx.minimum(0, x)
    return positive + alpha * negative


@_compiled
def gelu(x: mx.array) -> mx.array:
    """Gaussian error linear unit: ``x`` times the normal distribution function.

    See :func:`gelu_approx` and :func:`gelu_fast_approx` for cheaper versions.

    Examples
    --------
    >>> nn.gelu(mx.array([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    doubled_cdf = 1 + mx.erf(x / math.sqrt(2))
    return x * doubled_cdf / 2


@_compiled
def gelu_approx(x: mx.array) -> mx.array:
    """Approximate :func:`gelu` with a hyperbolic tangent.

    Computes ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``; the error is below 0.0005 for inputs
    between -6 and 6.

    Examples
    --------
    >>> nn.gelu_approx(mx.array([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    cubic = x + 0.044715 * x**3
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * cubic))


@_compiled
def gelu_fast_approx(x: mx.array) -> mx.array:
    """Approximate :func:`gelu` with a sigmoid, ``x * sigmoid(1.702 * x)``.

    The error is below 0.015 for inputs between -6 and 6.

    Examples
    --------
    >>> nn.gelu_fast_approx(mx.array([0.0])).tolist()
    [0.0]
    """
    return x * sigmoid(1.702 * x)


@_compiled
def silu(x: mx.array) -> mx.array:
    """Sigmoid linear unit (swish), ``x * sigmoid(x)``, element-wise.

    Examples
    --------
    >>> nn.silu(mx.array([0.0])).tolist()
    [0.0]
    """
    return x * sigmoid(x)


@_compiled
def hardswish(x: mx.array) -> mx.array:
    """Piecewise approximation of swish, ``x * min(max(x + 3, 0), 6) / 6``.

    Examples
    --------
    >>> nn.hardswish(mx.array([-4.0, 4.0])).tolist()
    [-0.0, 4.0]
    """
    return x * mx.minimum(relu(x + 3), 6) / 6


def softplus(x: mx.array) -> mx.array:
    """Smooth rectifier, ``log(1 + exp(x))``, element-wise.

    Examples
    --------
    >>> nn.softplus(mx.array([100.0])).tolist()
    [100.0]
    """
    return mx.logaddexp(x, 0)


@_compiled
def mish(x: mx.array) -> mx.array:
    """``x * tanh(softplus(x))``, element-wise.

    Examples
    --------
    >>> nn.mish(mx.array([0.0])).tolist()
    [0.0]
    """
    return x * tanh(softplus(x))


@_compiled
def softsign(x: mx.array) -> mx.array:
    """``x / (1 + abs(x))``, element-wise.

    Examples
    --------
    >>> nn.softsign(mx.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    return x / (1 + mx.abs(x))


@_compiled
def softshrink(x: mx.array, lambd: float = 0.5) -> mx.array:
    """Move every entry towards zero by ``lambd``, at most to zero.

    Parameters
    ----------
    x : array
        The input.
    lambd : float
        The distance to move. Default: ``0.5``.

    Examples
    --------
    >>> nn.softshrink(mx.array([-2.0, 0.25])).tolist()
    [-1.5, 0.0]
    """
    shrunk = x - mx.sign(x) * lambd
    return mx.where(mx.abs(x) > lambd, shrunk, 0)


@_compiled
def hard_shrink(x: mx.array, lambd: float = 0.5) -> mx.array:
    """Set entries to zero that are at most ``lambd`` from it.

    Parameters
    ----------
    x : array
        The input.
    lambd : float
        The distance. Default: ``0.5``.

    Examples
    --------
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

    Examples
    --------
    >>> nn.hard_tanh(mx.array([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    return mx.minimum(mx.maximum(x, min_val), max_val)


def tanh(x: mx.array) -> mx.array:
    """Hyperbolic tangent, element-wise.

    Examples
    --------
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

    Examples
    --------
    >>> nn.step(mx.array([-1.0, 0.0, 2.0])).tolist()
    [0, 1, 1]
    """
    return mx.where(x >= threshold, 1, 0)


def glu(x: mx.array, axis: int = -1) -> mx.array:
    """Gated linear unit: the first half of the input times the sigmoid of the second.

    Parameters
    ----------
    x : array
        The input, of even length along ``axis``.
    axis : int
        The axis to halve. Default: ``-1``.

    Examples
    --------
    >>> nn.glu(mx.array([3.0, 0.0])).tolist()
    [1.5]
    """
    value, gate = mx.split(x, 2, axis)
    return value * sigmoid(gate)


def softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Exponentials, scaled to sum to one.

    Parameters
    ----------
    x : array
        The input.
    axis : int
        The axis of the sum. Default: ``-1``.

    Examples
    --------
    >>> nn.softmax(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """
    return mx.softmax(x, axis)


@_compiled
def softmin(x: mx.array, axis: int = -1) -> mx.array:
    """:func:`softmax` of the negated input.

    Parameters
    ----------
    x : array
        The input.
    axis : int
        The axis of the sum. Default: ``-1``.

    Examples
    --------
    >>> nn.softmin(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """
    return softmax(-x, axis)


def below_maximum(x: mx.array, axis: int) -> mx.array:
    """``x`` minus its maximum along ``axis``, whose ``exp`` cannot overflow."""
    return x - mx.stop_gradient(mx.max(x, axis, keepdims=True))


@_compiled
def log_softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Logarithm of :func:`softmax`, accurate for small probabilities.

    Parameters
    ----------
    x : array
        The input.
    axis : int
        The axis of the sum. Default: ``-1``.

    Examples
    --------
    >>> nn.log_softmax(mx.array([5.0])).tolist()
    [0.0]
    """
    x = below_maximum(x, axis)
    return x - mx.logsumexp(x, axis, keepdims=True)


@_compiled
def log_sigmoid(x: mx.array) -> mx.array:
    """Logarithm of :func:`sigmoid`, ``-log(1 + exp(-x))``, element-wise.

    Examples
    --------
    >>> nn.log_sigmoid(mx.array([-100.0])).tolist()
    [-100.0]
    """
    return -softplus(-x)
