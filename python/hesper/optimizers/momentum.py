"""Optimizers that follow the gradient's running mean: SGD, Lion, Muon."""

from typing import List

import hesper.core as mx

from .base import Optimizer, Scheduled

__all__ = ["Lion", "Muon", "SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent.

    Computes::

        v = momentum * v + (1 - dampening) * g
        w = w - learning_rate * v

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    momentum : float
        The share of the last direction. Default: ``0.0``.
    weight_decay : float
        How much of the parameter is added to the gradient. Default: ``0.0``.
    dampening : float
        The share of the gradient that is left out. Default: ``0.0``.
    nesterov : bool
        Whether to look one step ahead. Default: ``False``.

    Raises
    ------
    ValueError
        If ``nesterov`` is combined with dampening or without momentum.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.SGD(learning_rate=0.5)
    >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    def __init__(
        self,
        learning_rate: Scheduled,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening.")
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.dampening = dampening
        self.nesterov = nesterov

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["v"] = mx.zeros_like(parameter)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        learning_rate = self.learning_rate.astype(gradient.dtype)
        if self.momentum <= 0:
            return parameter - learning_rate * gradient

        v = self.momentum * state["v"]
        v = v + ((1 - self.dampening) * gradient if self.dampening > 0 else gradient)
        state["v"] = v
        update = gradient + self.momentum * v if self.nesterov else v
        return parameter - learning_rate * update


class Lion(Optimizer):
    """Steps of one size in the direction of the momentum's signs.

    Computes (Chen et al., 2023, arXiv:2302.06675)::

        c = b1 * m + (1 - b1) * g
        m = b2 * m + (1 - b2) * g
        w = w - learning_rate * (sign(c) + weight_decay * w)

    The learning rate should be 3 to 10 times smaller than for :class:`AdamW`,
    the weight decay larger by the same factor.

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
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.Lion(learning_rate=0.5)
    >>> optimizer.apply_gradients({"w": mx.array([9.0])}, {"w": mx.ones(1)})
    {'w': array([0.5], dtype=float32)}
    """

    def __init__(
        self,
        learning_rate: Scheduled,
        betas: List[float] = [0.9, 0.99],
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas = betas
        self.weight_decay = weight_decay

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["m"] = mx.zeros_like(parameter)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        learning_rate = self.learning_rate.astype(gradient.dtype)
        b1, b2 = self.betas
        m = state["m"]
        c = b1 * m + (1 - b1) * gradient
        state["m"] = b2 * m + (1 - b2) * gradient
        if self.weight_decay > 0:
            parameter = (1 - learning_rate * self.weight_decay) * parameter
        return parameter - learning_rate * mx.sign(c)


# Of the polynomial that drives all singular values towards one in few steps.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal (Jordan et al., 2024).

    Parameters with more than two axes are treated as matrices with all axes
    but the first merged; those with fewer get the plain momentum, and are
    better given to another optimizer, see :class:`MultiOptimizer`.

    Parameters
    ----------
    learning_rate : float or callable
        The learning rate, or its schedule.
    momentum : float
        The share of the last direction. Default: ``0.95``.
    weight_decay : float
        How much of the parameter is added to the gradient. Default: ``0.01``.
    nesterov : bool
        Whether to look one step ahead. Default: ``True``.
    ns_steps : int
        The Newton-Schulz iterations. Default: ``5``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> weight = mx.eye(3)
    >>> optim.Muon(0.02).apply_gradients({"w": weight}, {"w": weight})["w"].shape
    (3, 3)
    """

    def __init__(
        self,
        learning_rate: Scheduled,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        nesterov: bool = True,
        ns_steps: int = 5,
    ) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.ns_steps = ns_steps

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state["v"] = mx.zeros_like(parameter)

    def _zeropower_via_newtonschulz5(self, X: mx.array, steps: int) -> mx.array:
        """A nearly orthogonal matrix with the singular vectors of ``X``."""
        a, b, c = _NEWTON_SCHULZ
        # The smaller Gram matrix is cheaper.
        tall = X.shape[-2] > X.shape[-1]
        if tall:
            X = X.T
        X = X / (mx.linalg.norm(X, keepdims=True) + 1e-7)
        for _ in range(steps):
            A = X @ X.T
            B = mx.addmm(b * A, A, A, beta=1.0, alpha=c)
            X = mx.addmm(a * X, B, X, beta=1.0, alpha=1.0)
        return X.T if tall else X

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        v = self.momentum * state["v"] + (1 - self.momentum) * gradient
        state["v"] = v
        update = gradient * (1 - self.momentum) + v * self.momentum if self.nesterov else v
        learning_rate = self.learning_rate.astype(gradient.dtype)

        if update.ndim >= 2:
            shape = update.shape
            if update.ndim > 2:
                update = update.reshape(shape[0], -1)
            update = self._zeropower_via_newtonschulz5(update, steps=self.ns_steps)
            update = update.reshape(shape)
            # Tall matrices move as far per entry as square ones.
            learning_rate = learning_rate * max(1, shape[-2] / shape[-1]) ** 0.5
        return parameter - learning_rate * update
