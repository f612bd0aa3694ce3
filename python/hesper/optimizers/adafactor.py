"""Adafactor: adaptive steps with little memory."""

from typing import Callable, Optional, Tuple, Union

import hesper.core as mx

from .base import Optimizer

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adaptive steps with a factored second moment (Shazeer and Stern, 2018).

    Of a matrix only the means of the squared gradient over rows and columns are
    kept. See arXiv:1804.04235.

    Parameters
    ----------
    learning_rate : float or callable, optional
        The learning rate, or its schedule. Not needed with ``relative_step``.
    eps : tuple of float
        Added to the squared gradient, and the least scale of a parameter.
        Default: ``(1e-30, 1e-3)``.
    clip_threshold : float
        The largest root mean square of a step before scaling. Default: ``1.0``.
    decay_rate : float
        The exponent of the smoothing. Default: ``-0.8``.
    beta_1 : float, optional
        The smoothing of the step itself. Default: none.
    weight_decay : float
        The weight decay. Default: ``0.0``.
    scale_parameter : bool
        Whether to scale steps by the root mean square of the parameter.
        Default: ``True``.
    relative_step : bool
        Whether to derive the learning rate from the number of steps. Default:
        ``True``.
    warmup_init : bool
        Whether to begin with small relative steps. Default: ``False``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.Adafactor()
    >>> optimizer.init({"w": mx.ones((2, 3))})
    >>> {name: x.shape for name, x in optimizer.state["w"].items()}
    {'exp_avg_sq_row': (2,), 'exp_avg_sq_col': (3,)}
    """

    def __init__(
        self,
        learning_rate: Optional[Union[float, Callable[[mx.array], mx.array]]] = None,
        eps: Tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta_1: Optional[float] = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
    ) -> None:
        super().__init__()
        if learning_rate is not None:
            self._maybe_schedule("learning_rate", learning_rate)
        self.eps = eps
        self.clip_threshold = clip_threshold
        self.decay_rate = decay_rate
        self.beta_1 = beta_1
        self.weight_decay = weight_decay
        self.scale_parameter = scale_parameter
        self.relative_step = relative_step
        self.warmup_init = warmup_init

    def init_single(self, parameter: mx.array, state: dict) -> None:
        shape, dtype = parameter.shape, parameter.dtype
        if parameter.ndim >= 2:
            state["exp_avg_sq_row"] = mx.zeros(shape[:-1], dtype=dtype)
            state["exp_avg_sq_col"] = mx.zeros(shape[:-2] + shape[-1:], dtype=dtype)
        else:
            state["exp_avg_sq"] = mx.zeros_like(parameter)
        if self.beta_1 is not None:
            state["exp_avg"] = mx.zeros_like(parameter)

    def _compute_rms(self, inputs: mx.array) -> mx.array:
        """The root mean square."""
        return mx.sqrt(mx.mean(mx.square(inputs)))

    def _compute_learning_rate(self, step: mx.array, parameter_rms: mx.array) -> mx.array:
        """The learning rate of this step for a parameter of that size."""
        if self.relative_step:
            ceiling = 1e-6 * step if self.warmup_init else 1e-2
            learning_rate = mx.minimum(ceiling, mx.rsqrt(step))
        else:
            learning_rate = self.learning_rate
        scale = mx.maximum(self.eps[1], parameter_rms) if self.scale_parameter else 1.0
        return scale * learning_rate.astype(parameter_rms.dtype)

    def _approximate_exp_moving_avg(
        self, exp_avg_sq_row: mx.array, exp_avg_sq_col: mx.array
    ) -> mx.array:
        """The inverse root of the second moment that rows and columns stand for."""
        rows = mx.rsqrt(
            exp_avg_sq_row / mx.mean(exp_avg_sq_row, axis=-1, keepdims=True)
        )
        columns = mx.rsqrt(exp_avg_sq_col)
        return rows[..., :, None] * columns[..., None, :]

    def _second_moment(self, gradient: mx.array, beta_2: mx.array, state: dict) -> mx.array:
        """Update the second moment and return its inverse root."""
        square = mx.square(gradient) + self.eps[0]

        def smooth(name: str, new: mx.array) -> mx.array:
            state[name] = beta_2 * state[name] + (1 - beta_2) * new
            return state[name]

        if gradient.ndim < 2:
            return mx.rsqrt(smooth("exp_avg_sq", square))
        return self._approximate_exp_moving_avg(
            smooth("exp_avg_sq_row", mx.mean(square, axis=-1)),
            smooth("exp_avg_sq_col", mx.mean(square, axis=-2)),
        )

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        step = self.step
        parameter_rms = self._compute_rms(parameter)
        learning_rate = self._compute_learning_rate(step, parameter_rms)
        beta_2 = 1.0 - (step**self.decay_rate).astype(parameter_rms.dtype)
        update = self._second_moment(gradient, beta_2, state) * gradient
        update = update / mx.maximum(
            1.0, self._compute_rms(update) / self.clip_threshold
        )
        update = learning_rate * update

        if self.beta_1 is not None:
            update = self.beta_1 * state["exp_avg"] + (1 - self.beta_1) * update
            state["exp_avg"] = update
        if self.weight_decay != 0:
            parameter = parameter + parameter * (-self.weight_decay * learning_rate)
        return parameter - update
