"""Optimizers that follow the running mean of the gradient: SGD, Lion, Muon."""

import hesper.core as mx

from .base import MomentOptimizer, Scheduled, moving_average

__all__ = ["Lion", "Muon", "SGD"]


def _with_decay(gradient: mx.array, parameter: mx.array, weight_decay: float) -> mx.array:
    """The gradient plus that of ``weight_decay / 2`` times the squared norm of the parameter."""
    return gradient + weight_decay * parameter if weight_decay else gradient


class SGD(MomentOptimizer):
    """Stochastic gradient descent.

    Computes::

        v = momentum * v + (1 - dampening) * g
        w = w - learning_rate * v

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    momentum : float
        The factor of the previous ``v``. Default: ``0.0``.
    weight_decay : float
        The multiple of the parameter that is added to the gradient. Default: ``0.0``.
    dampening : float
        The fraction of the gradient to omit from ``v``. Default: ``0.0``.
    nesterov : bool
        Whether to use Nesterov momentum. Default: ``False``.

    Raises
    ------
    ValueError
        If ``nesterov`` is combined with dampening or without momentum.

    Examples
    --------
    >>> optimizer = optim.SGD(learning_rate=0.5)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    _moments = ("v",)

    def __init__(
        self, learning_rate: Scheduled, momentum: float = 0.0, weight_decay: float = 0.0, dampening: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        if nesterov and not (momentum > 0 and dampening == 0):
            raise ValueError(
                f"cannot use Nesterov momentum with momentum={momentum} and dampening={dampening}; "
                "it needs a positive momentum and no dampening"
            )
        super().__init__(learning_rate)
        self.momentum, self.dampening, self.nesterov = momentum, dampening, nesterov
        self.weight_decay = weight_decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        direction = gradient = _with_decay(gradient, parameter, self.weight_decay)
        if self.momentum > 0:
            added = (1 - self.dampening) * gradient if self.dampening > 0 else gradient
            v = state["v"] = self.momentum * state["v"] + added
            direction = gradient + self.momentum * v if self.nesterov else v
        return parameter - self._rate_for(gradient) * direction


class Lion(MomentOptimizer):
    """Steps of one size along the signs of the momentum (Chen et al., 2023, arXiv:2302.06675).

    Computes::

        c = b1 * m + (1 - b1) * g
        m = b2 * m + (1 - b2) * g
        w = w - learning_rate * (sign(c) + weight_decay * w)

    Use a learning rate 3 to 10 times smaller than for :class:`AdamW`, and a weight decay larger by the same factor.

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    betas : list of float
        The coefficients ``b1`` and ``b2``. Default: ``[0.9, 0.99]``.
    weight_decay : float
        The weight decay. Default: ``0.0``.

    Examples
    --------
    >>> optimizer = optim.Lion(learning_rate=0.5)
    >>> optimizer.apply_gradients({"w": mx.array([9.0])}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    _moments = ("m",)

    def __init__(
        self, learning_rate: Scheduled, betas: list[float] = [0.9, 0.99], weight_decay: float = 0.0
    ) -> None:
        super().__init__(learning_rate)
        self._require_fractions(betas)
        self.betas, self.weight_decay = betas, weight_decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        rate, (b1, b2) = self._rate_for(gradient), self.betas
        direction = mx.sign(b1 * state["m"] + (1 - b1) * gradient)
        moving_average(state, "m", b2, gradient)
        if self.weight_decay > 0:
            parameter = (1 - rate * self.weight_decay) * parameter
        return parameter - rate * direction


class Muon(MomentOptimizer):
    """Momentum, orthogonalized (Jordan et al., 2024).

    A parameter with more than two axes is treated as a matrix with all axes but the first merged. One with fewer
    follows the plain momentum; better give it to another optimizer, see :class:`MultiOptimizer`.

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    momentum : float
        The factor of the previous momentum. Default: ``0.95``.
    weight_decay : float
        The multiple of the parameter that is added to the gradient. Default: ``0.01``.
    nesterov : bool
        Whether to use Nesterov momentum. Default: ``True``.
    ns_steps : int
        The number of Newton-Schulz iterations. Default: ``5``.

    Examples
    --------
    >>> weight = mx.eye(3)
    >>> optim.Muon(0.02).apply_gradients({"w": weight}, {"w": weight})["w"].shape
    (3, 3)
    """

    _moments = ("v",)

    def __init__(
        self, learning_rate: Scheduled, momentum: float = 0.95, weight_decay: float = 0.01, nesterov: bool = True,
        ns_steps: int = 5,
    ) -> None:
        super().__init__(learning_rate)
        self.momentum, self.nesterov, self.ns_steps = momentum, nesterov, ns_steps
        self.weight_decay = weight_decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        gradient = _with_decay(gradient, parameter, self.weight_decay)
        update = moving_average(state, "v", self.momentum, gradient)
        if self.nesterov:
            update = gradient * (1 - self.momentum) + update * self.momentum
        rate = self._rate_for(gradient)
        if update.ndim >= 2:
            shape = update.shape
            matrix = update.reshape(shape[0], -1) if update.ndim > 2 else update
            update = _orthogonalize(matrix, self.ns_steps).reshape(shape)
            # Tall matrices move as far per entry as square ones.
            rate = rate * max(1, shape[-2] / shape[-1]) ** 0.5
        return parameter - rate * update


def _orthogonalize(matrix: mx.array, steps: int) -> mx.array:
    """A nearly orthogonal matrix with the singular vectors of ``matrix``, by Newton-Schulz iteration."""
    # The iteration multiplies by the Gram matrix: transpose a tall matrix to get the smaller one.
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = matrix.T if tall else matrix
    x = x / (mx.linalg.norm(x, keepdims=True) + 1e-7)
    for _ in range(steps):
        # The polynomial a x + b x^3 + c x^5 drives all singular values towards one.
        gram = x @ x.T
        polynomial = mx.addmm(-4.7750 * gram, gram, gram, beta=1.0, alpha=2.0315)
        x = mx.addmm(3.4445 * x, polynomial, x, beta=1.0, alpha=1.0)
    return x.T if tall else x
