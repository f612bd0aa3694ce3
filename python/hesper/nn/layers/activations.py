"""Activation layers: the functions of :mod:`.functional` as modules."""

import hesper.core as mx

from .base import Module
from .functional import __all__ as _functions
from .functional import (
    celu,
    elu,
    gelu,
    gelu_approx,
    gelu_fast_approx,
    glu,
    hard_shrink,
    hard_tanh,
    hardswish,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    mish,
    prelu,
    relu,
    relu2,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    step,
    tanh,
)

__all__ = [
    *_functions,
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "HardShrink",
    "HardTanh",
    "Hardswish",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU2",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Step",
    "Tanh",
]


class Sigmoid(Module):
    """Applies :func:`sigmoid`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Sigmoid()(mx.array([0.0])).tolist()
    [0.5]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return sigmoid(x)


class ReLU(Module):
    """Applies :func:`relu`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ReLU()(mx.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return relu(x)


class ReLU2(Module):
    """Applies :func:`relu2`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ReLU2()(mx.array([-1.0, 2.0])).tolist()
    [0.0, 4.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return relu2(x)


class ReLU6(Module):
    """Applies :func:`relu6`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ReLU6()(mx.array([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return relu6(x)


class SELU(Module):
    """Applies :func:`selu`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.SELU()(mx.array([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return selu(x)


class SiLU(Module):
    """Applies :func:`silu`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.SiLU()(mx.array([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return silu(x)


class Hardswish(Module):
    """Applies :func:`hardswish`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Hardswish()(mx.array([-4.0, 4.0])).tolist()
    [-0.0, 4.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return hardswish(x)


class HardTanh(Module):
    """Applies :func:`hard_tanh`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.HardTanh()(mx.array([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return hard_tanh(x)


class Tanh(Module):
    """Applies :func:`tanh`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Tanh()(mx.array([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return tanh(x)


class Softplus(Module):
    """Applies :func:`softplus`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Softplus()(mx.array([100.0])).tolist()
    [100.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return softplus(x)


class Softsign(Module):
    """Applies :func:`softsign`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Softsign()(mx.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return softsign(x)


class Mish(Module):
    """Applies :func:`mish`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Mish()(mx.array([0.0])).tolist()
    [0.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return mish(x)


class Softmax(Module):
    """Applies :func:`softmax` along the last axis.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Softmax()(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return softmax(x)


class Softmin(Module):
    """Applies :func:`softmin` along the last axis.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Softmin()(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return softmin(x)


class LogSoftmax(Module):
    """Applies :func:`log_softmax` along the last axis.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.LogSoftmax()(mx.array([5.0])).tolist()
    [0.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return log_softmax(x)


class LogSigmoid(Module):
    """Applies :func:`log_sigmoid`.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.LogSigmoid()(mx.array([-100.0])).tolist()
    [-100.0]
    """

    def __call__(self, x: mx.array) -> mx.array:
        return log_sigmoid(x)


class GLU(Module):
    """Applies :func:`glu`.

    Parameters
    ----------
    axis : int
        The axis to halve. Default: ``-1``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.GLU()(mx.array([3.0, 0.0])).tolist()
    [1.5]
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def __call__(self, x: mx.array) -> mx.array:
        return glu(x, self.axis)


class LeakyReLU(Module):
    """Applies :func:`leaky_relu`.

    Parameters
    ----------
    negative_slope : float
        The slope for negative inputs. Default: ``0.01``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.LeakyReLU(0.5)(mx.array([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self._negative_slope = negative_slope

    def __call__(self, x: mx.array) -> mx.array:
        return leaky_relu(x, self._negative_slope)


class ELU(Module):
    """Applies :func:`elu`.

    Parameters
    ----------
    alpha : float
        The limit for very negative inputs, negated. Default: ``1.0``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.ELU()(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._alpha = alpha

    def __call__(self, x: mx.array) -> mx.array:
        return elu(x, self._alpha)


class CELU(Module):
    """Applies :func:`celu`.

    Parameters
    ----------
    alpha : float
        The limit for very negative inputs, negated. Default: ``1.0``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.CELU()(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._alpha = alpha

    def __call__(self, x: mx.array) -> mx.array:
        return celu(x, self._alpha)


class Softshrink(Module):
    """Applies :func:`softshrink`.

    Parameters
    ----------
    lambd : float
        By how much to shrink. Default: ``0.5``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Softshrink()(mx.array([-2.0, 0.25])).tolist()
    [-1.5, 0.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def __call__(self, x: mx.array) -> mx.array:
        return softshrink(x, self.lambd)


class HardShrink(Module):
    """Applies :func:`hard_shrink`.

    Parameters
    ----------
    lambd : float
        Entries no further than this from zero become zero. Default: ``0.5``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.HardShrink()(mx.array([-2.0, 0.25])).tolist()
    [-2.0, 0.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def __call__(self, x: mx.array) -> mx.array:
        return hard_shrink(x, self.lambd)


class Step(Module):
    """Applies :func:`step`.

    Parameters
    ----------
    threshold : float
        The threshold. Default: ``0.0``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.Step()(mx.array([-1.0, 0.0, 2.0])).tolist()
    [0, 1, 1]
    """

    def __init__(self, threshold: float = 0.0) -> None:
        super().__init__()
        self.threshold = threshold

    def __call__(self, x: mx.array) -> mx.array:
        return step(x, self.threshold)


class PReLU(Module):
    """Applies :func:`prelu` with learned slopes.

    Parameters
    ----------
    num_parameters : int
        The number of slopes: one, or one for each feature. Default: ``1``.
    init : float
        What the slopes are at first. Default: ``0.25``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.PReLU()(mx.array([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.weight = mx.full([num_parameters], init)

    def __call__(self, x: mx.array) -> mx.array:
        return prelu(x, self.weight)


_GELU_FUNCTIONS = {
    "none": gelu,
    "precise": gelu_approx,
    "tanh": gelu_approx,
    "fast": gelu_fast_approx,
}


class GELU(Module):
    """Applies :func:`gelu` or one of its approximations.

    Parameters
    ----------
    approx : {'none', 'precise', 'tanh', 'fast'}
        ``'none'`` for :func:`gelu`, ``'precise'`` or ``'tanh'`` for
        :func:`gelu_approx`, ``'fast'`` for :func:`gelu_fast_approx`.
        Default: ``'none'``.

    Raises
    ------
    ValueError
        If ``approx`` is none of these.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.GELU(approx="fast")(mx.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, approx: str = "none") -> None:
        super().__init__()
        if approx not in _GELU_FUNCTIONS:
            raise ValueError(
                f"The approximation should be in {list(_GELU_FUNCTIONS)} but "
                f"'{approx}' was given"
            )
        self._approx = approx

    def __call__(self, x: mx.array) -> mx.array:
        return _GELU_FUNCTIONS[self._approx](x)
