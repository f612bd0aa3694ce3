"""Optimizers that scale the step of every entry: Adam and its relatives."""

import hesper.core as mx

from .base import MomentOptimizer, Scheduled, moving_average

__all__ = ["AdaDelta", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop"]


class RMSprop(MomentOptimizer):
    """Divides the gradient by its root mean square (Tieleman and Hinton, 2012).

    Computes::

        v = alpha * v + (1 - alpha) * g**2
        w = w - learning_rate * g / (sqrt(v) + eps)

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    alpha : float
        The decay of the mean square. Default: ``0.99``.
    eps : float
        Added to the root. Default: ``1e-8``.

    Raises
    ------
    ValueError
        If ``alpha`` is negative or ``eps`` is not positive.

    Examples
    --------
    >>> optimizer = optim.RMSprop(learning_rate=0.1)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    """

    _moments = ("v",)

    def __init__(self, learning_rate: Scheduled, alpha: float = 0.99, eps: float = 1e-8) -> None:
        super().__init__(learning_rate)
        self._require_nonnegative(alpha=alpha)
        self._require_positive(eps=eps)
        self.alpha, self.eps = alpha, eps

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        v = moving_average(state, "v", self.alpha, mx.square(gradient))
        return parameter - self._rate_for(gradient) * gradient / (mx.sqrt(v) + self.eps)


class Adagrad(MomentOptimizer):
    """Divides the gradient by the root of the sum of all its squares (Duchi et al., 2011).

    Computes::

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
        If ``eps`` is not positive.

    Examples
    --------
    >>> optimizer = optim.Adagrad(learning_rate=0.5)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    _moments = ("v",)

    def __init__(self, learning_rate: Scheduled, eps: float = 1e-8) -> None:
        super().__init__(learning_rate)
        self._require_positive(eps=eps)
        self.eps = eps

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        state["v"] = state["v"] + mx.square(gradient)
        return parameter - self._rate_for(gradient) * gradient / (mx.sqrt(state["v"]) + self.eps)


class AdaDelta(MomentOptimizer):
    """Scales the gradient by the size of earlier steps over that of gradients (Zeiler, 2012, arXiv:1212.5701).

    Computes::

        v = rho * v + (1 - rho) * g**2
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d**2
        w = w - learning_rate * d

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    rho : float
        The decay of the mean squares. Default: ``0.9``.
    eps : float
        Added to the mean squares. Default: ``1e-6``.

    Raises
    ------
    ValueError
        If ``rho`` is negative or ``eps`` is not positive.

    Examples
    --------
    >>> optimizer = optim.AdaDelta(learning_rate=1.0)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    """

    _moments = ("v", "u")

    def __init__(self, learning_rate: Scheduled, rho: float = 0.9, eps: float = 1e-6) -> None:
        super().__init__(learning_rate)
        self._require_nonnegative(rho=rho)
        self._require_positive(eps=eps)
        self.rho, self.eps = rho, eps

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        v = moving_average(state, "v", self.rho, mx.square(gradient))
        step = mx.sqrt(state["u"] + self.eps) / mx.sqrt(v + self.eps) * gradient
        moving_average(state, "u", self.rho, mx.square(step))
        return parameter - self._rate_for(gradient) * step


class Adam(MomentOptimizer):
    """Divides the running mean of the gradient by its root mean square (Kingma and Ba, 2015, arXiv:1412.6980).

    Computes::

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
        Whether to correct the means for their start at zero. Default: ``False``.

    Raises
    ------
    ValueError
        If ``eps`` is negative, or a number of ``betas`` is not in ``[0, 1)``.

    Examples
    --------
    >>> optimizer = optim.Adam(learning_rate=0.1)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    >>> list(optimizer.state["w"])
    ['m', 'v']
    """

    _moments = ("m", "v")

    def __init__(
        self, learning_rate: Scheduled, betas: list[float] = [0.9, 0.999], eps: float = 1e-8,
        bias_correction: bool = False,
    ) -> None:
        super().__init__(learning_rate)
        self._require_nonnegative(eps=eps)
        self._require_fractions(betas)
        self.betas, self.eps, self.bias_correction = betas, eps, bias_correction

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        rate, (b1, b2) = self._rate_for(gradient), self.betas
        m = moving_average(state, "m", b1, gradient)
        root = mx.sqrt(moving_average(state, "v", b2, mx.square(gradient)))
        if self.bias_correction:
            rate = (rate / (1 - b1**self.step)).astype(gradient.dtype)
            root = root * mx.rsqrt(1 - b2**self.step).astype(gradient.dtype)
        return parameter - rate * m / (root + self.eps)


class AdamW(Adam):
    """:class:`Adam` with decoupled weight decay (Loshchilov and Hutter, 2019, arXiv:1711.05101).

    The parameter is multiplied by ``1 - learning_rate * weight_decay`` before each step.

    Parameters
    ----------
    learning_rate, betas, eps, bias_correction
        As for :class:`Adam`.
    weight_decay : float
        The weight decay. Default: ``0.01``.

    Examples
    --------
    >>> optimizer = optim.AdamW(learning_rate=0.5, weight_decay=1.0)
    >>> optimizer.apply_gradients({"w": mx.zeros(1)}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    def __init__(
        self, learning_rate: Scheduled, betas: list[float] = [0.9, 0.999], eps: float = 1e-8,
        weight_decay: float = 0.01, bias_correction: bool = False,
    ) -> None:
        super().__init__(learning_rate, betas, eps, bias_correction=bias_correction)
        self.weight_decay = weight_decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        kept = 1 - self._rate_for(gradient) * self.weight_decay
        return super().apply_single(gradient, parameter * kept, state)


class Adamax(Adam):
    """:class:`Adam` with the largest magnitude in place of the root mean square.

    Computes::

        m = b1 * m + (1 - b1) * g
        v = max(b2 * v, abs(g))
        w = w - learning_rate * m / (v + eps)

    Parameters
    ----------
    learning_rate, betas, eps
        As for :class:`Adam`.

    Examples
    --------
    >>> optimizer = optim.Adamax(learning_rate=0.1)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})["w"].shape
    (1,)
    """

    def __init__(self, learning_rate: Scheduled, betas: list[float] = [0.9, 0.999], eps: float = 1e-8) -> None:
        super().__init__(learning_rate, betas, eps, bias_correction=False)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        b1, b2 = self.betas
        m = moving_average(state, "m", b1, gradient)
        state["v"] = mx.maximum(b2 * state["v"], mx.abs(gradient))
        return parameter - self._rate_for(gradient) * m / (state["v"] + self.eps)
