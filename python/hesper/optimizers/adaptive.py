"""Optimizers that scale the step of every entry: Adam and its relatives."""

from typing import List

import hesper.core as mx

from .base import Optimizer, Scheduled

__all__ = ["AdaDelta", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop"]


class RMSprop(Optimizer):
    """Divides the gradient by the root of its mean square.

    Computes (Tieleman and Hinton, 2012)::

        v = alpha * v + (1 - alpha) * g**2
        w = w - learning_rate * g / (sqrt(v) + eps)

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    alpha : float
        The smoothing of the mean square. Default: ``0.99``.
    eps : float
        Added to the root. Default: ``1e-8``.

    Raises
    ------
    ValueError
        If ``alpha`` or ``eps`` is negative.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.RMSprop(learning_rate=0.1)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    """

    def __init__(
        self, learning_rate: Scheduled, alpha: float = 0.99, eps: float = 1e-8
    ) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.alpha = alpha
        self.eps = eps
        if alpha < 0.0:
            raise ValueError(f"RMSprop alpha should be >=0, {alpha} was provided instead")
        if eps < 0.0:
            raise ValueError(f"RMSprop epsilon should be >0, {eps} was provided instead")

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["v"] = mx.zeros_like(parameter)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        learning_rate = self.learning_rate.astype(gradient.dtype)
        v = self.alpha * state["v"] + (1 - self.alpha) * mx.square(gradient)
        state["v"] = v
        return parameter - learning_rate * gradient / (mx.sqrt(v) + self.eps)


class Adagrad(Optimizer):
    """Divides the gradient by the root of the sum of all its squares.

    Computes (Duchi et al., 2011)::

        v = v + g**2
        w = w - learning_rate * g / (sqrt(v) + eps)

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    eps : float
        Added to the root. Default: ``1e-8``.

    Raises
    ------
    ValueError
        If ``eps`` is negative.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.Adagrad(learning_rate=0.5)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    def __init__(self, learning_rate: Scheduled, eps: float = 1e-8) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.eps = eps
        if eps < 0.0:
            raise ValueError(f"Adagrad epsilon should be >0, {eps} was provided instead")

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["v"] = mx.zeros_like(parameter)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        learning_rate = self.learning_rate.astype(gradient.dtype)
        v = state["v"] + mx.square(gradient)
        state["v"] = v
        return parameter - learning_rate * gradient / (mx.sqrt(v) + self.eps)


class AdaDelta(Optimizer):
    """Scales the gradient by the size of earlier steps over that of gradients.

    Computes (Zeiler, 2012, arXiv:1212.5701)::

        v = rho * v + (1 - rho) * g**2
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d**2
        w = w - learning_rate * d

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    rho : float
        The smoothing of the mean squares. Default: ``0.9``.
    eps : float
        Added to the mean squares. Default: ``1e-6``.

    Raises
    ------
    ValueError
        If ``rho`` or ``eps`` is negative.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.AdaDelta(learning_rate=1.0)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    """

    def __init__(
        self, learning_rate: Scheduled, rho: float = 0.9, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.rho = rho
        self.eps = eps
        if rho < 0.0:
            raise ValueError(f"AdaDelta rho should be >=0, {rho} was provided instead")
        if eps < 0.0:
            raise ValueError(f"AdaDelta epsilon should be >0, {eps} was provided instead")

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["v"] = mx.zeros_like(parameter)
        state["u"] = mx.zeros_like(parameter)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        learning_rate = self.learning_rate.astype(gradient.dtype)
        u = state["u"]
        v = self.rho * state["v"] + (1 - self.rho) * mx.square(gradient)
        d = mx.sqrt(u + self.eps) / mx.sqrt(v + self.eps) * gradient
        state["v"] = v
        state["u"] = self.rho * u + (1 - self.rho) * mx.square(d)
        return parameter - learning_rate * d


class Adam(Optimizer):
    """Divides the running mean of the gradient by its root mean square.

    Computes (Kingma and Ba, 2015, arXiv:1412.6980), without correction of the
    bias unless asked for::

        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        w = w - learning_rate * m / (sqrt(v) + eps)

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    betas : list of float
        The coefficients ``b1`` and ``b2``. Default: ``[0.9, 0.999]``.
    eps : float
        Added to the root. Default: ``1e-8``.
    bias_correction : bool
        Whether to correct the means for their start at zero. Default:
        ``False``.

    Raises
    ------
    ValueError
        If ``eps`` is negative.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.Adam(learning_rate=0.1)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    >>> list(optimizer.state["w"])
    ['m', 'v']
    """

    def __init__(
        self,
        learning_rate: Scheduled,
        betas: List[float] = [0.9, 0.999],
        eps: float = 1e-8,
        bias_correction: bool = False,
    ) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas = betas
        self.eps = eps
        self.bias_correction = bias_correction
        if eps < 0.0:
            raise ValueError(f"Adam epsilon should be >=0, {eps} was provided instead")

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["m"] = mx.zeros_like(parameter)
        state["v"] = mx.zeros_like(parameter)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        learning_rate = self.learning_rate.astype(gradient.dtype)
        b1, b2 = self.betas
        m = b1 * state["m"] + (1 - b1) * gradient
        v = b2 * state["v"] + (1 - b2) * mx.square(gradient)
        state["m"] = m
        state["v"] = v
        if not self.bias_correction:
            return parameter - learning_rate * m / (mx.sqrt(v) + self.eps)

        step = self.step
        c1 = (learning_rate / (1 - b1**step)).astype(gradient.dtype)
        c2 = mx.rsqrt(1 - b2**step).astype(gradient.dtype)
        return parameter - c1 * m / (mx.sqrt(v) * c2 + self.eps)


class AdamW(Adam):
    """:class:`Adam` with a weight decay of its own.

    The parameter shrinks by the factor ``1 - learning_rate * weight_decay``
    before each step (Loshchilov and Hutter, 2019, arXiv:1711.05101).

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    betas : list of float
        The coefficients of the means. Default: ``[0.9, 0.999]``.
    eps : float
        Added to the root. Default: ``1e-8``.
    weight_decay : float
        The weight decay. Default: ``0.01``.
    bias_correction : bool
        Whether to correct the means for their start at zero. Default:
        ``False``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.AdamW(learning_rate=0.5, weight_decay=1.0)
    >>> optimizer.apply_gradients({"w": mx.zeros(1)}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    def __init__(
        self,
        learning_rate: Scheduled,
        betas: List[float] = [0.9, 0.999],
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
    ) -> None:
        super().__init__(learning_rate, betas, eps, bias_correction)
        self.weight_decay = weight_decay

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        learning_rate = self.learning_rate.astype(gradient.dtype)
        decayed = parameter * (1 - learning_rate * self.weight_decay)
        return super().apply_single(gradient, decayed, state)


class Adamax(Adam):
    """:class:`Adam` with the largest instead of the mean square.

    Computes::

        m = b1 * m + (1 - b1) * g
        v = max(b2 * v, abs(g))
        w = w - learning_rate * m / (v + eps)

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    betas : list of float
        The coefficients ``b1`` and ``b2``. Default: ``[0.9, 0.999]``.
    eps : float
        Added to the divisor. Default: ``1e-8``.

    Raises
    ------
    ValueError
        If ``eps`` is negative.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.Adamax(learning_rate=0.1)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    """

    def __init__(
        self,
        learning_rate: Scheduled,
        betas: List[float] = [0.9, 0.999],
        eps: float = 1e-8,
    ) -> None:
        super().__init__(learning_rate, betas, eps)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        learning_rate = self.learning_rate.astype(gradient.dtype)
        b1, b2 = self.betas
        m = b1 * state["m"] + (1 - b1) * gradient
        v = mx.maximum(b2 * state["v"], mx.abs(gradient))
        state["m"] = m
        state["v"] = v
        return parameter - learning_rate * m / (v + self.eps)
