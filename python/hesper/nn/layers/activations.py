"""Activation layers: the functions of :mod:`.functional` as modules."""

from typing import Callable, ClassVar

import hesper.core as mx

from . import functional
from .base import Module
from .functional import *  # noqa: F403

__all__ = [
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
__all__ += functional.__all__


class _Activation(Module):
    """Applies ``_function``, with the attribute named by ``_setting`` as its second argument if there is one."""

    _function: ClassVar[Callable]
    _setting: ClassVar[str | None] = None

    def __call__(self, x: mx.array) -> mx.array:
        return self._function(x) if self._setting is None else self._function(x, getattr(self, self._setting))


class Sigmoid(_Activation):
    """Applies :func:`sigmoid`.

    Examples
    --------
    >>> nn.Sigmoid()(mx.array([0.0])).tolist()
    [0.5]
    """

    _function = staticmethod(functional.sigmoid)


class ReLU(_Activation):
    """Applies :func:`relu`.

    Examples
    --------
    >>> nn.ReLU()(mx.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    _function = staticmethod(functional.relu)


class ReLU2(_Activation):
    """Applies :func:`relu2`.

    Examples
    --------
    >>> nn.ReLU2()(mx.array([-1.0, 2.0])).tolist()
    [0.0, 4.0]
    """

    _function = staticmethod(functional.relu2)


class ReLU6(_Activation):
    """Applies :func:`relu6`.

    Examples
    --------
    >>> nn.ReLU6()(mx.array([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    _function = staticmethod(functional.relu6)


class SELU(_Activation):
    """Applies :func:`selu`.

    Examples
    --------
    >>> nn.SELU()(mx.array([0.0])).tolist()
    [0.0]
    """

    _function = staticmethod(functional.selu)


class SiLU(_Activation):
    """Applies :func:`silu`.

    Examples
    --------
    >>> nn.SiLU()(mx.array([0.0])).tolist()
    [0.0]
    """

    _function = staticmethod(functional.silu)


class Hardswish(_Activation):
    """Applies :func:`hardswish`.

    Examples
    --------
    >>> nn.Hardswish()(mx.array([-4.0, 4.0])).tolist()
    [-0.0, 4.0]
    """

    _function = staticmethod(functional.hardswish)


class HardTanh(_Activation):
    """Applies :func:`hard_tanh`.

    Examples
    --------
    >>> nn.HardTanh()(mx.array([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """

    _function = staticmethod(functional.hard_tanh)


class Tanh(_Activation):
    """Applies :func:`tanh`.

    Examples
    --------
    >>> nn.Tanh()(mx.array([0.0])).tolist()
    [0.0]
    """

    _function = staticmethod(functional.tanh)


class Softplus(_Activation):
    """Applies :func:`softplus`.

    Examples
    --------
    >>> nn.Softplus()(mx.array([100.0])).tolist()
    [100.0]
    """

    _function = staticmethod(functional.softplus)


class Softsign(_Activation):
    """Applies :func:`softsign`.

    Examples
    --------
    >>> nn.Softsign()(mx.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """

    _function = staticmethod(functional.softsign)


class Mish(_Activation):
    """Applies :func:`mish`.

    Examples
    --------
    >>> nn.Mish()(mx.array([0.0])).tolist()
    [0.0]
    """

    _function = staticmethod(functional.mish)


class Softmax(_Activation):
    """Applies :func:`softmax` along the last axis.

    Examples
    --------
    >>> nn.Softmax()(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    _function = staticmethod(functional.softmax)


class Softmin(_Activation):
    """Applies :func:`softmin` along the last axis.

    Examples
    --------
    >>> nn.Softmin()(mx.array([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    _function = staticmethod(functional.softmin)


class LogSoftmax(_Activation):
    """Applies :func:`log_softmax` along the last axis.

    Examples
    --------
    >>> nn.LogSoftmax()(mx.array([5.0])).tolist()
    [0.0]
    """

    _function = staticmethod(functional.log_softmax)


class LogSigmoid(_Activation):
    """Applies :func:`log_sigmoid`.

    Examples
    --------
    >>> nn.LogSigmoid()(mx.array([-100.0])).tolist()
    [-100.0]
    """

    _function = staticmethod(functional.log_sigmoid)


class GLU(_Activation):
    """Applies :func:`glu`.

    Parameters
    ----------
    axis : int
        The axis to halve. Default: ``-1``.

    Examples
    --------
    >>> nn.GLU()(mx.array([3.0, 0.0])).tolist()
    [1.5]
    """

    _function, _setting = staticmethod(functional.glu), "axis"

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis


class LeakyReLU(_Activation):
    """Applies :func:`leaky_relu`.

    Parameters
    ----------
    negative_slope : float
        The slope for negative inputs. Default: ``0.01``.

    Examples
    --------
    >>> nn.LeakyReLU(0.5)(mx.array([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    _function, _setting = staticmethod(functional.leaky_relu), "_slope"

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self._slope = negative_slope


class ELU(_Activation):
    """Applies :func:`elu`.

    Parameters
    ----------
    alpha : float
        The limit for very negative inputs, negated. Default: ``1.0``.

    Examples
    --------
    >>> nn.ELU()(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    _function, _setting = staticmethod(functional.elu), "_alpha"

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._alpha = alpha


class CELU(_Activation):
    """Applies :func:`celu`.

    Parameters
    ----------
    alpha : float
        The limit for very negative inputs, negated. Default: ``1.0``.

    Examples
    --------
    >>> nn.CELU()(mx.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    _function, _setting = staticmethod(functional.celu), "_alpha"

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._alpha = alpha


class Softshrink(_Activation):
    """Applies :func:`softshrink`.

    Parameters
    ----------
    lambd : float
        The amount to shrink by. Default: ``0.5``.

    Examples
    --------
    >>> nn.Softshrink()(mx.array([-2.0, 0.25])).tolist()
    [-1.5, 0.0]
    """

    _function, _setting = staticmethod(functional.softshrink), "lambd"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class HardShrink(_Activation):
    """Applies :func:`hard_shrink`.

    Parameters
    ----------
    lambd : float
        Entries at most this far from zero become zero. Default: ``0.5``.

    Examples
    --------
    >>> nn.HardShrink()(mx.array([-2.0, 0.25])).tolist()
    [-2.0, 0.0]
    """

    _function, _setting = staticmethod(functional.hard_shrink), "lambd"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class Step(_Activation):
    """Applies :func:`step`.

    Parameters
    ----------
    threshold : float
        The threshold. Default: ``0.0``.

    Examples
    --------
    >>> nn.Step()(mx.array([-1.0, 0.0, 2.0])).tolist()
    [0, 1, 1]
    """

    _function, _setting = staticmethod(functional.step), "threshold"

    def __init__(self, threshold: float = 0.0) -> None:
        super().__init__()
        self.threshold = threshold


class PReLU(_Activation):
    """Applies :func:`prelu` with learned slopes.

    Parameters
    ----------
    num_parameters : int
        The number of slopes: one, or one for each feature. Default: ``1``.
    init : float
        The slopes at first. Default: ``0.25``.

    Examples
    --------
    >>> nn.PReLU()(mx.array([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    _function, _setting = staticmethod(functional.prelu), "weight"

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.weight = mx.full((num_parameters,), init)


_GELU_FUNCTIONS = {
    "none": functional.gelu,
    "precise": functional.gelu_approx,
    "tanh": functional.gelu_approx,
    "fast": functional.gelu_fast_approx,
}


class GELU(Module):
    """Applies :func:`gelu` or one of its approximations.

    Parameters
    ----------
    approx : {'none', 'precise', 'tanh', 'fast'}
        ``'none'`` for :func:`gelu`, ``'precise'`` or ``'tanh'`` for :func:`gelu_approx`, ``'fast'`` for
        :func:`gelu_fast_approx`. Default: ``'none'``.

    Raises
    ------
    ValueError
        If ``approx`` is none of these.

    Examples
    --------
    >>> nn.GELU(approx="fast")(mx.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, approx: str = "none") -> None:
        super().__init__()
        if approx not in _GELU_FUNCTIONS:
            raise ValueError(f"cannot approximate GELU by {approx!r}; choose one of {', '.join(_GELU_FUNCTIONS)}")
        self._approx = approx

    def __call__(self, x: mx.array) -> mx.array:
        return _GELU_FUNCTIONS[self._approx](x)
